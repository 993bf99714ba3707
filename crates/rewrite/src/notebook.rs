//! Jupyter notebooks: joins their code cells into one text, and writes changed text back into the JSON without changing
//! anything else.

use std::borrow::Cow;
use std::collections::HashMap;

use ruff_text_size::{TextRange, TextSize};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::edit::Edit;

/// Cell magics whose cell is still Python.
const PYTHON_MAGICS: &[&str] = &["time", "timeit", "capture", "prun", "debug", "python", "python3"];

/// Line magics that IPython also runs without their `%`, where a word follows.
const AUTOMAGICS: &[&str] = &["cd", "conda", "mamba", "pip", "uv"];

/// A Python cell and its place in the joined text of all cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Counted from 1 including text cells, as editors count.
    pub number: u32,
    /// One line ending between two cells belongs to neither.
    pub range: TextRange,
}

#[derive(Deserialize)]
struct Json<'j> {
    #[serde(borrow)]
    cells: Vec<JsonCell<'j>>,
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct JsonCell<'j> {
    cell_type: String,
    #[serde(borrow)]
    source: Option<&'j RawValue>,
}

#[derive(Deserialize)]
struct Metadata {
    language_info: Option<Named>,
    kernelspec: Option<Named>,
}

/// A kernel gives its language in one of two keys.
#[derive(Deserialize)]
struct Named {
    name: Option<String>,
    language: Option<String>,
}

/// A cell's source in the format: a list of lines, or one string.
#[derive(Deserialize)]
#[serde(untagged)]
enum Source {
    Lines(Vec<String>),
    Whole(String),
}

/// The code of all Python cells joined, and where each cell is in it.
pub fn read(json: &str) -> Result<(String, Vec<Cell>), String> {
    let (mut text, mut cells) = (String::new(), Vec::new());
    for (number, source) in code_cells(json)? {
        let code = code_of(source)?;
        if is_python(&code) {
            let start = TextSize::of(&text);
            text.push_str(&code);
            cells.push(Cell { number, range: TextRange::new(start, TextSize::of(&text)) });
            text.push('\n');
        }
    }
    Ok((text, cells))
}

/// The text as IPython reads it: `pip install torch` is parsed as `%ip install torch`, a magic. No offset changes.
pub fn with_magics(text: &str) -> Cow<'_, str> {
    let mut result = Cow::Borrowed(text);
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let code = line.trim_start();
        let is_magic = code.split_once(' ').is_some_and(|(word, rest)| {
            AUTOMAGICS.contains(&word) && rest.trim_start().starts_with(|first: char| first.is_ascii_alphabetic())
        });
        if is_magic {
            let at = start + line.len() - code.len();
            result.to_mut().replace_range(at..=at, "%");
        }
        start += line.len();
    }
    result
}

/// The JSON with the cells' code taken from `text`. Only changed sources are rewritten.
pub fn write(json: &str, text: &str, cells: &[Cell]) -> Option<String> {
    let sources: HashMap<u32, &RawValue> = code_cells(json).ok()?.into_iter().collect();
    let mut result = json.to_string();
    // From the back, so that earlier offsets stay valid.
    for cell in cells.iter().rev() {
        let (source, code) = (sources.get(&cell.number)?, text.get(cell.range.to_std_range())?);
        if code_of(source).ok()? != code {
            let start = offset_in(json, source.get());
            result.replace_range(start..start + source.get().len(), &source_of(source, code)?);
        }
    }
    Some(result)
}

/// Keeps every edit inside its cell: one that removes the line ending after a cell's last line would join two cells.
pub fn clip(edits: &[Edit], cells: &[Cell]) -> Option<Vec<Edit>> {
    let clipped = |edit: &Edit| {
        let cell = cells
            .iter()
            .find(|cell| cell.range.start() <= edit.range.start() && edit.range.start() <= cell.range.end())?;
        let beyond = edit.range.end() > cell.range.end() + TextSize::new(1);
        let range = TextRange::new(edit.range.start(), edit.range.end().min(cell.range.end()));
        (!beyond).then(|| Edit { range, text: edit.text.clone(), cell: None })
    };
    edits.iter().map(clipped).collect()
}

/// The cells' ranges after the edits, each of which is inside one cell.
pub fn moved(cells: &[Cell], edits: &[Edit]) -> Option<Vec<Cell>> {
    let mut shift: i64 = 0;
    let shifted = |offset: TextSize, by: i64| u32::try_from(i64::from(u32::from(offset)) + by).ok().map(TextSize::new);
    let mut result = Vec::with_capacity(cells.len());
    for cell in cells {
        let start = shifted(cell.range.start(), shift)?;
        for edit in edits.iter().filter(|edit| cell.range.contains_range(edit.range)) {
            shift += edit.text.len() as i64 - i64::from(u32::from(edit.range.len()));
        }
        result.push(Cell { number: cell.number, range: TextRange::new(start, shifted(cell.range.end(), shift)?) });
    }
    Some(result)
}

fn code_cells(json: &str) -> Result<Vec<(u32, &RawValue)>, String> {
    let notebook: Json = serde_json::from_str(json).map_err(|error| format!("not a notebook of format 4: {error}"))?;
    let metadata = notebook.metadata;
    let language = metadata.and_then(|about| {
        let of_kernel = about.kernelspec.and_then(|kernel| kernel.language);
        about.language_info.and_then(|language| language.name).or(of_kernel)
    });
    if language.is_some_and(|language| !language.to_ascii_lowercase().contains("python")) {
        return Ok(Vec::new());
    }
    let numbered = (1..).zip(notebook.cells);
    Ok(numbered.filter(|(_, cell)| cell.cell_type == "code").filter_map(|(n, cell)| Some((n, cell.source?))).collect())
}

