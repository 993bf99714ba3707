//! Fixes as code actions: one for each finding in range, and one for all safe fixes of a text.

use std::collections::HashMap;

use headroom_lint::fix::{Edit, Safety, apply};
use headroom_lint::{Input, Repaired, SourceFinding, parses};
use lsp_types::{
    CodeAction, CodeActionKind, DocumentChanges, OneOf, OptionalVersionedTextDocumentIdentifier, Range,
    TextDocumentEdit, TextEdit, Uri, WorkspaceEdit,
};
use serde::{Deserialize, Serialize};
use similar::{DiffTag, TextDiff};

use crate::abilities::{Client, fix_all_kind};
use crate::checked::Checked;
use crate::diagnostics;
use crate::documents::{Documents, Unit};
use crate::notebook;
use crate::text::{Encoding, Text};

/// Identifies the unit again when a client asks for the edit of an action it was shown.
#[derive(Deserialize, Serialize)]
pub struct FixAll {
    pub unit: Uri,
}

/// Whether a client that wants only some kinds of actions wants this one. A kind includes its sub-kinds.
pub fn is_wanted(only: Option<&[CodeActionKind]>, kind: &CodeActionKind) -> bool {
    let covers = |wanted: &CodeActionKind| {
        let (wanted, kind) = (wanted.as_str(), kind.as_str());
        wanted.is_empty() || kind == wanted || kind.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('.'))
    };
    only.is_none_or(|only| only.iter().any(covers))
}

/// The fixes of findings that the range touches. A text that does not parse completely is left alone, as with `--fix`.
pub fn quick_fixes(
    documents: &Documents,
    unit: &Unit,
    document: &Uri,
    range: Range,
    checked: &Checked,
    client: &Client,
) -> Vec<CodeAction> {
    if checked.problem.is_some() {
        return Vec::new();
    }
    let action = |finding: &SourceFinding| {
        let (part, open) = documents.part(&unit.uri, finding.place.cell)?;
        let diagnostic = diagnostics::of_finding(finding, &open.text, client.encoding);
        let here = diagnostic.range;
        if part != document || range.start > here.end || range.end < here.start {
            return None;
        }
        let edits = edits_of(documents, unit, finding, client.encoding)?;
        let is_safe = finding.fix.safety == Safety::Safe;
        let reserve = if is_safe { "" } else { " (may change results)" };
        Some(CodeAction {
            title: format!("{}: {}{reserve}", finding.code, finding.fix.title),
            kind: Some(CodeActionKind::QUICKFIX),
            diagnostics: Some(vec![diagnostic]),
            edit: Some(workspace_edit(documents, edits, client)),
            is_preferred: Some(is_safe),
            ..CodeAction::default()
        })
    };
    checked.findings.iter().filter_map(action).collect()
}

/// Whether all safe fixes together would change something.
pub fn has_safe_fixes(checked: &Checked) -> bool {
    let is_safe = |finding: &SourceFinding| finding.fix.safety == Safety::Safe && !finding.fix.edits.is_empty();
    checked.problem.is_none() && checked.findings.iter().any(is_safe)
}

pub fn fix_all(unit: &Unit) -> CodeAction {
    CodeAction {
        title: "Apply all safe fixes of headroom".to_string(),
        kind: Some(fix_all_kind()),
        data: serde_json::to_value(FixAll { unit: unit.uri.clone() }).ok(),
        ..CodeAction::default()
    }
}

/// The edit that turns the unit into the text that `--fix` would write.
pub fn edit_of_repair(documents: &Documents, unit: &Unit, repaired: &Repaired, client: &Client) -> WorkspaceEdit {
    let mut edits = HashMap::new();
    let mut add = |cell: Option<u32>, after: &str| {
        if let Some((part, document)) = documents.part(&unit.uri, cell) {
            let changes = differences(&document.text, after, client.encoding);
            if !changes.is_empty() {
                edits.insert(part.clone(), changes);
            }
        }
    };
    let cells = notebook::sources(&repaired.before).zip(notebook::sources(&repaired.after));
    match cells.filter(|_| documents.is_notebook(&unit.uri)) {
        Some((before, after)) => {
            for (number, _) in (1..).zip(before.iter().zip(&after)).filter(|(_, (before, after))| before != after) {
                add(Some(number), &after[number as usize - 1]);
            }
        }
        None => add(None, &repaired.after),
    }
    workspace_edit(documents, edits, client)
}

