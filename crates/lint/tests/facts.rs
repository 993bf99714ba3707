//! Scripts and small projects with all their findings: for the rules that a file names, they must be exactly those
//! marked `# <- CODE`, whatever is shown by default.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use headroom_lint::{Input, Selection, lint};

const ABOUT: &str = "# about ";
const MARK: &str = "# <- ";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/facts")
}

fn read(path: &Path, within: &Path) -> Input {
    let bytes = std::fs::read(path).expect("a script");
    Input { path: path.strip_prefix(within).expect("below it").to_string_lossy().into_owned(), bytes }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder).expect("a folder of scripts");
    let mut found: Vec<PathBuf> = all.map(|entry| entry.expect("an entry").path()).collect();
    found.sort();
    found
}

/// Each folder is a project; each script next to them is a project on its own.
fn projects() -> Vec<Vec<Input>> {
    let project = |path: PathBuf| match path.is_dir() {
        true => entries(&path).iter().map(|file| read(file, &path)).collect(),
        false => vec![read(&path, &root())],
    };
    entries(&root()).into_iter().map(project).collect()
}

fn lines(input: &Input) -> Vec<(u32, String)> {
    (1..).zip(String::from_utf8_lossy(&input.bytes).lines().map(str::to_string)).collect()
}

fn wrong_in(project: &[Input]) -> Vec<String> {
    let report = lint(project, &Selection::default().pedantic());
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let mut wrong = Vec::new();
    for input in project {
        let about = lines(input).into_iter().find_map(|(_, line)| line.strip_prefix(ABOUT).map(str::to_string));
        let about = about.unwrap_or_else(|| panic!("{} does not say what it is about", input.path));
        let is_meant = |code: &str| about.split_whitespace().any(|prefix| code.starts_with(prefix));
        let of_line = |(number, line): (u32, String)| {
            let codes = line.split_once(MARK).map(|(_, codes)| codes.to_string()).unwrap_or_default();
            codes.split_whitespace().map(|code| (code.to_string(), number)).collect::<Vec<_>>()
        };
        let want: BTreeSet<(String, u32)> = lines(input).into_iter().flat_map(of_line).collect();
        let found: BTreeSet<(String, u32)> = report
            .findings
            .iter()
            .filter(|finding| finding.place.file == input.path && is_meant(finding.code))
            .map(|finding| (finding.code.to_string(), finding.place.line))
            .collect();
        if found != want {
            let missing: Vec<_> = want.difference(&found).collect();
            let beyond: Vec<_> = found.difference(&want).collect();
            wrong.push(format!("{}: missing {missing:?}, beyond {beyond:?}", input.path));
        }
    }
    wrong
}

#[test]
fn each_project_has_its_marked_findings_and_no_others() {
    let projects = projects();
    assert!(projects.len() >= 11, "{} projects", projects.len());
    let wrong: Vec<String> = projects.iter().flat_map(|project| wrong_in(project)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
