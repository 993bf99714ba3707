//! `headroom analyze` and `compare` as programs use them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/data").join(format!("{name}.pt.trace.json.gz"))
}

fn headroom(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_headroom")).args(arguments).output().expect("headroom starts")
}

fn path_of(name: &str) -> String {
    data(name).to_string_lossy().into_owned()
}

#[test]
fn json_has_the_keys_that_programs_rely_on() {
    let output = headroom(&["analyze", &path_of("slow"), "--format", "json"]);
    assert!(output.status.success());
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("is JSON");
    for key in ["trust", "steps", "measures", "findings", "roadmap"] {
        assert!(!value[key].is_null(), "{key}");
    }
    let finding = &value["findings"][0];
    let keys =
        ["code", "name", "severity", "share_of_step", "place", "sources", "evidence", "advice", "effort", "confidence"];
    for key in keys {
        assert!(finding.get(key).is_some(), "{key}");
    }
    let shares: Vec<f64> =
        value["findings"].as_array().expect("a list").iter().filter_map(|one| one["share_of_step"].as_f64()).collect();
    assert!(shares.is_sorted_by(|left, right| left >= right), "{shares:?}");
}

#[test]
fn with_the_source_findings_carry_their_lines() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/slow_train");
    let output = headroom(&["analyze", &path_of("slow"), "--source", &source.to_string_lossy(), "--format", "json"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("is JSON");
    let lines = |code: &str| -> Vec<u64> {
        let findings = value["findings"].as_array().expect("a list").iter();
        findings.filter(|one| one["code"] == code).filter_map(|one| one["place"]["line"].as_u64()).collect()
    };
    assert_eq!(lines("TR101"), [43, 46, 22]);
    assert_eq!(lines("TR114"), [21]);
}

#[test]
fn figures_that_a_broken_trace_spoils_are_withheld() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("graphs.json");
    let events = r#"{"traceEvents": [
        {"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":1,"ts":0,"dur":100},
        {"ph":"X","cat":"cpu_op","name":"aten::copy_","pid":1,"tid":1,"ts":1,"dur":2},
        {"ph":"X","cat":"cuda_runtime","name":"cudaGraphLaunch","pid":1,"tid":1,"ts":5,"dur":9,"args":{"correlation":1}},
        {"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":3,"dur":1,"args":{"correlation":7}}]}"#;
    std::fs::write(&path, events).expect("can be written");
    let output = headroom(&["analyze", &path.to_string_lossy(), "--format", "json"]);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("is JSON");
    assert_eq!(value["trust"]["verdict"], "broken");
    assert!(value["measures"]["breakdown"].is_null());
    let shown = headroom(&["analyze", &path.to_string_lossy()]).stdout;
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains("cannot be trusted") && shown.contains("withheld"), "{shown}");
}

#[test]
fn a_gate_on_severity_and_one_on_change_exit_with_1() {
    let code = |arguments: &[&str]| headroom(arguments).status.code();
    assert_eq!(code(&["analyze", &path_of("slow"), "--fail-on", "critical"]), Some(1));
    assert_eq!(code(&["analyze", &path_of("slow")]), Some(0));
    let (slow, fixed) = (path_of("slow"), path_of("fixed"));
    assert_eq!(code(&["compare", &fixed, &slow, "--fail-if", "kernels>5%"]), Some(1));
    assert_eq!(code(&["compare", &fixed, &slow, "--fail-if", "step>5%"]), Some(0));
    assert_eq!(code(&["compare", &fixed, &slow, "--fail-if", "speed>5%"]), Some(2));
}

#[test]
fn what_is_no_trace_gets_one_error_and_exit_code_2() {
    let output = headroom(&["analyze", &Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml").to_string_lossy()]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.matches("error:").count()), (Some(2), 1), "{said}");
    assert!(said.contains("is no profiler trace"));
    assert!(output.stdout.is_empty());
}

#[test]
fn a_command_that_takes_no_step_is_said_so_plainly() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().to_string_lossy().into_owned();
    let output = headroom(&["record", "--output-dir", &folder, "--", "true"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("never loaded torch.optim"), "{said}");
}
