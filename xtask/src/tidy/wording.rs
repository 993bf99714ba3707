//! Comments begin with the thing they speak of or with a verb: a reader who meets What, Of or None first has to wait for the subject.

use anyhow::Result;

use super::{Problem, TextFile, Tree};

const FIRST_WORDS: &[&str] = &["What", "Of", "None", "Which", "Whose"];

pub fn check(tree: &Tree) -> Result<Vec<Problem>> {
    let read = tree.files.iter().filter(|file| file.has_extension(&["rs", "py", "cu", "cuh"]) && !file.is_test_data());
    Ok(read.flat_map(problems_of).collect())
}

fn problems_of(file: &TextFile) -> Vec<Problem> {
    let marks: &[&str] = if file.has_extension(&["py"]) { &["# "] } else { &["/// ", "//! ", "// "] };
    let mut problems = vec![];
    for (number, line) in (1..).zip(file.text.lines()) {
        let line = line.trim_start();
        let Some(comment) = marks.iter().find_map(|mark| line.strip_prefix(mark)) else { continue };
        let first = comment.split(' ').next().unwrap_or_default();
        if FIRST_WORDS.contains(&first) && comment.contains(' ') {
            let message = format!("the comment begins with {first}: begin with the thing or a verb");
            problems.push(file.problem(number, message));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::problems_in;

    #[test]
    fn a_comment_begins_with_its_subject() {
        let text =
            "/// What it does.\n/// Does it. What for?\n    // Of two the first\nlet what = 1; // What\n//! Offers\n";
        let found = problems_in(check, &[("a.rs", text)]);
        assert!(found.len() == 2 && found[0].starts_with("a.rs:1:") && found[1].starts_with("a.rs:3:"), "{found:?}");
        assert_eq!(problems_in(check, &[("a.py", "# None is left\n// What\n")]).len(), 1);
    }
}
