//! Runs without faults, each with something that looks like one.

use headroom_diagnosis::finding::{Confidence, Severity};
use headroom_diagnosis::measures::trust::Verdict;

use crate::run::{H200, Run, codes, steps, steps_ahead};

const NONE: [&str; 0] = [];

#[test]
fn a_well_tuned_run_gets_no_alarm() {
    let run = steps(|run, _| run.work());
    let analysis = run.analysis();
    assert!(analysis.measures.breakdown.busy_share > 0.97);
    assert_eq!(codes(&analysis), Vec::<&str>::new());
}

#[test]
fn large_products_fill_the_device_at_a_low_occupancy() {
    let mut run =
        steps_ahead(H200, |run| (0..10).for_each(|_| run.product("c10::BFloat16", "nvjet_tst_128x256_h_bz", 200.0)));
    let at = run.host;
    run.events.push(format!(
        r#"{{"ph":"i","s":"t","name":"[memory]","cat":"cpu_instant_event","pid":1,"tid":1,"ts":{at:.3},"args":{{"Addr":1,"Bytes":1000,"Total Allocated":1000,"Total Reserved":2000,"Device Type":1,"Device Id":0}}}}"#
    ));
    let analysis = run.analysis();
    assert_eq!(codes(&analysis), NONE);
    assert_eq!(analysis.measures.kernels.underfilled_share, Some(0.0));
}

#[test]
fn copies_that_run_a_step_ahead_on_their_own_stream_leave_steps_even() {
    let analysis = steps_ahead("", |run| {
        // The next batch, copied while this step's work is still queued.
        let id = run.next_id;
        run.next_id += 1;
        run.host_span("cuda_runtime", "cudaMemcpyAsync", 8.0, Some(id));
        let at = run.host + 10.0;
        let more = r#","bytes":60000000"#;
        run.device_span("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 21, at, 1000.0, id, more);
        run.host += 10.0;
        run.work();
    })
    .analysis();
    assert_eq!(codes(&analysis), NONE);
    let seconds: Vec<f64> = analysis.steps.list.iter().map(|step| step.seconds).collect();
    assert!(seconds.iter().all(|one| (one - 0.009).abs() < 1e-4), "{seconds:?}");
}

#[test]
fn steps_that_replay_a_graph_are_all_counted_though_no_operator_runs_in_them() {
    let analysis = steps_ahead("", |run| {
        let id = run.next_id;
        run.next_id += 1;
        run.host_span("cuda_runtime", "cudaGraphLaunch", 40.0, Some(id));
        let mut at = run.device_free.max(run.host + 50.0);
        for _ in 0..100 {
            run.device_span("kernel", "nvjet_tst_128x256_h_bz", 7, at, 99.0, id, r#","graph node id":3"#);
            at += 100.0;
        }
        run.device_free = at;
        run.host += 60.0;
    })
    .analysis();
    assert_eq!(analysis.steps.list.len(), 5);
    assert!((analysis.measures.breakdown.busy_share - 0.99).abs() < 0.005);
    assert_eq!(codes(&analysis), NONE);
}

#[test]
fn the_profilers_own_wait_at_its_end_is_nobodys_fault() {
    let mut run = steps_ahead("", Run::work);
    run.step_ahead(5, |run| {
        run.work();
        run.synchronise("cudaDeviceSynchronize");
    });
    assert_eq!(codes(&run.analysis()), NONE);
}

#[test]
fn work_that_was_ordered_before_recording_began_spoils_no_trust() {
    let mut run = Run::new();
    for kernel in 0..40 {
        run.device_span("kernel", "nvjet_tst", 7, 100.0 * f64::from(kernel), 99.0, 900_000 + kernel, "");
    }
    run.device_free = 4000.0;
    for number in 0..5 {
        run.step_ahead(number, Run::work);
    }
    let analysis = run.analysis();
    assert_eq!((analysis.trust.verdict, analysis.trust.notes.len()), (Verdict::Sound, 0), "{:?}", analysis.trust);
    assert_eq!(codes(&analysis), NONE);
}

#[test]
fn idle_time_that_the_profiler_may_have_made_is_said_without_alarm() {
    let step = |run: &mut Run| {
        for kernel in 0..40 {
            // Thirty operators that launch nothing: recording them takes most of the host's time.
            for _ in 0..30 {
                run.host_span("cpu_op", "aten::view", 1.0, None);
                run.host += 2.0;
            }
            run.kernel("aten::mm", if kernel % 2 == 0 { "nvjet_tst" } else { "nvjet_other" }, 60.0);
        }
    };
    let recorded = "\"with_stack\":1,\"record_shapes\":1,\"with_flops\":1,";
    let mut run = Run { header: recorded, ..Run::new() };
    (0..4).for_each(|number| run.step_ahead(number, step));
    let analysis = run.analysis();
    assert_eq!(codes(&analysis), ["TR103", "TR120"]);
    let idle = &analysis.findings[0];
    assert_eq!((idle.severity, idle.confidence), (Severity::Low, Confidence::Low), "{idle:?}");
    assert!(idle.evidence.iter().any(|line| line.contains("recording may account for all of it")), "{idle:?}");
}

#[test]
fn a_full_queue_is_a_path_through_the_device_whatever_the_gaps_between_kernels() {
    let analysis = steps_ahead("", |run| {
        for _ in 0..10 {
            run.kernel("aten::mm", "nvjet_tst", 900.0);
            run.device_free += 20.0;
            let (at, id) = (run.device_free - 10.0, run.next_id);
            run.device_span("gpu_user_annotation", "block", 7, at, 500.0, id, "");
        }
    })
    .analysis();
    let path = &analysis.measures.critical_path;
    assert!(path.device_seconds > 0.9 * (path.device_seconds + path.host_seconds + path.launch_seconds), "{path:?}");
}