fn code_of(source: &RawValue) -> Result<String, String> {
    match serde_json::from_str(source.get()) {
        Ok(Source::Lines(lines)) => Ok(lines.concat()),
        Ok(Source::Whole(code)) => Ok(code),
        Err(error) => Err(format!("a cell's source is neither text nor lines: {error}")),
    }
}

/// Whether the cell is Python: a cell that begins with another language's magic is not read.
fn is_python(code: &str) -> bool {
    let Some(magic) = code.trim_start().strip_prefix("%%") else { return true };
    let word = magic.split(|end: char| !end.is_alphanumeric()).next().unwrap_or_default();
    PYTHON_MAGICS.contains(&word)
}

/// `code` as JSON, in the shape and with the white space of the old source.
fn source_of(old: &RawValue, code: &str) -> Option<String> {
    let raw = old.get();
    if !raw.starts_with('[') {
        return serde_json::to_string(code).ok();
    }
    let elements: Vec<&RawValue> = serde_json::from_str(raw).ok()?;
    let span = |element: &RawValue| {
        let start = offset_in(raw, element.get());
        (start, start + element.get().len())
    };
    let spans: Vec<(usize, usize)> = elements.iter().map(|element| span(element)).collect();
    let (first, last) = (spans.first()?, spans.last()?);
    let before = &raw[1..first.0];
    let between = spans.get(1).map_or_else(|| format!(",{before}"), |second| raw[first.1..second.0].to_string());
    let behind = &raw[last.1..raw.len() - 1];
    // Unchanged lines keep their spelling: `\u00e9` and `é` are the same line.
    let spelled: HashMap<String, &str> = elements
        .iter()
        .filter_map(|element| Some((serde_json::from_str::<String>(element.get()).ok()?, element.get())))
        .collect();
    let line = |line: &str| match spelled.get(line) {
        Some(known) => Some(known.to_string()),
        None => serde_json::to_string(line).ok(),
    };
    let lines: Vec<String> = code.split_inclusive('\n').map(line).collect::<Option<_>>()?;
    Some(format!("[{before}{}{behind}]", lines.join(&between)))
}

/// The offset of `part`, a slice of `whole`, in it.
fn offset_in(whole: &str, part: &str) -> usize {
    part.as_ptr() as usize - whole.as_ptr() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTEBOOK: &str = r##"{
 "cells": [
  {"cell_type": "markdown", "metadata": {}, "source": ["# import this"]},
  {
   "cell_type": "code",
   "execution_count": 1,
   "metadata": {"tags": [ ], "odd":1.50},
   "outputs": [],
   "source": [
    "import torch\n",
    "name = 'caf\u00e9'"
   ]
  },
  {"cell_type": "code", "source": "%%bash\nls | wc"},
  {"cell_type": "code", "source": "x = 1\n"},
  {"cell_type": "code", "source": []}
 ],
 "metadata": {"language_info": {"name": "python"}},
 "nbformat": 4, "nbformat_minor": 5
}
"##;

    #[test]
    fn cells_of_python_make_one_text() {
        let (text, cells) = read(NOTEBOOK).expect("a notebook");
        assert_eq!(text, "import torch\nname = 'café'\nx = 1\n\n\n");
        let shown: Vec<(u32, &str)> =
            cells.iter().map(|cell| (cell.number, &text[cell.range.to_std_range()])).collect();
        assert_eq!(shown, [(2, "import torch\nname = 'café'"), (4, "x = 1\n"), (5, "")]);
    }

    #[test]
    fn magics_without_a_percent_sign_are_magics() {
        let text = "pip install -q torch\n  conda install x\npip = 1\nprint(pip)\npip.main()\ncd data\n";
        let want = "%ip install -q torch\n  %onda install x\npip = 1\nprint(pip)\npip.main()\n%d data\n";
        assert_eq!(with_magics(text), want);
        assert!(matches!(with_magics("import pip\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn only_the_changed_lines_of_the_json_change() {
        let (text, cells) = read(NOTEBOOK).expect("a notebook");
        let edits = [Edit::insert(TextSize::new(12), "\n\ntorch.ok = \"yes\"")];
        let after = super::super::edit::apply(&text, &edits).expect("one edit");
        let moved = moved(&cells, &edits).expect("inside one cell");
        let want = NOTEBOOK.replace(
            "\"import torch\\n\",\n",
            "\"import torch\\n\",\n    \"\\n\",\n    \"torch.ok = \\\"yes\\\"\\n\",\n",
        );
        assert_eq!(write(NOTEBOOK, &after, &moved).as_deref(), Some(want.as_str()));
        assert_eq!(write(NOTEBOOK, &text, &cells).as_deref(), Some(NOTEBOOK));
    }

    #[test]
    fn an_edit_never_joins_two_cells() {
        let (text, cells) = read(NOTEBOOK).expect("a notebook");
        let line = TextRange::new(TextSize::new(13), TextSize::of("import torch\nname = 'café'\n"));
        let clipped = clip(&[Edit::replace(line, "")], &cells).expect("inside one cell");
        assert_eq!(clipped[0].range.end(), cells[0].range.end());
        let across = TextRange::new(TextSize::new(13), TextSize::of(text.as_str()));
        assert_eq!(clip(&[Edit::replace(across, "")], &cells), None);
    }

    #[test]
    fn other_languages_are_left_out_and_other_json_is_an_error() {
        let other = NOTEBOOK.replace("\"python\"", "\"R\"");
        assert_eq!(read(&other), Ok((String::new(), vec![])));
        assert!(read("{}").is_err_and(|error| error.contains("cells")));
        assert!(read("").is_err());
    }
}
