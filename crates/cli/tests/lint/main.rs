//! Tests `headroom lint` and `headroom explain` as people and programs use them.

mod exit_codes;
mod notebooks;
mod same_answer;
mod watch;

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
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(codes(&output), ["TP501", "TP101"]);
}

#[cfg(unix)]
#[test]
fn a_file_with_two_names_is_fixed_once_and_keeps_both() {
    use std::os::unix::fs::MetadataExt;
    let folder = folder_with(SCRIPT);
    let (one, other) = (folder.path().join("train.py"), folder.path().join("zweite.py"));
    std::fs::hard_link(&one, &other).expect("a second name");
    let fixed = headroom(folder.path(), &["lint", ".", "--fix", "--unsafe-fixes", "--select", "TP501"]);
    assert_eq!(fixed.status.code(), Some(0), "{}", String::from_utf8_lossy(&fixed.stderr));
    let text = std::fs::read_to_string(&one).expect("the script");
    assert_eq!(text, SCRIPT.replace("set_to_none=False", "set_to_none=True"));
    assert_eq!(std::fs::read_to_string(&other).expect("the script"), text);
    assert_eq!(std::fs::metadata(&one).expect("the script").nlink(), 2, "they are one file still");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 2, "no copy is left");
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
    assert!(shown.contains("-        total += loss.item()\n+        total += loss.detach().float()\n"), "{shown}");
    assert_eq!(read(), SCRIPT);
    // Zeros and no gradient differ for a parameter that only some steps reach.
    headroom(folder.path(), &["lint", "train.py", "--fix"]);
    assert_eq!(read(), SCRIPT);
    headroom(folder.path(), &["lint", "train.py", "--fix", "--unsafe-fixes", "--select", "TP501"]);
    assert_eq!(read(), SCRIPT.replace("set_to_none=False", "set_to_none=True"));
    headroom(folder.path(), &["lint", "train.py", "--fix", "--unsafe-fixes", "--select", "TP101"]);
    assert!(read().contains("print(float(total))  # kept"), "{}", read());
}

#[test]
fn standard_input_is_read_and_its_fixed_text_written_back() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_headroom"))
        .args(["lint", "-", "--fix", "--unsafe-fixes", "--select", "TP501", "--no-config"])
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
    assert!(shown.contains("TP101") && shown.contains("error: train.py:15: not fully read"), "{shown}");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn with_a_trace_findings_say_what_they_cost_and_come_in_that_order() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let trace = folder.join("../trace/tests/data/slow.pt.trace.json.gz");
    let trace = trace.to_string_lossy();
    let lint = |format: &str| {
        headroom(folder, &["lint", "tests/data/slow_train", "--pedantic", "--trace", &trace, "--format", format])
    };
    let value: serde_json::Value = serde_json::from_slice(&lint("json").stdout).expect("is JSON");
    let findings = value["findings"].as_array().expect("a list");
    let share = |line: u64, code: &str| {
        let found = findings.iter().find(|one| one["place"]["line"] == line && one["code"] == code);
        found.and_then(|one| one["evidence"]["share_of_step"].as_f64())
    };
    let near = |found: Option<f64>, want: f64| found.is_some_and(|found| (found - want).abs() < 0.1 * want);
    assert!(near(share(43, "TP107"), 0.0205), "{:?}", share(43, "TP107"));
    assert!(near(share(21, "TP201"), 0.004), "{:?}", share(21, "TP201"));
    let shares: Vec<f64> =
        findings.iter().map(|one| one["evidence"]["share_of_step"].as_f64().unwrap_or(-1.0)).collect();
    assert!(shares.is_sorted_by(|left, right| left >= right), "{shares:?}");
    assert!(shares.contains(&-1.0), "what the trace does not show stays, unmeasured");
    let text = String::from_utf8_lossy(&lint("text").stdout).into_owned();
    assert!(
        text.contains("train.py:43:27: TP107 sync-per-parameter (low, 2.1% of the step (measured, TR101))"),
        "{text}"
    );
    let markdown = String::from_utf8_lossy(&lint("markdown").stdout).into_owned();
    assert!(markdown.contains("in 1 file. With a trace:"), "{markdown}");
    assert_eq!(headroom(folder, &["lint", ".", "--trace", &trace, "--fix"]).status.code(), Some(2));
}

