//! Fixes, rule pages and costs, on request.

use std::path::{Path, PathBuf};

use headroom_lint::fix::Safety;
use headroom_lint::{Input, Selection, repair, rules};
use serde_json::{Value, json};

use super::{Editor, SCRIPT, able, edited, project, uri};

fn whole(uri: &str, only: Value) -> Value {
    let range = json!({"start": {"line": 0, "character": 0}, "end": {"line": 99, "character": 0}});
    let context = json!({"diagnostics": [], "only": only});
    json!({"textDocument": {"uri": uri}, "range": range, "context": context})
}

/// The script after `--fix`.
fn fixed(script: &str) -> String {
    let input = Input { path: "train.py".to_string(), bytes: script.as_bytes().to_vec() };
    let repairs = repair(&[input], &Selection::default(), Safety::Safe);
    repairs.files.into_iter().next().expect("a change").after
}

#[test]
fn a_quick_fix_is_the_fix_of_lint() {
    let (_place, root) = project(&[]);
    let mut editor = Editor::start(able(), &[&root], Value::Null);
    let uri = uri(&root.join("train.py"));
    let script = SCRIPT.replace("mask =", "\"𝄞\"; mask =");
    editor.open(&uri, &script);
    let all = editor.request("textDocument/codeAction", whole(&uri, json!(["quickfix"]))).expect("actions");
    let all = all.as_array().expect("a list");
    let action =
        all.iter().find(|one| one["title"].as_str().is_some_and(|title| title.starts_with("TP202"))).expect("TP202");
    assert_eq!((&action["kind"], &action["isPreferred"]), (&json!("quickfix"), &json!(true)));
    assert_eq!(action["diagnostics"][0]["code"], "TP202");
    let change = &action["edit"]["documentChanges"][0];
    assert_eq!(change["textDocument"], json!({"uri": uri, "version": 1}));
    let after = edited(&script, &change["edits"]);
    assert_eq!(after, script.replace("zeros(8).to(\"cuda\")", "zeros(8, device=\"cuda\")"));
    let unsafe_ones: Vec<&Value> = all.iter().filter(|one| one["isPreferred"] == false).collect();
    assert!(!unsafe_ones.is_empty());
    assert!(
        unsafe_ones.iter().all(|one| one["title"].as_str().is_some_and(|text| text.ends_with("(may change results)")))
    );
    let mut elsewhere = whole(&uri, Value::Null);
    elsewhere["range"] = json!({"start": {"line": 1, "character": 0}, "end": {"line": 1, "character": 0}});
    let there = editor.request("textDocument/codeAction", elsewhere).expect("actions");
    let quick: Vec<&Value> = there.as_array().expect("a list").iter().filter(|one| one["kind"] == "quickfix").collect();
    assert!(quick.is_empty(), "{quick:?}");
    editor.end();
}

#[test]
fn all_safe_fixes_together_make_what_the_command_writes() {
    let (_place, root) = project(&[]);
    let uri = uri(&root.join("train.py"));
    // A client that can ask for edits later, and one that cannot and does not know versions.
    for capabilities in [able(), json!({})] {
        let resolves = capabilities != json!({});
        let mut editor = Editor::start(capabilities, &[&root], Value::Null);
        editor.open(&uri, SCRIPT);
        let all = editor.request("textDocument/codeAction", whole(&uri, json!(["source.fixAll"]))).expect("actions");
        assert_eq!(all.as_array().map(Vec::len), Some(1), "{all}");
        let mut action = all[0].clone();
        assert_eq!((&action["kind"], action["edit"].is_null()), (&json!("source.fixAll.headroom"), resolves));
        if resolves {
            action = editor.request("codeAction/resolve", action).expect("an edit");
        }
        let edits = match resolves {
            true => action["edit"]["documentChanges"][0]["edits"].clone(),
            false => action["edit"]["changes"][&uri].clone(),
        };
        assert_eq!(edited(SCRIPT, &edits), fixed(SCRIPT));
        editor.change(&uri, 2, &fixed(SCRIPT));
        let none = editor.request("textDocument/codeAction", whole(&uri, json!(["source.fixAll"]))).expect("actions");
        assert_eq!(none, json!([]), "nothing is left to fix");
        editor.end();
    }
}

