//! `headroom lint` and `headroom explain` as people and programs use them.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const SCRIPT: &str = "import torch\n\n\ndef train(model, loader, optimizer, criterion):\n    total = 0.0\n    for step, (x, y) in enumerate(loader):\n        loss = criterion(model(x.cuda()), y.cuda())\n        optimizer.zero_grad(set_to_none=False)\n        loss.backward()\n        optimizer.step()\n        total += loss.item()\n        if step % 10 == 0:\n            print(total)  # kept\n";

fn headroom(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headroom")).args(arguments).current_dir(folder).output().expect("headroom starts")
}

fn folder_with(script: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("train.py"), script).expect("a script");
    folder
}

fn codes(output: &Output) -> Vec<String> {
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("is JSON");
    let findings = value["findings"].as_array().expect("a list").clone();
    findings.iter().map(|finding| finding["code"].as_str().unwrap_or_default().to_string()).collect()
}

#[test]
fn json_names_code_and_place_and_paths_may_be_folders() {
    let folder = folder_with(SCRIPT);
    let output = headroom(folder.path(), &["lint", ".", "--format", "json", "--select", "TP101,TP501"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(codes(&output), ["TP501", "TP101"]);
}

#[test]
fn the_exit_code_follows_fail_on() {
    let folder = folder_with(SCRIPT);
    let code = |arguments: &[&str]| headroom(folder.path(), arguments).status.code();
    assert_eq!(code(&["lint", "train.py", "--fail-on", "high"]), Some(1));
    assert_eq!(code(&["lint", "train.py", "--fail-on", "critical"]), Some(0));
    assert_eq!(code(&["lint", "missing.py"]), Some(2));
    assert_eq!(code(&["lint", "train.py", "--select", "TP999"]), Some(2));
}

#[test]
fn fixes_are_written_shown_or_held_back_as_asked() {
    let folder = folder_with(SCRIPT);
    let read = || std::fs::read_to_string(folder.path().join("train.py")).expect("the script");
    let shown = headroom(folder.path(), &["lint", "train.py", "--diff", "--unsafe-fixes", "--select", "TP101"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("-        total += loss.item()\n+        total += loss.detach()\n"), "{shown}");
    assert_eq!(read(), SCRIPT);
    headroom(folder.path(), &["lint", "train.py", "--fix"]);
    assert_eq!(read(), SCRIPT.replace("set_to_none=False", "set_to_none=True"));
    headroom(folder.path(), &["lint", "train.py", "--fix", "--unsafe-fixes", "--select", "TP101"]);
    assert!(read().contains("print(float(total))  # kept"), "{}", read());
}

#[test]
fn standard_input_is_read_and_its_fixed_text_written_back() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_headroom"))
        .args(["lint", "-", "--fix", "--no-config"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("headroom starts");
    child.stdin.take().expect("a pipe").write_all(SCRIPT.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), SCRIPT.replace("set_to_none=False", "set_to_none=True"));
}

#[test]
fn pyproject_chooses_rules_and_comments_silence_lines() {
    let folder = folder_with(&SCRIPT.replace("loss.item()", "loss.item()  # noqa: TP101"));
    let settings =
        "[tool.headroom]\nselect = [\"TP1\", \"TP5\"]\n[tool.headroom.per-path-ignores]\n\"train.py\" = [\"TP501\"]\n";
    std::fs::write(folder.path().join("pyproject.toml"), settings).expect("settings");
    assert!(codes(&headroom(folder.path(), &["lint", "train.py", "--format", "json"])).is_empty());
    let without = headroom(folder.path(), &["lint", "train.py", "--format", "json", "--no-config", "--select", "TP5"]);
    assert_eq!(codes(&without), ["TP501"]);
}

#[test]
fn a_file_that_does_not_parse_is_read_as_far_as_it_goes_and_said_so() {
    let folder = folder_with(&format!("{SCRIPT}\ndef broken(:\n"));
    let output = headroom(folder.path(), &["lint", "train.py", "--select", "TP101"]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains("TP101") && shown.contains("not read whole"), "{shown}");
}

#[test]
fn explain_shows_a_page_by_code_or_name() {
    let folder = folder_with("");
    for asked in ["TP101", "tp101", "item-per-step"] {
        let output = headroom(folder.path(), &["explain", asked]);
        assert!(output.stdout.starts_with(b"# TP101 item-per-step\n"), "{asked}");
    }
    assert_eq!(headroom(folder.path(), &["explain", "TP999"]).status.code(), Some(2));
}
