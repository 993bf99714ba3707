//! Several ranks: who waits for whom, what is transfer, and what cannot be known.

use headroom_diagnosis::measures::collectives::Kind;
use headroom_diagnosis::{Analysis, Options, analyze, analyze_rank};
use headroom_trace::Trace;

use crate::run::{H200, Run, assert_near, codes, share, steps};

const LONGEST: f64 = 4000.0;

/// A rank of `world` with one all-reduce per step that ends at the same moment on every rank. It takes `duration`; the
/// shorter it is, the longer the rank's own work before it.
fn rank(number: u32, world: u32, duration: f64) -> Trace {
    let mut run = Run { rank: number, world, header: H200, ..Run::new() };
    for step in 0..4 {
        run.step(step, |run| {
            run.work();
            run.kernel("aten::mul", "vectorized_elementwise_kernel", LONGEST + 100.0 - duration);
            all_reduce(run, duration);
        });
    }
    run.trace()
}

/// An all-reduce of 1,000,000 floats after all other device work.
fn all_reduce(run: &mut Run, duration: f64) {
    let id = run.next_id;
    run.next_id += 1;
    run.host_span("cuda_runtime", "cudaLaunchKernel", 10.0, Some(id));
    let at = run.device_free;
    let message = r#","Collective name":"allreduce","In msg nelems":1000000,"Out msg nelems":1000000,"Group size":2,"dtype":"Float","Process Group Name":"0""#;
    run.device_span("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, at, duration, id, message);
    run.device_free = at + duration;
    run.host += 20.0;
}

fn together(traces: &[Trace]) -> Analysis {
    crate::held::held(analyze(traces, &Options::default()).expect("there are traces"))
}

#[test]
fn the_rank_that_the_others_wait_for_is_named() {
    let analysis = together(&[rank(0, 2, LONGEST), rank(1, 2, 500.0)]);
    let found = analysis.findings.iter().find(|finding| finding.code == "TR116").expect("a straggler is found");
    assert!(found.message.starts_with("rank 1 "), "{}", found.message);
    assert_near(found.share_of_step.expect("has a share"), 3500.0 / 13_200.0);
    let even = together(&[rank(0, 2, 500.0), rank(1, 2, 500.0)]);
    assert!(!codes(&even).contains(&"TR116"), "{:?}", codes(&even));
}

#[test]
fn on_the_late_rank_the_others_waits_are_the_cost() {
    let traces = [rank(0, 2, LONGEST), rank(1, 2, 500.0)];
    let late = analyze_rank(&traces, Some(1), &Options::default()).expect("there are traces");
    let found = late.findings.iter().find(|finding| finding.code == "TR116").expect("a straggler is found");
    assert_near(found.share_of_step.expect("has a share"), 0.5 * 3500.0 / 13_200.0);
    assert!(found.message.contains("on average over ranks, 0.00% on this one"), "{}", found.message);
}

#[test]
fn waiting_is_told_from_transfer_and_billed_once() {
    let traces = [rank(0, 2, LONGEST), rank(1, 2, 500.0)];
    let analysis = analyze_rank(&traces, Some(0), &Options::default()).expect("there are traces");
    let ranks = analysis.ranks.as_ref().expect("there are ranks");
    let (waiting, late) = (&ranks.ranks[0], &ranks.ranks[1]);
    assert_near(1e3 * waiting.waited_seconds / 4.0, 3.5);
    assert_near(1e3 * waiting.transfer_seconds, 0.5);
    assert_eq!((waiting.waits_for, late.waits_for), (Some(1), None));
    assert_near(1e3 * late.caused_seconds, 3.5);
    // Waits and transfers together make up exactly the exposed time.
    let exposed = analysis.measures.communication.exposed_share_of_steps;
    let transfer =
        analysis.findings.iter().find(|finding| finding.code == "TR115").and_then(|found| found.share_of_step);
    assert_near(share(&analysis, "TR116") + transfer.unwrap_or(500.0 / 13_200.0), exposed);
    // 4 MB in half a millisecond between two ranks: a link carries as many bytes as the message.
    let row = &ranks.collectives[0];
    assert_eq!((row.kind, row.bytes, row.group_size), (Kind::AllReduce, 4_000_000, 2));
    assert_near(row.bus_bytes_per_second.expect("is known") / 8e9, 1.0);
    assert_eq!(row.link_bytes_per_second, Some(450e9));
}

#[test]
fn a_message_of_unknown_size_has_no_speed() {
    let unsized_rank = |number: u32| {
        let mut run = Run { rank: number, world: 2, header: H200, ..Run::new() };
        for step in 0..4 {
            run.step(step, |run| {
                run.work();
                let id = run.next_id;
                run.next_id += 1;
                run.host_span("cuda_runtime", "cudaLaunchKernel", 10.0, Some(id));
                let (at, group) =
                    (run.device_free, r#","Collective name":"barrier","Group size":2,"Process Group Name":"0""#);
                run.device_span("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, at, 500.0, id, group);
                run.device_free = at + 500.0;
                run.host += 20.0;
            });
        }
        run.trace()
    };
    let analysis = together(&[unsized_rank(0), unsized_rank(1)]);
    let row = &analysis.ranks.as_ref().expect("there are ranks").collectives[0];
    assert_eq!((row.bytes, row.algorithm_bytes_per_second, row.bus_bytes_per_second), (0, None, None));
    assert_near(1e3 * row.transfer_seconds, 0.5);
}

#[test]
fn a_rank_without_collectives_is_not_said_to_be_out_of_line() {
    let mut alone = Run { rank: 2, world: 3, header: H200, ..Run::new() };
    for step in 0..4 {
        alone.step(step, Run::work);
    }
    let analysis = together(&[rank(0, 3, LONGEST), rank(1, 3, 500.0), alone.trace()]);
    let ranks = analysis.ranks.as_ref().expect("there are ranks");
    assert_eq!(ranks.ranks.iter().map(|row| row.collectives > 0).collect::<Vec<_>>(), [true, true, false]);
    assert!(ranks.notes.iter().all(|note| !note.contains("do not match")), "{:?}", ranks.notes);
}

#[test]
fn the_rank_that_is_asked_for_is_analyzed() {
    let traces = [rank(0, 2, LONGEST), rank(1, 2, 500.0)];
    let of = |wanted| analyze_rank(&traces, wanted, &Options::default()).expect("there are traces").trace.rank;
    assert_eq!((of(Some(1)), of(Some(0))), (1, 0));
}

#[test]
fn two_unrelated_runs_in_one_folder_have_no_straggler() {
    let analysis = together(&[rank(0, 2, LONGEST), rank(3, 8, 500.0)]);
    assert!(analysis.ranks.is_none() && !codes(&analysis).contains(&"TR116"));
    assert!(
        analysis.trust.notes.iter().any(|note| note.contains("from a run of 8 ranks")),
        "{:?}",
        analysis.trust.notes
    );
    let twice = together(&[rank(0, 2, LONGEST), rank(0, 2, 500.0)]);
    assert!(twice.ranks.is_none() && twice.trust.notes.iter().any(|note| note.contains("second trace of rank 0")));
}

#[test]
fn where_ranks_are_missing_no_straggler_is_named() {
    let analysis = together(&[rank(0, 4, LONGEST), rank(2, 4, 500.0)]);
    let ranks = analysis.ranks.expect("there are ranks");
    assert_eq!((ranks.straggler, ranks.missing_ranks), (None, vec![1, 3]));
    assert!(ranks.notes[0].starts_with("2 of 4 ranks are given: rank 1, 3 missing"), "{:?}", ranks.notes);
}

#[test]
fn collectives_that_do_not_line_up_give_no_waits() {
    // The second rank's steps are twice as long: its collectives are not the first rank's.
    let mut other = Run { rank: 1, world: 2, ..Run::new() };
    for step in 10..14 {
        other.step(step, |run| {
            run.work();
            run.work();
            all_reduce(run, 700.0 + f64::from(step) * 300.0);
        });
    }
    let analysis = together(&[rank(0, 2, LONGEST), other.trace()]);
    let ranks = analysis.ranks.as_ref().expect("there are ranks");
    assert_eq!((ranks.meetings, ranks.straggler), (0, None));
    assert!(ranks.notes.iter().any(|note| note.contains("do not match")), "{:?}", ranks.notes);
    assert!(!codes(&analysis).contains(&"TR116"));
}

#[test]
fn a_pipelines_bubbles_are_the_waits_of_its_receives() {
    let stage = |number: u32, duration: f64| {
        let mut run = Run { rank: number, world: 2, ..Run::new() };
        for step in 0..4 {
            run.step(step, |run| {
                run.work();
                run.kernel("aten::mul", "vectorized_elementwise_kernel", LONGEST - duration);
                let (id, at) = (run.next_id, run.device_free);
                run.next_id += 1;
                run.host_span("cuda_runtime", "cudaLaunchKernel", 10.0, Some(id));
                run.device_span("kernel", "ncclDevKernel_SendRecv", 20, at, duration, id, "");
                run.device_free = at + duration;
            });
        }
        run.trace()
    };
    let analysis = together(&[stage(0, 3000.0), stage(1, 200.0)]);
    let ranks = analysis.ranks.expect("there are ranks");
    assert_near(1e3 * ranks.ranks[0].pipeline_wait_seconds, 2.8);
    assert_near(1e3 * ranks.ranks[1].pipeline_wait_seconds, 0.0);
}

#[test]
fn collectives_that_nothing_hides_are_exposed() {
    let analysis = together(&[rank(0, 2, LONGEST)]);
    assert_near(share(&analysis, "TR115"), 4000.0 / 13_200.0);
}

#[test]
fn gloo_on_the_host_is_communication() {
    let analysis = steps_of_gloo();
    assert_near(share(&analysis, "TR115"), 0.8);
    let breakdown = &analysis.measures.breakdown;
    let parts = breakdown.compute_seconds + breakdown.communication_exposed_seconds + breakdown.idle.total_seconds;
    assert_near(parts / breakdown.wall_seconds, 1.0);
}

/// 2 ms of an operator per step, then 8 ms of an all-reduce on another thread.
fn steps_of_gloo() -> Analysis {
    let mut run = Run::new();
    for number in 0..4 {
        run.step_ahead(number, |run| {
            run.host_span("cpu_op", "aten::mm", 2000.0, None);
            run.host += 2000.0;
            let at = run.host;
            run.events.push(format!(
                r#"{{"ph":"X","cat":"user_annotation","name":"gloo:all_reduce","pid":1,"tid":9,"ts":{at:.3},"dur":8000,"args":{{"Input Dims":[[1000]],"Input type":["float"]}}}}"#
            ));
            run.host += 8000.0;
        });
    }
    run.analysis()
}

#[test]
fn a_run_of_one_rank_has_no_table_of_ranks() {
    let analysis = steps(|run, _| run.work()).analysis();
    assert!(analysis.ranks.is_none());
}
