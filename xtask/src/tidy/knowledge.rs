//! Lint's knowledge stands in its tables: its code compares no name with a word of its own, and no function is longer than
//! a screen.

use anyhow::Result;

use super::{Problem, TextFile, Tree, line_of};

/// Code about programs, and code about their text.
const FOLDERS: &[&str] = &["crates/lint/src/", "crates/rewrite/src/"];
const MOST_LINES: usize = 60;

/// Rules name what they report, and their fixes the code that they replace; readers of tables and settings name their
/// fields; the rest speaks of files, comments and edits instead of programs.
const MAY_COMPARE: &[&str] = &[
    "api.rs",
    "edits.rs",
    "effects.rs",
    "file.rs",
    "notebook.rs",
    "rewrite.rs",
    "rewrite/head.rs",
    "rule.rs",
    "rules.rs",
    "selection.rs",
    "settings.rs",
    "source.rs",
    "suppression.rs",
    "vocabulary.rs",
];

/// Calls whose argument is searched for.
const SEARCHES: &[&str] = &[
    "starts_with(",
    "ends_with(",
    "contains(&",
    "contains(",
    "strip_prefix(",
    "strip_suffix(",
    "trim_start_matches(",
    "trim_end_matches(",
    "find_keyword(",
    "find_argument_value(",
    "keyword(",
    "methods.get(",
    "member(class, ",
];

pub fn check(tree: &Tree) -> Result<Vec<Problem>> {
    let files =
        || tree.rust_files().filter(|file| FOLDERS.iter().any(|folder| file.path.starts_with(crate_of(folder))));
    let about = |path: &str| FOLDERS.iter().find_map(|folder| path.strip_prefix(folder)).is_some_and(is_about_programs);
    let sources = files().filter(|file| about(&file.path));
    Ok(sources.flat_map(compared_words).chain(files().flat_map(long_functions)).collect())
}

fn is_about_programs(path: &str) -> bool {
    !path.starts_with("rules/") && !MAY_COMPARE.contains(&path)
}

fn crate_of(folder: &str) -> &str {
    folder.strip_suffix("src/").unwrap_or(folder)
}

/// Literals with a letter that are matched, compared or searched for, outside unit tests.
fn compared_words(file: &TextFile) -> Vec<Problem> {
    let end = file.code.find("#[cfg(test)]").unwrap_or(file.code.len());
    let mut problems = Vec::new();
    let mut at = 0;
    while let Some(open) = file.code[at..end].find('"').map(|found| at + found) {
        let Some(close) = file.code[open + 1..].find('"').map(|found| open + 1 + found) else { break };
        at = close + 1;
        let (before, behind) = (file.code[..open].trim_end(), file.code[at..].trim_start());
        let is_pattern = behind.starts_with("=>") || is_alternative(before, behind) || is_inside_matches(before);
        let is_compared = before.ends_with("==") || before.ends_with("!=") || behind.starts_with("==");
        let is_searched = SEARCHES.iter().any(|call| file.code[..open].ends_with(call));
        let is_listed =
            before.ends_with('[') && before[..before.len() - 1].trim_end().ends_with(['&', '=', '(', '{', ';', '|']);
        let has_letter = file.text[open..close].contains(|letter: char| letter.is_ascii_alphabetic());
        if has_letter && (is_pattern || is_compared || is_searched || is_listed) {
            let word = &file.text[open..=close];
            let message = format!("compares a name with {word}: make it a row of tables/vocabulary.tsv or effects.tsv");
            problems.push(file.problem(line_of(&file.code, open), message));
        }
    }
    problems
}

/// `"a" | "b"`; a closure's bars stand beside a name.
fn is_alternative(before: &str, behind: &str) -> bool {
    let follows = behind.strip_prefix('|').is_some_and(|rest| rest.trim_start().starts_with('"'));
    let leads = before.strip_suffix('|').is_some_and(|rest| rest.trim_end().ends_with('"'));
    follows || leads
}