/// The edits of a fix, grouped by the text they are in; `None` if the result would not parse.
fn edits_of(
    documents: &Documents,
    unit: &Unit,
    finding: &SourceFinding,
    encoding: Encoding,
) -> Option<HashMap<Uri, Vec<TextEdit>>> {
    let mut by_cell: HashMap<Option<u32>, Vec<Edit>> = HashMap::new();
    for edit in &finding.fix.edits {
        by_cell.entry(edit.cell).or_default().push(edit.clone());
    }
    let mut all = HashMap::new();
    for (cell, edits) in by_cell {
        let (part, document) = documents.part(&unit.uri, cell)?;
        let after = apply(document.text.as_str(), &edits)?;
        let (path, bytes) = match cell {
            Some(_) => ("cell.ipynb", notebook::file_of(std::iter::once(Some(after.as_str())))),
            None => ("script.py", after.into_bytes()),
        };
        if !parses(&Input { path: path.to_string(), bytes }) {
            return None;
        }
        let as_text_edit = |edit: &Edit| TextEdit {
            range: document.text.range(edit.range.start().into(), edit.range.end().into(), encoding),
            new_text: edit.text.clone(),
        };
        all.insert(part.clone(), edits.iter().map(as_text_edit).collect());
    }
    (!all.is_empty()).then_some(all)
}

/// Compares line by line, so that cursors and marks elsewhere in the text stay in place.
fn differences(before: &Text, after: &str, encoding: Encoding) -> Vec<TextEdit> {
    let difference = TextDiff::from_lines(before.as_str(), after);
    // The start of every line, and the end of the last.
    let mut offsets = vec![0];
    for line in difference.old_slices() {
        offsets.push(offsets[offsets.len() - 1] + line.len());
    }
    let changed = difference.ops().iter().filter(|op| op.tag() != DiffTag::Equal);
    changed
        .map(|op| TextEdit {
            range: before.range(offsets[op.old_range().start], offsets[op.old_range().end], encoding),
            new_text: difference.new_slices()[op.new_range()].concat(),
        })
        .collect()
}

fn workspace_edit(documents: &Documents, edits: HashMap<Uri, Vec<TextEdit>>, client: &Client) -> WorkspaceEdit {
    if !client.takes_versioned_edits {
        return WorkspaceEdit::new(edits);
    }
    let mut changes: Vec<TextDocumentEdit> = edits
        .into_iter()
        .map(|(uri, edits)| TextDocumentEdit {
            text_document: OptionalVersionedTextDocumentIdentifier {
                version: documents.get(&uri).map(|document| document.version),
                uri,
            },
            edits: edits.into_iter().map(OneOf::Left).collect(),
        })
        .collect();
    changes.sort_by(|one, other| one.text_document.uri.cmp(&other.text_document.uri));
    WorkspaceEdit { document_changes: Some(DocumentChanges::Edits(changes)), ..WorkspaceEdit::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lsp_types::Position;

    #[test]
    fn a_kind_stands_for_all_that_begin_with_it() {
        let all = fix_all_kind();
        let wants = |only: &[&'static str]| {
            let only: Vec<CodeActionKind> = only.iter().map(|kind| CodeActionKind::new(kind)).collect();
            is_wanted(Some(&only), &all)
        };
        assert!(is_wanted(None, &all) && wants(&["source"]) && wants(&["quickfix", "source.fixAll"]) && wants(&[""]));
        assert!(!wants(&["quickfix"]) && !wants(&["source.fixAll.other"]) && !wants(&["sour"]) && !wants(&[]));
    }

    #[test]
    fn differences_touch_only_lines_that_change() {
        let before = Text::new("a\nb\nc\nd".to_string());
        let edits = differences(&before, "a\nB\nc\nd\ne\n", Encoding::Utf16);
        let range =
            |from: (u32, u32), to: (u32, u32)| Range::new(Position::new(from.0, from.1), Position::new(to.0, to.1));
        let want = [
            TextEdit { range: range((1, 0), (2, 0)), new_text: "B\n".to_string() },
            TextEdit { range: range((3, 0), (3, 1)), new_text: "d\ne\n".to_string() },
        ];
        assert_eq!(edits, want);
        assert_eq!(differences(&before, "a\nb\nc\nd", Encoding::Utf16), []);
    }
}
