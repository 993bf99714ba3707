//! Traces in odd shapes: out of order, without metadata, with spans of no length, at times no clock shows.

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
    analyze(&[trace], &Options::default()).expect("there is a trace")
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
    // Microseconds as large as a double still keeps to the microsecond.
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
