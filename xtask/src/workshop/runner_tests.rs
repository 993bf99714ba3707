//! `xtask/workshop/run.py` on synthetic pages, with a script in place of the binary.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::process;

/// Prints its help, its version, and its arguments; `slow` takes longer than any limit here.
const BINARY: &str = r#"#!/bin/sh
case "$*" in
    --version) printf 'headroom 9.9.9\nbuilt for here\ncpu: a processor, 2 cores\ncuda:0: a device\n' ;;
    "train --help") echo "      --device <DEVICE>  where to run" ;;
    *--help) echo "nothing of the kind" ;;
    slow*) echo begun; sleep 60 ;;
    lint*) echo "$PWD/found"; exit 1 ;;
    *) echo "ran $*" ;;
esac
"#;

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let folder = std::env::temp_dir().join(format!("xtask-workshop-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("pages")).unwrap();
        let place = Place(folder);
        place.write("headroom", BINARY);
        fs::set_permissions(place.0.join("headroom"), fs::Permissions::from_mode(0o755)).unwrap();
        place.write("pages/README.md", "```sh\nheadroom train --first # a comment\n```\n");
        place.write(
            "pages/2-b.md",
            "```sh h200\nheadroom train --gpu\n```\n```sh torch\nheadroom record -- python s.py\n```\n",
        );
        place.write(
            "pages/1-a.md",
            "```sh\nheadroom train --device null\nheadroom lint s.py\n```\n```sh cpu\nheadroom k1\n```\n",
        );
        place.write("pages/other.md", "```console\n$ headroom never\n```\n```sh\nheadroom train --first\n```\n");
        place.write("pages/s.py", "pass\n");
        place
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    fn run(&self, flags: &[&str]) -> Output {
        let mut command = Command::new("python3");
        command
            .arg(process::workspace_root().join("xtask/workshop/run.py"))
            .arg("--headroom")
            .arg(self.0.join("headroom"));
        command.arg("--pages").arg(self.0.join("pages")).arg("--out").arg(self.0.join("out.json"));
        command.arg("--folder").arg(self.0.join("work")).args(flags).output().unwrap()
    }

    fn stored(&self) -> Value {
        serde_json::from_slice(&fs::read(self.0.join("out.json")).unwrap()).unwrap()
    }

    /// Command and output of every entry.
    fn outputs(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_string();
        let stored = self.stored();
        let entries = stored["outputs"].as_array().unwrap();
        entries.iter().map(|entry| (text(&entry["command"]), text(&entry["stdout"]))).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn pairs(wanted: &[(&str, &str)]) -> Vec<(String, String)> {
    wanted.iter().map(|(command, printed)| (command.to_string(), printed.to_string())).collect()
}

#[test]
fn commands_of_a_machine_run_in_the_order_of_the_pages() {
    let place = Place::new("order");
    let done = place.run(&["--machine", "cpu"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let wanted = pairs(&[
        ("headroom train --first", "ran train --first\n"),
        ("headroom train --device null", "ran train --device null\n"),
        ("headroom lint s.py", "./found\n"),
        ("headroom k1", "ran k1\n"),
    ]);
    assert_eq!(place.outputs(), wanted);
    let stored = place.stored();
    assert_eq!(
        (stored["machine"].as_str(), stored["headroom"].as_str()),
        (Some("a processor, 2 cores"), Some("9.9.9"))
    );
    assert_eq!(stored["outputs"][2]["exit"], 1);
    assert!(Path::new(&place.0).join("work/place/s.py").is_file(), "scripts lie beside the commands");
}

#[test]
fn a_gpu_gets_its_own_commands_and_the_device_where_none_is_named() {
    let place = Place::new("gpu");
    assert!(place.run(&["--machine", "h200", "--torch", "python3"]).status.success());
    let wanted = pairs(&[
        ("headroom train --first", "ran train --first --device cuda\n"),
        ("headroom train --device null", "ran train --device null\n"),
        ("headroom lint s.py", "./found\n"),
        ("headroom train --gpu", "ran train --gpu --device cuda\n"),
        ("headroom record -- python s.py", "ran record -- python s.py\n"),
    ]);
    assert_eq!(place.outputs(), wanted);
    assert_eq!(place.stored()["machine"], "a device");
    assert_eq!(place.stored()["outputs"][0]["ran"], "headroom train --first --device cuda");
}

#[test]
fn one_page_is_run_alone_and_a_command_past_its_limit_is_ended() {
    let place = Place::new("limit");
    assert!(place.run(&[]).status.success());
    place.write("pages/1-a.md", "```sh\nheadroom slow\nheadroom k1\n```\n");
    let done = place.run(&["--only", "1-a", "--timeout", "1"]);
    assert_eq!(done.status.code(), Some(1), "a command that did not end well is told");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(said.contains("headroom slow: exit 124"), "{said}");
    let wanted = pairs(&[
        ("headroom train --first", "ran train --first\n"),
        ("headroom slow", "begun\n"),
        ("headroom k1", "ran k1\n"),
    ]);
    assert_eq!(
        place.outputs(),
        wanted,
        "the other pages' outputs are kept, and those of commands that are gone are not"
    );
    assert!(!place.run(&["--only", "7-z"]).status.success());
}
