//! The shape of a file: its name, its length, its first line, its line endings.

use anyhow::Result;

use super::{Problem, TextFile, Tree};

const MOST_LINES: usize = 500;
const LINES_WORTH_A_NOTE: usize = 300;
const COUNTED: &[&str] = &["rs", "cu", "js", "ts"];

/// File names that say nothing about the content, and what to do instead.
const UNWANTED_NAMES: &[(&str, &str)] = &[
    ("mod.rs", "name it after its module: `ops.rs` beside the folder `ops/`"),
    ("utils.rs", "name it after what it holds, or move each function to where it is used"),
];

pub fn check(tree: &Tree) -> Result<Vec<Problem>> {
    Ok(tree.files.iter().filter(|file| !file.is_test_data()).flat_map(problems_of).collect())
}

/// Files that are still allowed but getting too long, longest first.
pub fn notes(tree: &Tree) -> Vec<String> {
    let mut long: Vec<(usize, &str)> = tree
        .files
        .iter()
        .filter(|file| file.has_extension(COUNTED) && !file.is_test_data())
        .map(|file| (file.text.lines().count(), file.path.as_str()))
        .filter(|(lines, _)| (LINES_WORTH_A_NOTE + 1..=MOST_LINES).contains(lines))
        .collect();
    long.sort_by_key(|(lines, path)| (std::cmp::Reverse(*lines), *path));
    long.iter().map(|(lines, path)| format!("{path} has {lines} lines")).collect()
}

fn problems_of(file: &TextFile) -> Vec<Problem> {
    let mut problems = Vec::new();
    let file_name = file.path.rsplit('/').next().unwrap_or(&file.path);
    for (name, instead) in UNWANTED_NAMES {
        if file_name == *name {
            problems.push(file.problem(1, format!("a file called {name}: {instead}")));
        }
    }
    let lines = file.text.lines().count();
    if file.has_extension(COUNTED) && lines > MOST_LINES {
        problems.push(file.problem(MOST_LINES + 1, format!("{lines} lines, at most {MOST_LINES}: split it in two")));
    }
    if file.has_extension(&["rs"]) && !says_what_it_is(&file.text) {
        problems.push(file.problem(1, "the first line must be `//! ` and what this file is"));
    }
    for (index, line) in file.text.lines().enumerate() {
        // The last field of a table may be empty.
        let is_field = line.ends_with('\t') && file.has_extension(&["tsv"]);
        if line.ends_with([' ', '\t', '\r']) && !is_field {
            problems.push(file.problem(index + 1, "spaces at the end of the line: remove them"));
        }
    }
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        problems.push(file.problem(lines, "no line end at the end of the file: add one"));
    }
    problems
}

fn says_what_it_is(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    first.strip_prefix("//!").is_some_and(|words| !words.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::problems_in;

    #[test]
    fn a_plain_file_is_left_alone() {
        assert!(problems_in(check, &[("a/ops.rs", "//! Ops.\n\nfn f() {}\n"), ("empty.txt", "")]).is_empty());
    }

    #[test]
    fn names_that_say_nothing_are_refused() {
        let found = problems_in(check, &[("a/mod.rs", "//! A.\n"), ("a/utils.rs", "//! B.\n")]);
        assert!(found[0].starts_with("a/mod.rs:1: a file called mod.rs"), "{found:?}");
        assert!(found[1].starts_with("a/utils.rs:1: a file called utils.rs"), "{found:?}");
    }

    #[test]
    fn a_file_of_501_lines_is_refused_and_one_of_301_noted() {
        let lines = |count: usize| format!("//! Long.\n{}", "\n".repeat(count - 1));
        let found = problems_in(check, &[("a.rs", &lines(500)), ("b.rs", &lines(501)), ("c.md", &lines(501))]);
        assert_eq!(found, ["b.rs:501: 501 lines, at most 500: split it in two"]);

        let files = [("a.rs", 300), ("b.cu", 301), ("c.rs", 501)];
        let files = files.map(|(path, count)| TextFile::new(path, lines(count))).into();
        assert_eq!(notes(&Tree { root: "".into(), files }), ["b.cu has 301 lines"]);
    }

    #[test]
    fn a_rust_file_must_begin_by_saying_what_it_is() {
        let message = "the first line must be `//! ` and what this file is";
        let found = problems_in(check, &[("a.rs", "fn f() {}\n"), ("b.rs", "//!\n"), ("c.rs", "")]);
        assert_eq!(found, ["a", "b", "c"].map(|name| format!("{name}.rs:1: {message}")));
    }

    #[test]
    fn line_ends_are_clean_except_in_test_data() {
        let found = problems_in(check, &[("a.md", "one \ntwo\t\nthree")]);
        assert_eq!(
            found,
            [
                "a.md:1: spaces at the end of the line: remove them",
                "a.md:2: spaces at the end of the line: remove them",
                "a.md:3: no line end at the end of the file: add one"
            ]
        );
        assert!(problems_in(check, &[("a.tsv", "one\t\n")]).is_empty());
        assert!(problems_in(check, &[("crates/x/tests/data/a.rs", "one ")]).is_empty());
    }
}
