//! The client's open documents: scripts, and notebooks with their cells.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use lsp_types::{TextDocumentContentChangeEvent, TextDocumentItem, Uri, VersionedTextDocumentIdentifier};

use crate::notebook::Notebook;
use crate::text::{Encoding, Text};
use crate::uri;

/// An open text: a script, or a cell of a notebook.
pub struct Document {
    pub text: Text,
    pub version: i32,
    is_python: bool,
    /// The notebook around a cell.
    notebook: Option<Uri>,
}

/// A script or a notebook: the smallest unit that rules check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    pub uri: Uri,
    /// Its path, or the path it will have once saved; `None` if it has no file.
    pub path: Option<PathBuf>,
    /// Counts all changes to all documents: no two states of a unit share a revision.
    pub revision: u64,
}

#[derive(Default)]
pub struct Documents {
    documents: HashMap<Uri, Document>,
    notebooks: HashMap<Uri, Notebook>,
    /// In the order they were opened.
    units: Vec<Unit>,
    revision: u64,
}

impl Documents {
    pub fn get(&self, uri: &Uri) -> Option<&Document> {
        self.documents.get(uri)
    }

    pub fn units(&self) -> &[Unit] {
        &self.units
    }

    pub fn unit(&self, uri: &Uri) -> Option<&Unit> {
        self.units.iter().find(|unit| unit.uri == *uri)
    }

    /// The script, or the notebook that a cell belongs to.
    pub fn unit_around(&self, document: &Uri) -> Option<&Unit> {
        let around = self.documents.get(document)?.notebook.as_ref().unwrap_or(document);
        self.unit(around)
    }

    /// The texts that a unit consists of.
    pub fn parts(&self, unit: &Uri) -> Vec<Uri> {
        match self.notebooks.get(unit) {
            Some(notebook) => notebook.cells.iter().map(|cell| cell.document.clone()).collect(),
            None => vec![unit.clone()],
        }
    }

    /// The text that contains the findings of a cell, counted from 1, or of the whole script.
    pub fn part(&self, unit: &Uri, cell: Option<u32>) -> Option<(&Uri, &Document)> {
        let uri = match (self.notebooks.get(unit), cell) {
            (Some(notebook), Some(cell)) => &notebook.cells.get((cell as usize).checked_sub(1)?)?.document,
            (Some(notebook), None) => &notebook.cells.first()?.document,
            (None, _) => &self.unit(unit)?.uri,
        };
        Some((uri, self.documents.get(uri)?))
    }

    /// The bytes of a file with this content.
    pub fn content(&self, unit: &Uri) -> Option<Vec<u8>> {
        if let Some(notebook) = self.notebooks.get(unit) {
            let python = |cell: &Uri| self.documents.get(cell).filter(|document| document.is_python);
            return Some(notebook.written(|cell| python(cell).map(|document| document.text.as_str())));
        }
        Some(self.documents.get(unit)?.text.as_str().as_bytes().to_vec())
    }

    /// Whether rules check it: a client may send texts in any language.
    pub fn is_checked(&self, unit: &Uri) -> bool {
        self.notebooks.contains_key(unit) || self.documents.get(unit).is_some_and(|document| document.is_python)
    }

    pub fn is_notebook(&self, unit: &Uri) -> bool {
        self.notebooks.contains_key(unit)
    }

    pub fn open(&mut self, item: TextDocumentItem) {
        let path = uri::file_path(&item.uri);
        let is_script = path.as_ref().is_some_and(|path| path.extension().is_some_and(|ending| ending == "py"));
        let is_python = item.language_id == "python" && !is_notebook(path.as_deref()) || is_script;
        let document = Document { text: Text::new(item.text), version: item.version, is_python, notebook: None };
        self.documents.insert(item.uri.clone(), document);
        self.add_unit(item.uri, path);
    }

    /// Applies changes one after the other; an error if the text is not open.
    pub fn change(
        &mut self,
        document: &VersionedTextDocumentIdentifier,
        changes: Vec<TextDocumentContentChangeEvent>,
        encoding: Encoding,
    ) -> Result<(), NotOpen> {
        let Some(open) = self.documents.get_mut(&document.uri) else { return Err(NotOpen(document.uri.clone())) };
        open.version = document.version;
        for change in changes {
            open.text.change(change, encoding);
        }
        let around = open.notebook.clone().unwrap_or_else(|| document.uri.clone());
        self.renew(&around);
        Ok(())
    }

    pub fn close(&mut self, uri: &Uri) {
        self.documents.remove(uri);
        self.units.retain(|unit| unit.uri != *uri);
        self.revision += 1;
    }

    pub fn open_notebook(&mut self, uri: Uri, notebook: Notebook, cells: Vec<TextDocumentItem>) {
        for cell in cells {
            self.open_cell(&uri, cell);
        }
        self.notebooks.insert(uri.clone(), notebook);
        let path = uri::file_path(&uri);
        self.add_unit(uri, path);
    }

    pub fn notebook_mut(&mut self, uri: &Uri) -> Result<&mut Notebook, NotOpen> {
        self.renew(uri);
        self.notebooks.get_mut(uri).ok_or_else(|| NotOpen(uri.clone()))
    }

    pub fn open_cell(&mut self, notebook: &Uri, cell: TextDocumentItem) {
        let document = Document {
            is_python: cell.language_id == "python",
            text: Text::new(cell.text),
            version: cell.version,
            notebook: Some(notebook.clone()),
        };
        self.documents.insert(cell.uri, document);
    }

    pub fn close_cell(&mut self, cell: &Uri) {
        self.documents.remove(cell);
    }

    pub fn close_notebook(&mut self, uri: &Uri) {
        for cell in self.parts(uri) {
            self.documents.remove(&cell);
        }
        self.notebooks.remove(uri);
        self.units.retain(|unit| unit.uri != *uri);
        self.revision += 1;
    }

    fn add_unit(&mut self, uri: Uri, path: Option<PathBuf>) {
        self.units.retain(|unit| unit.uri != uri);
        self.revision += 1;
        let path = path.as_deref().and_then(whole_path);
        self.units.push(Unit { uri, path, revision: self.revision });
    }

    fn renew(&mut self, uri: &Uri) {
        self.revision += 1;
        if let Some(unit) = self.units.iter_mut().find(|unit| unit.uri == *uri) {
            unit.revision = self.revision;
        }
    }
}

/// A change to a text that was never opened.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{} is not open", .0.as_str())]
pub struct NotOpen(Uri);

fn is_notebook(path: Option<&Path>) -> bool {
    path.is_some_and(|path| path.extension().is_some_and(|ending| ending == "ipynb"))
}

/// Resolves links, as in the listing of the project's files. The file itself need not exist yet.
fn whole_path(path: &Path) -> Option<PathBuf> {
    if let Ok(whole) = std::fs::canonicalize(path) {
        return Some(whole);
    }
    Some(std::fs::canonicalize(path.parent()?).ok()?.join(path.file_name()?))
}
