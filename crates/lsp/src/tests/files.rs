//! Files around the open documents, folders and settings.

use serde_json::{Value, json};

use super::{Editor, SCRIPT, able, has, project, uri};

/// A loop that calls a helper in another file: only the caller shows what the helper costs.
const CALLER: &str = "import torch\nfrom tools.metrics import log_loss\n\n\ndef train(model, loader, optimizer):\n    for x in loader:\n        loss = model(x.cuda()).sum()\n        optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()\n        log_loss(loss)\n";
const HELPER: &str = "import torch\n\n\ndef log_loss(value):\n    return value.item()\n";

#[test]
fn open_documents_come_before_files_also_for_those_that_import_them() {
    let without = CALLER.replace("        log_loss(loss)\n", "");
    let (_place, root) = project(&[("train.py", &without), ("tools/metrics.py", HELPER)]);
    let mut editor = Editor::start(able(), &[&root], Value::Null);
    let (caller, helper) = (uri(&root.join("train.py")), uri(&root.join("tools/metrics.py")));
    editor.open(&helper, HELPER);
    assert!(!has(&editor.diagnostics(&helper, 1), "TP101"), "nobody calls it");
    editor.open(&caller, &without);
    editor.diagnostics(&caller, 1);
    editor.change(&caller, 2, CALLER);
    let found = editor.diagnostics_where(&helper, |params| !params.diagnostics.is_empty());
    assert!(has(&found, "TP101"), "{found:?}");
    editor.notify("textDocument/didClose", json!({"textDocument": {"uri": caller}}));
    assert!(
        editor.diagnostics_where(&helper, |params| params.diagnostics.is_empty()).is_empty(),
        "the file counts again"
    );
    // A new file that is not saved yet.
    let new = uri(&root.join("new.py"));
    editor.open(&new, CALLER);
    assert!(has(&editor.diagnostics_where(&helper, |params| !params.diagnostics.is_empty()), "TP101"));
    editor.end();
}

#[test]
fn files_that_change_on_disk_are_read_again() {
    let without = CALLER.replace("        log_loss(loss)\n", "");
    let (_place, root) = project(&[("train.py", &without), ("tools/metrics.py", HELPER)]);
    let mut editor = Editor::start(able(), &[&root], Value::Null);
    let registered = editor.request_of_server("client/registerCapability");
    let watched = registered["registrations"][0]["registerOptions"]["watchers"].as_array().map(Vec::len);
    assert_eq!(watched, Some(5), "{registered}");
    let helper = uri(&root.join("tools/metrics.py"));
    editor.open(&helper, HELPER);
    editor.diagnostics(&helper, 1);
    let tell = |editor: &Editor, path: &str| {
        let changes = json!([{"uri": uri(&root.join(path)), "type": 2}]);
        editor.notify("workspace/didChangeWatchedFiles", json!({"changes": changes}));
    };
    std::fs::write(root.join("train.py"), CALLER).expect("a file");
    tell(&editor, "train.py");
    assert!(has(&editor.diagnostics_where(&helper, |params| !params.diagnostics.is_empty()), "TP101"));
    std::fs::write(root.join("headroom.toml"), "ignore = [\"TP101\"]\n").expect("a file");
    tell(&editor, "headroom.toml");
    assert!(editor.diagnostics_where(&helper, |params| params.diagnostics.is_empty()).is_empty());
    std::fs::write(root.join("headroom.toml"), "exclude = [\"nothing\"]\n").expect("a file");
    tell(&editor, "headroom.toml");
    assert!(has(&editor.diagnostics_where(&helper, |params| !params.diagnostics.is_empty()), "TP101"));
    std::fs::write(root.join("headroom.toml"), "exclude = [\"tools\"]\n").expect("a file");
    tell(&editor, "headroom.toml");
    assert!(editor.diagnostics_where(&helper, |params| params.diagnostics.is_empty()).is_empty(), "left out");
    editor.end();
}

