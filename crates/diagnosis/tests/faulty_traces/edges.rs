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

/// The analysis without a snapshot.
fn plain(run: &Run) -> headroom_diagnosis::Analysis {
    analyze(&[run.trace()], &Options::default()).expect("there is a trace")
}

/// Four steps, of which `slow` spends 30 ms in a function that saves, inside another one.
fn saves_in(slow: u32) -> Run {
    steps(|run, number| {
        run.work();
        if number == slow {
            run.host_span("python_function", "train.py(9): after_step", 30_000.0, None);
            run.host_span("python_function", "torch/serialization.py(600): save", 29_000.0, None);
            run.host += 30_000.0;
        }
    })
}

fn uneven(analysis: &headroom_diagnosis::Analysis) -> Option<&headroom_diagnosis::trace_rules::TraceFinding> {
    analysis.findings.iter().find(|finding| finding.code == "TR118")
}

#[test]
fn a_slow_first_step_is_a_start_and_a_later_one_is_told_with_its_own_time() {
    assert!(uneven(&plain(&saves_in(0))).is_none());
    let analysis = plain(&saves_in(2));
    let found = uneven(&analysis).expect("is uneven");
    assert_eq!((found.severity, found.share_of_step), (Severity::Medium, None), "once in four has no rate");
    let own = "`torch/serialization.py(600): save` itself takes 29.00 ms in this step, 0.00 ms elsewhere";
    assert!(found.evidence[0].ends_with(own), "{:?}", found.evidence);
    assert!(found.advice.contains("checkpoints"), "{}", found.advice);
}

#[test]
fn steps_of_all_lengths_have_no_slow_one_among_them() {
    let lengths = |lengths: [f64; 6]| {
        let mut run = Run::new();
        for (number, length) in (0..).zip(lengths) {
            run.step(number, |run| {
                run.work();
                run.host += length;
            });
        }
        uneven(&plain(&run)).is_some()
    };
    assert!(!lengths([10_000.0, 90_000.0, 12_000.0, 40_000.0, 2_000.0, 25_000.0]));
    assert!(lengths([10_000.0, 90_000.0, 12_000.0, 11_000.0, 11_000.0, 12_000.0]));
}

#[test]
fn a_step_with_more_work_may_take_longer() {
    let steps_of = |kernels: usize| {
        let analysis = plain(&steps(|run, number| {
            let times = if number == 2 { kernels } else { 1 };
            (0..times).for_each(|_| run.work());
        }));
        uneven(&analysis).is_some()
    };
    assert!(!steps_of(4), "four times the kernels");
    let larger = |tokens: u32| {
        let analysis = plain(&steps(|run, number| {
            let tokens = if number == 2 { tokens } else { 128 };
            let at = run.host;
            run.events.push(format!(
                r#"{{"ph":"X","cat":"cpu_op","name":"aten::embedding","pid":1,"tid":1,"ts":{at:.3},"dur":5,"args":{{"Input Dims":[[{tokens},64]],"Input type":["float"]}}}}"#
            ));
            run.host += 10.0;
            let long = if number == 2 { 2_000.0 } else { 500.0 };
            (0..8).for_each(|_| run.kernel("aten::mm", "nvjet_tst", long));
            run.synchronise("cudaDeviceSynchronize");
        }));
        uneven(&analysis).map(|found| found.advice.clone())
    };
    assert_eq!(larger(512), None, "four times the tokens");
    let advice = larger(128).expect("the same tokens");
    assert!(advice.contains("clocks"), "{advice}");
}

#[test]
fn steps_found_by_their_period_and_cut_files_have_no_uneven_steps() {
    let mut run = Run::new();
    layers(&mut run, |run, layer| fetch(run, if layer == 5 { 600.0 } else { 500.0 }));
    let analysis = plain(&run);
    assert_eq!(analysis.steps.found_by, FoundBy::Period);
    assert!(uneven(&analysis).is_none());
    let text = saves_in(2).text();
    let cut = headroom_trace::read_bytes(&text.as_bytes()[..text.len() - 40]).expect("most of it is there");
    let analysis = analyze(&[cut], &Options::default()).expect("there is a trace");
    assert!(analysis.trust.withheld.contains(&"idle"), "{:?}", analysis.trust);
    assert!(uneven(&analysis).is_none() && !codes(&analysis).contains(&"TR102"), "{:?}", codes(&analysis));
}

