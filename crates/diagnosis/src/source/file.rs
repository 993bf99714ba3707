//! One Python file: its text, its tree as far as it parses, and where things are.

use ruff_python_ast::{ModModule, PySourceType};
use ruff_python_parser::parse_unchecked_source;
use ruff_source_file::{LineIndex, OneIndexed};
use ruff_text_size::{TextRange, TextSize};

use super::{comments, nesting, topics};
use crate::finding::Place;

/// Files beyond this are generated data, not scripts.
const MOST_BYTES: usize = 8 << 20;

pub struct SourceFile {
    /// As it is shown in findings.
    pub path: String,
    pub text: String,
    pub syntax: ModModule,
    /// What its words speak of, one bit a topic of `groups`.
    pub words: u64,
    /// Comments that may silence findings. Other tokens are not kept: they take more room than the tree.
    pub silencing: Vec<TextRange>,
    /// `a/b/c.py` as `[a, b, c]`; a package's `__init__` names the package.
    pub module: Vec<String>,
    /// The first place that does not parse, and why; the rest of the file is still read.
    pub problem: Option<Problem>,
    /// Whether the bytes were UTF-8. Text that was repaired on the way in must not be written back.
    pub exact: bool,
    lines: LineIndex,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub line: u32,
    pub message: String,
}

impl SourceFile {
    pub fn from_bytes(path: &str, bytes: &[u8]) -> SourceFile {
        let text = String::from_utf8_lossy(bytes);
        let exact = matches!(text, std::borrow::Cow::Borrowed(_));
        SourceFile { exact, ..SourceFile::from_text(path, text.into_owned()) }
    }

    pub fn from_text(path: &str, text: String) -> SourceFile {
        let refusal = if text.len() > MOST_BYTES {
            Some(format!("{} MiB, files beyond {} MiB are not read", text.len() >> 20, MOST_BYTES >> 20))
        } else if nesting::is_too_deep(&text) {
            Some(format!("nested more than {} levels deep: not read", nesting::MOST_LEVELS))
        } else {
            None
        };
        let readable = if refusal.is_some() { "" } else { text.as_str() };
        let parsed = parse_unchecked_source(readable, PySourceType::Python);
        let lines = LineIndex::from_source_text(&text);
        let problem = refusal.map(|message| Problem { line: 1, message }).or_else(|| {
            parsed.errors().first().map(|error| Problem {
                line: line_number(&lines, error.location.start()),
                message: error.error.to_string(),
            })
        });
        SourceFile {
            path: path.to_string(),
            module: module_of(path),
            words: topics::words_of(readable, parsed.tokens()),
            silencing: comments::silencing_comments(readable, parsed.tokens()),
            syntax: parsed.into_syntax(),
            text,
            problem,
            exact: true,
            lines,
        }
    }

    pub fn slice(&self, range: TextRange) -> &str {
        self.text.get(usize::from(range.start())..usize::from(range.end())).unwrap_or_default()
    }

    /// The line, from 1, on which `offset` lies.
    pub fn line(&self, offset: TextSize) -> u32 {
        line_number(&self.lines, offset)
    }

    /// The text of line `number` (from 1), its line end left out.
    pub fn line_text(&self, number: u32) -> &str {
        let Some(number) = OneIndexed::new(number as usize) else { return "" };
        if number.get() > self.lines.line_count() {
            return "";
        }
        self.slice(self.lines.line_range(number, &self.text)).trim_end_matches(['\n', '\r'])
    }

    pub fn line_start(&self, offset: TextSize) -> TextSize {
        self.lines.line_start(self.lines.line_index(offset), &self.text)
    }

    /// The white space before the first word of the line that `offset` is on.
    pub fn indentation(&self, offset: TextSize) -> &str {
        let line = self.slice(TextRange::new(self.line_start(offset), offset));
        &line[..line.len() - line.trim_start().len()]
    }

    pub fn place(&self, range: TextRange) -> Place {
        let at = |offset| self.lines.line_column(offset, &self.text);
        let (start, end) = (at(range.start()), at(range.end()));
        Place {
            file: self.path.clone(),
            line: start.line.get() as u32,
            column: start.column.get() as u32,
            end_line: end.line.get() as u32,
            end_column: end.column.get() as u32,
        }
    }
}

fn line_number(lines: &LineIndex, offset: TextSize) -> u32 {
    lines.line_index(offset).get() as u32
}

fn module_of(path: &str) -> Vec<String> {
    let trimmed = path.strip_suffix(".py").or_else(|| path.strip_suffix(".pyi")).unwrap_or(path);
    let parts = trimmed.split(['/', '\\']).filter(|part| !part.is_empty() && *part != ".");
    // A dot inside a folder's name would read as a level of its own.
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
    fn a_file_that_breaks_off_is_read_as_far_as_it_goes() {
        let file = SourceFile::from_text("a.py", "x = 1\ndef f(:\n  y = (\n".to_string());
        assert_eq!(file.problem.as_ref().map(|problem| problem.line), Some(2));
        assert!(!file.syntax.body.is_empty());
    }

    #[test]
    fn a_package_is_named_after_its_folder() {
        assert_eq!(module_of("./a/b/__init__.py"), ["a", "b"]);
        assert_eq!(module_of("a/b/c.py"), ["a", "b", "c"]);
    }

    #[test]
    fn columns_count_characters() {
        let file = SourceFile::from_text("a.py", "é = 1\n".to_string());
        let place = file.place(TextRange::new(TextSize::new(3), TextSize::new(4)));
        assert_eq!((place.line, place.column, place.end_column), (1, 3, 4));
    }
}
