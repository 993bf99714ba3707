//! Where a recording begins and ends, which repeats are steps, and what a host barely ahead means.

use headroom_diagnosis::finding::Severity;
use headroom_diagnosis::measures::steps::FoundBy;
use headroom_diagnosis::{Options, analyze};

use crate::run::{Run, assert_near, codes, share, steps, steps_ahead};

/// A launch of 6 µs and its kernel, queued behind what runs.
fn launched(run: &mut Run, name: &str, duration: f64) {
    let id = run.next_id;
    run.next_id += 1;
    run.host_span("cuda_runtime", "cudaLaunchKernel", 6.0, Some(id));
    let at = run.device_free.max(run.host + 8.0);
    run.device_span("kernel", name, 7, at, duration, id, "");
    run.device_free = at + duration;
    run.host += 8.0;
}

#[test]
fn a_host_that_has_one_kernel_ahead_at_most_is_bound_by_its_launches() {
    // Three launches at a time: the first finds nothing ahead, the others the running one. Then the host is busy for 60
    // µs.
    let analysis = steps_ahead("", |run| {
        for _ in 0..100 {
            (0..3).for_each(|_| launched(run, "elementwise_kernel", 10.0));
            run.host_span("cpu_op", "aten::view", 50.0, None);
            run.host += 56.0;
        }
    })
    .analysis();
    let launches = &analysis.measures.launches;
    assert!(launches.nothing_ahead_share < 0.5 && launches.shorter_than_launch_share < 0.5, "{launches:?}");
    assert_eq!(codes(&analysis)[0], "TR103", "{:?}", codes(&analysis));
    // A device that is further behind at most launches is not waiting for them.
    let ahead = steps_ahead("", |run| {
        for _ in 0..10 {
            (0..10).for_each(|_| launched(run, "elementwise_kernel", 40.0));
            run.host_span("cpu_op", "aten::view", 500.0, None);
            run.host += 520.0;
        }
    });
    assert!(!codes(&ahead.analysis()).contains(&"TR103"), "{:?}", codes(&ahead.analysis()));
}

#[test]
fn launches_whose_work_was_still_queued_at_the_end_were_not_dropped() {
    let recorded = |cut_at_the_end: bool| {
        let mut run = steps_ahead("", |run| (0..50).for_each(|_| launched(run, "k", 200.0)));
        // Launches without kernels: after everything that ran, or in the middle of it.
        let end = run.host;
        if !cut_at_the_end {
            run.host = 2_000.0;
        }
        for _ in 0..60 {
            let id = run.next_id;
            run.next_id += 1;
            run.host_span("cuda_runtime", "cudaLaunchKernel", 1.0, Some(id));
            run.host += 2.0;
        }
        run.host = run.host.max(end);
        run.analysis().trust
    };
    let cut = recorded(true);
    assert!(cut.notes.iter().any(|note| note.contains("the last 60 launches")), "{:?}", cut.notes);
    assert!(!cut.withholds_idle() && cut.notes.iter().all(|note| !note.contains("dropped")), "{:?}", cut.notes);
    let dropped = recorded(false);
    assert!(
        dropped.withholds_idle() && dropped.notes.iter().any(|note| note.contains("dropped")),
        "{:?}",
        dropped.notes
    );
}

#[test]
fn a_gap_between_the_calls_of_a_recording_of_calls_alone_is_idle_time() {
    let mut run = Run::new();
    (0..20).for_each(|_| launched(&mut run, "gemm", 50.0));
    run.host += 30_000.0;
    (0..20).for_each(|_| launched(&mut run, "gemm", 50.0));
    let analysis = run.analysis();
    assert_eq!(analysis.steps.found_by, FoundBy::WholeTrace);
    assert_near(share(&analysis, "TR102"), 29_000.0 / 32_000.0);
}

/// One batch, and the same five kernels eight times.
fn layers(run: &mut Run, mut fetch: impl FnMut(&mut Run, u32)) {
    for layer in 0..8 {
        fetch(run, layer);
        ["a", "b", "c", "d", "e"].iter().for_each(|name| run.kernel("aten::mm", name, 40.0));
    }
}

fn fetch(run: &mut Run, micros: f64) {
    let name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
    run.host_span("user_annotation", name, micros, None);
    run.host += micros;
}

#[test]
fn layers_after_one_fetch_are_not_steps_and_the_fetch_counts() {
    let mut run = Run::new();
    layers(&mut run, |run, layer| {
        if layer == 0 {
            fetch(run, 5_000.0)
        }
    });
    let analysis = run.analysis();
    assert_eq!(analysis.steps.found_by, FoundBy::WholeTrace);
    assert_eq!(codes(&analysis)[0], "TR104", "{:?}", codes(&analysis));
    let mut run = Run::new();
    layers(&mut run, |run, _| fetch(run, 500.0));
    assert_eq!(run.analysis().steps.found_by, FoundBy::Period, "a batch for each");
}

