//! One Python file: its text, its syntax tree as far as it parses, its lines and, in a notebook, its cells.

use ruff_python_ast::token::Tokens;
use ruff_python_ast::{ModModule, PySourceType};
use ruff_python_parser::{ParseOptions, Parsed, parse_cells_unchecked, parse_unchecked_source};
use ruff_source_file::{LineIndex, OneIndexed};
use ruff_text_size::{TextRange, TextSize};

use super::edit::{Edit, apply};
use super::nesting;
use super::notebook::{self, Cell};

/// Larger files are generated data, not scripts.
const MOST_BYTES: usize = headroom_record::reading::SCRIPT as usize;

pub struct Source {
    /// The path as findings show it.
    pub path: String,
    pub text: String,
    pub syntax: ModModule,
    /// The first place that does not parse, and why; the rest of the file is still read.
    pub problem: Option<Problem>,
    /// Whether the file was not read at all.
    pub refused: bool,
    /// Whether the bytes were UTF-8. Text that was repaired while reading must not be written back.
    pub exact: bool,
    cells: Option<Vec<Cell>>,
    lines: LineIndex,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// In a notebook: the cell, and the line in it.
    pub cell: Option<u32>,
    /// Zero if the whole file is meant.
    pub line: u32,
    pub message: String,
}

/// Whether a file is known to parse without exhausting the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    Unknown,
    Checked,
}

impl Problem {
    /// A file that could not be read at all.
    pub fn of_file(message: impl Into<String>) -> Problem {
        Problem { cell: None, line: 0, message: message.into() }
    }

    /// Where the problem is in the file at `path`, as far as known.
    pub fn place(&self, path: &str) -> String {
        match (self.cell, self.line) {
            (Some(cell), 0) => format!("{path}:cell {cell}"),
            (Some(cell), line) => format!("{path}:cell {cell}:{line}"),
            (None, 0) => path.to_string(),
            (None, line) => format!("{path}:{line}"),
        }
    }
}

impl Source {
    /// Reads a file's bytes. `see` is shown its tokens, which are not stored: they take more memory than the tree.
    pub fn read<T>(path: &str, bytes: &[u8], depth: Depth, see: impl Fn(&str, &Tokens) -> T) -> (Source, T) {
        let text = String::from_utf8_lossy(bytes);
        let exact = matches!(text, std::borrow::Cow::Borrowed(_));
        let (source, seen) = match is_notebook(path).then(|| notebook::read(&text)) {
            None => Source::from_cells(path, text.into_owned(), None, depth, see),
            Some(Ok((code, cells))) => Source::from_cells(path, code, Some(cells), depth, see),
            Some(Err(message)) => {
                let (source, seen) = Source::from_cells(path, String::new(), None, depth, see);
                (Source { problem: Some(Problem::of_file(message)), ..source }, seen)
            }
        };
        (Source { exact, ..source }, seen)
    }

    pub fn from_text(path: &str, text: String) -> Source {
        Source::from_cells(path, text, None, Depth::Unknown, |_, _| ()).0
    }

    fn from_cells<T>(
        path: &str,
        text: String,
        cells: Option<Vec<Cell>>,
        depth: Depth,
        see: impl Fn(&str, &Tokens) -> T,
    ) -> (Source, T) {
        let refusal = if depth == Depth::Checked { None } else { refusal(&text, cells.as_deref()) };
        let readable = if refusal.is_some() { "" } else { text.as_str() };
        let parsed = parse(readable, cells.as_deref().filter(|_| refusal.is_none()));
        let error = parsed.errors().first().map(|error| (error.location.start(), error.error.to_string()));
        let seen = see(readable, parsed.tokens());
        let mut source = Source {
            path: path.to_string(),
            refused: refusal.is_some(),
            problem: refusal.map(Problem::of_file),
            exact: true,
            cells,
            lines: LineIndex::from_source_text(&text),
            syntax: parsed.into_syntax(),
            text,
        };
        if let Some((offset, message)) = error {
            let (cell, line) = source.line_in_cell(offset);
            source.problem = Some(Problem { cell, line, message });
        }
        (source, seen)
    }

    /// The file after the edits; `None` where they overlap or cross a cell.
    pub fn edited<T>(&self, edits: &[Edit], see: impl Fn(&str, &Tokens) -> T) -> Option<(Source, T)> {
        let (text, cells) = match &self.cells {
            None => (apply(&self.text, edits)?, None),
            Some(cells) => {
                let edits = notebook::clip(edits, cells)?;
                (apply(&self.text, &edits)?, Some(notebook::moved(cells, &edits)?))
            }
        };
        let (after, seen) = Source::from_cells(&self.path, text, cells, Depth::Unknown, see);
        Some((Source { exact: self.exact, ..after }, seen))
    }

