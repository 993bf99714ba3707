//! Findings while typing, and their agreement with the command line's.

use std::path::Path;

use headroom_lint::{lint_within, rules};
use headroom_sources::configuration::{Choice, Configurations};
use headroom_sources::discovery;
use serde_json::{Value, json};

use super::{Editor, SCRIPT, able, codes, has, project, uri};

#[test]
fn findings_follow_the_text_as_it_is_typed() {
    let (_place, root) = project(&[]);
    let mut editor = Editor::start(able(), &[&root], Value::Null);
    let uri = uri(&root.join("train.py"));
    let clean = SCRIPT.replace("total += loss.item()", "total += loss.detach()");
    editor.open(&uri, &clean);
    assert!(!has(&editor.diagnostics(&uri, 1), "TP101"));
    // Line 11 counted from 1, after `total += loss.`.
    let range = json!({"start": {"line": 10, "character": 22}, "end": {"line": 10, "character": 28}});
    editor.change_by(&uri, 2, json!([{"range": range, "text": "item"}]));
    let found = editor.diagnostics(&uri, 2);
    let item = found.iter().find(|one| one.source.as_deref() == Some("headroom") && has(&[(*one).clone()], "TP101"));
    let range = item.expect("TP101").range;
    assert_eq!((range.start.line, range.start.character, range.end.character), (10, 17, 28));
    editor.notify("textDocument/didClose", json!({"textDocument": {"uri": uri}}));
    assert!(editor.diagnostics_where(&uri, |params| params.version.is_none()).is_empty(), "taken away");
    editor.end();
}

#[test]
fn columns_are_counted_as_the_client_asked() {
    let (_place, root) = project(&[]);
    // A character before the finding that takes four bytes in UTF-8 and two units in UTF-16.
    let script = SCRIPT.replace("total += loss.item()", "\"𝄞\"; total += loss.item()");
    for (encodings, agreed, column) in [
        (json!(["utf-16"]), "utf-16", 23),
        (json!(["utf-32", "utf-8", "utf-16"]), "utf-8", 25),
        (Value::Null, "utf-16", 23),
    ] {
        let mut editor = Editor::silent(Default::default(), super::check);
        let result = editor.introduce(json!({"general": {"positionEncodings": encodings}}), &[&root], Value::Null);
        assert_eq!(result["capabilities"]["positionEncoding"], agreed);
        let uri = uri(&root.join("train.py"));
        editor.open(&uri, &script);
        let found = editor.diagnostics(&uri, 1);
        let item = found.iter().find(|one| has(&[(*one).clone()], "TP101")).expect("TP101");
        assert_eq!(item.range.start.character, column, "{agreed}");
        let before = json!({"line": 10, "character": column});
        let change = json!([{"range": {"start": before, "end": before}, "text": "0 *"}]);
        editor.change_by(&uri, 2, change);
        let moved = editor.diagnostics(&uri, 2);
        let item = moved.iter().find(|one| has(&[(*one).clone()], "TP101")).expect("TP101 behind the change");
        assert_eq!(item.range.start.character, column + 3, "{agreed}");
        editor.end();
    }
}

/// The command line's findings in one file: code, first line and last line from 0.
fn by_the_command(file: &Path) -> Vec<(String, u32, u32)> {
    let configurations = Configurations::nearest();
    let scripts = discovery::read(discovery::list(&[file.to_path_buf()], &configurations).expect("a configuration"));
    let selection = Choice { pedantic: true, ..Choice::default() }.selection().expect("all rules");
    let report = lint_within(&scripts.inputs, &scripts.projects, &selection);
    let mut found: Vec<_> =
        report.findings.iter().map(|one| (one.code.to_string(), one.place.line - 1, one.place.end_line - 1)).collect();
    found.sort();
    found
}

#[test]
fn the_command_gives_the_same_findings_for_the_same_text() {
    let examples: Vec<&str> = rules::RULES
        .iter()
        .flat_map(|rule| rule.page.split("```python\n").skip(1))
        .filter_map(|part| part.split("```").next())
        .collect();
    assert!(examples.len() > 80, "{} examples", examples.len());
    let (_place, root) = project(&[]);
    let mut editor = Editor::start(able(), &[&root], json!({"pedantic": true}));
    let mut seen = 0;
    for (number, example) in examples.iter().enumerate() {
        // Each example is a separate project, as its page intends.
        let folder = root.join(format!("example_{number}"));
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::create_dir(folder.join(".git")).expect("a repository");
        let file = folder.join("train.py");
        std::fs::write(&file, example).expect("a script");
        let uri = uri(&file);
        editor.open(&uri, example);
        let diagnostics = editor.diagnostics(&uri, 1);
        let mut found: Vec<_> = codes(&diagnostics)
            .into_iter()
            .zip(&diagnostics)
            .filter(|(code, _)| code.starts_with("TP"))
            .map(|(code, one)| (code, one.range.start.line, one.range.end.line))
            .collect();
        found.sort();
        assert_eq!(found, by_the_command(&file), "{example}");
        seen += found.len();
        editor.notify("textDocument/didClose", json!({"textDocument": {"uri": uri}}));
    }
    assert!(seen > 60, "{seen} findings");
    editor.end();
}

#[test]
fn a_text_that_does_not_parse_is_read_as_far_as_it_goes() {
    let (_place, root) = project(&[]);
    let mut editor = Editor::start(able(), &[&root], Value::Null);
    let uri = uri(&root.join("train.py"));
    editor.open(&uri, &format!("{SCRIPT}\ndef broken(:\n"));
    let found = editor.diagnostics(&uri, 1);
    assert!(has(&found, "TP101"));
    let said = found.iter().find(|one| one.code.is_none()).expect("what was not read");
    assert!(said.message.starts_with("not fully read") && said.range.start.line == 14, "{said:?}");
    editor.end();
}

#[test]
fn texts_without_a_file_and_of_other_languages_are_told_apart() {
    let mut editor = Editor::start(able(), &[], Value::Null);
    editor.open("untitled:Untitled-1", SCRIPT);
    assert!(has(&editor.diagnostics("untitled:Untitled-1", 1), "TP101"));
    let item = json!({"uri": "file:///nowhere/a.md", "languageId": "markdown", "version": 1, "text": SCRIPT});
    editor.notify("textDocument/didOpen", json!({"textDocument": item}));
    let at = json!({"textDocument": {"uri": "file:///nowhere/a.md"}, "position": {"line": 10, "character": 20}});
    assert_eq!(editor.request("textDocument/hover", at).expect("an answer"), Value::Null);
    assert!(!has_published(&editor.everything_so_far(), "file:///nowhere/a.md"));
    editor.end();
}

fn has_published(messages: &[lsp_server::Message], uri: &str) -> bool {
    messages.iter().any(|message| match message {
        lsp_server::Message::Notification(one) => one.params["uri"] == uri,
        _ => false,
    })
}