#[test]
fn a_text_that_does_not_parse_is_not_fixed() {
    let (_place, root) = project(&[]);
    let mut editor = Editor::start(able(), &[&root], Value::Null);
    let uri = uri(&root.join("train.py"));
    editor.open(&uri, &format!("{SCRIPT}\ndef broken(:\n"));
    assert_eq!(editor.request("textDocument/codeAction", whole(&uri, Value::Null)).expect("actions"), json!([]));
    editor.end();
}

#[test]
fn hover_shows_the_page_of_the_rule() {
    let (_place, root) = project(&[]);
    let uri = uri(&root.join("train.py"));
    let page = rules::find("TP101").expect("the rule").page;
    for (capabilities, kind) in [(able(), "markdown"), (json!({}), "plaintext")] {
        let mut editor = Editor::start(capabilities, &[&root], Value::Null);
        editor.open(&uri, &SCRIPT.replace("print(total)", "print(total)  # noqa: TR101"));
        let mut at = |line: u32, character: u32| {
            let params = json!({"textDocument": {"uri": uri}, "position": {"line": line, "character": character}});
            editor.request("textDocument/hover", params).expect("an answer")
        };
        let over = at(10, 20);
        assert_eq!(over["contents"]["kind"], kind);
        assert!(over["contents"]["value"].as_str().is_some_and(|text| text.ends_with(page)), "{over}");
        assert_eq!(over["range"]["start"], json!({"line": 10, "character": 17}));
        assert!(at(12, 36)["contents"]["value"].as_str().is_some_and(|text| text.starts_with("# TR101")));
        assert_eq!(at(0, 3), Value::Null);
        editor.end();
    }
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn measured_costs_stand_beside_their_lines() {
    let script = std::fs::read_to_string(crates().join("cli/tests/data/slow_train/train.py")).expect("a script");
    let trace = crates().join("trace/tests/data/slow.pt.trace.json.gz");
    let (_place, root) = project(&[("train.py", &script)]);
    let mut editor = Editor::silent(Default::default(), super::check);
    let section = json!({"headroom": {"trace": trace.to_string_lossy(), "pedantic": true}});
    let mut capabilities = able();
    capabilities["workspace"]["configuration"] = json!(false);
    editor.introduce(capabilities, &[&root], section);
    let uri = uri(&root.join("train.py"));
    editor.open(&uri, &script);
    editor.request_of_server("workspace/inlayHint/refresh");
    let range = json!({"start": {"line": 40, "character": 0}, "end": {"line": 44, "character": 0}});
    let params = json!({"textDocument": {"uri": uri}, "range": range});
    let hints = editor.request("textDocument/inlayHint", params).expect("hints");
    let hint = hints.as_array().and_then(|list| list.first()).unwrap_or_else(|| panic!("a hint: {hints}"));
    assert_eq!(hint["label"], "2.1% of the step, measured", "{hints}");
    let end_of_line = script.lines().nth(42).map(|line| line.len());
    assert_eq!(hint["position"], json!({"line": 42, "character": end_of_line}));
    assert!(hint["tooltip"].as_str().is_some_and(|text| text.starts_with("TR101")), "{hint}");
    let found = editor.diagnostics_where(&uri, |params| {
        params.diagnostics.iter().any(|one| one.message.contains("2.1% of the step (measured, TR101)"))
    });
    assert!(super::has(&found, "TP107"), "{:?}", super::codes(&found));
    let all = json!({"start": {"line": 0, "character": 0}, "end": {"line": 20, "character": 0}});
    let params = json!({"textDocument": {"uri": uri}, "range": all});
    let others = editor.request("textDocument/inlayHint", params).expect("hints");
    assert!(others.as_array().is_some_and(|list| list.iter().all(|one| one["position"]["line"] != 42)), "{others}");
    editor.end();
}

#[test]
fn a_trace_that_cannot_be_read_is_said_once_and_findings_stay() {
    let (_place, root) = project(&[("broken.json", "{")]);
    let mut editor = Editor::start(json!({}), &[&root], json!({"trace": "broken.json"}));
    let uri = uri(&root.join("train.py"));
    editor.open(&uri, SCRIPT);
    assert!(super::has(&editor.diagnostics(&uri, 1), "TP101"));
    let said = editor.notification("window/showMessage")["message"].clone();
    assert!(said.as_str().is_some_and(|text| text.contains("the trace is not used")), "{said}");
    editor.end();
}
