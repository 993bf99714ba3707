//! Figures that must add up, and some that are known exactly.

use crate::runs::{Run, nano, tiny};
use headroom_trace::read_file;
use serde_json::Value;

fn number(value: &Value, pointer: &str) -> f64 {
    value.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("no number at {pointer}"))
}

fn sum(rows: &Value, key: &str) -> f64 {
    rows.as_array().unwrap().iter().map(|row| row[key].as_f64().unwrap()).sum()
}

#[test]
fn operators_idle_and_overhead_add_up_to_the_measured_step() {
    let run = tiny();
    let operators = run.json("operator_analysis.json");
    let steps = run.json("flops_profile.json")["step_by_step_results"].clone();
    // The loop's own clock, not the recorder's.
    let recorded = steps.as_array().unwrap().iter().filter(|row| (4..=8).contains(&row["step"].as_u64().unwrap()));
    let measured: f64 = recorded.map(|row| row["time"].as_f64().unwrap()).sum::<f64>() / 5.0;
    let breakdown = &operators["step_breakdown"];
    let parts = ["between_calls", "data_wait", "host_copies"].map(|key| breakdown[key].as_f64().unwrap());
    let found = sum(&operators["operator_stats"], "cpu_time_total") / 5.0 + parts.iter().sum::<f64>();
    assert!((found / measured - 1.0).abs() < 0.02, "{found} s in parts, {measured} s measured");
    assert!((sum(&operators["operator_stats"], "cpu_time_percent") - 100.0).abs() < 1e-6);
}

#[test]
fn the_curves_peak_is_the_plans() {
    let run = nano();
    let memory = run.json("memory_analysis.json");
    let points = run.json("memory_timeline.json")["points"].clone();
    let total = |point: &Value| -> f64 {
        ["parameters", "gradients", "optimizer_state", "activations", "temporaries"]
            .iter()
            .map(|category| point[category].as_f64().unwrap())
            .sum()
    };
    let peak = points.as_array().unwrap().iter().map(total).fold(0.0, f64::max);
    let planned = number(&memory, "/peak_memory_mb");
    assert!((peak - planned).abs() < 1e-9, "{peak} in the curve, {planned} planned");
    // The trace's own memory events rise to the same peak, to the byte.
    let trace = read_file(&run.only("", ".pt.trace.json")).unwrap();
    let live = trace.memory.allocated.iter().max().copied().unwrap();
    assert_eq!(live, (planned * 1024.0 * 1024.0).round() as u64);
}

#[test]
fn tinys_flops_are_the_known_ones() {
    let flops = tiny().json("flops_profile.json");
    let analysis = &flops["flops_analysis"];
    assert_eq!(analysis["forward_flops"], 5_892_997_120u64);
    assert_eq!(analysis["needed_forward_flops"], 5_626_658_816u64);
    assert_eq!(analysis["needed_flops_per_step"], 3 * 5_626_658_816u64);
    assert_eq!(analysis["backward_flops"], 2 * 5_892_997_120u64);
    assert_eq!(analysis["recomputed_flops"], 0);
    let everything = analysis["executed_flops_per_step"].as_u64().unwrap();
    assert_eq!(sum(&analysis["by_op"], "flops") as u64, everything);
    assert_eq!(analysis["by_module"]["flops"], everything);
    assert_eq!(analysis["total_flops"].as_u64().unwrap(), 12 * analysis["avg_flops_per_step"].as_u64().unwrap());
    let (seconds, peak) = (
        number(&flops, "/performance_metrics/avg_time_per_step"),
        number(&flops, "/efficiency_metrics/device_peak_flops"),
    );
    let mfu = 100.0 * 3.0 * 5_626_658_816.0 / seconds / peak;
    assert!((number(&flops, "/efficiency_metrics/mfu_percent") / mfu - 1.0).abs() < 1e-9);
    assert_eq!(tiny().json("operator_analysis.json")["patterns"]["linear_projections"], 29);
}

#[test]
fn passes_change_what_is_executed_and_not_what_is_needed() {
    let run = Run::done("profile --size tiny --passes v2 --device null --num-steps 6");
    let analysis = run.json("flops_profile.json")["flops_analysis"].clone();
    assert_eq!(analysis["needed_forward_flops"], 5_626_658_816u64);
    assert!(analysis["forward_flops"].as_u64().unwrap() < 5_892_997_120);
    assert!(analysis["recomputed_flops"].as_u64().unwrap() > 0, "tiled attention makes its scores twice");
}

