//! Traces without device events: runs on the CPU, and runs whose device was not recorded.

use headroom_diagnosis::finding::Severity;
use headroom_diagnosis::trace_rules::TraceFinding;
use headroom_diagnosis::{Analysis, Options, analyze};

use crate::run::{H200, Run, codes};

/// Four steps of operators on the host, under the profiler's marks.
fn steps(header: &'static str, body: impl Fn(&mut Run)) -> Analysis {
    let mut run = Run { header, ..Run::new() };
    for number in 0..4 {
        run.step_ahead(number, &body);
    }
    analyze(&[run.trace()], &Options::default()).expect("there is a trace")
}

fn operator(run: &mut Run, name: &str, micros: f64) {
    run.host_span("cpu_op", name, micros, None);
    run.host += micros + 5.0;
}

fn first(analysis: &Analysis) -> &TraceFinding {
    analysis.findings.first().unwrap_or_else(|| panic!("no finding; {:?}", analysis.trust))
}

#[test]
fn the_operator_that_dominates_a_run_on_the_host_comes_first() {
    let convolve = |run: &mut Run| {
        operator(run, "aten::mkldnn_convolution", 6_000.0);
        (0..20).for_each(|_| operator(run, "aten::relu", 150.0));
    };
    let analysis = steps("", convolve);
    let found = first(&analysis);
    assert_eq!((found.code, found.severity), ("TR119", Severity::Critical));
    assert!(found.message.starts_with("`aten::mkldnn_convolution` takes 6"), "{}", found.message);
    assert_eq!((found.saving_expected_share, found.saving_bound_share), (0.0, None), "nothing tells what is saved");
    let with_gpu = steps(H200, convolve);
    assert!(first(&with_gpu).message.ends_with("although the machine has a NVIDIA H200"), "{:?}", first(&with_gpu));
    let even = steps("", |run| {
        ["aten::mm", "aten::relu", "aten::add", "aten::mul"].iter().for_each(|name| operator(run, name, 2_000.0));
    });
    assert!(!codes(&even).contains(&"TR119"), "{:?}", codes(&even));
}

#[test]
fn times_of_a_host_whose_device_was_not_recorded_are_not_an_operators() {
    let analysis = steps(H200, |run| {
        operator(run, "aten::mm", 6_000.0);
        run.host_span("cuda_runtime", "cudaEventRecord", 5.0, None);
        run.host += 10.0;
    });
    assert!(!codes(&analysis).contains(&"TR119"), "{:?}", codes(&analysis));
}

/// An operator with one call of the device's runtime inside.
fn calling(run: &mut Run, name: &str, call: &str, micros: f64) {
    run.host_span("cpu_op", name, micros + 20.0, None);
    run.host += 5.0;
    run.host_span("cuda_runtime", call, micros, None);
    run.host += micros + 20.0;
}

#[test]
fn an_operator_without_a_launch_works_on_the_host_if_launches_are_recorded() {
    let analysis = steps(H200, |run| {
        operator(run, "aten::normal_", 6_000.0);
        calling(run, "aten::pow", "cudaLaunchKernel", 10.0);
    });
    let found = first(&analysis);
    assert!(found.code == "TR119" && found.message.starts_with("`aten::normal_` takes 9"), "{found:?}");
    let launching = steps(H200, |run| calling(run, "aten::mm", "cudaLaunchKernel", 6_000.0));
    assert!(!codes(&launching).contains(&"TR119"), "{:?}", codes(&launching));
}

#[test]
fn a_copy_that_blocks_the_host_is_a_wait_if_no_copies_are_recorded() {
    let copying = |micros: f64| {
        steps(H200, move |run| {
            calling(run, "aten::to", "cudaMemcpyAsync", micros);
            calling(run, "aten::mul", "cudaLaunchKernel", 10.0);
        })
    };
    let blocked = copying(4_000.0);
    let found = first(&blocked);
    assert!(found.code == "TR101" && found.message.starts_with("`aten::to` copies and waits"), "{found:?}");
    assert!(codes(&copying(20.0)).is_empty(), "an asynchronous copy returns at once");
}

