//! Answers on the workshop's pages: each must be what its command printed, as stored in the result files.

use std::collections::BTreeSet;

use anyhow::{Context, Result};

use super::{Problem, Tree};
use crate::workshop::pages::{self, Results};

pub fn check(tree: &Tree) -> Result<Vec<Problem>> {
    let mut results = Results::default();
    for machine in pages::MACHINES {
        let path = format!("{}{machine}.json", pages::RESULTS);
        if let Some(file) = tree.files.iter().find(|file| file.path == path) {
            results.add(machine, &file.text).with_context(|| path.clone())?;
        }
    }
    let is_page = |path: &str| path.strip_prefix(pages::FOLDER).is_some_and(|name| !name.contains('/'));
    let read: Vec<_> = tree.files.iter().filter(|file| is_page(&file.path) && file.has_extension(&["md"])).collect();
    let commands: BTreeSet<&str> = read.iter().flat_map(|file| pages::commands(&file.text)).collect();
    let mut problems = vec![];
    for file in read {
        let filled = pages::fill(&file.text, &results, &commands);
        problems.extend(filled.problems.into_iter().map(|(line, message)| file.problem(line, message)));
        let stale = "the answer is not what the result file holds: `cargo xtask workshop` writes it";
        problems.extend(filled.stale.into_iter().map(|line| file.problem(line, stale)));
    }
    for machine in pages::MACHINES {
        let path = format!("{}{machine}.json", pages::RESULTS);
        let Some(file) = tree.files.iter().find(|file| file.path == path) else { continue };
        for command in results.commands_of(machine).filter(|command| !commands.contains(command)) {
            let message =
                format!("holds `{command}`, which no page has: cargo xtask workshop --run --machine {machine}");
            problems.push(file.problem(1, message));
        }
    }
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::problems_in;

    const STORED: &str = r#"{"outputs": [{"command": "headroom device", "stdout": "fast\n"}]}"#;

    #[test]
    fn a_stale_answer_a_block_without_a_source_and_an_orphaned_output_are_told() {
        let page = |body: &str| {
            format!("```sh\nheadroom device\n```\n<!-- answer cpu: headroom device -->\n```text\n{body}\n```\n")
        };
        let tidy = |page: &str, stored: &str| {
            problems_in(check, &[("docs/workshop/1-a.md", page), ("docs/workshop/results/cpu.json", stored)])
        };
        assert_eq!(tidy(&page("fast"), STORED), Vec::<String>::new());
        let stale = tidy(&page("slow"), STORED);
        assert!(stale.len() == 1 && stale[0].starts_with("docs/workshop/1-a.md:5: the answer is not"), "{stale:?}");
        let bare = tidy(&format!("{}```text\nx\n```\n", page("fast")), STORED);
        assert!(bare.len() == 1 && bare[0].starts_with("docs/workshop/1-a.md:8: a text block"), "{bare:?}");
        let orphaned = tidy("nothing\n", STORED);
        assert!(orphaned.len() == 1 && orphaned[0].contains("which no page has"), "{orphaned:?}");
        let unstored = problems_in(check, &[("docs/workshop/1-a.md", &page("fast"))]);
        assert!(unstored.len() == 1 && unstored[0].contains("there is no"), "{unstored:?}");
    }
}
