//! Pages claim only what was measured, and agree with the run's files and its trace.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::server::{Server, figure, headroom, run};

const SMALL: &str = "--size nano --batch-size 2 --seq-len 16";

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
}

#[test]
fn a_run_without_a_profile_says_so_and_warnings_are_on_every_page() {
    let folder = tempfile::tempdir().unwrap();
    // This learning rate makes the loss diverge.
    let wild = format!("{SMALL} --data markov --learning-rate 1 --num-steps 14");
    let trained =
        headroom(folder.path()).args(words(&format!("train {wild} --output-dir runs/plain"))).output().unwrap();
    assert!(trained.status.success(), "{}", String::from_utf8_lossy(&trained.stderr));
    run(folder.path(), &words(&format!("profile {wild} --output-dir runs/profiled")));
    let server = Server::start(folder.path(), &[]);
    let overview = |name: &str| server.json(&format!("/api/runs/{}/overview", server.id(name)));

    let plain = overview("plain");
    assert_eq!((&plain["findings"], &plain["roadmap"]), (&Value::Array(vec![]), &Value::Array(vec![])));
    for claim in ["no_findings", "no_roadmap"] {
        assert!(plain[claim].as_str().unwrap().starts_with("Not profiled"), "{}", plain[claim]);
    }
    assert!(!names(&plain["headline"]).contains(&"Recording cost"), "{}", plain["headline"]);
    let file = folder.path().join("runs/plain/performance_summary.json");
    assert_eq!(figure(&file, "performance_summary.profiling_overhead_percent"), Value::Null);

    let warning = "the loss diverged";
    let warned = |list: &Value| list.as_array().unwrap().iter().any(|one| one.as_str().unwrap().starts_with(warning));
    assert!(warned(&figure(&file, "warnings")));
    assert!(String::from_utf8_lossy(&trained.stdout).contains(&format!("Warning: {warning}")));
    for name in ["plain", "profiled"] {
        assert!(warned(&overview(name)["notes"]), "{name}: {}", overview(name)["notes"]);
    }
    for report in ["report.html", "report.md"] {
        let text = fs::read_to_string(folder.path().join("runs/profiled").join(report)).unwrap();
        assert!(text.contains(warning), "{report} has no warning");
    }
}

#[test]
fn the_fullest_moment_is_one_in_files_trace_and_dashboard() {
    let folder = tempfile::tempdir().unwrap();
    for passes in ["none", "all"] {
        run(
            folder.path(),
            &words(&format!("profile {SMALL} --passes {passes} --num-steps 8 --output-dir runs/{passes}")),
        );
    }
    let server = Server::start(folder.path(), &[]);
    for passes in ["none", "all"] {
        let place = folder.path().join("runs").join(passes);
        let record: Value = serde_json::from_slice(&fs::read(place.join("memory_analysis.json")).unwrap()).unwrap();
        let analysis = analysis_of(folder.path(), &place);
        let chart = server.json(&format!("/api/runs/{}/memory", server.id(passes)));
        let mib = 1024.0 * 1024.0;
        let near = |left: f64, right: f64| (left - right).abs() <= 1e-6 * left.abs().max(right.abs()) + 1e-9;
        let series = |at: usize| -> Vec<f64> {
            chart["bytes"][at].as_array().unwrap().iter().map(|one| one.as_f64().unwrap()).collect()
        };
        let categories = names_of(&chart["categories"]);
        let all: Vec<Vec<f64>> = (0..categories.len()).map(series).collect();
        let total = |moment: usize| all.iter().map(|one| one[moment]).sum::<f64>();
        let fullest = (0..all[0].len()).rev().max_by(|left, right| total(*left).total_cmp(&total(*right))).unwrap();
        for (at, category) in categories.iter().enumerate() {
            let wanted = record["by_category"][category.replace(' ', "_")].as_f64().unwrap();
            assert!(near(all[at][fullest] / mib, wanted), "{passes} {category}: {}, {wanted}", all[at][fullest] / mib);
        }
        let phase = record["peak_phase"].as_str().unwrap();
        assert_eq!(analysis["measures"]["memory"]["peak_phase"], phase, "{passes}");
        let label = chart["labels"][fullest].as_str().unwrap();
        assert!(label.contains(&format!(", {phase}: ")), "{passes}: {label}, not in {phase}");
        let peak = record["peak_memory_mb"].as_f64().unwrap();
        assert!(near(chart["peak_bytes"].as_f64().unwrap() / mib, peak), "{passes}");
        assert!(near(analysis["measures"]["memory"]["peak_bytes"].as_f64().unwrap() / mib, peak), "{passes}");
    }
}

fn names_of(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_string()).collect()
}

/// `headroom analyze` of the run's trace.
fn analysis_of(folder: &Path, run: &Path) -> Value {
    let mut entries = fs::read_dir(run).unwrap().map(|entry| entry.unwrap().path());
    let is_trace = |path: &std::path::PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("trace_step_");
    let trace = entries.find(is_trace).unwrap();
    let output = headroom(folder).args(["analyze", "--format", "json"]).arg(trace).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}
