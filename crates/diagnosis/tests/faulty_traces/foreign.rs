//! Causes found in other people's traces, each in a separate trace.

use headroom_diagnosis::finding::{Confidence, Severity};
use headroom_diagnosis::measures::kinds::Kind;
use headroom_diagnosis::measures::steps::FoundBy;

use crate::run::{Run, assert_near, codes, share, steps, steps_ahead};

/// An operator that reads a value back: it waits until the device has done `until`.
fn read_back(run: &mut Run, until: f64) {
    let waits = (until - run.host).max(0.0) + 10.0;
    run.host_span("cpu_op", "aten::item", waits + 4.0, None);
    run.host += 1.0;
    run.host_span("cpu_op", "aten::_local_scalar_dense", waits + 2.0, None);
    run.host += 1.0;
    run.host_span("cuda_runtime", "cudaStreamSynchronize", waits, None);
    run.host += waits + 2.0;
}

/// A kernel on a separate stream, launched now and started at `at`.
fn ordered(run: &mut Run, name: &str, stream: u32, at: f64, duration: f64) {
    let id = run.next_id;
    run.next_id += 1;
    run.host_span("cuda_runtime", "cudaLaunchKernel", 8.0, Some(id));
    run.device_span("kernel", name, stream, at, duration, id, "");
    run.host += 10.0;
}

#[test]
fn a_read_back_costs_only_the_time_in_which_the_device_had_run_dry() {
    let analysis = steps(|run, _| {
        // The value is from an early stream: the device continues with other work during the wait.
        run.work();
        let before = run.device_free - 200.0;
        read_back(run, before);
        run.work();
    })
    .analysis();
    assert!(analysis.measures.breakdown.busy_share > 0.95);
    let cost = analysis.findings.iter().filter(|finding| finding.code == "TR101");
    let cost: f64 = cost.map(|finding| finding.share_of_step.unwrap_or(0.0)).sum();
    assert!(cost < 0.01, "{cost}");
}

#[test]
fn a_value_read_in_the_shadow_of_another_is_mended_with_it() {
    let analysis = steps_ahead("", |run| {
        run.work();
        for _ in 0..2 {
            let until = run.device_free;
            read_back(run, until);
        }
        run.host_span("python_function", "train.py(9): log", 3000.0, None);
        run.host += 3000.0;
    })
    .analysis();
    let groups = &analysis.measures.synchronisation.groups;
    assert_eq!(groups.len(), 2, "{groups:?}");
    assert!(groups[1].share_of_steps < 0.1 * groups[0].share_of_steps, "the host has waited already: {groups:?}");
    // Without both waits the 3 ms overlap with the device's work, of which 2 are the waits' own; without the first alone,
    // the second would wait as long.
    let item = analysis.roadmap.items.iter().find(|item| item.code == "TR101").expect("is a finding");
    assert!(item.expected_share > 0.13, "{item:?}");
}

#[test]
fn work_that_is_queued_while_the_device_stands_is_not_the_hosts_fault() {
    let analysis = steps(|run, _| {
        run.work();
        // Launched at once, it starts 6 ms after everything else is done: the cause of the wait lies elsewhere.
        let late = run.device_free + 6000.0;
        ordered(run, "ncclDevKernel_SendRecv", 20, late, 50.0);
        run.device_free = late + 50.0;
        let until = run.device_free;
        read_back(run, until);
    })
    .analysis();
    assert_eq!(codes(&analysis)[0], "TR130", "{:?}", codes(&analysis));
    assert_near(share(&analysis, "TR130"), 6000.0 / 15_100.0);
    assert!(analysis.measures.breakdown.idle.stalled_seconds > 0.02);
    for code in ["TR101", "TR103", "TR102"] {
        let found = analysis.findings.iter().find(|finding| finding.code == code);
        assert!(found.is_none_or(|finding| finding.severity == Severity::Low), "{code}: {found:?}");
    }
}

