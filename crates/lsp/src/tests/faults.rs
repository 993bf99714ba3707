//! Cancelled requests, and panics.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use serde_json::{Value, json};

use super::{Editor, SCRIPT, able, check, has, project, uri};

#[test]
fn a_request_that_is_taken_back_is_not_worked_on() {
    let (_place, root) = project(&[]);
    let (started, is_started) = channel();
    let (go_on, may_go_on) = channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let mut editor = Editor::silent(Default::default(), move |question| {
        let text = question.inputs.iter().find(|input| input.path == question.path).map(|input| input.bytes.clone());
        if text.is_some_and(|text| text.ends_with(b"# slow\n")) {
            started.send(()).expect("somebody waits");
            may_go_on.lock().expect("one waits").recv().expect("somebody lets it go on");
        }
        check(question)
    });
    editor.introduce(able(), &[&root], Value::Null);
    let uri = uri(&root.join("train.py"));
    editor.open(&uri, &format!("{SCRIPT}# slow\n"));
    is_started.recv().expect("the check began");
    let at = json!({"textDocument": {"uri": uri}, "position": {"line": 10, "character": 20}});
    let taken_back = editor.ask("textDocument/hover", at.clone());
    let kept = editor.ask("textDocument/hover", at);
    editor.notify("$/cancelRequest", json!({"id": taken_back}));
    editor.notify("$/cancelRequest", json!({"id": 12345}));
    // Texts that are replaced before they are checked are skipped: only the last of these is checked.
    for version in 2..6 {
        editor.change(&uri, version, &format!("{SCRIPT}# {version}\n"));
    }
    editor.until_taken_in();
    go_on.send(()).expect("the check waits");
    let refused = editor.response(&taken_back).expect_err("a cancellation");
    assert_eq!(refused.code, -32800, "{refused:?}");
    assert!(editor.response(&kept).expect("an answer")["contents"].is_object());
    assert!(has(&editor.diagnostics(&uri, 5), "TP101"));
    let versions: Vec<i64> = editor
        .everything_so_far()
        .iter()
        .filter_map(|message| match message {
            lsp_server::Message::Notification(one) => one.params["version"].as_i64(),
            _ => None,
        })
        .collect();
    assert!(!versions.iter().any(|version| (2..5).contains(version)), "{versions:?}");
    editor.end();
}

#[test]
fn a_panic_is_the_end_of_one_answer_only() {
    let (_place, root) = project(&[]);
    let mut editor = Editor::silent(Default::default(), |question| {
        let holds = |input: &headroom_lint::Input| String::from_utf8_lossy(&input.bytes).contains("# fault");
        assert!(!question.inputs.iter().any(holds), "a fault that was planted");
        check(question)
    });
    editor.introduce(able(), &[&root], Value::Null);
    let uri = uri(&root.join("train.py"));
    editor.open(&uri, SCRIPT);
    assert!(has(&editor.diagnostics(&uri, 1), "TP101"));
    editor.change(&uri, 2, &format!("{SCRIPT}# fault\n"));
    let said = editor.notification("window/showMessage")["message"].clone();
    assert!(said.as_str().is_some_and(|text| text.contains("a fault that was planted")), "{said}");
    assert!(editor.diagnostics(&uri, 2).is_empty(), "nothing old is shown at lines that moved");
    let at = json!({"textDocument": {"uri": uri}, "position": {"line": 10, "character": 20}});
    let refused = editor.request("textDocument/hover", at).expect_err("a fault");
    assert_eq!((refused.code, refused.message.as_str()), (-32603, "a fault that was planted"));
    editor.change(&uri, 3, SCRIPT);
    assert!(has(&editor.diagnostics(&uri, 3), "TP101"));
    editor.end();
}
