//! Files that a profile writes, and their contents.

use crate::runs::{Run, headroom, names_in, nano, said, tiny};
use headroom_record::provenance::check_provenance;
use headroom_trace::validate::perfetto_problems;
use std::fs;

/// Each file and the dotted keys that its readers use.
const KEYS: [(&str, &str); 7] = [
    (
        "flops_profile.json",
        "model_info.total_params model_info.trainable_params model_info.config profiling_config.batch_size \
         profiling_config.sequence_length profiling_config.num_steps profiling_config.device flops_analysis.total_flops \
         flops_analysis.avg_flops_per_step flops_analysis.flops_per_parameter flops_analysis.forward_flops \
         flops_analysis.backward_flops flops_analysis.optimizer_flops flops_analysis.recomputed_flops \
         flops_analysis.by_module.children flops_analysis.by_op performance_metrics.avg_time_per_step \
         performance_metrics.throughput_samples_per_sec performance_metrics.avg_loss performance_metrics.flops_per_sec \
         efficiency_metrics.mfu_percent efficiency_metrics.hfu_percent efficiency_metrics.achieved_flops_per_sec \
         efficiency_metrics.device_peak_flops efficiency_metrics.device_peak_source efficiency_metrics.efficiency_ratio \
         step_by_step_results.0.step step_by_step_results.0.loss step_by_step_results.0.flops \
         step_by_step_results.0.time step_by_step_results.0.flops_per_sec timestamp",
    ),
    (
        "computational_intensity.json",
        "arithmetic_intensity_flops_per_byte memory_bandwidth_used_gb_per_sec memory_bandwidth_utilization_percent \
         device_memory_bandwidth_gb_per_sec ridge_point_flops_per_byte memory_bound_vs_compute_bound \
         roofline_metrics.peak_flops roofline_metrics.peak_memory_bandwidth roofline_metrics.achieved_flops \
         roofline_metrics.achieved_bandwidth roofline_position bandwidth_class by_op.0.name by_op.0.flops by_op.0.bytes \
         by_op.0.intensity by_op.0.time by_op.0.bound by_op.0.percent_of_roof",
    ),
    (
        "roofline_data.json",
        "model_name timestamp device_info.name device_info.peak_flops device_info.peak_memory_bandwidth \
         performance_point.arithmetic_intensity performance_point.achieved_performance performance_point.mfu_percent \
         points.0 optimization_targets.0.target optimization_targets.0.reason \
         optimization_targets.0.expected_improvement",
    ),
    (
        "operator_analysis.json",
        "operator_stats.0.name operator_stats.0.cpu_time_total operator_stats.0.cpu_time_avg \
         operator_stats.0.cpu_time_percent operator_stats.0.cuda_time_total operator_stats.0.cuda_time_avg \
         operator_stats.0.cuda_time_percent operator_stats.0.count operator_stats.0.input_shapes.0 \
         operator_stats.0.flops operator_stats.0.bytes operator_stats.0.cuda_memory_usage bottlenecks.top_cpu_time.0 \
         bottlenecks.top_cuda_time bottlenecks.memory_intensive bottlenecks.low_flops_utilization \
         bottlenecks.optimization_targets.0.operation bottlenecks.optimization_targets.0.optimization \
         bottlenecks.optimization_targets.0.potential_benefit bottlenecks.optimization_targets.0.priority \
         patterns.gemm_percent patterns.qkv_projection_percent patterns.gate_up_percent patterns.softmax_percent \
         patterns.attention_percent patterns.ffn_percent patterns.norm_percent patterns.optimizer_percent \
         patterns.launch_overhead_percent patterns.kernels_per_step patterns.distinct_kernels \
         patterns.linear_projections timestamp",
    ),
    (
        "memory_analysis.json",
        "peak_memory_mb avg_memory_mb peak_to_average fragmentation_percent peak_phase at_forward_mb at_backward_mb \
         at_optimizer_mb allocations largest_tensor.name largest_tensor.shape largest_tensor.mb by_category.parameters \
         by_category.gradients by_category.optimizer_state by_category.activations by_category.temporaries \
         peak_memory_events.0.name peak_memory_events.0.memory_usage peak_memory_events.0.count \
         peak_memory_events.0.avg_memory_per_call total_memory_allocated largest_batch_that_fits \
         memory_efficiency_recommendations.0",
    ),
    (
        "memory_timeline.json",
        "categories.4 points.0.time_us points.0.step points.0.phase points.0.parameters points.0.gradients \
         points.0.optimizer_state points.0.activations points.0.temporaries",
    ),
    ("performance_summary.json", "performance_summary.profiling_overhead_percent profiler_config.profile_steps"),
];

