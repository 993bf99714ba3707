//! Tests of the conversion from CUPTI records to spans, on synthetic records.

use super::*;

fn kernel(name: &str, span: (u64, u64), correlation: u32, (stream, node): (u32, u64)) -> CuptiActivity {
    let what = ActivityKind::Kernel { stream, grid: [4, 1, 1], block: [128, 1, 1] };
    CuptiActivity { kind: Kind::OnDevice { what, node }, name: name.into(), start: span.0, end: span.1, correlation }
}

fn driver(name: &str, span: (u64, u64), correlation: u32) -> CuptiActivity {
    CuptiActivity { kind: Kind::DriverCall, name: name.into(), start: span.0, end: span.1, correlation }
}

fn tie(correlation: u32, pushed: u64) -> CuptiActivity {
    CuptiActivity { kind: Kind::Tie { pushed }, name: "".into(), start: 0, end: 0, correlation }
}

fn call(call: u32) -> Option<CallId> {
    Some(CallId { program: 0, call })
}

fn aligned() -> Alignment {
    Alignment { theirs: 1000, ours: Duration::from_nanos(50) }
}

/// (call, start, end) on our clock.
fn spans(resolved: &Resolved) -> Vec<(u32, u128, u128)> {
    resolved.spans.iter().map(|span| (span.call, span.start.as_nanos(), span.end.as_nanos())).collect()
}

#[test]
fn a_call_reaches_from_its_first_kernel_to_its_last() {
    let records = vec![
        tie(7, 0),
        tie(8, 0),
        tie(9, 1),
        kernel("split", (1100, 1200), 7, (3, 0)),
        kernel("reduce", (1220, 1250), 8, (3, 0)),
        kernel("norm", (1300, 1310), 9, (3, 0)),
        driver("cuLaunchKernel", (1010, 1020), 7),
    ];
    let resolved = resolve(records, &[Pushed::Call(call(4)), Pushed::Call(call(5))], &[], aligned());
    assert_eq!(spans(&resolved), [(4, 150, 300), (5, 350, 360)]);
    assert_eq!(resolved.activities.len(), 4);
    assert_eq!(resolved.activities[0].call, call(4), "the launch knows its call as well");
}

#[test]
fn a_call_that_runs_twice_is_two_spans() {
    let records =
        vec![tie(7, 0), tie(8, 1), kernel("add", (1100, 1200), 7, (3, 0)), kernel("add", (1300, 1400), 8, (3, 0))];
    let resolved = resolve(records, &[Pushed::Call(call(2)); 2], &[], aligned());
    assert_eq!(spans(&resolved), [(2, 150, 250), (2, 350, 450)]);
}

#[test]
fn kernels_of_a_replay_belong_to_the_calls_in_the_order_of_their_capture() {
    let nodes = vec![None, call(0), call(0), call(1), None];
    let at = |number: u64| (1100 + 100 * number, 1180 + 100 * number);
    let mut records: Vec<CuptiActivity> =
        (0..5).map(|number| kernel(&format!("k{number}"), at(number), 40, (7, 0))).rev().collect();
    records.extend([tie(40, 0), driver("cuGraphLaunch", (1010, 1050), 40)]);
    let resolved = resolve(records, &[Pushed::Replay(0)], &[nodes], aligned());
    assert_eq!(spans(&resolved), [(0, 250, 430), (1, 450, 530)]);
    assert_eq!(resolved.untied, 0);
    let launch = resolved.activities.iter().find(|one| one.what == ActivityKind::DriverCall).unwrap();
    assert_eq!((&*launch.name, launch.call), ("cuGraphLaunch", None));
}

#[test]
fn nodes_on_several_streams_are_told_apart_by_their_numbers() {
    let nodes = vec![call(0), call(1), call(2)];
    let records = vec![
        tie(40, 0),
        kernel("second", (1100, 1400), 40, (8, 11)),
        kernel("first", (1120, 1200), 40, (7, 10)),
        kernel("third", (1500, 1600), 40, (7, 12)),
    ];
    let resolved = resolve(records, &[Pushed::Replay(0)], &[nodes], aligned());
    assert_eq!(spans(&resolved), [(1, 150, 450), (0, 170, 250), (2, 550, 650)]);
}

#[test]
fn nodes_on_several_streams_without_numbers_are_tied_to_no_call() {
    let records = vec![tie(40, 0), kernel("one", (1100, 1200), 40, (7, 0)), kernel("two", (1150, 1400), 40, (8, 0))];
    let resolved = resolve(records, &[Pushed::Replay(0)], &[vec![call(0), call(1)]], aligned());
    assert_eq!((resolved.spans.len(), resolved.untied), (0, 2));
}

#[test]
fn a_replay_with_other_kernels_than_were_captured_is_tied_to_no_call() {
    let records = vec![tie(40, 0), kernel("one", (1100, 1200), 40, (7, 0)), kernel("two", (1300, 1400), 40, (7, 0))];
    let resolved = resolve(records, &[Pushed::Replay(0)], &[vec![call(0)]], aligned());
    assert_eq!((resolved.spans.len(), resolved.untied, resolved.activities.len()), (0, 2, 2));
}

#[test]
fn of_a_runtime_call_and_the_drivers_within_it_the_outer_one_stays() {
    let records = vec![driver("cudaLaunchKernelExC", (1000, 1100), 5), driver("cuLaunchKernelEx", (1010, 1090), 5)];
    let resolved = resolve(records, &[], &[], aligned());
    assert_eq!(resolved.activities.len(), 1);
    assert_eq!(&*resolved.activities[0].name, "cudaLaunchKernelExC");
}

#[test]
fn the_tightest_reading_aligns_the_clocks() {
    let nanos = Duration::from_nanos;
    let readings = [(nanos(100), 5_000, nanos(300)), (nanos(400), 5_350, nanos(420)), (nanos(500), 9_999, nanos(900))];
    let alignment = Alignment::of(&readings).unwrap();
    assert_eq!((alignment.ours(5_350), alignment.ours(5_360)), (nanos(410), nanos(420)));
    assert_eq!((alignment.ours(5_340), alignment.ours(0)), (nanos(400), Duration::ZERO));
    assert_eq!(Alignment::of(&[]), None);
}

#[test]
fn driver_calls_go_by_the_names_that_people_know() {
    assert_eq!(plain_name("cudaLaunchKernelExC_v11060"), "cudaLaunchKernelExC");
    assert_eq!(plain_name("cuLaunchKernelEx_ptsz"), "cuLaunchKernelEx");
    assert_eq!(plain_name("cuGraphLaunch"), "cuGraphLaunch");
    assert!(is_traced("cuGraphLaunch") && is_traced("cuStreamSynchronize") && !is_traced("cuEventQuery"));
}
