//! Answer blocks of the workshop's pages: a `text` block below comments that name a command, filled with that command's
//! output.
//!
//! `<!-- answer cpu: headroom device | FROM | TO -->` stands directly above its block. FROM and TO select lines of the
//! stored output: from the first that contains FROM to the first after it that contains TO. FROM alone selects one
//! line; without either, all lines are selected.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::Value;

pub const FOLDER: &str = "docs/workshop/";
pub const RESULTS: &str = "docs/workshop/results/";
pub const MACHINES: [&str; 2] = ["cpu", "h200"];

/// The machine that everybody has, so its outputs must always be stored.
const EVERYWHERE: &str = "cpu";

/// Placeholder in the answers of a machine whose outputs are not stored.
const NOT_RUN: &str = "(not run yet)";

/// Stored outputs of each machine, by command; a machine that was not run is missing.
#[derive(Default)]
pub struct Results(BTreeMap<String, BTreeMap<String, String>>);

impl Results {
    /// Adds one result file.
    pub fn add(&mut self, machine: &str, text: &str) -> Result<()> {
        let file: Value = serde_json::from_str(text).context("not JSON")?;
        let mut outputs = BTreeMap::new();
        for entry in file["outputs"].as_array().context("there is no list `outputs`")? {
            let text_of = |key: &str| entry[key].as_str().with_context(|| format!("an output has no text `{key}`"));
            outputs.insert(text_of("command")?.to_string(), text_of("stdout")?.to_string());
        }
        self.0.insert(machine.to_string(), outputs);
        Ok(())
    }

    /// Commands in the machine's result file.
    pub fn commands_of(&self, machine: &str) -> impl Iterator<Item = &str> {
        self.0.get(machine).into_iter().flat_map(|outputs| outputs.keys().map(String::as_str))
    }
}

/// A page with its answers filled in, and the lines (from 1) whose answer is missing or cannot be filled.
pub struct Filled {
    pub text: String,
    pub problems: Vec<(usize, String)>,
    /// First lines of blocks that differ from the stored output.
    pub stale: Vec<usize>,
}

/// Commands of the page's `sh` blocks, in order, without anything after ` #`.
pub fn commands(text: &str) -> Vec<&str> {
    let mut found = vec![];
    let (mut in_block, mut in_commands) = (false, false);
    for line in text.lines().map(str::trim) {
        if let Some(mark) = line.strip_prefix("```") {
            in_block = !in_block;
            in_commands = in_block && mark.split(' ').next() == Some("sh");
        } else if in_commands && !line.starts_with('#') && !line.is_empty() {
            found.push(line.split(" #").next().unwrap_or(line).trim());
        }
    }
    found
}

/// Fills every answer of a page; `commands` are those of all pages.
pub fn fill(page: &str, results: &Results, commands: &BTreeSet<&str>) -> Filled {
    let mut filled = Filled { text: String::new(), problems: vec![], stale: vec![] };
    let mut answers: Vec<Answer<'_>> = vec![];
    let mut lines = (1..).zip(page.lines()).peekable();
    while let Some((number, line)) = lines.next() {
        filled.text += line;
        filled.text.push('\n');
        let trimmed = line.trim_start();
        if trimmed.starts_with("<!-- answer") {
            match Answer::parse(trimmed) {
                Some(answer) => answers.push(answer),
                None => {
                    let form = "an answer's comment has the form `<!-- answer cpu: COMMAND | FROM | TO -->`";
                    filled.problems.push((number, form.to_string()));
                }
            }
            continue;
        }
        let Some(mark) = trimmed.strip_prefix("```") else {
            if let Some(answer) = answers.drain(..).next() {
                let message = format!("no text block follows the answer of `{}` directly", answer.command);
                filled.problems.push((number - 1, message));
            }
            continue;
        };
        let indent = &line[..line.len() - trimmed.len()];
        let mut body = vec![];
        while let Some((_, inner)) = lines.next_if(|(_, inner)| !inner.trim_start().starts_with("```")) {
            body.push(inner);
        }
        let asked = std::mem::take(&mut answers);
        let mut shown: Vec<String> = body.iter().map(ToString::to_string).collect();
        match (mark, asked.is_empty()) {
            ("text", true) => {
                let message = "a text block without `<!-- answer MACHINE: COMMAND -->` above it: name its command, or take \
                               the word text away";
                filled.problems.push((number, message.to_string()));
            }
            ("text", false) => match joined(&asked, results, commands) {
                Ok(pieces) => {
                    shown = pieces.iter().map(|piece| indented(indent, piece)).collect();
                    // A machine that was not run yet has nothing to compare the block with.
                    if shown != body && pieces != [NOT_RUN] {
                        filled.stale.push(number);
                    }
                }
                Err(message) => filled.problems.push((number, message)),
            },
            (_, false) => filled.problems.push((number, "an answer's block is a text block".to_string())),
            _ => {}
        }
        for inner in &shown {
            filled.text += inner;
            filled.text.push('\n');
        }
        if let Some((_, end)) = lines.next() {
            filled.text += end;
            filled.text.push('\n');
        }
    }
    filled
}

fn indented(indent: &str, line: &str) -> String {
    if line.is_empty() { String::new() } else { format!("{indent}{line}") }
}

