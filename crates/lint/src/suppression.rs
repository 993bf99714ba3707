//! Comments that silence a finding: `# noqa: TP101` on its line, `# headroom: ignore[TP101]` on the line above or the
//! line itself, `# headroom: ignore-file[TP101]` anywhere for the whole file.

use headroom_rewrite::Source;
use ruff_python_ast::token::{TokenKind, Tokens};
use ruff_text_size::{Ranged, TextRange};
use rustc_hash::FxHashMap;

use crate::finding::Place;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Suppressions {
    /// Codes by the line they apply to; an empty list silences every rule.
    by_line: FxHashMap<u32, Vec<String>>,
    whole_file: Option<Vec<String>>,
}

impl Suppressions {
    /// Reads these comments of a file.
    pub fn read(file: &Source, comments: &[TextRange]) -> Suppressions {
        let mut found = Suppressions::default();
        for range in comments {
            let comment = file.slice(*range);
            let line = file.line(range.start());
            if let Some(codes) = after(comment, "headroom: ignore-file") {
                found.whole_file = Some(bracketed(codes));
            } else if let Some(codes) = after(comment, "headroom: ignore") {
                let alone = file.line_text(line).trim_start().starts_with('#');
                found.add(if alone { line + 1 } else { line }, bracketed(codes));
            }
            if let Some(codes) = after(comment, "noqa") {
                found.add(line, listed(codes));
            }
        }
        found
    }

    pub fn silence(&self, code: &str, place: &Place) -> bool {
        let holds =
            |codes: &Vec<String>| codes.is_empty() || codes.iter().any(|known| code.starts_with(known.as_str()));
        // A call over several lines may carry its comment on the first or the last of them.
        self.whole_file.as_ref().is_some_and(holds)
            || [place.line, place.end_line].iter().any(|line| self.by_line.get(line).is_some_and(holds))
    }

    fn add(&mut self, line: u32, codes: Vec<String>) {
        match self.by_line.get_mut(&line) {
            Some(known) if codes.is_empty() || known.is_empty() => known.clear(),
            Some(known) => known.extend(codes),
            None => drop(self.by_line.insert(line, codes)),
        }
    }
}

/// Comments that may silence a finding.
pub fn comments(text: &str, tokens: &Tokens) -> Vec<TextRange> {
    let comments = tokens.iter().filter(|token| token.kind() == TokenKind::Comment).map(Ranged::range);
    let says = |range: &TextRange| {
        let comment = text.get(range.to_std_range()).unwrap_or_default();
        after(comment, "headroom:").is_some() || after(comment, "noqa").is_some()
    };
    comments.filter(says).collect()
}

/// The text after `word` in a comment, ignoring case.
fn after<'c>(comment: &'c str, word: &str) -> Option<&'c str> {
    let at = comment.to_ascii_lowercase().find(word)?;
    comment.get(at + word.len()..)
}

/// `[TP101, TP102]`; without codes, every rule.
fn bracketed(rest: &str) -> Vec<String> {
    let Some(inside) = rest.trim_start().strip_prefix('[') else { return Vec::new() };
    codes_in(inside.split(']').next().unwrap_or_default())
}

/// `: TP101, E501`. Codes of other tools stay in the list, so that it is not empty and silences nothing of ours.
fn listed(rest: &str) -> Vec<String> {
    match rest.trim_start().strip_prefix(':') {
        Some(codes) => codes_in(codes.split('#').next().unwrap_or_default()),
        None => Vec::new(),
    }
}

fn codes_in(text: &str) -> Vec<String> {
    let words = text.split(|split: char| !split.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_uppercase).collect()
}
