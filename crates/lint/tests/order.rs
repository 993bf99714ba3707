//! Findings do not depend on the order of files, of definitions, or of branches that exclude each other.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use headroom_lint::{Input, Selection, lint};

/// How often each finding occurs, by its rule and the text of its line.
fn findings(inputs: &[Input]) -> BTreeMap<(String, String, String), usize> {
    let report = lint(inputs, &Selection::default().pedantic());
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let mut found = BTreeMap::new();
    for finding in &report.findings {
        let input = inputs.iter().find(|input| input.path == finding.place.file).expect("its file");
        let text = String::from_utf8_lossy(&input.bytes);
        let line = text.lines().nth(finding.place.line as usize - 1).unwrap_or_default().trim().to_string();
        // Later rules speak of a file or a script as a whole, at the first place that shows it.
        let is_of_line = ["TP1", "TP2", "TP3"].iter().any(|group| finding.code.starts_with(group));
        let line = if is_of_line { line } else { String::new() };
        *found.entry((finding.code.to_string(), input.path.clone(), line)).or_default() += 1;
    }
    found
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder).expect("a folder of scripts");
    let mut found: Vec<PathBuf> = all.map(|entry| entry.expect("an entry").path()).collect();
    found.sort();
    found
}

/// Folders of scripts, each a project, and scripts that are projects on their own.
fn projects() -> Vec<Vec<Input>> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let read = |path: &Path| {
        let bytes = std::fs::read(path).expect("a script");
        Input { path: path.file_name().expect("a name").to_string_lossy().into_owned(), bytes }
    };
    let is_script = |path: &PathBuf| path.extension().is_some_and(|end| end == "py");
    let project = |path: PathBuf| match path.is_dir() {
        true => entries(&path).iter().filter(|file| is_script(file)).map(|file| read(file)).collect(),
        false if is_script(&path) => vec![read(&path)],
        false => Vec::new(),
    };
    ["facts", "causes"].iter().flat_map(|folder| entries(&data.join(folder))).map(project).collect()
}

#[test]
fn findings_do_not_depend_on_the_order_of_files() {
    let mut draws = Rng::with_seed(47);
    let projects: Vec<Vec<Input>> = projects().into_iter().filter(|project| project.len() > 1).collect();
    assert!(projects.len() >= 4, "{} projects", projects.len());
    for mut project in projects {
        let expected = findings(&project);
        for _ in 0..4 {
            draws.shuffle(&mut project);
            assert_eq!(findings(&project), expected, "{}", project[0].path);
        }
    }
}

/// A script cut at its unindented lines, and whether each piece defines a function or a class.
fn pieces(text: &str) -> Vec<(bool, String)> {
    let mut pieces: Vec<(bool, String)> = Vec::new();
    let mut is_decorated = false;
    for line in text.split_inclusive('\n') {
        let begins = line.starts_with(|first: char| !first.is_whitespace() && !")]}#".contains(first));
        if begins && !is_decorated || pieces.is_empty() {
            let defines = ["def ", "class ", "@"].iter().any(|word| line.starts_with(word));
            pieces.push((defines, String::new()));
        }
        is_decorated = line.starts_with('@');
        pieces.last_mut().expect("a piece").1.push_str(line);
    }
    pieces
}

#[test]
fn findings_do_not_depend_on_the_order_of_definitions() {
    let mut draws = Rng::with_seed(48);
    let mut shuffled = 0;
    for input in projects().into_iter().flatten() {
        let text = String::from_utf8_lossy(&input.bytes).into_owned();
        let pieces = pieces(&text);
        if text.contains("noqa") || pieces.iter().filter(|(defines, _)| *defines).count() < 2 {
            continue;
        }
        let expected = findings(std::slice::from_ref(&input));
        for _ in 0..3 {
            let mut definitions: Vec<&String> =
                pieces.iter().filter(|(defines, _)| *defines).map(|(_, text)| text).collect();
            draws.shuffle(&mut definitions);
            let mut definitions = definitions.into_iter();
            let of = |(defines, own): &(bool, String)| match defines {
                true => definitions.next().expect("as many").clone(),
                false => own.clone(),
            };
            let bytes = pieces.iter().map(of).collect::<String>().into_bytes();
            let other = Input { path: input.path.clone(), bytes };
            let found = findings(std::slice::from_ref(&other));
            assert_eq!(found, expected, "{}:\n{}", other.path, String::from_utf8_lossy(&other.bytes));
            shuffled += 1;
        }
    }
    assert!(shuffled >= 60, "{shuffled} orders");
}

/// A name after a choice of several values, asked about at every step.
#[test]
fn findings_do_not_depend_on_the_order_of_branches() {
    let values = [
        "0.0",
        "'none'",
        "[1, 2]",
        "loss * 2",
        "np.mean(seen)",
        "None",
        "unknown()",
        "model",
        "loss.item()",
        "(loss, 1)",
    ];
    let mut draws = Rng::with_seed(49);
    for _ in 0..150 {
        let mut chosen: Vec<&str> = (0..draws.usize(2..5)).map(|_| values[draws.usize(..values.len())]).collect();
        let script = |chosen: &[&str]| {
            let mut text = String::from(
                "import numpy as np\nimport torch\n\n\ndef train(model, loader, optimizer, seen, mode):\n    \
                 for x, y in loader:\n        loss = model(x.cuda()).sum()\n        loss.backward()\n        \
                 optimizer.step()\n",
            );
            for (at, value) in chosen.iter().enumerate() {
                let test = if at == 0 { "if mode == 0" } else { "elif mode == 9" };
                let test = if at + 1 == chosen.len() { "else" } else { test };
                text.push_str(&format!("        {test}:\n            kept = {value}\n"));
            }
            text.push_str("        if kept > 3:\n            print(kept)\n        seen.append(float(kept))\n");
            Input { path: "train.py".to_string(), bytes: text.into_bytes() }
        };
        let expected = findings(&[script(&chosen)]);
        for _ in 0..3 {
            draws.shuffle(&mut chosen);
            assert_eq!(findings(&[script(&chosen)]), expected, "{chosen:?}");
        }
    }
}