#[test]
fn time_before_and_after_the_recording_is_not_idle_time() {
    let idle = |before: f64, after: f64| {
        let mut run = Run::new();
        let start = run.host;
        run.host += before;
        run.work();
        run.synchronise("cudaDeviceSynchronize");
        run.host += after;
        let length = run.host - start;
        run.events.push(format!(
            r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":1,"ts":{start:.3},"dur":{length:.3}}}"#
        ));
        codes(&plain(&run)).contains(&"TR102")
    };
    assert!(!idle(0.0, 0.0) && !idle(90_000.0, 0.0) && !idle(0.0, 90_000.0));
}

#[test]
fn a_gap_with_no_host_records_is_never_critical_and_promises_nothing() {
    let idle = |seen: bool| {
        let analysis = plain(&steps(move |run, _| {
            run.work();
            run.synchronise("cudaDeviceSynchronize");
            if seen {
                run.host_span("python_function", "train.py(9): augment", 90_000.0, None);
            }
            run.host += 90_000.0;
            run.work();
            run.synchronise("cudaDeviceSynchronize");
        }));
        let found = analysis.findings.iter().find(|finding| finding.code == "TR102").expect("is idle").clone();
        (found.severity, found.confidence, found.saving_expected_share > 0.0)
    };
    assert_eq!(idle(true), (Severity::Critical, headroom_diagnosis::finding::Confidence::Medium, true));
    assert_eq!(idle(false), (Severity::Medium, headroom_diagnosis::finding::Confidence::Low, false));
}

#[test]
fn a_stall_before_the_first_recorded_work_is_none() {
    let stalled = |earlier: bool| {
        let mut run = Run::new();
        let start = run.host;
        if earlier {
            run.kernel("aten::mm", "nvjet_tst", 100.0);
        }
        run.device_free = run.host + 40_000.0;
        for _ in 0..10 {
            run.kernel("aten::mm", "nvjet_tst", 900.0);
        }
        run.synchronise("cudaDeviceSynchronize");
        let length = run.host - start;
        run.events.push(format!(
            r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":1,"ts":{start:.3},"dur":{length:.3}}}"#
        ));
        codes(&plain(&run)).contains(&"TR130")
    };
    assert!(stalled(true) && !stalled(false));
}

#[test]
fn a_free_during_the_run_is_the_allocators_and_no_cold_start() {
    let cold = |first: bool| {
        let analysis = plain(&steps(move |run, number| {
            let frees = |run: &mut Run| {
                run.host_span("cuda_runtime", "cudaFree", 30_000.0, None);
                run.host += 30_000.0;
            };
            if first && number == 0 {
                frees(run);
            }
            run.work();
            run.synchronise("cudaDeviceSynchronize");
            if !first && number == 0 {
                frees(run);
            }
        }));
        analysis.trust.notes.iter().any(|note| note.contains("cold start"))
    };
    assert!(cold(true) && !cold(false));
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
    let mut run = Run::new();
    for number in 0..12 {
        run.step(number, |run| {
            run.work();
            // Every step has a stall of 20 ms; two have another of 50 ms.
            for length in [20_000.0, 50_000.0].into_iter().take(1 + usize::from(number % 6 == 2)) {
                run.host_span("cpu_op", "aten::save", length, None);
                run.host += length;
                run.work();
            }
        });
    }
    let analysis = plain(&run);
    let finding = analysis.findings.iter().find(|finding| finding.code == "TR118").expect("is uneven");
    let item = analysis.roadmap.items.iter().find(|item| item.code == "TR118").expect("is on the roadmap");
    let share = finding.share_of_step.expect("has a rate");
    assert!((0.9 * share..1.01 * share).contains(&item.expected_share), "{share} {item:?}");
}
