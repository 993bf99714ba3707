//! Runs that are refused, fail or are killed leave nothing that could be mistaken for a result.

use crate::runs::{Run, headroom, names_in, said};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

/// Asserts that every file is complete: JSON parses, and no temporary name is left.
fn assert_whole(folder: &Path) {
    for name in names_in(folder) {
        let path = folder.join(&name);
        assert!(!name.ends_with(".tmp"), "{name} was left behind");
        if name.ends_with(".json") {
            let text = fs::read_to_string(&path).unwrap();
            assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{name} is cut short");
        }
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_refused_before_training() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    fs::write(&file, "in the way").unwrap();
    for folder in [file.join("run"), file.clone()] {
        let done = headroom().args(["profile", "--size", "nano", "--output-dir"]).arg(&folder).output().unwrap();
        let said = said(&done);
        assert_eq!(done.status.code(), Some(2), "{said}");
        assert!(said.contains("error: ") && said.contains("file"), "{said}");
        assert!(!said.contains("Step 1/"), "it trained first: {said}");
    }
    assert_eq!(names_in(place.path()), ["file"]);
}

#[test]
fn a_run_that_fails_keeps_what_was_recorded_before_and_all_of_it_whole() {
    let early = Run::of("profile --size nano --num-steps 20 --learning-rate 1e30");
    assert_eq!(early.output.status.code(), Some(3), "{}", said(&early.output));
    if early.folder.exists() {
        assert_whole(&early.folder);
        assert!(!early.names().iter().any(|name| name.ends_with("trace.json")), "{:?}", early.names());
    }
}

#[test]
fn a_killed_run_leaves_no_half_written_file() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("run");
    let mut child = headroom()
        .args(["profile", "--size", "nano", "--num-steps", "1000000", "--output-dir"])
        .arg(&folder)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("[PROFILING]")));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_whole(&folder);
    assert_eq!(names_in(&folder), ["config.json", "progress.jsonl", "run.toml", "training_output.log"]);
}

#[test]
fn a_step_outside_the_run_cannot_be_recorded() {
    let run = Run::of("profile --size nano --num-steps 10 --flops-profile-step 11");
    assert_eq!(run.output.status.code(), Some(2));
    assert!(said(&run.output).contains("--flops-profile-step 11 is not a step of this run"), "{}", said(&run.output));
    assert!(!run.folder.exists());
}
