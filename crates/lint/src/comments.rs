//! Comments that may silence a finding, found among a file's tokens.

use ruff_python_ast::token::{TokenKind, Tokens};
use ruff_text_size::{Ranged, TextRange};

/// Comments that may silence a finding.
pub fn silencing_comments(text: &str, tokens: &Tokens) -> Vec<TextRange> {
    let comments = tokens.iter().filter(|token| token.kind() == TokenKind::Comment).map(Ranged::range);
    let says = |range: &TextRange| {
        let comment = text.get(range.to_std_range()).unwrap_or_default();
        after(comment, "headroom:").is_some() || after(comment, "noqa").is_some()
    };
    comments.filter(says).collect()
}

/// The text after `word` in a comment, ignoring case.
pub fn after<'c>(comment: &'c str, word: &str) -> Option<&'c str> {
    let at = comment.to_ascii_lowercase().find(word)?;
    comment.get(at + word.len()..)
}