    /// The text to write for a file that held `before`.
    pub fn written(&self, before: &str) -> Option<String> {
        match &self.cells {
            None => Some(self.text.clone()),
            Some(cells) => notebook::write(before, &self.text, cells),
        }
    }

    /// The cell around `offset` if this is a notebook, and the line within the cell or file.
    pub fn line_in_cell(&self, offset: TextSize) -> (Option<u32>, u32) {
        let line = self.line(offset);
        match self.cell_at(offset) {
            Some(cell) => (Some(cell.number), line + 1 - self.line(cell.range.start())),
            None => (None, line),
        }
    }

    /// In a notebook: the cell around `offset`.
    pub fn cell_at(&self, offset: TextSize) -> Option<&Cell> {
        let cells = self.cells.as_ref()?;
        cells.get(cells.partition_point(|cell| cell.range.end() < offset)).or(cells.last())
    }

    pub fn slice(&self, range: TextRange) -> &str {
        self.text.get(usize::from(range.start())..usize::from(range.end())).unwrap_or_default()
    }

    /// The line, from 1, that contains `offset`.
    pub fn line(&self, offset: TextSize) -> u32 {
        self.lines.line_index(offset).get() as u32
    }

    /// The text of line `number` (from 1), without its line ending.
    pub fn line_text(&self, number: u32) -> &str {
        match OneIndexed::new(number as usize).filter(|number| number.get() <= self.lines.line_count()) {
            Some(number) => self.slice(self.lines.line_range(number, &self.text)).trim_end_matches(['\n', '\r']),
            None => "",
        }
    }

    /// The offset after the last character of line `number`, before its line ending.
    pub fn line_end(&self, number: u32) -> TextSize {
        let Some(number) = OneIndexed::new(number as usize) else { return TextSize::default() };
        let range = self.lines.line_range(number, &self.text);
        range.start() + TextSize::of(self.slice(range).trim_end_matches(['\n', '\r']))
    }

    /// Tokenizes again: tokens are not stored.
    pub fn tokens(&self) -> Tokens {
        parse(&self.text, self.cells.as_deref()).tokens().clone()
    }

    pub fn line_start(&self, offset: TextSize) -> TextSize {
        self.lines.line_start(self.lines.line_index(offset), &self.text)
    }

    /// The white space before the first word of the line that contains `offset`.
    pub fn indentation(&self, offset: TextSize) -> &str {
        let line = self.slice(TextRange::new(self.line_start(offset), offset));
        &line[..line.len() - line.trim_start().len()]
    }

    /// The line and the column of `offset`, both from 1.
    pub fn position(&self, offset: TextSize) -> (u32, u32) {
        let at = self.lines.line_column(offset, &self.text);
        (at.line.get() as u32, at.column.get() as u32)
    }
}

pub fn is_notebook(path: &str) -> bool {
    path.ends_with(".ipynb")
}

/// Why a file is not read at all, if so.
fn refusal(text: &str, cells: Option<&[Cell]>) -> Option<String> {
    if text.len() > MOST_BYTES {
        return Some(format!("{} MiB, files larger than {} MiB are not read", text.len() >> 20, MOST_BYTES >> 20));
    }
    let is_deep = match cells {
        None => nesting::is_too_deep(text, PySourceType::Python),
        Some(cells) => {
            let code = |cell: &Cell| text.get(cell.range.to_std_range()).unwrap_or_default();
            cells.iter().any(|cell| nesting::is_too_deep(code(cell), PySourceType::Ipynb))
        }
    };
    is_deep.then(|| format!("nested more than {} levels deep: not read", nesting::MOST_LEVELS))
}

/// Parses the text. Every cell must be complete by itself; together they are one module.
fn parse(text: &str, cells: Option<&[Cell]>) -> Parsed<ModModule> {
    match cells {
        None => parse_unchecked_source(text, PySourceType::Python),
        Some(cells) => {
            let text = notebook::with_magics(text);
            parse_cells_unchecked(&text, cells.iter().map(|cell| cell.range), &ParseOptions::from(PySourceType::Ipynb))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_breaks_off_is_read_as_far_as_it_goes() {
        let file = Source::from_text("a.py", "x = 1\ndef f(:\n  y = (\n".to_string());
        assert_eq!(file.problem.as_ref().map(|problem| problem.line), Some(2));
        assert!(!file.syntax.body.is_empty());
    }

    #[test]
    fn columns_count_characters() {
        let file = Source::from_text("a.py", "é = 1\n".to_string());
        assert_eq!((file.position(TextSize::new(3)), file.position(TextSize::new(4))), ((1, 3), (1, 4)));
    }
}
