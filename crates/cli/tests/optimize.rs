//! `headroom optimize` as its users meet it: every test runs the binary and reads what it left.

use headroom_record::provenance::check_provenance;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// Small and short: what is measured here means nothing, what is written must be right.
fn optimize(folder: &Path, more: &[&str]) -> Output {
    let quick = [
        "--size",
        "nano",
        "--batch-size",
        "1",
        "--seq-len",
        "16",
        "--rounds",
        "6",
        "--time",
        "0",
        "--curve-steps",
        "3",
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_headroom"));
    command.env("HEADROOM_HOME", folder).current_dir(folder).arg("optimize").args(quick).args(more).output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn place() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn everything_is_written_and_agrees() {
    let place = place();
    let done = optimize(place.path(), &["--ablation", "--output-dir", "out"]);
    // A gate may fail on so small a model; anything else may not.
    assert!(matches!(done.status.code(), Some(0 | 1)), "{}", said(&done));
    let folder = place.path().join("out");
    let record: Value = serde_json::from_slice(&fs::read(folder.join("validation.json")).unwrap()).unwrap();
    check_provenance(&record).unwrap();
    let gates = record["gates"].as_object().unwrap();
    let wanted = ["accuracy", "determinism", "every_parameter_has_a_gradient", "loss_curve", "memory", "throughput"];
    assert_eq!(gates.keys().collect::<Vec<_>>(), wanted);
    let failed = gates.values().any(|gate| gate["result"] != "pass");
    assert_eq!(done.status.code(), Some(i32::from(failed)), "{}", said(&done));
    let tried = record["passes"].as_array().unwrap();
    assert!(tried.len() >= 7, "{} passes", tried.len());
    assert!(tried.iter().all(|row| row["predicted_speedup"].is_number() && row["verdict"].is_string()));
    assert_eq!(
        record["ablation"].as_array().unwrap().len(),
        tried.len() + record["not_tried"].as_array().unwrap().len()
    );
    assert!(record["findings"].as_array().unwrap().iter().any(|row| row["asks_for"][0] == "flash-attention"));
    assert!(record["prediction"]["median_error_percent_of_step"].is_number());
    assert_eq!(record["memory_by_length"].as_array().unwrap().len(), 4);

    let page = fs::read_to_string(folder.join("optimize.html")).unwrap();
    for fetched in ["http:", "https:", "src=", "@import", "url("] {
        assert!(!page.contains(fetched), "the page holds `{fetched}`");
    }
    let text = fs::read_to_string(folder.join("optimize.md")).unwrap();
    for section in ["Findings", "Passes", "The ladder", "Ablation", "Impact against effort", "Roadmap", "Gates"] {
        assert!(text.contains(&format!("\n## {section}")) && page.contains(&format!("<h2>{section}")), "{section}");
    }
    assert!(!text.contains("\n- ") || !text.contains(".\n\n- `"), "bullets stand apart:\n{text}");
    assert!(said(&done).contains("Predicted savings were off by"), "{}", said(&done));
}

#[test]
fn a_margin_that_is_not_reached_is_a_no() {
    let place = place();
    let done = optimize(place.path(), &["--min-speedup", "100", "--json"]);
    assert_eq!(done.status.code(), Some(1), "{}", said(&done));
    let record: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(
        (&record["gates"]["throughput"]["result"], &record["gates"]["throughput"]["limit"]),
        (&"fail".into(), &100.0.into())
    );
    assert!(said(&done).contains("gate failed: throughput"), "{}", said(&done));
}

#[test]
fn bad_input_is_refused_before_anything_is_measured() {
    let place = place();
    fs::write(place.path().join("file"), "in the way").unwrap();
    let cases: [(&[&str], &str); 4] = [
        (&["--size", "huge"], "there is no size `huge`"),
        (&["--output-dir", "file"], "file"),
        (&["--min-speedup", "0"], "--min-speedup is 0"),
        (&["--size", "tiny", "--memory-limit", "1MiB"], "needs up to"),
    ];
    for (arguments, complaint) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headroom"));
        let done = command.env("HEADROOM_HOME", place.path()).current_dir(place.path()).arg("optimize");
        let done = done.args(arguments).output().unwrap();
        assert_eq!(done.status.code(), Some(2), "{arguments:?}: {}", said(&done));
        assert!(said(&done).contains(complaint), "{arguments:?}: {}", said(&done));
        assert!(!said(&done).contains("profiling Version 1"), "{arguments:?}: {}", said(&done));
    }
}
