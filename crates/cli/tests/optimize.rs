//! `headroom optimize` from its users' side: every test runs the binary and reads its files.

#[path = "common/made_up_peaks.rs"]
mod made_up_peaks;

use headroom_engine::Target;
use headroom_graph::Precision;
use headroom_graph::passes::PassList;
use headroom_record::atomic::write_json;
use headroom_record::device::{DEVICE_FILE, DeviceRecord};
use headroom_record::provenance::check_provenance;
use headroom_training::data::BatchShape;
use headroom_training::models::Size;
use headroom_training::optimizer::OptimizerConfig;
use headroom_training::program::{Keep, StepConfig, training_program};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// Small and short: the measurements are meaningless, but the files must be right.
fn optimize(folder: &Path, more: &[&str]) -> Output {
    let quick = [
        "--size",
        "nano",
        "--batch-size",
        "1",
        "--seq-len",
        "16",
        "--rounds",
        "4",
        "--time",
        "1",
        "--threads",
        "1",
        "--curve-steps",
        "3",
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_headroom"));
    command.env("HEADROOM_HOME", folder).current_dir(folder).arg("optimize").args(quick).args(more).output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A folder with made-up peaks, because measuring them takes longer than everything else.
fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    let peaks = DeviceRecord { threads: 1, ..made_up_peaks::made_up_peaks() };
    write_json(&place.path().join(DEVICE_FILE), &peaks).unwrap();
    place
}

#[test]
fn everything_is_written_and_agrees() {
    let place = tempfile::tempdir().unwrap();
    let done = optimize(place.path(), &["--ablation", "--output-dir", "out"]);
    // A gate may fail on such a small model; nothing else may.
    assert!(matches!(done.status.code(), Some(0 | 1)), "{}", said(&done));
    let folder = place.path().join("out");
    let record: Value = serde_json::from_slice(&fs::read(folder.join("validation.json")).unwrap()).unwrap();
    check_provenance(&record).unwrap();
    let gates = record["gates"].as_object().unwrap();
    let wanted = ["accuracy", "determinism", "every_parameter_has_a_gradient", "loss_curve", "memory", "throughput"];
    assert_eq!(gates.keys().collect::<Vec<_>>(), wanted);
    let failed = gates.values().any(|gate| gate["result"] == "fail");
    assert_eq!(done.status.code(), Some(i32::from(failed)), "{}", said(&done));
    let tried = record["passes"].as_array().unwrap();
    assert_eq!(tried.len(), 9, "every pass is measured");
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
    for document in [&text, &page] {
        assert!(document.contains("Here every pass is one flag"), "effort is of writing it by hand:\n{document}");
    }
    assert!(!text.contains("\n- ") || !text.contains(".\n\n- `"), "bullets stand apart:\n{text}");
    assert!(said(&done).contains("Predicted savings were off by"), "{}", said(&done));
    assert_eq!(said(&done).matches("measuring them").count(), 1, "peaks are measured once: {}", said(&done));
}

#[test]
fn the_recommended_list_is_the_best_one_measured_and_the_same_everywhere() {
    let place = place();
    let done = optimize(place.path(), &["--output-dir", "out"]);
    assert!(matches!(done.status.code(), Some(0 | 1)), "{}", said(&done));
    let folder = place.path().join("out");
    let record: Value = serde_json::from_slice(&fs::read(folder.join("validation.json")).unwrap()).unwrap();
    let number = |row: &Value, key: &str| row[key].as_f64().unwrap();
    let versions = record["versions"].as_array().unwrap();
    let kept = versions.last().unwrap();
    assert_eq!((&kept["name"], &kept["passes"]), (&"kept".into(), &record["kept"]));
    // Proved faster, or Version 1 itself.
    let is_proved = number(kept, "measured_ci95_low") > 1.0;
    assert_eq!(is_proved, record["kept_flag"] != "v1", "{kept:#}");
    assert!(is_proved || number(kept, "measured_speedup") == 1.0, "{kept:#}");
    // The rows of the kept passes multiply to the kept list, and all rows to `all`: one baseline, one race.
    let rows = record["passes"].as_array().unwrap();
    let product = |rows: &[&Value]| rows.iter().map(|row| number(row, "measured_speedup")).product::<f64>();
    let own: Vec<&Value> =
        rows.iter().filter(|row| record["kept"].as_array().unwrap().contains(&row["name"])).collect();
    assert_eq!(own.len(), record["kept"].as_array().unwrap().len());
    assert!((product(&own) / number(kept, "measured_speedup") - 1.0).abs() < 1e-9);
    let all = versions.iter().find(|row| row["name"] == "all").unwrap();
    assert!((product(&rows.iter().collect::<Vec<_>>()) / number(all, "measured_speedup") - 1.0).abs() < 1e-9);
    assert_eq!(record["gates"]["throughput"]["figure"], kept["measured_speedup"]);

    let list = record["kept"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect::<Vec<_>>();
    let flag = match is_proved {
        true => format!("--passes {}", record["kept_flag"].as_str().unwrap()),
        false => "Nothing is recommended".into(),
    };
    let text = fs::read_to_string(folder.join("optimize.md")).unwrap();
    let page = fs::read_to_string(folder.join("optimize.html")).unwrap();
    for shown in [&text, &page, &said(&done)] {
        assert!(shown.contains(&flag), "`{flag}` is not in\n{shown}");
    }
    let mut runs = Command::new(env!("CARGO_BIN_EXE_headroom"));
    let runs = runs.env("HEADROOM_HOME", place.path()).args(["runs", "show", "newest", "--json"]).output().unwrap();
    let row: Value = serde_json::from_slice(&runs.stdout).unwrap();
    let label = PassList::parse(&list.join(",")).unwrap().label();
    assert_eq!(row["version"], label.as_str(), "{row:#}");
    assert_eq!(row["figures"]["speedup"], kept["measured_speedup"]);
}

#[test]
fn phase_3_follows_the_passes_and_the_reference_points_are_timed() {
    let place = place();
    let done = optimize(place.path(), &["--output-dir", "out", "--allow", "precision"]);
    assert!(matches!(done.status.code(), Some(0 | 1)), "{}", said(&done));
    let folder = place.path().join("out");
    let read = |file: &str| -> Value { serde_json::from_slice(&fs::read(folder.join(file)).unwrap()).unwrap() };
    let (record, precisions) = (read("validation.json"), read("precisions.json"));
    check_provenance(&record).unwrap();
    check_provenance(&precisions).unwrap();
    let rows = record["phase_3"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["mixed precision bf16", "activation checkpointing", "memory layout"]);
    let number = |row: &Value, key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key} of {row:#}"));
    for row in &rows[..2] {
        assert!(number(row, "predicted_speedup") > 0.0 && row["rounds"].as_u64().unwrap() >= 4, "{row:#}");
        let (low, high) = (number(row, "measured_ci95_low"), number(row, "measured_ci95_high"));
        assert!((low..=high).contains(&number(row, "measured_speedup")), "{row:#}");
        let gates = row["gates"].as_object().unwrap();
        assert!(gates.contains_key("determinism") && gates.contains_key("throughput"), "{row:#}");
    }
    // A proved precision is part of the recommendation, since that was allowed here.
    let (bf16, proved) = (&rows[0], &precisions["precisions"][0]);
    assert_eq!((&bf16["measured_speedup"], &bf16["kept"]), (&proved["measured_speedup"], &proved["proved"]));
    assert!((1e-6..0.1).contains(&number(bf16, "gradient_difference")), "bf16 is neither exact nor wrong: {bf16:#}");
    // Recomputing is exact and costs calls; such a small model's minimum memory is not in its activations.
    let again = &rows[1];
    assert!(number(again, "gradient_difference") < 1e-5, "{again:#}");
    assert!(number(again, "memory_after_mb") <= number(again, "memory_before_mb"), "{again:#}");
    assert!(number(again, "predicted_speedup") < 1.0, "{again:#}");
    assert_eq!(again["gates"]["accuracy"]["result"], "pass");
    let layout = &rows[2];
    assert!(
        layout["measured_speedup"].is_null() && layout["note"].as_str().unwrap().contains("transposed"),
        "{layout:#}"
    );

    let points = record["reference_points"].as_array().unwrap();
    let at: Vec<(u64, u64, &str)> = points
        .iter()
        .map(|point| {
            let number = |key: &str| point[key].as_u64().unwrap();
            (number("batch_size"), number("seq_len"), point["name"].as_str().unwrap())
        })
        .collect();
    let wanted = [(1, 16), (2, 32)].map(|(batch, length)| ["v1", "v2", "kept"].map(|list| (batch, length, list)));
    assert_eq!(at, wanted.concat());
    for point in points {
        let (low, high) = (number(point, "ci95_low"), number(point, "ci95_high"));
        assert!(low > 0.0 && (low..=high).contains(&number(point, "samples_per_sec")), "{point:#}");
    }
    // At the requested shape they are the race's own figures.
    assert_eq!(points[2]["speedup"], record["versions"].as_array().unwrap().last().unwrap()["measured_speedup"]);
    let text = fs::read_to_string(folder.join("optimize.md")).unwrap();
    for shown in [&text, &said(&done)] {
        for wanted in ["Phase 3, on top of the kept list", "Throughput at the reference points", "2 × 32", "samples/s"]
        {
            assert!(shown.contains(wanted), "`{wanted}` is not in\n{shown}");
        }
    }
    assert!(text.contains("| 3 additional | [ ] memory layout |"), "{text}");
}

#[test]
fn operators_findings_and_the_step_are_of_one_step() {
    let place = place();
    let done = optimize(place.path(), &["--json"]);
    let record: Value = serde_json::from_slice(&done.stdout).unwrap();
    let step = record["baseline_step_seconds"].as_f64().unwrap();
    let rows = record["baseline_by_op"].as_array().unwrap();
    let sum: f64 = rows.iter().map(|row| row["seconds"].as_f64().unwrap()).sum();
    assert!((sum / step - 1.0).abs() < 1e-6, "operators take {sum}, the step {step}");
    assert_eq!(record["baseline_steps"], 9);
    // The optimizer's finding claims as much time as its operator takes.
    let of = |name: &str| rows.iter().find(|row| row["op"] == name).unwrap()["seconds"].as_f64().unwrap();
    let findings = record["findings"].as_array().unwrap();
    let share = findings.iter().find(|row| row["asks_for"][0] == "fuse-optimizer").unwrap();
    let share = share["percent_of_step"].as_f64().unwrap();
    assert!((share - 100.0 * of("adamw") / step).abs() < 0.5, "{share}% of the step, {} s of {step} s", of("adamw"));
    // Version 1 is what `train` runs and `study` plans: nothing is added to it.
    let size = Size::named("nano").unwrap();
    let version_1 = StepConfig {
        model: size.model(),
        shape: BatchShape { batch_size: 1, seq_len: 16 },
        optimizer: OptimizerConfig::default(),
        passes: PassList::none(),
        recomputed_layers: 0,
        precision: Precision::Fp32,
        target: Target::Cpu,
    };
    let kernels = training_program(&version_1, Keep::OnlyTheLoss).unwrap().program.plan.calls.len() as u64;
    assert_eq!(record["versions"][0]["kernels_before"], kernels);
    let before = record["targets"]["samples_per_sec_before"].as_f64().unwrap();
    assert_eq!(record["reference_points"][0]["samples_per_sec"], before, "one throughput for one setting");
}

#[test]
fn a_margin_that_is_not_reached_is_a_no() {
    let place = place();
    let done = optimize(place.path(), &["--min-speedup", "1e300", "--json"]);
    assert_eq!(done.status.code(), Some(1), "{}", said(&done));
    let record: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(
        (&record["gates"]["throughput"]["result"], &record["gates"]["throughput"]["limit"]),
        (&"fail".into(), &1e300.into())
    );
    assert!(said(&done).contains("gate failed: throughput"), "{}", said(&done));
}

#[test]
fn bad_input_is_refused_before_anything_is_measured() {
    let place = place();
    fs::write(place.path().join("file"), "in the way").unwrap();
    let cases: [(&[&str], &str); 5] = [
        (&["--size", "huge"], "there is no size `huge`"),
        (&["--output-dir", "file"], "file"),
        (&["--undecided", "maybe"], "[possible values: pass, fail]"),
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