#[test]
fn every_file_has_its_keys_and_says_where_its_figures_come_from() {
    for (file, keys) in KEYS {
        let value = nano().json(file);
        check_provenance(&value).unwrap_or_else(|error| panic!("{file}: {error}"));
        for key in keys.split_whitespace() {
            let pointer = format!("/{}", key.replace('.', "/"));
            let found = value.pointer(&pointer);
            assert!(found.is_some_and(|found| !found.is_null()), "{file} lacks {key}");
        }
    }
}

#[test]
fn the_folder_holds_every_file_and_nothing_half_written() {
    let run = nano();
    let names = run.names();
    for name in ["config.json", "report.html", "report.md", "performance_summary_report.md", "training_output.log"] {
        assert!(names.contains(&name.to_string()), "{name} in {names:?}");
    }
    run.only("trace_step_4_8", ".json");
    run.only("", ".pt.trace.json");
    run.only("events.out.tfevents.", "");
    assert!(!names.iter().any(|name| name.starts_with('.')), "{names:?}");
    let copies = names_in(&run.folder.join("flops_analysis"));
    assert_eq!(copies, ["computational_intensity.json", "flops_profile.json", "roofline_data.json"]);
    for copy in copies {
        assert_eq!(run.json(&copy), run.json(&format!("flops_analysis/{copy}")));
    }
    assert_eq!(run.json("config.json")["profilers_enabled"]["trace"], true);
}

#[test]
fn the_trace_keeps_perfettos_rules_and_marks_one_step_more() {
    let text = fs::read_to_string(nano().only("", ".pt.trace.json")).unwrap();
    assert_eq!(perfetto_problems(&text), Vec::<String>::new());
    let steps: Vec<usize> = (4..=9).map(|step| text.matches(&format!("\"ProfilerStep#{step}\"")).count()).collect();
    assert_eq!(steps, [1; 6]);
    assert!(text.contains("\"enumerate(DataLoader)#headroom.__next__\""));
}

#[test]
fn the_gradients_norm_is_among_the_scalars_of_every_step_without_clipping() {
    let events = fs::read(tiny().only("events.out.tfevents.", "")).unwrap();
    let tag = b"train/gradient_norm";
    assert_eq!(events.windows(tag.len()).filter(|window| *window == tag).count(), 12);
}

#[test]
fn only_recorded_steps_are_marked_and_each_has_its_line() {
    let said = said(&nano().output);
    let marked: Vec<&str> = said.lines().filter(|line| line.ends_with("[PROFILING]")).collect();
    assert_eq!(marked.len(), 5, "{said}");
    assert!(marked[0].starts_with("Step 4/20") && marked[4].starts_with("Step 8/20"), "{marked:?}");
    let log = fs::read_to_string(nano().folder.join("training_output.log")).unwrap();
    assert_eq!(log.matches("[PROFILING]").count(), 5);
}

