//! Steps replayed from CUDA graphs: one launch, and many kernels without their own launch.

use headroom_diagnosis::{Analysis, Options, analyze};
use headroom_trace::Trace;

use crate::run::{H200, Run, assert_near, codes, share};

const KERNELS: u32 = 100;

/// Four steps: the host copies a batch without waiting, launches a graph of 100 kernels of 20 µs, all with the graph
/// launch's number, and prepares the next batch for longer than the device works, which is then idle.
fn replayed(prepares: f64, header: &'static str, with_functions: bool) -> Trace {
    let mut run = Run { header, ..Run::new() };
    for number in 0..4 {
        run.step_ahead(number, |run| {
            let id = run.next_id;
            run.next_id += 2;
            run.host_span("cpu_op", "aten::copy_", 20.0, None);
            run.host += 4.0;
            run.host_span("cuda_runtime", "cudaMemcpyAsync", 8.0, Some(id));
            let copied = run.host + 10.0;
            run.device_span("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 7, copied, 5.0, id, r#","bytes":4096"#);
            run.host += 26.0;
            run.host_span("cuda_runtime", "cudaGraphLaunch", 40.0, Some(id + 1));
            let mut at = run.host + 50.0;
            for _ in 0..KERNELS {
                run.device_span("kernel", "nvjet_tst_128x256_h_bz", 7, at, 20.0, id + 1, r#","graph node id":3"#);
                at += 20.5;
            }
            run.device_free = at;
            run.host += 60.0;
            if with_functions {
                run.host_span("python_function", "train.py(7): prepare", prepares, None);
            }
            run.host_span("cpu_op", "aten::stack", 40.0, None);
            run.host += prepares;
        });
    }
    run.trace()
}

fn check(analysis: &Analysis, step_micros: f64) {
    let measures = &analysis.measures;
    assert_near(measures.kernels.per_step, f64::from(KERNELS));
    assert_near(measures.kernels.in_graphs_share, 1.0);
    assert_eq!(analysis.steps.list.len(), 4);
    // 2,000 µs of kernels and a copy, all inside the steps.
    assert_near(measures.breakdown.busy_share, 2_005.0 / step_micros);
    let notes = &analysis.trust.notes;
    assert!(notes.iter().all(|note| !note.contains("dropped") && !note.contains("no recorded launch")), "{notes:?}");
    assert!(!codes(analysis).contains(&"TR103"), "{:?}", codes(analysis));
    // The host prepares between the last kernel of a graph and the next copy.
    let idle = analysis.findings.iter().find(|finding| finding.code == "TR102").expect("idle time is said");
    assert_near(share(analysis, "TR102"), 1.0 - measures.breakdown.busy_share);
    assert!(idle.evidence[..3].iter().any(|line| line.contains("before `Memcpy HtoD")), "{:?}", idle.evidence);
}

#[test]
fn idle_time_before_a_graph_is_not_launch_bound() {
    let trace = replayed(3_500.0, H200, true);
    let analysis = crate::held::held(analyze(&[trace], &Options::default()).expect("there is a trace"));
    check(&analysis, 3_586.0);
    assert_eq!(codes(&analysis)[0], "TR102");
    let idle = &analysis.findings[0];
    assert!(idle.evidence[0].contains("train.py(7): prepare"), "{:?}", idle.evidence);
    assert!(
        idle.saving_bound_share >= Some(idle.saving_expected_share) && idle.saving_expected_share > 0.2,
        "{idle:?}"
    );
}

#[test]
fn light_and_full_recordings_of_a_graph_are_joined_kernel_by_kernel() {
    // 3,576 µs with a light profiler, 3,886 with everything, 3,570 without.
    let timed = r#""deviceProperties":[{"id":0,"name":"NVIDIA H200"}],"with_stack":1,
        "headroom_recording":{"true_step_seconds":[0.00357,0.00357,0.00357],"profiler":"full"},"#;
    let mut full = replayed(3_800.0, timed, true);
    full.light = Some(Box::new(replayed(3_490.0, H200, false)));
    let analysis = crate::held::held(analyze(&[full], &Options::default()).expect("there is a trace"));
    let step = &analysis.true_step;
    assert_eq!((step.from, step.joined_share), ("measured", Some(1.0)), "{step:?}");
    assert!((step.played_seconds - 0.003_57).abs() < 10e-6, "{step:?}");
    check(&analysis, 3_570.0);
}

/// Four steps of one graph: eight layers of twelve heads, each head with two narrow GEMMs of 15 µs, and a wide one of
/// 100 µs per layer.
fn heads(header: &'static str, gap: f64, heads: usize) -> Trace {
    let mut run = Run { header, ..Run::new() };
    for number in 0..4 {
        run.step_ahead(number, |run| {
            let id = run.next_id;
            run.next_id += 1;
            run.host_span("cuda_runtime", "cudaGraphLaunch", 40.0, Some(id));
            let mut at = run.device_free.max(run.host + 50.0);
            for _ in 0..8 {
                for _ in 0..heads {
                    for name in ["nvjet_tst_64x64_v_bz_NTT", "nvjet_tst_256x128_h_bz_NNT"] {
                        run.device_span("kernel", name, 7, at, 15.0, id, r#","grid":[2,66,1],"block":[384,1,1]"#);
                        at += 15.0 + gap;
                    }
                }
                let more = r#","grid":[2,66,1],"block":[384,1,1]"#;
                run.device_span("kernel", "nvjet_tst_128x256_h_bz_TNT", 7, at, 100.0, id, more);
                at += 100.0 + gap;
            }
            run.device_free = at;
            run.host += 60.0;
        });
    }
    run.trace()
}

#[test]
fn a_loop_over_heads_in_a_graph_is_told_with_what_one_call_saves() {
    let analysis = crate::held::held(analyze(&[heads(H200, 1.0, 12)], &Options::default()).expect("there is a trace"));
    let found = &analysis.findings[0];
    assert_eq!(found.code, "TR108", "{:?}", codes(&analysis));
    assert!(found.message.contains("12 times in a row"), "{}", found.message);
    // Half of the 2,880 µs in narrow GEMMs is saved, and their gaps, in steps of 8 · (24 · 16 + 101) µs.
    let step = 8.0 * (24.0 * 16.0 + 101.0);
    let saved = 8.0 * (24.0 * 7.5 + 25.0) / step;
    assert!((found.saving_expected_share - saved).abs() < 0.02, "{} and not {saved}", found.saving_expected_share);
    assert!(found.saving_bound_share >= Some(found.saving_expected_share));
    let few = crate::held::held(analyze(&[heads(H200, 1.0, 2)], &Options::default()).expect("there is a trace"));
    assert!(!codes(&few).contains(&"TR108"), "{:?}", codes(&few));
}

#[test]
fn recording_lengthens_the_gaps_of_a_graph_and_the_play_takes_that_out() {
    // 3,880 µs as recorded, with 200 gaps of 1 µs; 3,780 without.
    let timed = r#""deviceProperties":[{"id":0,"name":"NVIDIA H200","numSms":132}],
        "headroom_recording":{"true_step_seconds":[0.00378,0.00378,0.00378],"profiler":"light"},"#;
    let analysis = crate::held::held(analyze(&[heads(timed, 1.0, 12)], &Options::default()).expect("there is a trace"));
    let step = &analysis.true_step;
    assert!((step.recorded_seconds - 0.003_88).abs() < 20e-6, "{step:?}");
    assert!((step.played_seconds - 0.003_78).abs() < 20e-6, "{step:?}");
    assert_near(analysis.measures.breakdown.busy_share, 3_680.0 / 3_780.0);
}
