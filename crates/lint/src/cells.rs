//! Places a notebook's findings in its cells. Rules count lines and bytes across all cells together.

use ruff_text_size::TextRange;

use super::file::SourceFile;
use super::rule::SourceFinding;

/// Converts the finding and its edits to the lines and bytes of their cells. A script's finding stays as it is.
pub fn show(file: &SourceFile, finding: &mut SourceFinding) {
    finding.place = file.place_in_cell(&finding.place, finding.range.start());
    let Some(first) = finding.fix.edits.iter().map(|edit| edit.range.start()).min() else { return };
    if let Some(preview) = &mut finding.fix.preview {
        preview.line = file.line_in_cell(first).1;
    }
    for edit in &mut finding.fix.edits {
        if let Some(cell) = file.cell_at(edit.range.start()) {
            let end = edit.range.end().min(cell.range.end());
            edit.range = TextRange::new(edit.range.start(), end) - cell.range.start();
            edit.cell = Some(cell.number);
        }
    }
}
