//! `headroom scale`: sweeps, their growth, and what fits.

use crate::home::place_with_peaks;
use headroom_record::provenance::check_provenance;
use serde_json::Value;

fn component<'a>(growth: &'a Value, name: &str) -> &'a Value {
    let parts = growth["components"].as_array().unwrap();
    parts.iter().find(|part| part["component"] == name).unwrap_or_else(|| panic!("{name} in {growth}"))
}

#[test]
fn a_sweep_is_measured_fitted_and_ranked() {
    let place = place_with_peaks();
    let done = place.succeeds("scale --size nano --batch 2,4 --seq 32,64,128 --num-steps 3 --output-dir s --json");
    let record: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(record, place.json("s/scaling.json"));
    check_provenance(&record).unwrap();
    assert_eq!(record["batch_scaling"]["class"], "linear");
    assert_eq!(component(&record["sequence_scaling"], "attention")["class"], "quadratic");
    assert_eq!(component(&record["sequence_scaling"], "activations")["class"], "linear");
    assert_eq!(component(&record["sequence_scaling"], "parameters")["class"], "constant");
    let points = record["sequence_points"].as_array().unwrap();
    assert_eq!(points.len(), 3);
    for point in points {
        for key in
            ["peak_memory_mb", "avg_memory_mb", "memory_per_token_kb", "samples_per_sec", "process_peak_memory_mb"]
        {
            assert!(point[key].as_f64().unwrap() > 0.0, "{key}: {point}");
        }
    }
    let savings = record["optimizations"].as_array().unwrap();
    let saved: Vec<f64> = savings.iter().map(|row| row["saved_mb"].as_f64().unwrap()).collect();
    assert!(saved.is_sorted_by(|left, right| left >= right), "{saved:?}");
    for row in savings.iter().filter(|row| row["name"] != "bf16") {
        assert!(row["measured_after_mb"].is_f64() && row["step_ratio"].is_f64(), "{row}");
    }
    for file in ["s/scaling.md", "s/scaling.html"] {
        assert!(String::from_utf8(place.read(file)).unwrap().contains("Scaling of nano under v1"));
    }
}

#[test]
fn points_and_savings_take_turns_and_the_race_is_on_record() {
    let place = place_with_peaks();
    let done = place.succeeds("scale --size nano --batch 1,2 --seq 16,32 --num-steps 10 --output-dir s --json");
    let record: Value = serde_json::from_str(&done.stdout).unwrap();
    check_provenance(&record).unwrap();
    let members = record["race"][0]["members"].as_array().unwrap();
    // The point that savings are compared with is the last one before them.
    let names: Vec<&str> = members.iter().map(|name| name.as_str().unwrap()).collect();
    let base = names.iter().position(|name| *name == "batch 1 × seq 32").unwrap();
    assert!(names[base + 1..].contains(&"flash attention") && base + 1 == names.len() - 3, "{names:?}");
    for point in record["sequence_points"].as_array().unwrap() {
        let [low, value, high] = ["_low", "", "_high"].map(|end| point[format!("step_seconds{end}")].as_f64().unwrap());
        assert!(low <= value && value <= high, "{point}");
        let speed = point["batch_size"].as_f64().unwrap() / value;
        assert!((point["samples_per_sec"].as_f64().unwrap() / speed - 1.0).abs() < 1e-9, "{point}");
    }
    assert!(record["sequence_scaling"]["speed_exponent_low"].is_f64());
    let flash =
        record["optimizations"].as_array().unwrap().iter().find(|row| row["name"] == "flash attention").unwrap();
    assert!(flash["step_ratio_low"].as_f64().unwrap() <= flash["step_ratio"].as_f64().unwrap(), "{flash}");
}

#[test]
fn a_plan_alone_runs_nothing_and_knows_what_fits() {
    let place = place_with_peaks();
    let done = place
        .succeeds("scale --size nano --batch 2,4 --seq 32,64 --plan-only --memory-limit 24MiB --output-dir s --json");
    let record: Value = serde_json::from_str(&done.stdout).unwrap();
    let fits = |batch: u64| {
        let line =
            format!("train --size nano --passes v1 --seq-len 32 --batch-size {batch} --num-steps 1 --device null");
        let shown = place.succeeds(&format!("{line} --memory-limit 24MiB --output-dir t --overwrite")).stdout;
        !shown.contains("recomputed")
    };
    let largest = record["limits"]["largest_batch"].as_u64().unwrap();
    assert_eq!(record["limits"]["at_seq_len"], 64);
    assert!(largest > 4 && fits(largest), "{largest}");
    assert!(record["batch_points"][0]["step_seconds"].is_null());
    assert_eq!(place.names(), ["s", "t"]);
}

#[test]
fn points_that_do_not_fit_are_named_and_the_others_run() {
    let place = place_with_peaks();
    let line = "scale --size nano --batch 1,2 --seq 16,512 --num-steps 3 --memory-limit 12MiB --output-dir s";
    let done = place.succeeds(line);
    assert!(done.stdout.contains("does not fit: it needs"), "{}", done.stdout);
    let record = place.json("s/scaling.json");
    assert!(record["sequence_points"][0]["step_seconds"].is_f64());
    assert!(record["sequence_points"][1]["step_seconds"].is_null());
}

#[test]
fn bad_input_is_refused() {
    let place = place_with_peaks();
    place.refuses("scale --size nano --batch 0,4", &["--batch has a 0 in it"]);
    place.refuses("scale --size nano --seq x", &["--seq"]);
    place.refuses("scale --size huge", &["there is no size `huge`"]);
    place.refuses("scale --size nano --passes v9", &["v9"]);
}
