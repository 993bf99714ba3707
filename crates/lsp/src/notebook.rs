//! An open notebook: its cells, and the file they would form.

use lsp_types::{NotebookCell, NotebookCellKind, NotebookDocument, Uri};
use serde_json::{Value, json};

pub struct Notebook {
    pub cells: Vec<NotebookCell>,
}

impl Notebook {
    pub fn new(document: NotebookDocument) -> Notebook {
        Notebook { cells: document.cells }
    }

    /// The file as rules read it. `code_of` gives the text of a Python cell; other cells are kept so that the numbering
    /// holds.
    pub fn written<'t>(&self, code_of: impl Fn(&Uri) -> Option<&'t str>) -> Vec<u8> {
        let code = |cell: &NotebookCell| code_of(&cell.document).filter(|_| cell.kind == NotebookCellKind::Code);
        file_of(self.cells.iter().map(code))
    }
}

/// A notebook file with these cells; `None` stands for a cell that is not Python.
pub fn file_of<'t>(cells: impl Iterator<Item = Option<&'t str>>) -> Vec<u8> {
    let cell = |code: Option<&str>| match code {
        Some(code) => json!({"cell_type": "code", "source": code}),
        None => json!({"cell_type": "markdown", "source": ""}),
    };
    json!({"cells": cells.map(cell).collect::<Vec<Value>>()}).to_string().into_bytes()
}

/// The sources of the cells in a file that `file_of` wrote.
pub fn sources(file: &str) -> Option<Vec<String>> {
    let file: Value = serde_json::from_str(file).ok()?;
    file["cells"].as_array()?.iter().map(|cell| cell["source"].as_str().map(str::to_string)).collect()
}
