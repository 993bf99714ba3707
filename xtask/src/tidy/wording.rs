//! Wording rules that a program can check. Comments, and sentences of Markdown pages, begin with their subject or a
//! verb: a reader who meets What, Of or None first has to wait for it. A rate is "per step". "Is not a", never "is no".

use anyhow::Result;

use super::{Problem, TextFile, Tree};

const FIRST_WORDS: &[&str] = &["What", "Of", "None", "Which", "Whose"];

/// Words that form a rate with "a step" after them. A digit and the brace of a placeholder count as well.
const COUNTED: &[&str] = &[
    "seconds",
    "milliseconds",
    "ms",
    "kernels",
    "launches",
    "calls",
    "batches",
    "micro-batches",
    "sequences",
    "samples",
    "tokens",
    "bytes",
    "MB",
    "MiB",
    "GB",
    "GiB",
    "FLOPs",
    "floats",
    "scalars",
    "copies",
    "times",
    "once",
];

/// Comparisons, which may follow "is no".
const AFTER_NO: &[&str] = &[
    "longer",
    "more",
    "less",
    "fewer",
    "larger",
    "smaller",
    "wider",
    "narrower",
    "deeper",
    "slower",
    "faster",
    "quicker",
    "better",
    "worse",
    "later",
    "earlier",
    "different",
];

pub fn check(tree: &Tree) -> Result<Vec<Problem>> {
    let read = tree.files.iter().filter(|file| !file.is_test_data() && !file.path.starts_with("bench/scripts/"));
    // This file contains the words that it looks for.
    Ok(read.filter(|file| !file.path.ends_with("tidy/wording.rs")).flat_map(problems_of).collect())
}

fn problems_of(file: &TextFile) -> Vec<Problem> {
    if file.has_extension(&["md"]) {
        return problems_of_page(file);
    }
    if !file.has_extension(&["rs", "py", "cu", "cuh", "js"]) {
        return vec![];
    }
    let marks: &[&str] = if file.has_extension(&["py"]) { &["# "] } else { &["/// ", "//! ", "// "] };
    let mut problems = vec![];
    for (number, line) in (1..).zip(file.text.lines()) {
        if let Some(comment) = marks.iter().find_map(|mark| line.trim_start().strip_prefix(mark)) {
            let first = comment.split(' ').next().unwrap_or_default();
            if FIRST_WORDS.contains(&first) && comment.contains(' ') {
                let message = format!("the comment begins with {first}: begin with the thing or a verb");
                problems.push(file.problem(number, message));
            }
        }
        let words: Vec<(usize, &str)> = line.split_whitespace().map(|word| (number, word)).collect();
        problems.extend(problems_of_phrases(file, &words));
    }
    problems
}

/// Prose of a page, without headings and code blocks.
fn problems_of_page(file: &TextFile) -> Vec<Problem> {
    let (mut problems, mut paragraph, mut is_code) = (vec![], vec![], false);
    for (number, line) in (1..).zip(file.text.lines().chain([""])) {
        let text = line.trim_start().trim_start_matches("> ");
        let is_fence = text.starts_with("```");
        let item = ["- ", "* ", "| "].iter().any(|mark| text.starts_with(mark)) || is_numbered(text);
        if is_fence || is_code || item || text.is_empty() || text.starts_with('#') {
            problems.extend(problems_of_sentences(file, &paragraph));
            paragraph.clear();
        }
        is_code ^= is_fence;
        if is_fence || is_code || text.starts_with('#') {
            continue;
        }
        if text.starts_with("| ") {
            let cells = text.split('|').map(|cell| vec![(number, cell.trim())]);
            problems.extend(cells.flat_map(|cell| problems_of_sentences(file, &cell)));
        } else {
            let text = if item { text.split_once(' ').map_or(text, |(_, rest)| rest) } else { text };
            paragraph.push((number, text));
        }
    }
    problems
}

