//! The same findings in a file whichever folder is named, and wherever the command is run from.

use super::headroom;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A loop that calls a helper in another folder: the helper's cost is known only from its caller.
const TRAIN: &str = "import torch\nfrom tools.metrics import log_loss\n\n\ndef train(model, loader, optimizer):\n    for x in loader:\n        loss = model(x.cuda()).sum()\n        optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()\n        log_loss(loss)\n";
const METRICS: &str = "import torch\n\n\ndef log_loss(value):\n    return value.item()\n";
/// Another project with a helper of the same name, which must not matter.
const OTHER: &str = "def log_loss(value):\n    return 1\n";

fn found(from: &Path, asked: &str, file: &str) -> BTreeSet<String> {
    let output = headroom(from, &["lint", asked, "--format", "json"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("is JSON");
    let findings = value["findings"].as_array().expect("a list");
    let here = findings.iter().filter(|one| one["place"]["file"].as_str().is_some_and(|path| path.ends_with(file)));
    here.map(|one| {
        let mut one = one.clone();
        one["place"]["file"] = file.into();
        one.to_string()
    })
    .collect()
}

fn check(files: &[(&str, &str)], file: &str, project: &str) {
    let place = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = place.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let name = Path::new(file).file_name().unwrap().to_str().unwrap();
    let whole = place.path().join(file);
    let folder = whole.parent().unwrap();
    let want = found(place.path(), ".", name);
    assert!(want.iter().any(|one| one.contains("TP101")), "{want:?}");
    let text = |path: &Path| path.to_str().unwrap().to_string();
    for (from, asked) in [
        (place.path(), file.to_string()),
        (place.path(), text(Path::new(file).parent().unwrap())),
        (place.path(), project.to_string()),
        (folder, name.to_string()),
        (folder, ".".to_string()),
        (folder, "..".to_string()),
        (folder.parent().unwrap(), text(folder)),
        (Path::new("/"), text(&whole)),
        (Path::new("/"), text(place.path())),
    ] {
        assert_eq!(found(from, &asked, name), want, "{asked} from {}", from.display());
    }
}

#[test]
fn in_a_repository_a_project_or_plain_folders() {
    let others = [("work/other/pyproject.toml", ""), ("work/other/tools/metrics.py", OTHER)];
    for marker in [".git/HEAD", "pyproject.toml", "setup.py"] {
        let marker = format!("work/mine/{marker}");
        let own = [("work/mine/train.py", TRAIN), ("work/mine/tools/metrics.py", METRICS), (&marker, "")];
        let files: Vec<(&str, &str)> = own.iter().chain(&others).copied().collect();
        check(&files, "work/mine/tools/metrics.py", "work/mine");
    }
    check(&[("mine/train.py", TRAIN), ("mine/tools/metrics.py", METRICS)], "mine/tools/metrics.py", "mine");
}

#[test]
fn in_an_installed_package() {
    let files = [("lib/site-packages/mine/train.py", TRAIN), ("lib/site-packages/mine/tools/metrics.py", METRICS)];
    let place = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = place.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let package = place.path().join("lib/site-packages/mine");
    let want = found(&package, ".", "metrics.py");
    assert!(want.iter().any(|one| one.contains("TP101")), "{want:?}");
    assert_eq!(found(&package.join("tools"), "metrics.py", "metrics.py"), want);
    assert_eq!(found(place.path(), "lib/site-packages", "metrics.py"), want);
}

#[test]
fn a_script_from_standard_input_is_read_in_its_place() {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let place = tempfile::tempdir().unwrap();
    fs::create_dir_all(place.path().join("tools")).unwrap();
    fs::write(place.path().join("train.py"), TRAIN).unwrap();
    fs::write(place.path().join("tools/metrics.py"), "").unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_headroom"))
        .args(["lint", "-", "--stdin-filename", "tools/metrics.py", "--select", "TP101"])
        .current_dir(place.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("headroom starts");
    child.stdin.take().expect("a pipe").write_all(METRICS.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("it ends");
    assert!(String::from_utf8_lossy(&output.stdout).contains("tools/metrics.py:5:12: TP101"));
}

#[test]
fn the_nearest_configuration_holds_for_each_file() {
    let place = tempfile::tempdir().unwrap();
    for folder in ["one", "two"] {
        fs::create_dir(place.path().join(folder)).unwrap();
        fs::write(place.path().join(folder).join("train.py"), super::SCRIPT).unwrap();
    }
    fs::write(place.path().join("two/headroom.toml"), "select = [\"TP501\"]\nfail-on = \"never\"\n").unwrap();
    let codes = |from: &Path, asked: &str| super::codes(&headroom(from, &["lint", asked, "--format", "json"]));
    let (one, two) = (codes(place.path(), "one"), codes(&place.path().join("two"), "train.py"));
    assert!(one.len() > 1 && two == ["TP501"], "{one:?} {two:?}");
    assert_eq!(codes(place.path(), "."), [one, two].concat());
    assert_eq!(headroom(place.path(), &["lint", "two"]).status.code(), Some(0));
    assert_eq!(headroom(place.path(), &["lint"]).status.code(), Some(1));
}
