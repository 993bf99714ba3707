//! Attributes that switch something off must say why: ignored tests and silenced lints.

use anyhow::Result;

use super::{Problem, TextFile, Tree, line_of};

pub fn check(tree: &Tree) -> Result<Vec<Problem>> {
    Ok(tree.rust_files().flat_map(problems_of).collect())
}

fn problems_of(file: &TextFile) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (offset, _) in file.code.match_indices('#') {
        let Some(attribute) = attribute_at(file, offset) else {
            continue;
        };
        let line = line_of(&file.text, offset);
        let words: String = attribute.split_whitespace().collect();
        if words == "ignore" || words == "ignore=\"\"" {
            problems
                .push(file.problem(line, "an ignored test without a reason: `#[ignore = \"why, and how it runs\"]`"));
        }
        let silences =
            ["allow(", "expect("].iter().any(|start| words.starts_with(start) || words.contains(&format!(",{start}")));
        if silences && !words.contains("reason=\"") {
            let message = "a silenced lint without a reason: `#[expect(lint, reason = \"…\")]`, or mend what it says";
            problems.push(file.problem(line, message));
        }
    }
    problems
}

/// The text between the brackets of the attribute whose `#` is at `offset`, brackets found in the blanked code.
fn attribute_at(file: &TextFile, offset: usize) -> Option<&str> {
    let after_hash = &file.code[offset + 1..];
    let open = offset + 1 + after_hash.strip_prefix('!').map_or(0, |_| 1);
    if file.code.as_bytes().get(open) != Some(&b'[') {
        return None;
    }
    let mut depth = 0;
    for (index, byte) in file.code.bytes().enumerate().skip(open) {
        match byte {
            b'[' => depth += 1,
            b']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return file.text.get(open + 1..index);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::problems_in;

    fn check_lines(text: &str, lines: &[usize]) {
        let found = problems_in(check, &[("a.rs", text)]);
        let want: Vec<String> = lines.iter().map(|line| format!("a.rs:{line}:")).collect();
        let places: Vec<String> = found.iter().map(|text| text.split(' ').next().unwrap_or("").to_string()).collect();
        assert_eq!(places, want, "{found:?}");
    }

    #[test]
    fn an_ignored_test_says_why() {
        check_lines("#[test]\n#[ignore]\nfn f() {}\n", &[2]);
        check_lines("#[ignore = \"\"]\nfn f() {}\n", &[1]);
        check_lines("#[ignore = \"takes a GPU\"]\nfn f() {}\n// #[ignore]\n", &[]);
    }

    #[test]
    fn a_silenced_lint_says_why() {
        check_lines("#![allow(clippy::all)]\n#[allow(dead_code)]\nfn f() {}\n", &[1, 2]);
        check_lines("#[expect(\n    clippy::exit\n)]\nfn f() {}\n", &[1]);
        check_lines("#[cfg_attr(test, allow(unused))]\nfn f() {}\n", &[1]);
        check_lines("#[allow(\n    clippy::exit,\n    reason = \"main [alone] ends\"\n)]\nfn f() {}\n", &[]);
        check_lines("#[expect(clippy::exit, reason = \"main\")]\nfn f() {}\n", &[]);
    }

    #[test]
    fn other_attributes_and_strings_are_left_alone() {
        check_lines("#[derive(Debug)]\n#[should_panic(expected = \"x\")]\nconst S: &str = \"#[ignore]\";\n", &[]);
    }
}
