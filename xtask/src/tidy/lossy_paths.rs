//! Text made from a path with replacement characters is only for display: converted back, it names another file.

use anyhow::Result;

use super::{Problem, TextFile, Tree};

/// Calls that take a path. Their argument on the same line must not come from `to_string_lossy`.
const TAKE_A_PATH: &[&str] = &[
    "Path::new(",
    "PathBuf::from(",
    ".join(",
    "File::open(",
    "File::create(",
    "fs::read(",
    "fs::write(",
    "remove_file(",
    "rename(",
];

/// Panics on arguments that are not UTF-8.
const ARGUMENTS: &str = "env::args()";

pub fn check(tree: &Tree) -> Result<Vec<Problem>> {
    Ok(tree.rust_files().flat_map(problems_of).collect())
}

fn problems_of(file: &TextFile) -> Vec<Problem> {
    let mut problems = vec![];
    for (number, line) in (1..).zip(file.code.lines()) {
        let taken =
            line.find("to_string_lossy").is_some_and(|end| TAKE_A_PATH.iter().any(|call| is_within(line, call, end)));
        if taken {
            let message =
                "a path made from text with replacement characters names another file: pass the `Path` itself";
            problems.push(file.problem(number, message));
        }
        if line.contains(ARGUMENTS) {
            problems.push(file.problem(number, "`env::args` panics at what is not UTF-8: `env::args_os`"));
        }
    }
    problems
}

/// Whether `end` lies inside the parentheses of the call.
fn is_within(line: &str, call: &str, end: usize) -> bool {
    let Some(start) = line[..end].rfind(call) else { return false };
    let open = |mark: char| line[start..end].matches(mark).count();
    open('(') > open(')')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::problems_in;

    #[test]
    fn lossy_text_may_be_shown_but_not_opened() {
        let text = "let shown = path.to_string_lossy();\nlet file = File::open(&*path.to_string_lossy());\nlet words = std::env::args();\n// File::open(path.to_string_lossy())\n";
        let found = problems_in(check, &[("a.rs", text)]);
        assert!(found.len() == 2 && found[0].starts_with("a.rs:2:") && found[1].starts_with("a.rs:3:"), "{found:?}");
    }
}
