//! Runs every command of README.md and its guides at a small size: commands in `console` and `sh` blocks and in
//! sentences. Some need PyTorch, several ranks or a build: `tests/data/readme_elsewhere.tsv` lists each with the stage
//! that runs it and the reason.

use crate::home::place_with_peaks;
use crate::place::{Place, SMALL};
use crate::workshop::{short_experiment, small};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The README and its guides in reading order: later pages use files that earlier commands wrote.
const PAGES: [&str; 7] = [
    "README.md",
    "docs/install.md",
    "docs/train.md",
    "docs/experiments.md",
    "docs/traces.md",
    "docs/lint.md",
    "docs/command-line.md",
];

/// A command on a page, and its line.
#[derive(Debug, PartialEq)]
struct Documented {
    line: usize,
    command: String,
}

/// Programs whose commands in sentences are run.
const OURS: [&str; 6] = ["headroom ", "mpirun ", "cargo ", "uvx ", "pip ", "pre-commit "];

/// Commands in blocks (after `$`, or whole lines of `sh`), and inline code that begins with one of our programs.
fn documented(page: &str) -> Vec<Documented> {
    let mut found = vec![];
    let mut block: Option<&str> = None;
    // Inline code may continue on the next line.
    let mut code: Option<String> = None;
    for (number, text) in page.lines().enumerate() {
        let mut add = |command: &str| {
            // A comment begins with a `#` after a space.
            let command = command.split(" #").next().unwrap_or(command).trim().to_string();
            found.push(Documented { line: number + 1, command });
        };
        match (block, text.strip_prefix("```")) {
            (None, Some(kind)) => block = Some(kind),
            (Some(_), Some(_)) => block = None,
            (Some("console"), None) => {
                if let Some(command) = text.strip_prefix("$ ") {
                    add(command);
                }
            }
            (Some("sh"), None) if !text.trim().is_empty() && !text.starts_with('#') => add(text),
            (Some(_), None) => {}
            (None, None) => {
                let mut parts = text.split('`');
                let first = parts.next().unwrap_or_default();
                code = code.filter(|_| !text.is_empty()).map(|code| format!("{code} {first}"));
                for part in parts {
                    match code.take() {
                        Some(code) if OURS.iter().any(|program| code.starts_with(program)) => add(&code),
                        Some(_) => {}
                        None => code = Some(part.to_string()),
                    }
                }
            }
        }
    }
    found
}

/// Whether this is a usage pattern and not a command: `headroom compare A B`, `headroom lint PATH…`.
fn is_a_form(command: &str) -> bool {
    let is_placeholder = |word: &str| {
        let word = word.trim_matches(['[', ']', '…']);
        word.is_empty()
            || word.len() > 1 && word.chars().all(|letter| letter.is_ascii_uppercase())
            || matches!(word, "A" | "B")
    };
    command.contains('…') || command.split_whitespace().skip(2).any(is_placeholder)
}

/// Command, stage and reason.
fn elsewhere() -> Vec<[String; 3]> {
    let table =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/readme_elsewhere.tsv")).unwrap();
    let rows = table.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let columns: Vec<String> = line.split('\t').map(String::from).collect();
        columns.try_into().unwrap_or_else(|line| panic!("not three columns: {line:?}"))
    });
    rows.collect()
}

