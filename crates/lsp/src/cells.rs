//! Changes to a notebook's cells.

use lsp_types::{DidChangeNotebookDocumentParams, NotebookDocumentCellChange, Uri};

use crate::documents::{Documents, NotOpen};
use crate::text::Encoding;

/// Adds and removes cells, and changes their kind or text. Returns the documents of removed cells.
pub fn change(
    documents: &mut Documents,
    params: DidChangeNotebookDocumentParams,
    encoding: Encoding,
) -> Result<Vec<Uri>, NotOpen> {
    let uri = params.notebook_document.uri;
    let before = documents.parts(&uri);
    let notebook = documents.notebook_mut(&uri)?;
    let Some(NotebookDocumentCellChange { structure, data, text_content }) = params.change.cells else {
        return Ok(Vec::new());
    };
    if let Some(structure) = structure {
        let length = notebook.cells.len();
        let start = (structure.array.start as usize).min(length);
        let end = start.saturating_add(structure.array.delete_count as usize).min(length);
        notebook.cells.splice(start..end, structure.array.cells.unwrap_or_default());
        for opened in structure.did_open.unwrap_or_default() {
            documents.open_cell(&uri, opened);
        }
        for closed in structure.did_close.unwrap_or_default() {
            documents.close_cell(&closed.uri);
        }
    }
    for cell in data.unwrap_or_default() {
        let cells = &mut documents.notebook_mut(&uri)?.cells;
        if let Some(known) = cells.iter_mut().find(|known| known.document == cell.document) {
            *known = cell;
        }
    }
    for content in text_content.unwrap_or_default() {
        documents.change(&content.document, content.changes, encoding)?;
    }
    Ok(before.into_iter().filter(|cell| documents.get(cell).is_none()).collect())
}