#[test]
fn the_operator_table_is_the_traces() {
    let run = nano();
    let trace = read_file(&run.only("", ".pt.trace.json")).unwrap();
    for row in run.json("operator_analysis.json")["operator_stats"].as_array().unwrap() {
        let name = trace.names.lookup(row["name"].as_str().unwrap()).unwrap();
        let calls: Vec<usize> = (0..trace.host.len()).filter(|&span| trace.host.name[span] == name).collect();
        assert_eq!(calls.len() as u64, row["count"].as_u64().unwrap());
        let nanos: i64 = calls.iter().map(|&span| trace.host.duration[span]).sum();
        let recorded = row["cpu_time_total"].as_f64().unwrap() * 1e9;
        assert!((nanos as f64 - recorded).abs() < 1.0, "{nanos} ns in the trace, {recorded} ns in the table");
        let flops: u64 = calls.iter().map(|&span| trace.stated(span).map_or(0, |stated| stated.flops)).sum();
        assert_eq!(flops, row["flops"].as_u64().unwrap());
    }
}

#[test]
fn a_predicted_profile_says_that_its_times_are_computed() {
    let run = Run::done("profile --size small --device null --num-steps 6");
    let operators = run.json("operator_analysis.json");
    assert_eq!(operators["provenance"]["operator_stats"], "computed");
    let breakdown = &operators["step_breakdown"];
    let busy: f64 = ["forward_operators", "backward_operators", "optimizer_operators"]
        .iter()
        .map(|key| breakdown[key].as_f64().unwrap())
        .sum();
    assert!((busy / breakdown["wall"].as_f64().unwrap() - 1.0).abs() < 1e-6, "predicted calls leave no gaps");
}

#[test]
fn the_wait_for_data_is_one_figure_in_summary_and_breakdown() {
    // Every step after the warm-up is recorded.
    let run = Run::done("profile --size nano --num-steps 8 --warmup-steps 3 --profile-steps 5");
    let breakdown = &run.json("operator_analysis.json")["step_breakdown"];
    assert_eq!(breakdown["steps"], 5);
    let trace: Value = serde_json::from_slice(&std::fs::read(run.only("trace_step_", ".json")).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let copied = events.iter().filter(|event| event["name"] == "inputs" && event["ph"] == "X");
    let copied: f64 = copied.map(|event| event["dur"].as_f64().unwrap() / 1e6).sum::<f64>() / 5.0;
    let waited = number(breakdown, "/data_wait");
    let both = number(&run.json("performance_summary.json"), "/performance_summary/avg_data_time");
    assert!(
        waited > 0.0 && (both - waited - copied).abs() < 1e-8,
        "{both} s, {waited} s of waiting, {copied} s of copies"
    );
}

#[test]
fn memory_is_one_figure_in_summary_analysis_report_and_sweep() {
    // Its evaluations need more scratch than its training, and a step has two micro-batches.
    let wide = "--eval-every 3 --eval-batch-size 64 --gradient-accumulation-steps 2";
    for flags in ["--passes v1", "--passes v2", &format!("--passes v2 {wide}")] {
        let run = Run::done(&format!("profile --size nano --num-steps 6 --generate-report {flags}"));
        let summary = run.json("performance_summary.json")["performance_summary"].clone();
        let memory = run.json("memory_analysis.json");
        let (average, reserved) = (number(&summary, "/avg_memory_mb"), number(&summary, "/peak_memory_mb"));
        assert_eq!(number(&memory, "/avg_memory_mb"), average, "{flags}");
        assert_eq!(number(&memory, "/reserved_memory_mb"), reserved, "{flags}");
        assert_eq!(number(&memory, "/peak_to_average"), reserved / average, "{flags}");
        let report = std::fs::read_to_string(run.folder.join("report.md")).unwrap();
        let said = format!(
            "{average:.1} MiB in use on average over the calls of a step, with kernel scratch: the {reserved:.1} MiB \
             reserved are {:.2} times that",
            reserved / average
        );
        assert!(report.contains(&said), "{flags}: `{said}` is not in the report");
    }
    // A sweep plans the step of `train`; a profiled step also computes the norm of its gradients.
    let run = Run::done("train --size nano --passes v1 --num-steps 2");
    let summary = run.json("performance_summary.json")["performance_summary"].clone();
    let (average, reserved) = (number(&summary, "/avg_memory_mb"), number(&summary, "/peak_memory_mb"));
    let sweep = Run::done("scale --size nano --passes v1 --batch 8 --seq 64 --plan-only");
    let point = sweep.json("scaling.json")["batch_points"][0].clone();
    let wanted = [("avg_memory_mb", average), ("peak_memory_mb", reserved), ("peak_to_average", reserved / average)];
    for (key, want) in wanted {
        assert_eq!(number(&point, &format!("/{key}")), want, "{key}");
    }
    let profiled = Run::done("profile --size nano --passes v1 --num-steps 4").json("memory_analysis.json");
    let ratio = number(&profiled, "/peak_to_average") / number(&point, "/peak_to_average");
    assert!((ratio - 1.0).abs() < 0.01, "{ratio}");
}

#[test]
fn a_profile_of_tiny_ends_within_a_minute() {
    let took = tiny().took.as_secs_f64();
    assert!(took < 60.0, "{took} s, on a busy machine too");
}
