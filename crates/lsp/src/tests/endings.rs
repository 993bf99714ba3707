//! How a session begins and ends.

use serde_json::{Value, json};

use super::{Editor, able, check};
use crate::Ending;
use crate::settings::Settings;

fn code(answer: Result<Value, lsp_server::ResponseError>) -> i32 {
    answer.expect_err("a refusal").code
}

#[test]
fn requests_come_between_the_introduction_and_the_end() {
    let mut editor = Editor::silent(Settings::default(), check);
    assert_eq!(code(editor.request("textDocument/hover", json!({}))), -32002);
    let result = editor.introduce(able(), &[], Value::Null);
    assert_eq!(result["serverInfo"]["name"], "headroom");
    assert_eq!(result["capabilities"]["textDocumentSync"]["change"], 2, "incremental");
    assert_eq!(
        result["capabilities"]["codeActionProvider"]["codeActionKinds"],
        json!(["quickfix", "source.fixAll.headroom"])
    );
    assert_eq!(code(editor.request("initialize", json!({"capabilities": {}}))), -32600);
    assert_eq!(code(editor.request("textDocument/completion", json!({}))), -32601);
    assert_eq!(code(editor.request("textDocument/hover", json!({"position": 3}))), -32602);
    assert_eq!(editor.request("shutdown", Value::Null).expect("an end"), Value::Null);
    assert_eq!(code(editor.request("textDocument/hover", json!({}))), -32600);
    editor.notify("exit", Value::Null);
    assert_eq!(editor.ending(), Ending::Asked);
}

#[test]
fn leaving_without_asking_for_the_end_is_told_apart() {
    let editor = Editor::start(able(), &[], Value::Null);
    editor.notify("exit", Value::Null);
    assert_eq!(editor.ending(), Ending::Left);
    assert_eq!(Editor::start(able(), &[], Value::Null).ending(), Ending::Left, "the connection closed");
    let silent = Editor::silent(Settings::default(), check);
    silent.notify("exit", Value::Null);
    assert_eq!(silent.ending(), Ending::Left);
}

#[test]
fn what_is_not_known_is_let_be() {
    let mut editor = Editor::start(json!({}), &[], Value::Null);
    editor.notify("$/setTrace", json!({"value": "off"}));
    editor.notify("headroom/unheard", json!([1]));
    assert!(editor.everything_so_far().is_empty(), "a client without abilities is asked for nothing");
    editor.notify("textDocument/didOpen", json!({"textDocument": 3}));
    let message = editor.notification("window/logMessage")["message"].clone();
    assert!(message.as_str().is_some_and(|text| text.contains("didOpen")), "{message}");
    editor.change("file:///never/opened.py", 2, "x");
    let message = editor.notification("window/logMessage")["message"].clone();
    assert!(message.as_str().is_some_and(|text| text.contains("never/opened.py is not open")), "{message}");
    editor.end();
}
