//! Comments added at the ends of lines.

use ruff_python_ast::token::TokenKind;
use ruff_text_size::{Ranged, TextRange, TextSize};

use super::edit::Edit;
use super::source::Source;

/// Tokens at the ends of a file's lines.
pub struct LineEnds {
    comments: Vec<TextRange>,
    /// Strings that span several lines.
    strings: Vec<TextRange>,
}

impl LineEnds {
    pub fn of(file: &Source) -> LineEnds {
        let mut lines = LineEnds { comments: Vec::new(), strings: Vec::new() };
        let mut open: Vec<TextSize> = Vec::new();
        for token in file.tokens().iter() {
            match token.kind() {
                TokenKind::Comment => lines.comments.push(token.range()),
                TokenKind::String => lines.strings.push(token.range()),
                TokenKind::FStringStart | TokenKind::TStringStart => open.push(token.start()),
                TokenKind::FStringEnd | TokenKind::TStringEnd => {
                    if let Some(start) = open.pop() {
                        lines.strings.push(TextRange::new(start, token.end()));
                    }
                }
                _ => {}
            }
        }
        lines.strings.retain(|string| file.line(string.start()) != file.line(string.end()));
        lines
    }

    /// Whether a comment can be added to the line: it does not end inside a string.
    pub fn has_room(&self, file: &Source, line: u32) -> bool {
        let is_within = |string: &TextRange| (file.line(string.start())..file.line(string.end())).contains(&line);
        !file.line_text(line).ends_with('\\') && !self.strings.iter().any(is_within)
    }

    /// Adds words to the list after `key` in the line's comment, `# key: words`, or appends such a comment to the line.
    pub fn comment(&self, file: &Source, line: u32, key: &str, words: &str) -> Edit {
        let own = self.comments.iter().find(|comment| file.line(comment.start()) == line);
        let listed = own.and_then(|comment| {
            let text = file.slice(*comment);
            let at = text.to_ascii_lowercase().find(key)? + key.len();
            let colon = at + text[at..].find(|other: char| !other.is_whitespace())?;
            text[colon..].starts_with(':').then(|| comment.start() + TextSize::new(colon as u32 + 1))
        });
        match listed {
            Some(behind_colon) => Edit::insert(behind_colon, format!(" {words},")),
            None => Edit::insert(file.line_end(line), format!("  # {key}: {words}")),
        }
    }
}