#[test]
fn the_ten_costliest_operators_have_device_time_host_time_calls_and_target() {
    let said = said(&nano().output);
    let (_, table) = said.split_once("Top operators by self time\n").unwrap();
    let lines: Vec<&str> = table.lines().collect();
    let head: Vec<&str> = lines[0].split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(head[..6], ["device time", "share", "host time", "calls", "share of roof", "target"]);
    assert!(lines[11].contains("On a CPU device time is the CPU's own"), "ten rows, then the note: {table}");
    let places = nano().json("operator_analysis.json")["by_place"].as_array().unwrap().clone();
    for (line, place) in lines[1..11].iter().zip(&places) {
        // Only the CPU computes here. Version 2 leaves four passes out, and only those are named.
        assert_eq!(place["host_time"], place["time"], "{place}");
        let (time, target) = (place["time"].as_f64().unwrap(), place["target_time"].as_f64().unwrap());
        assert!((0.0..=time).contains(&target), "{place}");
        for pass in place["target_passes"].as_array().unwrap() {
            let pass = pass.as_str().unwrap();
            assert!(["fuse-swiglu", "fuse-norm", "fuse-rope", "fuse-loss"].contains(&pass), "{place}");
            assert!(line.contains(pass), "{line}");
        }
    }
    for file in ["report.md", "report.html"] {
        let text = fs::read_to_string(nano().folder.join(file)).unwrap();
        assert!(["device time", "host time", "target"].iter().all(|column| text.contains(column)), "{file}");
    }
}

#[test]
fn the_page_stands_alone_and_shows_each_part() {
    let page = fs::read_to_string(nano().folder.join("report.html")).unwrap();
    for fetched in ["http:", "https:", "src=", "@import", "url("] {
        assert!(!page.contains(fetched), "the page holds `{fetched}`");
    }
    let sections = ["Summary", "Where a step goes", "Top operators by self time", "Patterns", "Roofline", "Memory"];
    for section in sections.iter().chain(&["Bottlenecks", "Impact against effort"]) {
        assert!(page.contains(&format!("<h2>{section}</h2>")), "{section}");
    }
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    let report = fs::read_to_string(nano().folder.join("report.md")).unwrap();
    assert_eq!(report, fs::read_to_string(nano().folder.join("performance_summary_report.md")).unwrap());
}

#[test]
fn train_writes_only_what_it_is_asked_for() {
    let plain = Run::done("train --size nano --num-steps 6");
    assert_eq!(
        plain.names(),
        ["config.json", "performance_summary.json", "progress.jsonl", "run.toml", "training_output.log"]
    );
    let flops = Run::done("train --size nano --num-steps 6 --computational-intensity --generate-roofline");
    assert!(flops.folder.join("roofline_data.json").exists());
    assert!(!flops.folder.join("operator_analysis.json").exists());
    let traced =
        Run::done("train --size nano --num-steps 8 --enable-pytorch-profiler --profile-steps 2 --warmup-steps 0");
    // The first step is never recorded, warm-up or not.
    traced.only("trace_step_2_3", ".json");
    assert!(!traced.folder.join("flops_profile.json").exists());
    assert!(!traced.folder.join("report.html").exists());
}

#[test]
fn a_profile_written_over_another_leaves_none_of_its_files() {
    let run = Run::done("profile --size nano --num-steps 10 --profile-steps 2");
    let folder = run.folder.to_str().unwrap();
    let again =
        |arguments: &str| headroom().args(arguments.split(' ')).args(["--output-dir", folder]).output().unwrap();
    let refused = again("profile --size nano --num-steps 8");
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    let done = again("train --size nano --num-steps 3 --overwrite");
    assert!(done.status.success(), "{}", said(&done));
    assert_eq!(
        run.names(),
        ["config.json", "performance_summary.json", "progress.jsonl", "run.toml", "training_output.log"]
    );
}

#[test]
fn a_profile_to_be_passed_on_names_no_folder_and_no_host() {
    let run = Run::done("profile --size nano --num-steps 8 --redact");
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim();
    run.only("host.", ".pt.trace.json");
    for name in run.names().iter().filter(|name| run.folder.join(name).is_file()) {
        let text = String::from_utf8_lossy(&fs::read(run.folder.join(name)).unwrap()).to_string();
        assert!(!text.contains(run.folder.to_str().unwrap()), "{name} names the folder");
        assert!(host.len() < 4 || !(text.contains(host) || name.contains(host)), "{name} names the host");
    }
}
