//! Absolute paths from somebody's machine, which nobody else has.

use anyhow::Result;

use super::{Problem, TextFile, Tree};

/// First folders of paths that name a person or a workplace; written with slashes they would match this file.
const FIRST_FOLDERS: &[&str] = &["home", "root", "work", "Users"];

/// The user name that tests and examples may use in paths.
const MADE_UP_PERSON: &str = "ada";

pub fn check(tree: &Tree) -> Result<Vec<Problem>> {
    Ok(tree.files.iter().flat_map(problems_of).collect())
}

fn problems_of(file: &TextFile) -> Vec<Problem> {
    let lines = file.text.lines().enumerate();
    lines
        .filter_map(|(index, line)| {
            let path = machine_path(line)?;
            Some(
                file.problem(
                    index + 1,
                    format!("`{path}` is a path of one machine: write it relative to the repository"),
                ),
            )
        })
        .collect()
}

/// The first such path in `line`; the character before it must not be part of a longer path or URL.
fn machine_path(line: &str) -> Option<&str> {
    line.match_indices('/').find_map(|(slash, _)| {
        let before = line[..slash].chars().next_back();
        let begins = !before.is_some_and(|c| c.is_alphanumeric() || "_./~-}>*".contains(c));
        let mut parts = line[slash + 1..].split('/');
        let folder = parts.next()?;
        let next = parts.next()?;
        (begins && FIRST_FOLDERS.contains(&folder) && next != MADE_UP_PERSON)
            .then(|| &line[slash..slash + folder.len() + 2])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::problems_in;

    #[test]
    fn paths_of_a_machine_are_found_with_their_line() {
        for folder in FIRST_FOLDERS {
            let text = format!("fine\nopen(\"/{folder}/someone/model\")\n");
            let found = problems_in(check, &[("notes.md", &text)]);
            let want =
                format!("notes.md:2: `/{folder}/` is a path of one machine: write it relative to the repository");
            assert_eq!(found, [want]);
        }
    }

    #[test]
    fn folders_of_the_same_name_inside_other_paths_are_left_alone() {
        for text in [
            "src/work/queue.rs",
            "https://example.org/home/page",
            "./work/x",
            "$DIR/root",
            "a /workshop/ b",
            "\"/home/ada/runs\"",
        ] {
            assert_eq!(problems_in(check, &[("notes.md", text)]), Vec::<String>::new());
        }
    }
}