/// `matches!(name, "a"`, with the bracket still open.
fn is_inside_matches(before: &str) -> bool {
    let Some(begin) = before.rfind("matches!(") else { return false };
    let mut open = 0;
    let is_open = |letter: char| {
        open += i32::from(letter == '(') - i32::from(letter == ')');
        open > 0
    };
    before[begin + "matches!".len()..].chars().all(is_open)
}

fn long_functions(file: &TextFile) -> Vec<Problem> {
    let lines: Vec<&str> = file.code.lines().collect();
    let mut problems = Vec::new();
    for (first, line) in lines.iter().enumerate() {
        let head = line.trim_start();
        let is_function = ["fn ", "pub fn ", "pub(super) fn ", "pub(crate) fn ", "const fn ", "pub const fn "]
            .iter()
            .any(|begin| head.starts_with(begin));
        if !is_function {
            continue;
        }
        let close = format!("{}}}", &line[..line.len() - head.len()]);
        let length = lines[first..].iter().position(|line| **line == close).map_or(0, |last| last + 1);
        if length > MOST_LINES {
            let message = format!("a function of {length} lines, at most {MOST_LINES}: split it by what it does");
            problems.push(file.problem(first + 1, message));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::problems_in;

    fn check_text(path: &str, text: &str, want: usize) {
        let found = problems_in(check, &[(path, text)]);
        assert_eq!(found.len(), want, "{text}: {found:?}");
    }

    #[test]
    fn words_are_compared_only_by_tables_and_rules() {
        let texts = [
            "fn f(name: &str) -> bool {\n    name == \"item\"\n}\n",
            "fn f(name: &str) -> bool {\n    name.starts_with(\"torch.\")\n}\n",
            "fn f(name: &str) -> bool {\n    matches!(name, \"cpu\")\n}\n",
            "fn f(name: &str) -> bool {\n    name.is_empty() || [\"a\"].contains(&name)\n}\n",
            "const NAMES: &[&str] = &[\"item\"];\n",
        ];
        for text in texts {
            check_text("crates/lint/src/interpret/calls.rs", text, 1);
            check_text("crates/rewrite/src/syntax.rs", text, 1);
            check_text("crates/lint/src/rules/item.rs", text, 0);
            check_text("crates/lint/src/vocabulary.rs", text, 0);
            check_text("crates/trace/src/lib.rs", text, 0);
        }
        let arms = "fn f(name: &str) -> u8 {\n    match name {\n        \"a\" | \"b\" => 1,\n        \"c\" => 2,\n        _ => 3,\n    }\n}\n";
        check_text("crates/lint/src/reads.rs", arms, 3);
    }

    #[test]
    fn texts_that_are_made_and_words_of_tests_are_not_compared() {
        let made =
            "fn f(name: &str) -> String {\n    format!(\"{name}.item\") + \"x\" + &name.replace('-', \"_\")\n}\n";
        check_text("crates/lint/src/reads.rs", made, 0);
        check_text("crates/lint/src/reads.rs", "fn f() {}\n#[cfg(test)]\nmod tests { fn g() { a == \"b\"; } }\n", 0);
        check_text("crates/lint/src/reads.rs", "// name == \"item\"\nfn f() { g.join(\"\\n\") }\n", 0);
    }

    #[test]
    fn a_function_of_lint_fits_on_a_screen() {
        let function =
            |lines: usize| format!("impl A {{\n    pub fn f() {{\n{}    }}\n}}\n", "        g();\n".repeat(lines - 2));
        check_text("crates/lint/src/rules/item.rs", &function(MOST_LINES), 0);
        check_text("crates/lint/src/rules/item.rs", &function(MOST_LINES + 1), 1);
        check_text("crates/lint/tests/facts.rs", &function(MOST_LINES + 1), 1);
        check_text("crates/trace/src/lib.rs", &function(MOST_LINES + 1), 0);
    }
}
