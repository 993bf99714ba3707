//! Oddly shaped traces: out of order, without metadata, with spans of zero length, at times no clock shows.

use headroom_diagnosis::measures::steps::FoundBy;
use headroom_diagnosis::{Analysis, Options, analyze};

use crate::run::{Run, codes, steps};

/// Four steps that wait for their loader.
fn loading() -> Run {
    steps(|run, _| {
        run.host_span("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 6000.0, None);
        run.host += 6000.0;
        run.work();
    })
}

fn analysis_of(text: &str) -> Analysis {
    let trace = headroom_trace::read_bytes(text.as_bytes()).expect("is a trace");
    crate::held::held(analyze(&[trace], &Options::default()).expect("there is a trace"))
}

fn wall(analysis: &Analysis) -> f64 {
    analysis.measures.breakdown.wall_seconds
}

#[test]
fn the_order_of_events_in_the_file_does_not_matter() {
    let mut run = loading();
    let before = run.analysis();
    run.events.reverse();
    let middle = run.events.len() / 3;
    run.events.rotate_left(middle);
    let after = run.analysis();
    assert_eq!(codes(&before), codes(&after));
    assert_eq!(wall(&before), wall(&after));
}

#[test]
fn a_bare_list_of_events_without_metadata_is_enough() {
    let run = loading();
    let analysis = analysis_of(&format!("[{}]", run.events.join(",\n")));
    assert_eq!(codes(&analysis)[0], "TR104");
    assert_eq!((analysis.trace.rank, analysis.trace.world_size), (0, 1));
}

#[test]
fn spans_of_no_length_change_nothing() {
    let mut run = loading();
    let before = run.analysis();
    let (host, device) = (run.host, run.device_free);
    for number in 0..50 {
        run.host = 2000.0 + f64::from(number);
        run.host_span("cpu_op", "aten::detach", 0.0, None);
        run.device_span("kernel", "empty", 7, 2000.0 + f64::from(number), 0.0, 500_000 + number, "");
        run.device_span("kernel", "empty", 9, 2000.0 + f64::from(number), 0.0, 600_000 + number, "");
    }
    (run.host, run.device_free) = (host, device);
    let after = run.analysis();
    assert_eq!(codes(&before), codes(&after));
    assert_eq!(wall(&before), wall(&after));
}

#[test]
fn times_far_from_zero_lose_nothing() {
    let near = loading().analysis();
    // The largest microseconds at which a double is still exact to the microsecond.
    let mut run = Run { host: 9_000_000_000_000_000.0, device_free: 9_000_000_000_000_000.0, ..Run::new() };
    for number in 0..4 {
        run.step(number, |run| {
            let name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
            run.host_span("user_annotation", name, 6000.0, None);
            run.host += 6000.0;
            run.work();
        });
    }
    let far = run.analysis();
    assert_eq!(codes(&near), codes(&far));
    assert!((wall(&near) - wall(&far)).abs() < 1e-4, "{} {}", wall(&near), wall(&far));
}

#[test]
fn a_clock_that_wrapped_is_left_out_and_said() {
    let mut run = loading();
    run.events.push(
        r#"{"ph":"X","cat":"kernel","name":"wrapped","pid":0,"tid":7,"ts":2000,"dur":18446744073709551.615}"#
            .to_string(),
    );
    let analysis = run.analysis();
    assert_eq!(codes(&analysis)[0], "TR104");
    assert!(analysis.trust.notes[0].contains("impossible durations"), "{:?}", analysis.trust.notes);
}

#[test]
fn optimizer_spans_cut_steps_where_marks_are_missing() {
    let mut run = Run::new();
    for _ in 0..4 {
        run.work();
        run.host_span("user_annotation", "Optimizer.step#AdamW.step", 40.0, None);
        run.kernel("aten::_fused_adamw_", "multi_tensor_apply_kernel", 100.0);
        run.host += 20.0;
        run.synchronise("cudaDeviceSynchronize");
    }
    let analysis = run.analysis();
    assert_eq!(analysis.steps.found_by, FoundBy::OptimizerSpans);
    assert_eq!(codes(&analysis), Vec::<&str>::new());
}

fn event(category: &str, name: &str, (thread, start, duration): (u32, i64, i64), correlation: Option<u32>) -> String {
    let arguments = correlation.map(|id| format!(r#","args":{{"correlation":{id}}}"#)).unwrap_or_default();
    format!(
        r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":1,"tid":{thread},"ts":{start},"dur":{duration}{arguments}}}"#
    )
}

#[test]
fn a_wait_of_no_length_is_passed_once() {
    let operator = event("cpu_op", "a", (1, 1, 9), None);
    let wait = event("cuda_runtime", "cudaDeviceSynchronize", (1, 5, 0), None);
    let path = analysis_of(&format!("[{operator},{wait}]")).measures.critical_path;
    assert!((path.host_seconds - 9e-6).abs() < 1e-12, "{path:?}");
    assert_eq!((path.device_seconds, path.launch_seconds), (0.0, 0.0));
}

#[test]
fn waits_and_work_of_no_length_at_one_moment_end() {
    // Work that is launched, starts, ends and is waited for at the same moment; and work that starts before its launch.
    let mut events = vec![event("cpu_op", "a", (1, 0, 40), None)];
    for (id, (order, start, duration, wait)) in
        [(20, 20, 0, 20), (20, 20, 0, 20), (25, 20, 0, 20), (20, 15, 5, 20), (30, 30, 0, 10)].into_iter().enumerate()
    {
        let id = id as u32;
        events.push(event("cuda_runtime", "cudaLaunchKernel", (1, order, 0), Some(id)));
        events.push(event("kernel", "k", (7 + id % 2, start, duration), Some(id)));
        events.push(event("cuda_runtime", "cudaStreamSynchronize", (1, wait, 0), None));
    }
    let path = analysis_of(&format!("[{}]", events.join(","))).measures.critical_path;
    let whole = path.host_seconds + path.device_seconds + path.launch_seconds;
    assert!((whole - 40e-6).abs() < 1e-12, "{path:?}");
    assert_eq!(path.device_seconds, 0.0, "a wait of no length waited for nothing: {path:?}");
}

/// A 1024³ GEMM by name on the host, in a trace whose header lists these devices.
fn on_the_host(devices: &str, more: &[String]) -> Analysis {
    let product = r#"{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":10,"dur":500,
        "args":{"Input Dims":[[1024,1024],[1024,1024]],"Input type":["float","float"]}}"#;
    let events = [&[product.to_string()], more].concat().join(",");
    analysis_of(&format!(r#"{{"deviceProperties": [{devices}], "traceEvents": [{events}]}}"#))
}

const H200: &str = r#"{"id": 0, "name": "NVIDIA H200", "numSms": 132}"#;

#[test]
fn host_times_of_work_on_a_device_give_neither_mfu_nor_roofline() {
    let launch = event("cuda_runtime", "cudaStreamSynchronize", (1, 600, 10), None);
    let attention = event("cpu_op", "aten::_scaled_dot_product_flash_attention", (1, 600, 10), None);
    let memory = r#"{"ph":"i","s":"t","name":"[memory]","pid":1,"tid":1,"ts":20,
        "args":{"Bytes":512,"Addr":1,"Device Type":1,"Device Id":0,"Total Allocated":512,"Total Reserved":512}}"#;
    for (devices, more) in [(H200, vec![]), ("", vec![launch]), ("", vec![attention]), ("", vec![memory.to_string()])] {
        let analysis = on_the_host(devices, &more);
        let roofline = &analysis.measures.roofline;
        assert_eq!((roofline.mfu_percent, roofline.rows.len()), (None, 0), "{more:?}");
        assert_eq!(roofline.flops_per_step, 2.0 * 1024f64.powi(3), "{more:?}");
        assert!(analysis.trust.notes.iter().any(|note| note.contains("no device was recorded")), "{more:?}");
        assert!(analysis.trust.withheld.contains(&"mfu") && analysis.trust.withheld.contains(&"roofline"));
    }
}

#[test]
fn a_run_on_the_host_alone_keeps_its_figures() {
    let analysis = on_the_host("", &[event("cpu_op", "aten::mkldnn_linear", (1, 600, 10), None)]);
    assert_eq!(analysis.trust.notes, Vec::<String>::new());
    let row = &analysis.measures.roofline.rows[0];
    assert_eq!((row.name.as_str(), row.seconds), ("aten::mm", 500e-6));
    assert!(analysis.measures.roofline.achieved_flops_per_second > 0.0);
}

#[test]
fn an_optimizers_mark_that_outlives_the_last_step_counts_up_to_its_end() {
    // The profiler is stopped in a hook of the optimizer's last step, whose mark is closed 50 ms later.
    let optimizers_share = |longer: f64| {
        let mut run = Run::new();
        for number in 0..4 {
            run.step(number, |run| {
                run.work();
                let start = run.host;
                for _ in 0..120 {
                    run.kernel("aten::mul_", "elementwise_kernel", 2.0);
                }
                run.host = start;
                let more = if number == 3 { longer } else { 0.0 };
                run.host_span("user_annotation", "Optimizer.step#AdamW.step", 120.0 * 30.0 + more, None);
                run.host += 120.0 * 30.0;
            });
        }
        run.analysis().measures.patterns.optimizer.share_of_steps
    };
    let (closed, open) = (optimizers_share(0.0), optimizers_share(50_000.0));
    // The rest of the last step is the wait at its end, an eighth of all four; the 50 ms exceed all of them.
    assert!(closed > 0.3 && open < closed + 0.2, "{closed} and {open}");
}