/// Everything that a reader of the page has: the repository's files, traces and a script under the page's names, a
/// `python`.
fn prepared() -> Place {
    let place = place_with_peaks();
    let data = root().join("crates/trace/tests/data");
    for (from, to) in [("slow", "trace"), ("slow", "before"), ("fixed", "after")] {
        fs::copy(data.join(format!("{from}.pt.trace.json.gz")), place.path(&format!("{to}.json.gz"))).unwrap();
    }
    std::os::unix::fs::symlink(root().join("crates"), place.path("crates")).unwrap();
    fs::create_dir(place.path("texts")).unwrap();
    place.write("texts/a.md", "Once upon a time there was a loss that fell. ".repeat(200));
    place.write("train.py", "import torch\noptimizer = torch.optim.SGD()\nfor _ in range(30):\n    optimizer.step()\n");
    place.succeeds(&format!("train {SMALL} --num-steps 3 --output-dir first"));
    fs::copy(place.path("first/run.toml"), place.path("run.toml")).unwrap();
    fs::create_dir(place.path("bin")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_headroom"), place.path("bin/headroom")).unwrap();
    let python = place.shell("command -v python3").stdout;
    std::os::unix::fs::symlink(python.trim(), place.path("bin/python")).unwrap();
    place
}

/// The command as it is run here, and the accepted exit codes.
fn as_run(command: &str, number: usize) -> (String, &'static [i32]) {
    // GPU commands run on the CPU: everything but their kernels.
    let has = |word: &str| command.contains(word);
    let mut line = command.replace("--device cuda", "--device cpu").replace("--cost small", "--cost tiny");
    // A command that gives its steps is already small, and may be a continuation.
    if !has("--num-steps") {
        line = small(&line);
    }
    let names_a_model = ["--size", "--config", "--resume"].iter().any(|flag| has(flag));
    let trains = ["train", "profile", "optimize", "scale"].iter().any(|name| has(&format!("headroom {name}")));
    if trains && !names_a_model {
        line += " --size nano";
    }
    if has("headroom optimize") && !line.contains("--rounds") {
        line += " --rounds 4 --time 1 --curve-steps 2 --batch-size 2 --seq-len 16 --min-speedup 0.001";
    }
    if has("--precision auto") {
        // The shape that was proved above.
        line += " --batch-size 2 --seq-len 16";
    }
    line += short_experiment(&format!("{command} "));
    if has("headroom study") || has("headroom optimize") || has("headroom scale") || has("headroom k1") {
        // Gives every run its own folder.
        line += &format!(" --output-dir readme-{number}");
    }
    if command == "headroom runs" {
        line += " list";
    }
    if has("headroom serve") {
        line = format!("timeout -s INT 1 {line}");
    }
    // Lint is supposed to find something; a ladder at toy size may fail a gate.
    match () {
        () if has("headroom lint") || has("headroom optimize") => (line, &[0, 1]),
        () if has("headroom serve") => (line, &[124, 130]),
        () => (line, &[0]),
    }
}

#[test]
fn every_command_of_the_readme_runs() {
    let mut all: Vec<(&str, Documented)> = vec![];
    for name in PAGES {
        let page = fs::read_to_string(root().join(name)).unwrap();
        all.extend(documented(&page).into_iter().map(|one| (name, one)));
    }
    let elsewhere = elsewhere();
    for [command, stage, reason] in &elsewhere {
        assert!(all.iter().any(|(_, one)| one.command == *command), "the pages have no `{command}` any more");
        assert!(["torch", "ranks", "build", "other"].contains(&stage.as_str()) && reason.len() > 10, "{command}");
    }
    let place = prepared();
    let torch = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/fake_torch");
    let mut run = 0;
    for (at, (name, Documented { line, command })) in all.iter().enumerate() {
        // A guide repeats commands of the README, and a bare command name appears in many sentences.
        let again = all[..at].iter().any(|(_, one)| one.command == *command);
        if again || elsewhere.iter().any(|[other, _, _]| other == command) {
            continue;
        }
        if is_a_form(command) {
            let subcommand = command.split_whitespace().nth(1).unwrap_or_default();
            place.succeeds(&format!("{subcommand} --help"));
            continue;
        }
        let (small, codes) = as_run(command, at);
        let began = Instant::now();
        let done = place.shell(&format!(
            "export HOME=$PWD PATH=$PWD/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={}; {small}",
            torch.display()
        ));
        assert!(
            done.code.is_some_and(|code| codes.contains(&code)),
            "{name}:{line}: {command}\nas {small}\n{:?}\n{}{}",
            done.code,
            done.stdout,
            done.stderr
        );
        assert!(!done.stdout.is_empty() || command.starts_with("cp "), "{name}:{line}: {command} prints nothing");
        println!("{:6.2} s  {small}", began.elapsed().as_secs_f64());
        run += 1;
    }
    assert!(run >= 30, "{run} commands");
}

#[test]
fn commands_are_found_in_blocks_and_sentences_and_forms_are_told_from_them() {
    let page = "Type `headroom lint x.py`, or `headroom k1 --cost\nsmall` with `--json`.\n```console\n$ headroom train --size nano    # fast\nLLaMA\n```\n\
                ```sh\ncargo xtask test   # all\n```\n";
    let found: Vec<(usize, String)> = documented(page).into_iter().map(|one| (one.line, one.command)).collect();
    let want = [
        (1, "headroom lint x.py"),
        (2, "headroom k1 --cost small"),
        (4, "headroom train --size nano"),
        (8, "cargo xtask test"),
    ];
    assert_eq!(found, want.map(|(line, command)| (line, command.to_string())));
    for form in ["headroom compare A B", "headroom lint PATH…", "headroom study [SIZE…]", "headroom explain [CODE]"]
    {
        assert!(is_a_form(form), "{form}");
    }
    assert!(!is_a_form("headroom explain TP107") && !is_a_form("headroom analyze trace.json.gz"));
}
