//! Colour for terminals: when to use it, and for which words of a text. Files and pipes never get it by default.

use clap::ValueEnum;
use clap::builder::styling::{AnsiColor, Style};
use std::ffi::OsString;
use std::sync::OnceLock;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// If standard output is a terminal, and not the one that mpirun gives each rank; obeys `NO_COLOR` and `CLICOLOR_FORCE`
    #[default]
    Auto,
    Always,
    Never,
}

static WANTED: OnceLock<bool> = OnceLock::new();

/// Decides it for this process.
pub fn settle(when: When, is_terminal: bool) {
    let _ = WANTED.set(is_wanted(when, is_terminal, |name| std::env::var_os(name)));
}

pub fn is_on() -> bool {
    WANTED.get().is_some_and(|wanted| *wanted)
}

/// The flag decides first, then the user's variables, then the terminal itself.
fn is_wanted(when: When, is_terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let is_set = |name: &str| variable(name).filter(|value| !value.is_empty());
    match when {
        When::Always => true,
        When::Never => false,
        When::Auto if is_set("NO_COLOR").is_some() => false,
        When::Auto if is_set("CLICOLOR_FORCE").is_some_and(|value| value != "0") => true,
        When::Auto if is_set("CLICOLOR").is_some_and(|value| value == "0") => false,
        When::Auto => is_terminal && is_set("TERM").is_none_or(|value| value != "dumb"),
    }
}

/// The choice in an unparsed command line, so that help and errors follow it too.
pub fn asked_for(words: &[OsString]) -> When {
    let mut found = When::Auto;
    let mut words = words.iter().skip(1).map(|word| word.to_string_lossy()).take_while(|word| word != "--");
    while let Some(word) = words.next() {
        let value = match word.strip_prefix("--color") {
            Some("") => words.next().map(|value| value.into_owned()),
            Some(rest) => rest.strip_prefix('=').map(String::from),
            None => None,
        };
        found = value.and_then(|value| When::from_str(&value, false).ok()).unwrap_or(found);
    }
    found
}

/// The index of the command's name among the words: `--color` may come before it.
pub fn place_of_command(words: &[OsString]) -> usize {
    let mut at = 1;
    while let Some(word) = words.get(at).and_then(|word| word.to_str()) {
        match word {
            "--color" => at += 2,
            word if word.starts_with("--color=") => at += 1,
            _ => break,
        }
    }
    at
}

const HEADING: Style = AnsiColor::Cyan.on_default();
const CODE: Style = Style::new().bold();
const BAD: Style = AnsiColor::Red.on_default();
const WORST: Style = AnsiColor::Red.on_default().bold();
const DOUBTFUL: Style = AnsiColor::Yellow.on_default();
const GOOD: Style = AnsiColor::Green.on_default();
const QUIET: Style = Style::new().dimmed();

/// The text with colours for block headings, rule codes, severities, gate results, and marks under lines.
pub fn painted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 4);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    for (at, line) in lines.iter().enumerate() {
        let (body, end) = line.strip_suffix('\n').map_or((*line, ""), |body| (body, "\n"));
        let style = if is_heading(&lines, at) { HEADING } else { Style::new() };
        paint_line(&mut out, body, style);
        out += end;
    }
    out
}

/// A unified diff with colours for its files, places, and lines that go or come.
pub fn painted_difference(text: &str) -> String {
    let style = |line: &str| match line.as_bytes().first() {
        _ if line.starts_with("--- ") || line.starts_with("+++ ") => CODE,
        Some(b'@') => HEADING,
        Some(b'-') => BAD,
        Some(b'+') => GOOD,
        _ => Style::new(),
    };
    let painted = |line: &str| {
        let style = style(line);
        format!("{style}{line}{style:#}\n")
    };
    text.lines().map(painted).collect()
}

/// Whether the line is a heading: an unindented line above an indented one, or a first line alone. A quoted script line
/// (`21 |  x = 1`) is not.
fn is_heading(lines: &[&str], at: usize) -> bool {
    let (line, below) = (lines[at].trim_end(), &lines[at + 1..]);
    let is_quoted = line.split_once(" |").is_some_and(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()));
    if line.is_empty() || line.starts_with(' ') || is_quoted {
        return false;
    }
    let next = below.iter().find(|line| !line.trim().is_empty());
    let stands_alone = at == 0 && below.first().is_some_and(|line| line.trim().is_empty());
    stands_alone || next.is_some_and(|next| next.starts_with("  "))
}

fn paint_line(out: &mut String, line: &str, base: Style) {
    *out += &base.render().to_string();
    let mut plain = 0;
    for (start, end, style) in marks(line) {
        *out += &line[plain..start];
        *out += &format!("{}{style}{}{style:#}{base}", base.render_reset(), &line[start..end]);
        plain = end;
    }
    *out += &line[plain..];
    *out += &base.render_reset().to_string();
}

/// Ranges of a line with their styles, in order.
fn marks(line: &str) -> Vec<(usize, usize, Style)> {
    let bytes = line.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        match bytes[at] {
            b'^' => {
                at += bytes[at..].iter().take_while(|byte| **byte == b'^').count();
                found.push((start, at, BAD));
            }
            byte if byte.is_ascii_alphabetic() => {
                at += bytes[at..].iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
                if let Some(style) = style_of(line, start, at) {
                    found.push((start, at, style));
                }
            }
            _ => at += 1,
        }
    }
    found
}

