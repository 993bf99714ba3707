//! Notebooks, whose cells are separate texts.

use serde_json::{Value, json};

use super::{Editor, SCRIPT, able, edited, has, project, uri};

const CELLS: [&str; 2] = ["vscode-notebook-cell:/n.ipynb#1", "vscode-notebook-cell:/n.ipynb#2"];

fn cell(uri: &str, text: &str) -> Value {
    json!({"uri": uri, "languageId": "python", "version": 1, "text": text})
}

fn open(editor: &Editor, notebook: &str, texts: [&str; 2]) {
    let cells: Vec<Value> = CELLS.iter().map(|uri| json!({"kind": 2, "document": uri})).collect();
    let documents: Vec<Value> = CELLS.iter().zip(texts).map(|(uri, text)| cell(uri, text)).collect();
    let document = json!({"uri": notebook, "notebookType": "jupyter-notebook", "version": 1, "cells": cells});
    editor.notify("notebookDocument/didOpen", json!({"notebookDocument": document, "cellTextDocuments": documents}));
}

#[test]
fn findings_and_fixes_are_those_of_their_cells() {
    let (_place, root) = project(&[]);
    let mut editor = Editor::start(able(), &[&root], Value::Null);
    let notebook = uri(&root.join("n.ipynb"));
    let (imports, body) = SCRIPT.split_at(SCRIPT.find("def").expect("a function"));
    open(&editor, &notebook, [imports, &format!("%matplotlib inline\n{body}")]);
    let found = editor.diagnostics(CELLS[1], 1);
    let item = found.iter().find(|one| has(&[(*one).clone()], "TP101")).expect("TP101");
    assert_eq!(item.range.start.line, 8, "a line of the cell");
    assert!(editor.diagnostics(CELLS[0], 1).iter().all(|one| one.range.start.line < 3));
    let range = json!({"start": {"line": 0, "character": 0}, "end": {"line": 99, "character": 0}});
    let params = json!({
        "textDocument": {"uri": CELLS[1]}, "range": range, "context": {"diagnostics": [], "only": ["source.fixAll"]},
    });
    let actions = editor.request("textDocument/codeAction", params.clone()).expect("actions");
    let action = editor.request("codeAction/resolve", actions[0].clone()).expect("an edit");
    let changes = action["edit"]["documentChanges"].as_array().expect("changes").clone();
    let change = changes.iter().find(|one| one["textDocument"]["uri"] == CELLS[1]).expect("a change of the cell");
    let after = edited(&format!("%matplotlib inline\n{body}"), &change["edits"]);
    assert!(after.contains("zeros(8, device=\"cuda\")") && after.starts_with("%matplotlib inline\n"), "{after}");
    let mut quick = params;
    quick["context"]["only"] = json!(["quickfix"]);
    let actions = editor.request("textDocument/codeAction", quick).expect("actions");
    let fix = actions.as_array().into_iter().flatten().find(|one| one["diagnostics"][0]["code"] == "TP501");
    let change = &fix.expect("TP501")["edit"]["documentChanges"][0];
    assert_eq!(change["textDocument"]["uri"], CELLS[1]);
    editor.end();
}

#[test]
fn cells_come_change_and_go() {
    let (_place, root) = project(&[]);
    let mut editor = Editor::start(able(), &[&root], Value::Null);
    let notebook = uri(&root.join("n.ipynb"));
    open(&editor, &notebook, ["import torch\n", "x = 1\n"]);
    assert!(editor.diagnostics(CELLS[1], 1).is_empty());
    let body = &SCRIPT[SCRIPT.find("def").expect("a function")..];
    let change = |editor: &Editor, version: i32, cells: Value| {
        let document = json!({"uri": notebook, "version": version});
        editor.notify("notebookDocument/didChange", json!({"notebookDocument": document, "change": {"cells": cells}}));
    };
    let text = json!([{"document": {"uri": CELLS[1], "version": 2}, "changes": [{"text": body}]}]);
    change(&editor, 2, json!({"textContent": text}));
    assert!(has(&editor.diagnostics(CELLS[1], 2), "TP101"));
    let third = "vscode-notebook-cell:/n.ipynb#3";
    let added = json!({"start": 1, "deleteCount": 0, "cells": [{"kind": 2, "document": third}]});
    change(&editor, 3, json!({"structure": {"array": added, "didOpen": [cell(third, "def broken(:\n")]}}));
    let broken = editor.diagnostics(third, 1);
    assert!(broken.iter().any(|one| one.message.starts_with("not fully read")), "{broken:?}");
    let removed = json!({"start": 1, "deleteCount": 2});
    let closed = json!([{"uri": third}, {"uri": CELLS[1]}]);
    change(&editor, 4, json!({"structure": {"array": removed, "didClose": closed}}));
    assert!(editor.diagnostics_where(CELLS[1], |params| params.version.is_none()).is_empty());
    let params = json!({"notebookDocument": {"uri": notebook}, "cellTextDocuments": [{"uri": CELLS[0]}]});
    editor.notify("notebookDocument/didClose", params);
    assert!(editor.everything_so_far().iter().all(|one| !matches!(one, lsp_server::Message::Response(_))));
    editor.end();
}