/// Lines of all pieces in order.
fn joined(asked: &[Answer<'_>], results: &Results, commands: &BTreeSet<&str>) -> Result<Vec<String>, String> {
    let mut lines = vec![];
    for answer in asked {
        if !commands.contains(answer.command) {
            return Err(format!("`{}` is not a command of any page's sh block", answer.command));
        }
        let Some(outputs) = results.0.get(answer.machine) else {
            if answer.machine == EVERYWHERE {
                return Err(format!("there is no {RESULTS}{EVERYWHERE}.json: cargo xtask workshop --run"));
            }
            return Ok(vec![NOT_RUN.to_string()]);
        };
        let Some(printed) = outputs.get(answer.command) else {
            let (machine, command) = (answer.machine, answer.command);
            return Err(format!("{RESULTS}{machine}.json does not hold `{command}`: cargo xtask workshop --run"));
        };
        lines.extend(answer.lines_of(printed)?.iter().map(|line| line.trim_end().to_string()));
    }
    Ok(lines)
}

/// One piece of an answer, as specified in its comment.
#[derive(Debug, PartialEq)]
struct Answer<'page> {
    machine: &'page str,
    command: &'page str,
    from: Option<&'page str>,
    to: Option<&'page str>,
}

impl<'page> Answer<'page> {
    fn parse(comment: &'page str) -> Option<Answer<'page>> {
        let inside = comment.strip_prefix("<!-- answer ")?.trim_end().strip_suffix("-->")?;
        let (machine, rest) = inside.split_once(": ")?;
        let mut parts = rest.split(" | ").map(str::trim);
        let answer = Answer { machine, command: parts.next()?, from: parts.next(), to: parts.next() };
        (MACHINES.contains(&machine) && parts.next().is_none() && !answer.command.is_empty()).then_some(answer)
    }

    fn lines_of<'text>(&self, printed: &'text str) -> Result<Vec<&'text str>, String> {
        let lines: Vec<&str> = printed.lines().collect();
        let Some(from) = self.from else { return Ok(lines) };
        let missing = |what: &str| format!("no line of `{}` contains `{what}` there", self.command);
        let first = lines.iter().position(|line| line.contains(from)).ok_or_else(|| missing(from))?;
        let Some(to) = self.to else { return Ok(vec![lines[first]]) };
        let after = lines[first + 1..].iter().position(|line| line.contains(to)).ok_or_else(|| missing(to))?;
        Ok(lines[first..=first + 1 + after].to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORED: &str =
        r#"{"outputs": [{"command": "headroom device", "exit": 0, "stdout": "one  \ntwo\n\nthree\nfour\n"}]}"#;

    fn filled(page: &str) -> Filled {
        let mut results = Results::default();
        results.add("cpu", STORED).unwrap();
        fill(page, &results, &BTreeSet::from(["headroom device"]))
    }

    fn check(page: &str, body: &str) {
        let done = filled(page);
        assert_eq!(done.problems, [], "{page}");
        let inside = done.text.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
        assert_eq!(inside, body, "{page}");
        assert_eq!(filled(&done.text).stale, [] as [usize; 0], "a filled page is fresh");
    }

    #[test]
    fn an_answer_is_the_lines_that_its_comment_names() {
        check("<!-- answer cpu: headroom device -->\n```text\nold\n```\n", "one\ntwo\n\nthree\nfour\n");
        check("<!-- answer cpu: headroom device | tw -->\n```text\n```\n", "two\n");
        check("<!-- answer cpu: headroom device | two | three -->\n```text\n```\n", "two\n\nthree\n");
        let two =
            "<!-- answer cpu: headroom device | four -->\n<!-- answer cpu: headroom device | one -->\n```text\n```\n";
        check(two, "four\none\n");
        check("<!-- answer h200: headroom device | one -->\n```text\n```\n", "(not run yet)\n");
        let indented =
            filled("- a\n\n  <!-- answer cpu: headroom device | two | three -->\n  ```text\n  ```\n\nb\n").text;
        assert!(indented.ends_with("  ```text\n  two\n\n  three\n  ```\n\nb\n"), "{indented}");
    }

    #[test]
    fn an_answer_that_cannot_be_filled_is_named_with_its_line() {
        for (page, line, words) in [
            ("a\n```text\nx\n```\n", 2, "without `<!-- answer"),
            ("<!-- answer cpu: headroom lint -->\n```text\n```\n", 2, "not a command"),
            ("<!-- answer cpu: headroom device | five -->\n```text\n```\n", 2, "contains `five`"),
            ("<!-- answer cpu: headroom device | four | one -->\n```text\n```\n", 2, "contains `one`"),
            ("<!-- answer gpu: headroom device -->\n```text\n```\n", 1, "has the form"),
            ("<!-- answer cpu: headroom device -->\n\n```text\n```\n", 1, "directly"),
            ("<!-- answer cpu: headroom device -->\n```sh\n```\n", 2, "is a text block"),
        ] {
            let problems = filled(page).problems;
            assert!(problems[0].0 == line && problems[0].1.contains(words), "{page}: {problems:?}");
        }
        let mut results = Results::default();
        let page = "<!-- answer cpu: headroom device -->\n```text\n```\n";
        let told = |results: &Results| fill(page, results, &BTreeSet::from(["headroom device"])).problems[0].1.clone();
        assert!(told(&results).contains("there is no docs/workshop/results/cpu.json"), "{}", told(&results));
        results.add("cpu", r#"{"outputs": []}"#).unwrap();
        assert!(told(&results).contains("cpu.json does not hold"), "{}", told(&results));
    }

    #[test]
    fn a_changed_block_is_stale_and_others_are_left_as_they_are() {
        let page = "# T\n\n```sh cpu\nheadroom device # first\n```\n```\nfree\n```\n<!-- answer cpu: headroom device | one -->\n```text\n1\n```\n";
        let done = filled(page);
        assert_eq!((done.stale.as_slice(), done.problems.as_slice()), (&[10][..], &[][..]));
        assert_eq!(done.text, page.replace("\n1\n", "\none\n"));
        assert_eq!(commands(page), ["headroom device"]);
    }
}