fn is_numbered(text: &str) -> bool {
    text.split_once(". ")
        .is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Sentences that begin with a word of [`FIRST_WORDS`] and are not questions. A table cell with only that word is an
/// answer.
fn problems_of_sentences(file: &TextFile, lines: &[(usize, &str)]) -> Vec<Problem> {
    let words: Vec<(usize, &str)> =
        lines.iter().flat_map(|(number, line)| line.split_whitespace().map(|word| (*number, word))).collect();
    let mut problems = problems_of_phrases(file, &words);
    for sentence in words.split_inclusive(|(_, word)| word.ends_with(['.', '?', '!'])) {
        let ((number, first), (_, last)) = (sentence[0], sentence[sentence.len() - 1]);
        if FIRST_WORDS.contains(&first) && sentence.len() > 1 && !last.ends_with('?') {
            let message = format!("the sentence begins with {first}: begin with the thing or a verb");
            problems.push(file.problem(number, message));
        }
    }
    problems
}

/// Problems such as "kernels a step" and "is no trace" in a line of code or a paragraph of a page, given as words with
/// their lines.
fn problems_of_phrases(file: &TextFile, words: &[(usize, &str)]) -> Vec<Problem> {
    let plain = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_string();
    let mut problems = vec![];
    for (index, three) in words.windows(3).enumerate() {
        let [(number, before), (_, first), (_, second)] = [three[0], three[1], three[2]];
        let counted = before.ends_with(|c: char| c.is_ascii_digit() || c == '}')
            || COUNTED.iter().any(|unit| plain(before).eq_ignore_ascii_case(unit));
        if first == "a" && plain(second) == "step" && counted {
            problems.push(file.problem(number, format!("\"{before} a step\": write \"per step\"")));
        }
        let subject = index.checked_sub(1).map(|at| plain(words[at].1).to_lowercase()).unwrap_or_default();
        let denies = ["is", "are"].contains(&before) && first == "no" && second.starts_with(char::is_alphabetic);
        if denies && !AFTER_NO.contains(&&*plain(second)) && !(subject.ends_with("there") || subject == "answer") {
            problems.push(file.problem(number, format!("\"{before} no {second}\": write \"is not a\"")));
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

    #[test]
    fn a_sentence_of_a_page_begins_with_its_subject_or_asks() {
        let page = "# What it does\n\nWhat is fast stays. Which is it?\nWhose turn\nis it?\n\n- Of two, one.\n\n```\nWhat is code\n```\n\
                    | None | None of these |\n1. Takes time. None\n   is left.\n";
        let found = problems_in(check, &[("docs/a.md", page)]);
        let lines: Vec<&str> = found.iter().map(|problem| problem.split(':').nth(1).unwrap()).collect();
        assert_eq!(lines, ["3", "7", "12", "13"], "{found:?}");
    }

    #[test]
    fn a_rate_is_per_step() {
        let text = "\"{kernels} a step\"\n// 20 ms a step, as a step of\n/// Seconds a step.\n/// That is a step; which a step takes.\n";
        let found = problems_in(check, &[("a.rs", text)]);
        let lines: Vec<&str> = found.iter().map(|problem| problem.split(':').nth(1).unwrap()).collect();
        assert_eq!(lines, ["1", "2", "3"], "{found:?}");
        assert_eq!(problems_in(check, &[("a.md", "It has 20 kernels a step.\n")]).len(), 1);
    }

    #[test]
    fn a_thing_is_not_a_thing_instead_of_is_no_thing() {
        let text = "\"{} is no trace\"\n// There is no trace. It is no longer read, the answer is no (or yes).\n// Those are no steps\n";
        let found = problems_in(check, &[("a.rs", text)]);
        let lines: Vec<&str> = found.iter().map(|problem| problem.split(':').nth(1).unwrap()).collect();
        assert_eq!(lines, ["1", "3"], "{found:?}");
    }
}
