//! Links between the repository's own files in Markdown: their targets must exist.

use anyhow::Result;

use super::{Problem, TextFile, Tree};

pub fn check(tree: &Tree) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    for file in tree.files.iter().filter(|file| file.has_extension(&["md"]) && !file.is_test_data()) {
        for (line, target) in local_targets(&file.text) {
            let path = resolve(file, &target);
            let known = tree.files.iter().any(|other| other.path == path) || tree.root.join(&path).exists();
            if !known {
                problems.push(file.problem(line, format!("the link to `{target}` leads nowhere: there is no {path}")));
            }
        }
    }
    Ok(problems)
}

/// Line and target of every link that is neither a URL nor an anchor in the same file; code is skipped.
fn local_targets(text: &str) -> Vec<(usize, String)> {
    let mut targets = Vec::new();
    let mut in_code_block = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code_block = !in_code_block;
        }
        if in_code_block {
            continue;
        }
        for target in targets_in(&without_code_spans(line)) {
            let path = target.split(['#', '?']).next().unwrap_or_default();
            if !path.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                targets.push((index + 1, path.to_string()));
            }
        }
    }
    targets
}

/// Targets written as `](target)`, `]: target`, `src="target"` and `href="target"`.
fn targets_in(line: &str) -> Vec<&str> {
    let until = |start: &'static str, end: &'static [char]| {
        line.split(start).skip(1).map(move |rest| rest.split(end).next().unwrap_or_default())
    };
    let mut targets: Vec<&str> = until("](", &[')', ' ']).collect();
    targets.extend(until("src=\"", &['"']));
    targets.extend(until("href=\"", &['"']));
    if line.starts_with('[') && !line.starts_with("[^") {
        targets.extend(until("]: ", &[' ']).take(1));
    }
    targets
}

fn without_code_spans(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// `target` as seen from the folder of `file`, relative to the root; a leading `/` means the root.
fn resolve(file: &TextFile, target: &str) -> String {
    let mut parts: Vec<&str> = match target.starts_with('/') {
        true => Vec::new(),
        false => file.path.split('/').rev().skip(1).collect::<Vec<_>>().into_iter().rev().collect(),
    };
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::problems_in;

    fn check_text(text: &str, want: &[&str]) {
        let files = [("docs/guide.md", text), ("docs/other.md", "# O\n"), ("LICENSE", "MIT\n")];
        assert_eq!(problems_in(check, &files), want);
    }

    #[test]
    fn links_that_lead_somewhere_are_left_alone() {
        check_text("[a](other.md) [b](../LICENSE) [c](./other.md#part) [d](/docs/other.md)\n", &[]);
        check_text("[a](https://example.org/x.md) [b](#part) [c](mailto:a@example.org)\n", &[]);
        check_text("![a](other.md \"title\")\n[ref]: other.md\n<img src=\"other.md\">\n[^1]: a footnote\n", &[]);
    }

    #[test]
    fn links_that_lead_nowhere_are_named_with_their_line() {
        let lost = "the link to `lost.md` leads nowhere: there is no docs/lost.md";
        check_text("fine\n[a](lost.md#part)\n", &[&format!("docs/guide.md:2: {lost}")]);
        check_text(
            "[ref]: lost.md\n<a href=\"lost.md\">\n",
            &[1, 2].map(|line| format!("docs/guide.md:{line}: {lost}")).each_ref().map(String::as_str),
        );
        check_text(
            "[a](../other.md)\n",
            &["docs/guide.md:1: the link to `../other.md` leads nowhere: there is no other.md"],
        );
    }

    #[test]
    fn code_is_not_looked_into() {
        check_text("`[a](lost.md)` and\n```\n[a](lost.md)\n```\n", &[]);
    }
}