#[test]
fn one_slow_step_at_the_beginning_is_a_start_and_has_no_rate() {
    let uneven = |slow: u32| {
        let analysis = steps(|run, number| {
            run.work();
            if number == slow {
                run.host_span("cpu_op", "aten::save", 30_000.0, None);
                run.host += 30_000.0;
            }
        })
        .analysis();
        let found = analysis.findings.iter().find(|finding| finding.code == "TR118").expect("is uneven").clone();
        (found.severity, found.share_of_step.is_some(), found.message.starts_with("the first of 4 steps takes 3."))
    };
    assert_eq!(uneven(0), (Severity::Medium, false, true));
    assert_eq!(uneven(2), (Severity::Critical, true, false));
}

#[test]
fn a_cold_start_before_the_first_optimizers_end_is_said() {
    let trained = |first: &dyn Fn(&mut Run)| {
        let mut run = Run::new();
        for number in 0..4 {
            if number == 0 {
                first(&mut run);
            }
            run.work();
            run.synchronise("cudaDeviceSynchronize");
            run.host_span("user_annotation", "Optimizer.step#SGD.step", 50.0, None);
            run.host += 60.0;
        }
        run.analysis()
    };
    let cold = trained(&|run| {
        run.host_span("cuda_runtime", "cudaFree", 80_000.0, None);
        run.host += 80_000.0;
    });
    assert_eq!((cold.steps.found_by, cold.steps.list.len()), (FoundBy::OptimizerSpans, 3));
    assert!(cold.trust.notes.iter().any(|note| note.contains("held a cold start")), "{:?}", cold.trust.notes);
    // Long for another reason: neither a step nor a cold start.
    let other = trained(&|run| {
        run.host_span("cpu_op", "aten::load", 80_000.0, None);
        run.host += 80_000.0;
    });
    assert_eq!((other.steps.list.len(), other.steps.left_out.len()), (3, 0));
    // About as long as the others: a step.
    assert_eq!(trained(&|_| {}).steps.list.len(), 4);
}

#[test]
fn advice_about_launches_of_jax_names_its_own_means() {
    let mut events = vec![
        r#"{"ph":"M","pid":1,"name":"process_name","args":{"name":"/device:GPU:0"}}"#.to_string(),
        r#"{"ph":"M","pid":1,"tid":20,"name":"thread_name","args":{"name":"Stream #20(Compute)"}}"#.to_string(),
        r#"{"ph":"M","pid":701,"name":"process_name","args":{"name":"/host:CPU"}}"#.to_string(),
    ];
    for step in 0..3 {
        let start = step * 10_000;
        events.push(format!(
            r#"{{"ph":"X","pid":701,"tid":7,"ts":{start},"dur":10000,"name":"train","args":{{"step_num":"{step}"}}}}"#
        ));
        for nth in 0..100 {
            let (id, call) = (step * 100 + nth + 1, start + nth * 100);
            let work = call + 20;
            events.push(format!(
                r#"{{"ph":"X","pid":701,"tid":7,"ts":{call},"dur":10,"name":"cuLaunchKernel","args":{{"correlation_id":"{id}"}}}}"#
            ));
            events.push(format!(
                r#"{{"ph":"X","pid":1,"tid":20,"ts":{work},"dur":5,"name":"loop_fusion","args":{{"correlation_id":"{id}","hlo_op":"f"}}}}"#
            ));
        }
    }
    let text = format!(r#"{{"traceEvents":[{}]}}"#, events.join(","));
    let trace = headroom_trace::read_bytes(text.as_bytes()).expect("is a trace");
    let analysis = analyze(&[trace], &Options::default()).expect("there is a trace");
    let found = analysis.findings.iter().find(|finding| finding.code == "TR103").expect("is launch-bound");
    assert!(found.advice.contains("jax.jit") && !found.advice.contains("torch"), "{}", found.advice);
}

#[test]
fn a_slow_step_saves_no_more_than_it_takes_beyond_the_others() {
    let analysis = steps(|run, number| {
        run.work();
        // Every step has a stall of 20 ms; one has another of 50 ms.
        for length in [20_000.0, 50_000.0].into_iter().take(1 + usize::from(number == 2)) {
            run.host_span("cpu_op", "aten::save", length, None);
            run.host += length;
            run.work();
        }
    })
    .analysis();
    let finding = analysis.findings.iter().find(|finding| finding.code == "TR118").expect("is uneven");
    let item = analysis.roadmap.items.iter().find(|item| item.code == "TR118").expect("is on the roadmap");
    let share = finding.share_of_step.expect("is not a start");
    assert!((0.9 * share..1.01 * share).contains(&item.expected_share), "{share} {item:?}");
}
