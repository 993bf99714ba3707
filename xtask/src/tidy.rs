//! `cargo xtask tidy`: fast checks of the tree, each reporting file, line and what to do.

mod answers;
mod attributes;
mod cycles;
mod decisions;
mod dependencies;
mod file_shape;
mod forbidden_words;
mod knowledge;
mod layering;
mod links;
mod lossy_paths;
mod machine_paths;
mod rust_code;
mod tables;
mod wording;

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::{Outcome, process};

type Check = fn(&Tree) -> Result<Vec<Problem>>;

/// Every check by name; a new one needs its file and one line here.
const CHECKS: &[(&str, Check)] = &[
    ("layering", layering::check),
    ("file shape", file_shape::check),
    ("forbidden words", forbidden_words::check),
    ("attributes", attributes::check),
    ("machine paths", machine_paths::check),
    ("decision records", decisions::check),
    ("links", links::check),
    ("lossy paths", lossy_paths::check),
    ("import cycles", cycles::check),
    ("dependencies", dependencies::check),
    ("wording", wording::check),
    ("answers", answers::check),
    ("tables", tables::check),
    ("knowledge", knowledge::check),
];

/// The text files of the repository as git sees them, including those not yet added.
pub struct Tree {
    root: PathBuf,
    files: Vec<TextFile>,
}

pub struct TextFile {
    /// Relative to the root, with `/` between the parts.
    path: String,
    text: String,
    /// For `.rs` files, the text with comments and the contents of literals blanked, byte for byte; otherwise empty.
    code: String,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    file: String,
    /// Counted from 1.
    line: usize,
    message: String,
}

pub fn run() -> Result<Outcome> {
    let tree = Tree::read()?;
    let mut count = 0;
    for (name, check) in CHECKS {
        let mut problems = check(&tree).with_context(|| format!("the check of {name} could not run"))?;
        problems.sort();
        for problem in &problems {
            println!("{problem}");
        }
        count += problems.len();
    }
    for note in file_shape::notes(&tree) {
        println!("note: {note}");
    }
    if count > 0 {
        println!("tidy: {count} to mend in {} files", tree.files.len());
        return Ok(Outcome::Failed);
    }
    println!("tidy: {} checks over {} files, nothing to mend", CHECKS.len(), tree.files.len());
    Ok(Outcome::Passed)
}

impl Tree {
    fn read() -> Result<Tree> {
        let root = process::workspace_root();
        // Also read a checkout that belongs to another user, as in a container.
        let listed = process::capture(
            "git",
            &["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        )?;
        let mut paths: Vec<&str> = listed.split('\0').filter(|path| !path.is_empty()).collect();
        paths.sort_unstable();
        paths.dedup();
        let mut files = Vec::new();
        for path in paths {
            let full = root.join(path);
            if !full.is_file() {
                continue; // deleted but not yet committed
            }
            let bytes = std::fs::read(&full).with_context(|| format!("cannot read {path}"))?;
            if bytes.contains(&0) {
                continue; // binary
            }
            if let Ok(text) = String::from_utf8(bytes) {
                files.push(TextFile::new(path, text));
            }
        }
        Ok(Tree { root, files })
    }

    /// Rust files that people read, without test fixtures.
    fn rust_files(&self) -> impl Iterator<Item = &TextFile> {
        self.files.iter().filter(|file| file.has_extension(&["rs"]) && !file.is_test_data())
    }
}

impl TextFile {
    fn new(path: &str, text: String) -> TextFile {
        let code = if path.ends_with(".rs") { rust_code::without_comments_and_literals(&text) } else { String::new() };
        TextFile { path: path.to_string(), text, code }
    }

    fn has_extension(&self, extensions: &[&str]) -> bool {
        self.path.rsplit_once('.').is_some_and(|(_, extension)| extensions.contains(&extension))
    }

    /// Input and expected output of tests, stored as the program under test reads and writes them.
    fn is_test_data(&self) -> bool {
        self.path.contains("tests/data/") || self.path.contains("tests/fixtures/") || self.path.ends_with(".snap")
    }

    /// Whether the file itself is a test or belongs to one.
    fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("/tests.rs")
    }

    fn problem(&self, line: usize, message: impl Into<String>) -> Problem {
        Problem { file: self.path.clone(), line, message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.file, self.line, self.message)
    }
}

/// The line, counted from 1, that contains byte `offset` of `text`.
fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// The problems that a check reports for a tree of the given files, as `file:line: message` lines.
#[cfg(test)]
fn problems_in(check: Check, files: &[(&str, &str)]) -> Vec<String> {
    let files = files.iter().map(|(path, text)| TextFile::new(path, text.to_string())).collect();
    let mut problems = check(&Tree { root: PathBuf::new(), files }).expect("the check runs");
    problems.sort();
    problems.iter().map(Problem::to_string).collect()
}
