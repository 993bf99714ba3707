//! Decision records: `docs/decisions/NNNN-what.md`, numbered from 0001 without gaps or repeats.

use anyhow::Result;

use super::{Problem, TextFile, Tree};

const FOLDER: &str = "docs/decisions/";

pub fn check(tree: &Tree) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    let mut records: Vec<(usize, &TextFile)> = Vec::new();
    for file in &tree.files {
        let Some(name) = file.path.strip_prefix(FOLDER) else {
            continue;
        };
        if name == "README.md" || !name.ends_with(".md") {
            continue;
        }
        match number(name) {
            Some(number) => records.push((number, file)),
            None => problems.push(file.problem(1, "a decision record is named NNNN-what-was-decided.md: rename it")),
        }
    }
    records.sort_by_key(|(number, file)| (*number, file.path.as_str()));
    for (index, (number, file)) in records.iter().enumerate() {
        let next = index + 1;
        if *number != next {
            problems.push(file.problem(1, format!("numbered {number:04} where {next:04} comes next: renumber it")));
            break; // everything after the first gap or repeat would be named too
        }
    }
    Ok(problems)
}

/// The number of `0012-some-words.md`.
fn number(name: &str) -> Option<usize> {
    let (digits, words) = name.strip_suffix(".md")?.split_once('-')?;
    let four_digits = digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_digit());
    (four_digits && !words.is_empty()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::problems_in;

    fn check_names(names: &[&str], want: &[&str]) {
        let paths: Vec<String> = names.iter().map(|name| format!("docs/decisions/{name}")).collect();
        let files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "# A\n")).collect();
        assert_eq!(problems_in(check, &files), want);
    }

    #[test]
    fn records_are_numbered_from_one_without_gap_or_repeat() {
        check_names(&["0001-own-gemm.md", "0002-no-mmap.md", "README.md"], &[]);
        check_names(
            &["0001-a.md", "0003-b.md", "0004-c.md"],
            &["docs/decisions/0003-b.md:1: numbered 0003 where 0002 comes next: renumber it"],
        );
        check_names(
            &["0001-a.md", "0001-b.md"],
            &["docs/decisions/0001-b.md:1: numbered 0001 where 0002 comes next: renumber it"],
        );
    }

    #[test]
    fn a_record_without_its_number_is_named() {
        let message = "1: a decision record is named NNNN-what-was-decided.md: rename it";
        for name in ["own-gemm.md", "1-gemm.md", "0001.md", "0001-.md"] {
            check_names(&[name], &[&format!("docs/decisions/{name}:{message}")]);
        }
    }
}
