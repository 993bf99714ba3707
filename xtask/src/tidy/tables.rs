//! Tables of knowledge (`crates/lint/src/tables/*.tsv`): rows sorted, none twice, none empty, and the versions named that
//! a generated one was made from.

use anyhow::Result;

use super::{Problem, TextFile, Tree};

const FOLDER: &str = "crates/lint/src/tables/";

pub fn check(tree: &Tree) -> Result<Vec<Problem>> {
    let is_table = |file: &&TextFile| file.path.starts_with(FOLDER) && file.path.ends_with(".tsv");
    Ok(tree.files.iter().filter(is_table).flat_map(check_table).collect())
}

fn check_table(file: &TextFile) -> Vec<Problem> {
    let mut problems = Vec::new();
    let head = file.text.lines().take_while(|line| line.starts_with('#'));
    let is_generated = head.clone().next().is_some();
    if is_generated
        && !head.clone().any(|line| line.starts_with("# versions: ") && line.contains(|one: char| one.is_ascii_digit()))
    {
        problems.push(file.problem(1, "names no versions: write the table again with its generator"));
    }
    let mut rows = (1..).zip(file.text.lines()).skip(head.count());
    let columns = rows.next().map_or(0, |(_, names)| names.split('\t').count());
    let mut before = "";
    for (number, line) in rows {
        let fields: Vec<&str> = line.split('\t').collect();
        // The subject of a row: a call by its name, or a word with its role and how it matches.
        let name = if is_generated { fields[0] } else { line.rsplit_once('\t').map_or(line, |(key, _)| key) };
        if fields.len() != columns {
            problems.push(file.problem(number, format!("{} fields where the head has {columns}", fields.len())));
        }
        // The last field is a reason, which only a row by hand has.
        if fields.iter().take(columns.saturating_sub(1)).any(|field| field.is_empty()) {
            problems.push(file.problem(number, format!("{name:?} has an empty field")));
        }
        if fields.get(columns.saturating_sub(2)) == Some(&"hand") && fields.last().is_some_and(|last| last.is_empty()) {
            problems.push(file.problem(number, format!("{name:?} is by hand and gives no reason")));
        }
        if name == before {
            problems.push(file.problem(number, format!("{name:?} is there twice")));
        } else if name < before {
            problems.push(file.problem(number, format!("{name:?} comes after {before:?}: sort the rows")));
        }
        before = name;
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::problems_in;

    fn check_text(rows: &str, want: &[&str]) {
        let text = format!("# Calls.\n# versions: torch 2.9.0\nname\twaits\tsource\treason\n{rows}");
        assert_eq!(problems_in(check, &[("crates/lint/src/tables/a.tsv", &text)]), want);
    }

    #[test]
    fn rows_are_sorted_whole_and_there_once() {
        check_text("a\tno\tstub\t\nb\tyes\thand\tit reads\n", &[]);
        let at = "crates/lint/src/tables/a.tsv";
        check_text("b\tno\tstub\t\na\tno\tstub\t\n", &[&format!("{at}:5: \"a\" comes after \"b\": sort the rows")]);
        check_text("a\tno\tstub\t\na\tno\tstub\t\n", &[&format!("{at}:5: \"a\" is there twice")]);
        check_text("a\tno\tstub\n", &[&format!("{at}:4: 3 fields where the head has 4")]);
        check_text("a\t\tstub\t\n", &[&format!("{at}:4: \"a\" has an empty field")]);
        check_text("a\tno\thand\t\n", &[&format!("{at}:4: \"a\" is by hand and gives no reason")]);
    }

    #[test]
    fn words_are_told_apart_by_all_fields_but_where_they_were_met() {
        let check_words = |rows: &str| {
            let text = format!("role\thow\tword\tmet\n{rows}");
            problems_in(check, &[("crates/lint/src/tables/words.tsv", &text)])
        };
        assert_eq!(check_words("Step\tis\ta\tx\nStep\tis\tb\tx\n"), [""; 0]);
        assert_eq!(check_words("Step\tis\ta\tx\nStep\tis\ta\ty\n").len(), 1);
        assert_eq!(check_words("Step\tis\tb\tx\nStep\tis\ta\tx\n").len(), 1);
    }

    #[test]
    fn a_table_names_the_versions_it_was_made_from() {
        let want = ["crates/lint/src/tables/a.tsv:1: names no versions: write the table again with its generator"];
        assert_eq!(problems_in(check, &[("crates/lint/src/tables/a.tsv", "# Calls.\nname\n")]), want);
        assert_eq!(problems_in(check, &[("docs/a.tsv", "# Calls.\nname\n")]), [""; 0]);
    }
}