#[test]
fn fixing_twice_changes_nothing_more() {
    let folder = folder_with(SCRIPT);
    let fix = || {
        headroom(folder.path(), &["lint", "train.py", "--fix", "--unsafe-fixes"]);
        std::fs::read_to_string(folder.path().join("train.py")).expect("the script")
    };
    let once = fix();
    assert_ne!(once, SCRIPT);
    assert_eq!(fix(), once);
}

/// SARIF 2.1.0's requirements for a log with results, rules and fixes.
#[test]
fn sarif_keeps_the_rules_of_its_schema() {
    let folder = folder_with(&format!("{SCRIPT}\ndef broken(:\n"));
    std::fs::create_dir(folder.path().join("a folder")).expect("made");
    std::fs::write(folder.path().join("a folder/é.py"), SCRIPT).expect("written");
    let output = headroom(folder.path(), &["lint", ".", "--format", "sarif", "--pedantic"]);
    let log: serde_json::Value = serde_json::from_slice(&output.stdout).expect("is JSON");
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().expect("rules");
    assert!(run["tool"]["driver"]["name"].is_string());
    let about = run["tool"]["driver"]["informationUri"].as_str().expect("an address");
    assert!(about.contains(':') && !about.contains(' '), "{about}");
    assert_eq!(run["invocations"][0]["executionSuccessful"], false, "a file was not fully read");
    let levels = ["none", "note", "warning", "error"];
    let is_level = |value: &serde_json::Value| value.as_str().is_some_and(|level| levels.contains(&level));
    assert!(
        rules.iter().all(|rule| is_level(&rule["defaultConfiguration"]["level"]) && rule["help"]["text"].is_string())
    );
    let results = run["results"].as_array().expect("results");
    assert!(results.len() > 4);
    for result in results {
        let index = result["ruleIndex"].as_u64().expect("an index") as usize;
        assert_eq!(rules[index]["id"], result["ruleId"]);
        assert!(is_level(&result["level"]) && result["message"]["text"].as_str().is_some_and(|text| !text.is_empty()));
        let place = &result["locations"][0]["physicalLocation"];
        let uri = place["artifactLocation"]["uri"].as_str().expect("a reference");
        assert!(uri.is_ascii() && !uri.contains([' ', '\\']), "{uri}");
        let number = |key: &str| place["region"][key].as_u64().unwrap_or(0);
        assert!(number("startLine") >= 1 && number("startColumn") >= 1 && number("endLine") >= number("startLine"));
        for fix in result["fixes"].as_array().into_iter().flatten() {
            let replacements = fix["artifactChanges"][0]["replacements"].as_array().expect("replacements");
            assert!(!replacements.is_empty() && fix["artifactChanges"][0]["artifactLocation"]["uri"].is_string());
            assert!(replacements.iter().all(|one| one["deletedRegion"]["byteOffset"].is_u64()));
        }
    }
    let notes = run["invocations"][0]["toolExecutionNotifications"].as_array().expect("notes");
    assert!(notes.len() == 1 && notes[0]["message"]["text"].is_string(), "{notes:?}");
}

#[test]
fn annotations_are_commands_that_a_runner_reads() {
    let folder = folder_with(SCRIPT);
    let output = headroom(folder.path(), &["lint", "train.py", "--format", "github", "--select", "TP101,TP501"]);
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let commands: Vec<&str> = shown.lines().filter(|line| line.starts_with("::")).collect();
    assert_eq!(commands.len(), 2, "{shown}");
    for command in commands {
        let (head, message) = command[2..].split_once("::").expect("a head and a message");
        let (level, places) = head.split_once(' ').expect("a level and its properties");
        assert!(["error", "warning", "notice"].contains(&level), "{command}");
        assert!(places.contains("file=train.py") && places.contains("line="), "{command}");
        assert!(!message.is_empty());
    }
}

#[test]
fn the_pre_commit_hooks_call_what_there_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let hooks = std::fs::read_to_string(root.join(".pre-commit-hooks.yaml")).expect("the hooks");
    // From a build of this repository, and from whatever is installed.
    let entries: Vec<&str> = hooks.lines().filter_map(|line| line.trim().strip_prefix("entry: headroom")).collect();
    assert_eq!(entries.len(), 4);
    for entry in entries {
        let folder = folder_with(SCRIPT);
        let mut arguments: Vec<&str> = entry.split(' ').skip(1).collect();
        arguments.push("train.py");
        // The script has a high finding, so the commit is stopped.
        assert_eq!(headroom(folder.path(), &arguments).status.code(), Some(1), "{entry}");
    }
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
