//! A profile's files and `headroom analyze` of its trace contain the same figures.

use crate::runs::{Run, headroom};
use serde_json::Value;
use std::collections::BTreeMap;

/// Record files, and where the analysis has the same record.
const RECORDS: [(&str, &str, &str); 6] = [
    ("flops_profile.json", "flops_analysis", "flops_analysis"),
    ("flops_profile.json", "efficiency_metrics", "efficiency_metrics"),
    ("computational_intensity.json", "", "computational_intensity"),
    ("roofline_data.json", "", "roofline_data"),
    ("operator_analysis.json", "", "operator_analysis"),
    ("memory_analysis.json", "", "memory_analysis"),
];

/// Every figure of `value` by its dotted key; elements of a list share the list's key, in order.
fn figures(key: &str, value: &Value, found: &mut BTreeMap<String, Vec<f64>>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members.iter().filter(|(name, _)| *name != "provenance") {
                figures(&format!("{key}.{name}"), member, found);
            }
        }
        Value::Array(elements) => elements.iter().for_each(|element| figures(key, element, found)),
        Value::Number(number) => found.entry(key.into()).or_default().push(number.as_f64().unwrap()),
        _ => {}
    }
}

fn near(key: &str, left: f64, right: f64) {
    assert!(
        (left - right).abs() <= 1e-9 * left.abs().max(right.abs()),
        "{key}: {left} in the files, {right} in analyze"
    );
}

/// Compares what both have; returns the number of keys and of figures.
fn compare(run: &Run) -> (usize, usize) {
    let trace = run.only("trace_step_", ".json");
    let output = headroom().args(["analyze", "--format", "json"]).arg(&trace).output().unwrap();
    let analysis: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (mut keys, mut count) = (0, 0);
    for (file, member, section) in RECORDS {
        let record = run.json(file);
        let record = if member.is_empty() { &record } else { &record[member] };
        let (mut ours, mut theirs) = (BTreeMap::new(), BTreeMap::new());
        figures(section, record, &mut ours);
        figures(section, &analysis["run"][section], &mut theirs);
        assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "{file}");
        for (key, left) in &ours {
            let right = &theirs[key];
            assert_eq!(left.len(), right.len(), "{key}");
            left.iter().zip(right).for_each(|(left, right)| near(key, *left, *right));
            keys += 1;
            count += left.len();
        }
    }
    // Figures that the measures of any trace report under their own names.
    let (measures, steps) = (&analysis["measures"], analysis["steps"]["list"].as_array().unwrap().len() as f64);
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"));
    let (memory, operators) = (run.json("memory_analysis.json"), run.json("operator_analysis.json"));
    let (flops, intensity) = (run.json("flops_profile.json"), run.json("computational_intensity.json"));
    let performance = run.json("performance_summary.json");
    let mib = 1024.0 * 1024.0;
    let peak = |category: &str| {
        let curve = measures["memory"]["curve"].as_array().unwrap();
        let total = |point: &Value| {
            let names = ["earlier", "parameters", "gradients", "optimizer_state", "activations", "temporaries"];
            names.iter().map(|name| number(&point[name])).sum::<f64>()
        };
        let fullest = curve.iter().max_by(|left, right| total(left).total_cmp(&total(right))).unwrap();
        number(&fullest[category]) / mib
    };
    let breakdown = &operators["step_breakdown"];
    let summary = &performance["performance_summary"];
    let generic = [
        ("average memory", number(&summary["avg_memory_mb"]), number(&memory["avg_memory_mb"])),
        ("reserved memory", number(&summary["peak_memory_mb"]), number(&memory["reserved_memory_mb"])),
        (
            "peak over average",
            number(&summary["peak_memory_mb"]) / number(&summary["avg_memory_mb"]),
            number(&memory["peak_to_average"]),
        ),
        ("peak memory", number(&memory["peak_memory_mb"]), number(&measures["memory"]["peak_bytes"]) / mib),
        ("parameters at the peak", number(&memory["by_category"]["parameters"]), peak("parameters")),
        ("gradients at the peak", number(&memory["by_category"]["gradients"]), peak("gradients")),
        ("optimizer state at the peak", number(&memory["by_category"]["optimizer_state"]), peak("optimizer_state")),
        ("activations at the peak", number(&memory["by_category"]["activations"]), peak("activations")),
        ("temporaries at the peak", number(&memory["by_category"]["temporaries"]), peak("temporaries")),
        ("MFU", number(&flops["efficiency_metrics"]["mfu_percent"]), number(&measures["roofline"]["mfu_percent"])),
        (
            "executed FLOPs",
            number(&flops["flops_analysis"]["executed_flops_per_step"]),
            number(&measures["roofline"]["flops_per_step"]),
        ),
        (
            "needed FLOPs",
            number(&flops["flops_analysis"]["needed_flops_per_step"]),
            number(&measures["roofline"]["needed_flops_per_step"]),
        ),
        (
            "peak FLOP/s",
            number(&flops["efficiency_metrics"]["device_peak_flops"]),
            number(&measures["roofline"]["peak_flops_per_second"]),
        ),
        ("idle", number(&intensity["idle_percent"]), 100.0 * (1.0 - number(&measures["breakdown"]["busy_share"]))),
        (
            "utilization",
            number(&summary["device_utilization_percent"]),
            100.0 * number(&measures["breakdown"]["busy_share"]),
        ),
        ("recorded step", number(&breakdown["wall"]), number(&measures["breakdown"]["wall_seconds"]) / steps),
    ];
    for (name, file, analyze) in generic {
        assert!((file - analyze).abs() <= 1e-6 * file.abs().max(analyze.abs()) + 1e-9, "{name}: {file}, {analyze}");
    }
    assert_eq!(memory["peak_phase"], measures["memory"]["peak_phase"]);
    (keys, count + generic.len())
}

#[test]
fn files_and_analysis_agree_at_nano_and_tiny_under_v1_v2_and_all() {
    for size in ["nano", "tiny"] {
        for passes in ["v1", "v2", "all"] {
            let run = Run::done(&format!("profile --size {size} --passes {passes} --num-steps 7 --profile-steps 2"));
            let (keys, figures) = compare(&run);
            // With every pass in the list, no bottleneck has a speed-up to offer.
            let want = if passes == "all" { KEYS - 1 } else { KEYS };
            assert_eq!(keys, want, "keys that both hold, {size} {passes}");
            assert!(figures > 1_000, "{figures} figures compared, {size} {passes}");
        }
    }
}

/// Number of keys in the types that files and analysis share; a new figure is counted here.
const KEYS: usize = 155;
