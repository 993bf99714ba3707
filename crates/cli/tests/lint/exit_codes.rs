//! Exit codes of lint, and its messages about files that it could not read.

use super::{SCRIPT, codes, folder_with, headroom};
use std::fs;

#[test]
fn findings_are_1_unread_files_2_and_both_can_be_chosen() {
    let folder = folder_with(SCRIPT);
    let code = |arguments: &[&str]| headroom(folder.path(), arguments).status.code();
    fs::write(folder.path().join("clean.py"), "x = 1\n").unwrap();
    fs::write(folder.path().join("broken.py"), "def f(:\n").unwrap();
    for (arguments, want) in [
        (&["lint", "train.py"][..], 1),
        (&["lint", "clean.py"], 0),
        (&["lint", "train.py", "--exit-zero"], 0),
        (&["lint", "train.py", "--fail-on", "never"], 0),
        (&["lint", "train.py", "--fail-on", "critical"], 0),
        (&["lint", "train.py", "--fail-on", "high"], 1),
        (&["lint", "broken.py"], 2),
        (&["lint", "broken.py", "train.py"], 2),
        (&["lint", "broken.py", "--exit-zero"], 2),
        (&["lint", "broken.py", "--fail-on", "never"], 2),
        (&["lint", "absent.py", "clean.py"], 2),
        (&["lint", "train.py", "--diff", "--unsafe-fixes", "--select", "TP501"], 1),
        (&["lint", "train.py", "--diff", "--unsafe-fixes", "--select", "TP501", "--exit-zero"], 0),
        (&["lint", "clean.py", "--diff"], 0),
        (&["lint", "broken.py", "--diff"], 2),
        (&["lint", "train.py", "--exit-non-zero-on-fix"], 2),
        (&["lint", "train.py", "--fix", "--unsafe-fixes", "--select", "TP501", "--exit-non-zero-on-fix"], 1),
        (&["lint", "train.py", "--fix", "--unsafe-fixes", "--select", "TP501", "--exit-non-zero-on-fix"], 0),
    ] {
        assert_eq!(code(arguments), Some(want), "{arguments:?}");
    }
}

#[test]
fn a_file_that_was_not_read_is_never_nothing_found() {
    let folder = folder_with(&format!("import torch\nx = {}\n", "(".repeat(2_000)));
    fs::write(folder.path().join("clean.py"), "x = 1\n").unwrap();
    let shown = |arguments: &[&str]| {
        let output = headroom(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let alone = shown(&["lint", "train.py"]);
    assert!(alone.contains("error: train.py: not fully read: nested more than") && !alone.contains("nothing found"));
    let both = shown(&["lint", "."]);
    assert!(both.contains("nothing found in 1 file; 1 file not fully read\n"), "{both}");
    let missing = shown(&["lint", "absent.py", "clean.py"]);
    assert!(missing.contains("error: absent.py: not fully read: cannot read it"), "{missing}");
    assert!(missing.contains("nothing found in 1 file; 1 file not fully read\n"), "{missing}");
    assert!(
        shown(&["lint", ".", "--format", "github"]).contains("::error file=./train.py,line=1,title=not fully read::")
    );
    let json: serde_json::Value = serde_json::from_str(&shown(&["lint", ".", "--format", "json"])).unwrap();
    assert_eq!((json["files"].as_u64(), json["problems"][0]["file"].as_str()), (Some(2), Some("./train.py")));
}

/// Regression: closing quotes of f-strings were mistaken for opening ones, and long scripts were not read.
#[test]
fn a_long_script_with_formatted_strings_is_read() {
    let lines = "        print(f\"{step}: {loss:.3f} (it's {'done'})\")\n".repeat(2_000);
    let folder = folder_with(
        &SCRIPT.replace("        total += loss.item()\n", &format!("{lines}        total += loss.item()\n")),
    );
    let output = headroom(folder.path(), &["lint", "train.py", "--format", "json", "--select", "TP101"]);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(codes(&output).contains(&"TP101".to_string()));
}

#[test]
fn results_go_to_a_file_and_fixes_that_wait_are_counted() {
    let folder = folder_with(SCRIPT);
    let output = headroom(folder.path(), &["lint", "train.py", "--output-file", "found.json", "--format", "json"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    let written = fs::read_to_string(folder.path().join("found.json")).unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(&written).unwrap()["findings"].is_array());
    #[cfg(unix)]
    {
        let real = folder.path().join("real.json");
        fs::write(&real, "old").unwrap();
        std::os::unix::fs::symlink("real.json", folder.path().join("link.json")).unwrap();
        headroom(folder.path(), &["lint", "train.py", "-o", "link.json", "--format", "json"]);
        assert!(folder.path().join("link.json").is_symlink());
        assert_eq!(fs::read_to_string(&real).unwrap(), written);
        assert_eq!(headroom(folder.path(), &["lint", "train.py", "-o", "/dev/full"]).status.code(), Some(2));
    }
    let safe = SCRIPT.replace("optimizer.zero_grad(set_to_none=False)", "mask = torch.zeros(8).to(\"cuda\")");
    fs::write(folder.path().join("train.py"), safe).unwrap();
    let fixed = headroom(folder.path(), &["lint", "train.py", "--fix", "--select", "TP101,TP202"]);
    let said = String::from_utf8_lossy(&fixed.stderr).into_owned();
    assert_eq!(said.trim(), "1 fixed in 1 file; 1 more with --unsafe-fixes");
}

#[test]
fn statistics_count_by_rule() {
    let folder = folder_with(SCRIPT);
    let shown = headroom(folder.path(), &["lint", "train.py", "--statistics", "--select", "TP101,TP501"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("1  TP101  item-per-step (1 by --unsafe-fixes)\n"), "{shown}");
    assert!(shown.contains("1  TP501  zero-not-none (1 by --unsafe-fixes)\n"), "{shown}");
    let json = headroom(folder.path(), &["lint", "train.py", "--statistics", "--format", "json", "--select", "TP101"]);
    let rows: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((rows[0]["code"].as_str(), rows[0]["count"].as_u64()), (Some("TP101"), Some(1)));
    assert_eq!(headroom(folder.path(), &["lint", "--statistics", "--format", "sarif"]).status.code(), Some(2));
}

#[test]
fn added_comments_silence_what_was_found_and_nothing_else() {
    let script = SCRIPT.replace("loss.item()\n", "loss.item()  # noqa: E501\n").replace(
        "optimizer.step()\n",
        "optimizer.step()\n        log = f\"\"\"{loss.item()}\n        \"\"\"  # kept\n",
    );
    let folder = folder_with(&script);
    let output = headroom(folder.path(), &["lint", "train.py", "--add-noqa"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let after = fs::read_to_string(folder.path().join("train.py")).unwrap();
    assert!(after.contains("total += loss.item()  # noqa: TP101, E501\n"), "{after}");
    assert!(after.contains("zero_grad(set_to_none=False)  # noqa: TP501\n"), "{after}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let remains = headroom(folder.path(), &["lint", "train.py", "--format", "json"]);
    let left = codes(&remains).len();
    assert_eq!(said.matches("a comment cannot be added").count(), left, "{said}\n{after}");
    assert!(left <= 1, "{after}");
    headroom(folder.path(), &["lint", "train.py", "--add-noqa"]);
    assert_eq!(fs::read_to_string(folder.path().join("train.py")).unwrap(), after, "a second time changes nothing");
}