#[test]
fn a_loop_of_reads_on_the_host_is_told_with_its_time() {
    let reads = |count: usize| {
        steps("", move |run| {
            (0..8).for_each(|_| operator(run, "aten::mm", 500.0));
            (0..count).for_each(|_| operator(run, "aten::item", 20.0));
        })
    };
    let analysis = reads(100);
    let found = analysis.findings.iter().find(|finding| finding.code == "TR101").expect("is found");
    assert!(found.message.starts_with("the host reads single values 100 times per step"), "{}", found.message);
    assert!(found.saving_expected_share > 0.2, "{found:?}");
    assert!(!codes(&reads(2)).contains(&"TR101"));
}

#[test]
fn a_wait_for_an_unrecorded_device_is_told_and_promises_nothing() {
    let analysis = steps(H200, |run| {
        (0..8).for_each(|_| operator(run, "aten::mm", 100.0));
        run.host_span("cpu_op", "aten::item", 5_000.0, None);
        run.host_span("cuda_runtime", "cudaStreamSynchronize", 4_900.0, None);
        run.host += 5_005.0;
    });
    let found = analysis.findings.iter().find(|finding| finding.code == "TR101").expect("is found");
    assert!(found.message.ends_with("waits in it for a device that was not recorded"), "{}", found.message);
    assert_eq!((found.saving_expected_share, found.saving_bound_share), (0.0, None));
}

#[test]
fn an_optimizer_that_goes_one_by_one_on_the_host_is_found() {
    let trained = |operators: usize| {
        steps("", move |run| {
            ["aten::mm", "aten::relu", "aten::add"].iter().for_each(|name| operator(run, name, 3_000.0));
            let start = run.host;
            (0..operators).for_each(|_| operator(run, "aten::addcdiv_", 20.0));
            let duration = run.host - start;
            run.events.push(format!(
                r#"{{"ph":"X","cat":"user_annotation","name":"Optimizer.step#AdamW.step","pid":1,"tid":1,"ts":{start:.3},"dur":{duration:.3}}}"#
            ));
        })
    };
    let analysis = trained(200);
    let found = analysis.findings.iter().find(|finding| finding.code == "TR109").expect("is found");
    assert!(found.message.starts_with("the optimizer calls 200 operators per step"), "{}", found.message);
    assert!(!codes(&trained(20)).contains(&"TR109"));
}

#[test]
fn collectives_on_the_host_are_communication() {
    for name in ["nccl:all_reduce", "shm_allreduce", "vllm::shm_allreduce"] {
        let analysis = steps("", |run| {
            (0..8).for_each(|_| operator(run, "aten::mm", 200.0));
            run.host_span("cpu_op", "c10d::allreduce_", 4_000.0, None);
            run.host_span("cpu_op", "record_param_comms", 3_990.0, None);
            run.host_span("user_annotation", name, 3_900.0, None);
            run.host += 4_005.0;
        });
        let found = first(&analysis);
        assert_eq!(found.code, "TR115", "{name}: {:?}", codes(&analysis));
        assert!(found.share_of_step.is_some_and(|share| share > 0.6), "{name}: {found:?}");
    }
}

#[test]
fn the_direction_of_a_copy_without_a_device_event_is_not_guessed() {
    let analysis = crate::run::steps(|run, _| {
        run.work();
        let waits = run.device_free - run.host + 2_000.0;
        run.host_span("cpu_op", "aten::to", waits, None);
        run.host_span("cuda_runtime", "cudaStreamSynchronize", waits - 10.0, None);
        run.host += waits + 5.0;
        run.work();
    });
    let analysis = analyze(&[analysis.trace()], &Options::default()).expect("there is a trace");
    let found = analysis.findings.iter().find(|finding| finding.message.contains("`aten::to`")).expect("is found");
    assert!(found.message.starts_with("`aten::to` copies and waits for the device"), "{}", found.message);
}
