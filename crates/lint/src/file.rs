//! A file of a program: its source, its module, and what its tokens say.

use std::ops::Deref;

use headroom_rewrite::{Depth, Edit, Source};
use ruff_python_ast::token::Tokens;
use ruff_text_size::{TextRange, TextSize};

use super::{Belonging, Input, suppression, topics};
use crate::finding::Place;

pub struct SourceFile {
    source: Source,
    /// Topics mentioned in its text, one bit per topic of `groups`.
    pub words: u64,
    /// Comments that may silence findings.
    pub silencing: Vec<TextRange>,
    /// `a/b/c.py` as `[a, b, c]`; a package's `__init__` stands for the package.
    pub module: Vec<String>,
    /// Whether findings in it are wanted; otherwise it is read only for what it reveals about other files.
    pub asked: bool,
}

impl Deref for SourceFile {
    type Target = Source;

    fn deref(&self) -> &Source {
        &self.source
    }
}

impl SourceFile {
    pub fn read(input: &Input, belonging: &Belonging, depth: Depth) -> SourceFile {
        let (source, (words, silencing)) = Source::read(&input.path, &input.bytes, depth, seen);
        SourceFile { source, words, silencing, module: module_of(&belonging.within), asked: belonging.asked }
    }

    /// The file after the edits; `None` where they overlap or cross a cell.
    pub fn edited(&self, edits: &[Edit]) -> Option<SourceFile> {
        let (source, (words, silencing)) = self.source.edited(edits, seen)?;
        Some(SourceFile { source, words, silencing, module: self.module.clone(), asked: self.asked })
    }

    pub fn place(&self, range: TextRange) -> Place {
        let ((line, column), (end_line, end_column)) = (self.position(range.start()), self.position(range.end()));
        Place { file: self.path.clone(), cell: None, line, column, end_line, end_column }
    }

    /// The place of something at `offset`, in the lines of its cell.
    pub fn place_in_cell(&self, place: &Place, offset: TextSize) -> Place {
        let (cell, line) = self.line_in_cell(offset);
        let lines = place.end_line.saturating_sub(place.line);
        Place { cell, line, end_line: line + lines, ..place.clone() }
    }
}

/// Facts of a file's tokens that are kept: topics and comments.
fn seen(text: &str, tokens: &Tokens) -> (u64, Vec<TextRange>) {
    (topics::words_of(text, tokens), suppression::comments(text, tokens))
}

/// `a/b/c.py` as `[a, b, c]`.
pub fn module_of(path: &str) -> Vec<String> {
    let trimmed = path.strip_suffix(".py").or_else(|| path.strip_suffix(".pyi")).unwrap_or(path);
    let parts = trimmed.split(['/', '\\']).filter(|part| !part.is_empty() && *part != ".");
    // A dot inside a folder's name would read as a package level.
    let mut parts: Vec<String> = parts.map(|part| part.replace('.', "_")).collect();
    if parts.last().is_some_and(|last| last == "__init__") {
        parts.pop();
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_named_after_its_folder() {
        assert_eq!(module_of("./a/b/__init__.py"), ["a", "b"]);
        assert_eq!(module_of("a/b/c.py"), ["a", "b", "c"]);
    }
}