#[test]
fn marks_that_old_profilers_wrote_as_operators_cut_the_steps() {
    let run = steps(|run, _| {
        run.work();
        run.host_span("cpu_op", "aten::odd", 3000.0 * run.host % 7.0, None);
    });
    let text = run
        .text()
        .replace(r#""cat":"user_annotation","name":"ProfilerStep"#, r#""cat":"Operator","name":"ProfilerStep"#);
    let trace = headroom_trace::read_bytes(text.as_bytes()).expect("is a trace");
    let analysis = headroom_diagnosis::analyze(&[trace], &Default::default()).expect("there is a trace");
    assert_eq!((analysis.steps.found_by, analysis.steps.list.len()), (FoundBy::ProfilerMarks, 4));
    assert!(analysis.measures.operators.rows.iter().all(|row| !row.name.starts_with("ProfilerStep")));
}

#[test]
fn annotations_of_serving_frameworks_cut_the_steps() {
    for name in ["step[DECODE bs=", "execute_context_0(0)_generation_"] {
        let mut run = Run::new();
        for number in 0..5 {
            let start = run.host;
            run.work();
            run.synchronise("cudaDeviceSynchronize");
            let duration = run.host - start;
            run.events.push(format!(
                r#"{{"ph":"X","cat":"user_annotation","name":"{name}{number}]","pid":1,"tid":1,"ts":{start:.3},"dur":{duration:.3}}}"#
            ));
            run.host += 30.0 * f64::from(number);
        }
        let analysis = run.analysis();
        assert_eq!((analysis.steps.found_by, analysis.steps.list.len()), (FoundBy::Annotations, 5), "{name}");
    }
}

#[test]
fn layers_of_one_pass_are_not_steps() {
    let mut run = Run::new();
    run.kernel("aten::embedding", "embedding_kernel", 40.0);
    for _ in 0..12 {
        for kernel in ["nvjet_qkv", "flash_fwd", "nvjet_out", "nvjet_up", "silu_kernel", "nvjet_down"] {
            run.kernel("aten::mm", kernel, 300.0);
        }
    }
    for kernel in
        ["final_norm", "nvjet_head", "argmax_kernel", "sample_kernel", "copy_kernel", "last_kernel", "one_more"]
    {
        run.kernel("aten::mm", kernel, 100.0);
    }
    let analysis = run.analysis();
    assert_eq!((analysis.steps.found_by, analysis.steps.list.len()), (FoundBy::WholeTrace, 1));
}

/// Loads code in a first launch that takes `micros`.
fn first_launch(run: &mut Run, name: &str, micros: f64) {
    let id = run.next_id;
    run.next_id += 1;
    run.host_span("cpu_op", "aten::add_", micros + 20.0, Some(id));
    run.host += 10.0;
    run.host_span("cuda_runtime", "cudaLaunchKernel", micros, Some(id));
    run.host += micros;
    let at = run.host + 5.0;
    run.device_span("kernel", name, 7, at, 10.0, id, "");
    run.device_free = at + 10.0;
    run.host += 10.0;
}

#[test]
fn a_cold_first_step_is_said_and_left_out() {
    let analysis = steps(|run, number| {
        if number == 0 {
            first_launch(run, "loaded_kernel", 60_000.0);
        }
        run.work();
    })
    .analysis();
    assert_eq!(analysis.steps.list.len(), 3);
    assert_eq!(analysis.steps.left_out, ["ProfilerStep#0"]);
    assert!(analysis.trust.notes[0].contains("cold start"), "{:?}", analysis.trust.notes);
    assert!(!codes(&analysis).contains(&"TR118") && !codes(&analysis).contains(&"TR129"), "{:?}", codes(&analysis));
}

#[test]
fn a_window_that_is_mostly_a_cold_start_says_so_first_and_nothing_about_the_host() {
    let mut run = Run::new();
    run.step(1, |run| {
        first_launch(run, "loaded_kernel", 60_000.0);
        run.work();
    });
    let analysis = run.analysis();
    assert_eq!(codes(&analysis)[0], "TR129", "{:?}", codes(&analysis));
    assert_eq!(analysis.findings[0].severity, Severity::Medium);
    assert!(analysis.findings.iter().all(|finding| finding.severity <= Severity::Medium), "{:?}", analysis.findings);
    assert!(analysis.trust.notes.iter().any(|note| note.contains("cold start") && note.contains("cudaLaunchKernel")));
}

#[test]
fn allocation_in_every_step_is_a_habit_and_not_a_cold_start() {
    let analysis = steps(|run, _| {
        for _ in 0..3 {
            run.host_span("cuda_runtime", "cudaMalloc", 1500.0, None);
            run.host += 1500.0;
        }
        run.work();
    })
    .analysis();
    assert_eq!(analysis.steps.list.len(), 4);
    assert!(codes(&analysis).contains(&"TR111") && !codes(&analysis).contains(&"TR129"), "{:?}", codes(&analysis));
}

#[test]
fn an_optimizer_with_a_closure_is_charged_for_what_is_its_own() {
    let analysis = steps(|run, _| {
        let start = run.host;
        // Forward and backward run inside the optimizer's step.
        run.work();
        run.host_span("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 400.0, None);
        run.work();
        run.host += 100.0;
        for _ in 0..150 {
            run.kernel("aten::addcmul_", "vectorized_elementwise_kernel", 5.0);
        }
        let duration = run.host - start;
        run.events.push(format!(
            r#"{{"ph":"X","cat":"user_annotation","name":"Optimizer.step#AdamW.step","pid":1,"tid":1,"ts":{start:.3},"dur":{duration:.3}}}"#
        ));
    })
    .analysis();
    let optimizer = &analysis.measures.patterns.optimizer;
    assert!(optimizer.kernels_per_step < 170.0, "{optimizer:?}");
    assert!(analysis.findings.iter().all(|finding| finding.share_of_step.is_none_or(|share| share <= 1.0)));
    assert!(share(&analysis, "TR109") < 0.5, "{}", share(&analysis, "TR109"));
}

const MI300X: &str =
    r#""deviceProperties":[{"id":0,"name":"AMD Instinct MI300X","totalGlobalMem":200000000000,"numSms":304}],"#;
const V100: &str =
    r#""deviceProperties":[{"id":0,"name":"Tesla V100-SXM2-32GB","totalGlobalMem":34000000000,"numSms":80}],"#;

#[test]
fn products_on_amds_matrix_units_are_not_said_to_do_without() {
    let kernels = [
        "Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT256x128x64_MI16x16x1_SN_LDSB1",
        "attn_fwd",
        "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x256x32_wt32x32x8",
        "_ZN2ck16tensor_operation6device12kernel_grouped_conv_fwd_xdl_cshuffle_v3",
    ];
    let analysis = steps_ahead(MI300X, |run| {
        kernels.iter().for_each(|kernel| run.product("c10::BFloat16", kernel, 2000.0));
    })
    .analysis();
    assert!(!codes(&analysis).contains(&"TR106"), "{:?}", analysis.measures.patterns.tensor_cores);
}

#[test]
fn convolutions_without_tensor_cores_are_found_without_shapes() {
    let analysis = steps_ahead(V100, |run| {
        for kernel in ["void cudnn::detail::dgrad_engine<float, 512, 6, 5>", "volta_scudnn_128x64_relu_medium_nn_v1"] {
            run.kernel("aten::cudnn_convolution", kernel, 3000.0);
        }
        run.kernel("aten::add", "vectorized_elementwise_kernel", 2000.0);
    })
    .analysis();
    assert_eq!(codes(&analysis)[0], "TR106", "{:?}", codes(&analysis));
    let found = &analysis.findings[0];
    assert!(found.message.contains("convolutions") && found.advice.contains("fp16"), "{found:?}");
    assert_eq!(analysis.measures.kinds[0].kind, Kind::Convolution);
    assert_near(analysis.measures.kinds[0].share, 0.75);
}

#[test]
fn slow_kernels_cost_nothing_where_the_host_sets_the_pace() {
    let analysis = steps_ahead(V100, |run| {
        for _ in 0..20 {
            run.kernel("aten::cudnn_convolution", "volta_scudnn_128x64_relu_medium_nn_v1", 60.0);
            run.host += 150.0;
        }
    })
    .analysis();
    assert_eq!(codes(&analysis)[0], "TR103", "{:?}", codes(&analysis));
    assert!(share(&analysis, "TR106") < 0.03, "{}", share(&analysis, "TR106"));
}

#[test]
fn copies_on_the_device_are_a_finding_with_the_operator_that_orders_them() {
    let analysis = steps(|run, _| {
        for _ in 0..40 {
            let id = run.next_id;
            run.next_id += 1;
            run.host_span("cpu_op", "aten::clone", 20.0, Some(id));
            run.host_span("cuda_runtime", "cudaMemcpyAsync", 10.0, Some(id));
            let at = run.device_free.max(run.host + 12.0);
            run.device_span("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 7, at, 100.0, id, r#","bytes":1000000"#);
            run.device_free = at + 100.0;
            run.host += 20.0;
        }
        run.work();
    })
    .analysis();
    assert_eq!(codes(&analysis)[0], "TR131", "{:?}", codes(&analysis));
    // Without them the host would still need 0.8 ms to reach the GEMMs, as recorded. Half of that is the profiler's,
    // which does not matter while the device is the bottleneck.
    assert_near(share(&analysis, "TR131"), 3600.0 / 13_000.0);
    assert!(
        analysis.findings[0].evidence.iter().any(|line| line.contains("aten::clone")),
        "{:?}",
        analysis.findings[0]
    );
}

#[test]
fn long_element_wise_kernels_in_a_row_are_unfused_work() {
    let analysis = steps_ahead("", |run| {
        for _ in 0..4 {
            run.kernel("aten::mm", "nvjet_tst", 300.0);
            for name in [
                "void at::native::elementwise_kernel_manual_unroll<mul>",
                "void at::native::vectorized_elementwise_kernel<add>",
            ] {
                run.kernel("aten::mul", name, 150.0);
            }
            run.kernel("aten::mean", "void at::native::reduce_kernel<512, 1, MeanOps>", 100.0);
        }
    })
    .analysis();
    assert_eq!(codes(&analysis)[0], "TR108", "{:?}", codes(&analysis));
    assert_near(share(&analysis, "TR108"), 250.0 / 700.0);
}

#[test]
fn what_recording_may_cost_lowers_confidence_and_hides_no_launch_bound_step() {
    let recorded = "\"with_stack\":1,\"record_shapes\":1,\"with_flops\":1,";
    let mut run = Run { header: recorded, ..Run::new() };
    for number in 0..4 {
        run.step_ahead(number, |run| {
            for _ in 0..60 {
                for _ in 0..15 {
                    run.host_span("cpu_op", "aten::view", 1.0, None);
                    run.host += 2.0;
                }
                run.kernel("aten::mm", "nvjet_tst", 5.0);
            }
        });
    }
    let analysis = run.analysis();
    assert_eq!(codes(&analysis)[0], "TR103", "{:?}", codes(&analysis));
    assert!(analysis.findings[0].severity >= Severity::High && analysis.findings[0].confidence < Confidence::High);
    let trust = &analysis.trust;
    let [low, middle, high] =
        [trust.profiler_overhead_low_share, trust.profiler_overhead_share, trust.profiler_overhead_high_share]
            .map(|share| share.expect("is estimated"));
    assert!(0.0 < low && low <= middle && middle <= high && high < 0.9, "{low} {middle} {high}");
}

#[test]
fn launches_into_a_graph_that_is_captured_are_not_dropped_events() {
    let mut run = steps(|run, _| run.work());
    let end = run.host;
    run.host_span("cuda_runtime", "cudaStreamBeginCapture", 5.0, None);
    run.host += 10.0;
    for _ in 0..200 {
        let id = run.next_id;
        run.next_id += 1;
        run.host_span("cuda_runtime", "cudaLaunchKernel", 4.0, Some(id));
        run.host += 6.0;
    }
    run.host_span("cuda_runtime", "cudaStreamEndCapture", 5.0, None);
    let notes = run.analysis().trust.notes;
    assert!(run.host > end && notes.iter().all(|note| !note.contains("dropped")), "{notes:?}");
}

#[test]
fn a_sample_of_the_events_gives_no_idle_time() {
    let mut run = Run::new();
    for number in 0..3 {
        run.step(number, |run| {
            for _ in 0..40 {
                run.next_id += 30;
                run.kernel("aten::mm", "nvjet_tst", 50.0);
                run.host += 400.0;
            }
        });
    }
    let analysis = run.analysis();
    assert!(analysis.trust.notes.iter().any(|note| note.contains("one event in 31")), "{:?}", analysis.trust.notes);
    assert!(analysis.findings.iter().all(|finding| finding.severity == Severity::Low), "{:?}", codes(&analysis));
}

#[test]
fn collectives_of_processors_are_exposed_where_no_operator_runs() {
    let mut run = Run::new();
    for number in 0..4 {
        run.step_ahead(number, |run| {
            run.host_span("cpu_op", "aten::mm", 2000.0, None);
            run.host += 2000.0;
            run.host_span("user_annotation", "gloo:all_reduce", 8000.0, None);
            run.host += 8000.0;
        });
    }
    let analysis = run.analysis();
    assert_eq!(codes(&analysis)[0], "TR115", "{:?}", codes(&analysis));
    assert_near(share(&analysis, "TR115"), 0.8);
}

#[test]
fn time_in_which_nothing_was_recorded_is_not_idle_time_of_a_step_that_was_not_found() {
    let mut run = Run::new();
    run.kernel("aten::mm", "nvjet_one", 100.0);
    run.host += 20_000.0;
    run.kernel("aten::mm", "nvjet_two", 100.0);
    let analysis = run.analysis();
    assert_eq!(analysis.steps.found_by, FoundBy::WholeTrace);
    assert!(analysis.findings.iter().all(|finding| finding.severity <= Severity::Medium), "{:?}", codes(&analysis));
}

#[test]
fn idle_time_names_what_comes_before_and_after_it_and_what_the_host_was_at() {
    let analysis = steps(|run, _| {
        run.work();
        run.synchronise("cudaStreamSynchronize");
        run.host_span("python_function", "train.py(12): augment", 9000.0, None);
        run.host += 9000.0;
        run.kernel("aten::mm", "nvjet_after", 100.0);
    })
    .analysis();
    let found = analysis.findings.iter().find(|finding| finding.code == "TR102").expect("idle time is found");
    let line = &found.evidence[0];
    assert!(line.contains("nvjet_after") && line.contains("train.py(12): augment"), "{line}");
}

#[test]
fn findings_of_one_resource_share_what_there_is_of_it() {
    let analysis = steps(|run, _| {
        for _ in 0..60 {
            run.kernel("aten::mul", "vectorized_elementwise_kernel", 4.0);
            let until = run.device_free;
            read_back(run, until);
            run.host += 60.0;
        }
    })
    .analysis();
    let idle = 1.0 - analysis.measures.breakdown.busy_share;
    let of_idle = ["TR101", "TR102", "TR103", "TR104", "TR119", "TR130"];
    let sum: f64 = analysis
        .findings
        .iter()
        .filter(|finding| of_idle.contains(&finding.code))
        .filter_map(|finding| finding.share_of_step)
        .sum();
    assert!(sum <= idle + 1e-9, "{sum} of {idle}");
}

#[test]
fn allocation_in_most_steps_is_a_habit_too() {
    let analysis = steps(|run, number| {
        for _ in 0..if number == 0 { 0 } else { 6 } {
            run.host_span("cuda_runtime", "cudaFree", 2500.0, None);
            run.host += 2500.0;
        }
        run.work();
    })
    .analysis();
    assert!(codes(&analysis).contains(&"TR111") && !codes(&analysis).contains(&"TR129"), "{:?}", codes(&analysis));
}

#[test]
fn one_operator_on_tensor_after_tensor_is_nothing_to_fuse() {
    let analysis = steps_ahead("", |run| {
        for _ in 0..20 {
            run.kernel("aten::add", "void at::native::vectorized_elementwise_kernel<add>", 400.0);
        }
    })
    .analysis();
    assert!(!codes(&analysis).contains(&"TR108"), "{:?}", codes(&analysis));
}

#[test]
fn layers_inside_an_annotated_forward_pass_are_not_steps() {
    let mut run = Run::new();
    let start = run.host;
    for _ in 0..8 {
        for kernel in ["nvjet_qkv", "flash_fwd", "nvjet_out", "nvjet_up", "silu_kernel", "nvjet_down"] {
            run.kernel("aten::mm", kernel, 300.0);
        }
    }
    let duration = run.host - start;
    run.events.push(format!(
        r#"{{"ph":"X","cat":"user_annotation","name":"Model_Forward","pid":1,"tid":1,"ts":{start:.3},"dur":{duration:.3}}}"#
    ));
    assert_eq!(run.analysis().steps.found_by, FoundBy::WholeTrace);
}