#[test]
fn a_configuration_that_is_not_understood_is_said_and_mended() {
    let (_place, root) = project(&[]);
    let mut editor = Editor::start(json!({}), &[&root], Value::Null);
    std::fs::write(root.join("headroom.toml"), "selct = []\n").expect("a file");
    let uri = uri(&root.join("train.py"));
    editor.open(&uri, SCRIPT);
    let said = editor.notification("window/showMessage")["message"].clone();
    let said = said.as_str().unwrap_or_default().to_string();
    assert!(said.contains("headroom.toml: the file is not valid") && said.contains("selct"), "{said}");
    assert!(editor.diagnostics(&uri, 1).is_empty());
    std::fs::write(root.join("headroom.toml"), "").expect("a file");
    editor.notify("textDocument/didSave", json!({"textDocument": {"uri": uri}}));
    assert!(has(&editor.diagnostics_where(&uri, |params| !params.diagnostics.is_empty()), "TP101"));
    editor.end();
}

#[test]
fn every_folder_has_its_own_settings_and_they_may_change() {
    let (_one, first) = project(&[]);
    let (_two, second) = project(&[]);
    let mut editor = Editor::silent(Default::default(), super::check);
    editor.settings.insert(uri(&first), json!({"ignore": ["TP101"]}));
    editor.introduce(able(), &[&first], Value::Null);
    editor.request_of_server("workspace/configuration");
    let (in_first, in_second) = (uri(&first.join("train.py")), uri(&second.join("train.py")));
    editor.open(&in_first, SCRIPT);
    editor.open(&in_second, SCRIPT);
    let others = editor.diagnostics_where(&in_first, |params| !has(&params.diagnostics, "TP101"));
    assert!(has(&others, "TP501"));
    assert!(has(&editor.diagnostics(&in_second, 1), "TP101"));
    editor.settings.insert(uri(&second), json!({"select": ["TP501"]}));
    let added = json!([{"uri": uri(&second), "name": "second"}]);
    editor.notify("workspace/didChangeWorkspaceFolders", json!({"event": {"added": added, "removed": []}}));
    let found = editor.diagnostics_where(&in_second, |params| !has(&params.diagnostics, "TP101"));
    assert_eq!(super::codes(&found), ["TP501"]);
    editor.settings.insert(uri(&first), json!({}));
    editor.notify("workspace/didChangeConfiguration", json!({"settings": null}));
    assert!(has(&editor.diagnostics_where(&in_first, |params| has(&params.diagnostics, "TP101")), "TP101"));
    editor.end();
}

#[test]
fn a_client_that_keeps_no_settings_sends_them() {
    let (_place, root) = project(&[]);
    let mut editor = Editor::start(json!({}), &[&root], json!({"select": ["TP101"]}));
    let uri = uri(&root.join("train.py"));
    editor.open(&uri, SCRIPT);
    assert_eq!(super::codes(&editor.diagnostics(&uri, 1)), ["TP101"]);
    editor.notify("workspace/didChangeConfiguration", json!({"settings": {"headroom": {"select": ["TP501"]}}}));
    assert!(has(&editor.diagnostics_where(&uri, |params| has(&params.diagnostics, "TP501")), "TP501"));
    editor.notify("workspace/didChangeConfiguration", json!({"settings": {"headroom": {"select": ["TP9"]}}}));
    let said = editor.notification("window/showMessage")["message"].clone();
    assert!(said.as_str().is_some_and(|text| text.contains("no rule TP9")), "{said}");
    editor.notify("workspace/didChangeConfiguration", json!({"settings": {"headroom": {"select": 9}}}));
    let said = editor.notification("window/showMessage")["message"].clone();
    assert!(said.as_str().is_some_and(|text| text.contains("not valid")), "{said}");
    editor.end();
}

#[test]
fn files_of_installed_packages_are_not_shown_findings() {
    let (_place, root) = project(&[("venv/lib/site-packages/fast/train.py", SCRIPT)]);
    let mut editor = Editor::start(able(), &[&root], Value::Null);
    let uri = uri(&root.join("venv/lib/site-packages/fast/train.py"));
    editor.open(&uri, SCRIPT);
    assert!(editor.diagnostics(&uri, 1).is_empty());
    editor.end();
}