fn style_of(line: &str, start: usize, end: usize) -> Option<Style> {
    let (word, before, after) = (&line[start..end], &line[..start], &line[end..]);
    if is_code(word) {
        return Some(CODE);
    }
    // Severities are in parentheses: `(high, unmeasured)`.
    if before.ends_with('(') && after.starts_with([')', ',']) {
        return match word {
            "critical" => Some(WORST),
            "high" => Some(BAD),
            "medium" => Some(DOUBTFUL),
            "low" => Some(QUIET),
            _ => None,
        };
    }
    // Results are table cells, or begin a line.
    let is_cell = (before.trim().is_empty() || before.ends_with("  ")) && (after.is_empty() || after.starts_with("  "));
    let begins = before.trim().is_empty() && (after.starts_with(':') || after.is_empty() && before.is_empty());
    if !is_cell && !begins {
        return match (word, before.trim_start()) {
            ("decided", "not ") if after.starts_with(':') => Some(DOUBTFUL),
            ("regression", "no ") if after.is_empty() || after.starts_with(':') => Some(GOOD),
            _ => None,
        };
    }
    match word {
        "pass" | "ok" => Some(GOOD),
        "fail" | "FAIL" | "error" | "regression" => Some(BAD),
        "undecided" | "warning" => Some(DOUBTFUL),
        _ => None,
    }
}

/// `TR103`, `TP107`.
fn is_code(word: &str) -> bool {
    let digits = word.strip_prefix("TR").or_else(|| word.strip_prefix("TP"));
    digits.is_some_and(|digits| digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_wins_over_the_variables_and_those_over_the_terminal() {
        let with = |when, terminal, set: &[(&str, &str)]| {
            is_wanted(when, terminal, |name| {
                set.iter().find(|(other, _)| *other == name).map(|(_, value)| OsString::from(value))
            })
        };
        assert!(with(When::Auto, true, &[]) && !with(When::Auto, false, &[]));
        assert!(!with(When::Auto, true, &[("NO_COLOR", "1")]) && with(When::Auto, true, &[("NO_COLOR", "")]));
        assert!(with(When::Auto, false, &[("CLICOLOR_FORCE", "1")]));
        assert!(!with(When::Auto, false, &[("CLICOLOR_FORCE", "0")]));
        assert!(!with(When::Auto, true, &[("NO_COLOR", "1"), ("CLICOLOR_FORCE", "1")]));
        assert!(!with(When::Auto, true, &[("TERM", "dumb")]) && !with(When::Auto, true, &[("CLICOLOR", "0")]));
        assert!(with(When::Always, false, &[("NO_COLOR", "1")]) && !with(When::Never, true, &[]));
    }

    #[test]
    fn the_flag_is_found_before_and_after_the_command_and_not_behind_two_dashes() {
        let words = |line: &str| -> Vec<OsString> { line.split(' ').map(OsString::from).collect() };
        assert_eq!(asked_for(&words("headroom --color never lint")), When::Never);
        assert_eq!(asked_for(&words("headroom lint --color=always")), When::Always);
        assert_eq!(asked_for(&words("headroom record -- python train.py --color never")), When::Auto);
        assert_eq!(place_of_command(&words("headroom lint --color=always")), 1);
        assert_eq!(place_of_command(&words("headroom --color never lint")), 3);
        assert_eq!(place_of_command(&words("headroom --color=never lint")), 2);
    }

    /// Shows colours as letters: `<c…>` is a heading, `<b…>` bold, and so on.
    fn shown(text: &str) -> String {
        let styles =
            [(WORST, "R"), (HEADING, "c"), (CODE, "b"), (BAD, "r"), (DOUBTFUL, "y"), (GOOD, "g"), (QUIET, "q")];
        let mut out = painted(text);
        for (style, letter) in styles {
            out = out.replace(&style.render().to_string(), &format!("<{letter}"));
        }
        out.replace("\u{1b}[0m", ">")
    }

    #[test]
    fn lines_of_a_diff_are_painted_by_what_becomes_of_them() {
        let text = "--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n same\n-old\n+new\n";
        let styles = [(HEADING, "c"), (CODE, "b"), (BAD, "r"), (GOOD, "g")];
        let mut out = painted_difference(text);
        for (style, letter) in styles {
            out = out.replace(&style.render().to_string(), &format!("<{letter}"));
        }
        let wanted = "<b--- a/x.py>\n<b+++ b/x.py>\n<c@@ -1,2 +1,2 @@>\n same\n<r-old>\n<g+new>\n";
        assert_eq!(out.replace("\u{1b}[0m", ">"), wanted);
    }

    #[test]
    fn headings_codes_severities_and_answers_are_painted_and_nothing_is_lost() {
        assert_eq!(
            shown("Findings:\n\n   80.7%  TR103 launch-bound (critical)\n          a forward pass (low cost)\n"),
            "<cFindings:>\n\n   80.7%  <bTR103> launch-bound (<Rcritical>)\n          a forward pass (low cost)\n"
        );
        assert_eq!(shown("train.py:4:2: TP107 x (high, unmeasured)\n   |\n   | ^^^ y\n").matches('<').count(), 6);
        assert_eq!(shown("t.json: 3 events\n\nno block\n"), "<ct.json: 3 events>\n\nno block\n");
        assert_eq!(shown("21 |  x = 1\n   | ^\n"), "21 |  x = 1\n   | <r^>\n");
        assert_eq!(shown("  accuracy  pass    4.7e-7\n"), "  accuracy  <gpass>    4.7e-7\n");
        assert_eq!(shown("no regression\n  step\n"), "<cno ><gregression><c>\n  step\n");
        assert_eq!(shown("  not decided: step>1%\n"), "  not <ydecided>: step>1%\n");
        let text = "a: b\n  TP101 (low)\n\n^^ ünïcode → fail\n";
        let mut bare = painted(text);
        while let Some(start) = bare.find('\u{1b}') {
            let end = start + bare[start..].find('m').expect("an end") + 1;
            bare.replace_range(start..end, "");
        }
        assert_eq!(bare, text);
    }
}
