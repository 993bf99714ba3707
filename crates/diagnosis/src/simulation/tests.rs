//! Steps small enough to be replayed by hand, in microseconds.

use super::*;
use headroom_trace::{Trace, read_bytes};

const MICRO: i64 = 1_000;

/// Events of a trace, each `(category, name, thread, start, duration, correlation)`.
pub(crate) type Event<'e> = (&'e str, &'e str, u32, i64, i64, u32);

/// One step from 0 to `end`.
pub(crate) fn trace_of(end: i64, events: &[Event]) -> Trace {
    let mut text =
        format!(r#"[{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":1,"ts":0,"dur":{end}}}"#);
    for (category, name, thread, start, duration, correlation) in events {
        text += &format!(
            r#",{{"ph":"X","cat":"{category}","name":"{name}","pid":1,"tid":{thread},"ts":{start},"dur":{duration},
            "args":{{"correlation":{correlation}}}}}"#
        );
    }
    read_bytes((text + "]").as_bytes()).expect("is a trace")
}

fn launch(start: i64, duration: i64, correlation: u32) -> Event<'static> {
    ("cuda_runtime", "cudaLaunchKernel", 1, start, duration, correlation)
}

fn kernel(stream: u32, start: i64, duration: i64, correlation: u32) -> Event<'static> {
    ("kernel", "k", stream, start, duration, correlation)
}

fn wait(start: i64, end: i64) -> Event<'static> {
    ("cuda_runtime", "cudaStreamSynchronize", 1, start, end - start, 9_999)
}

/// The host's spans to remove, and what is left of kernels, by their number; all in microseconds.
fn removal(host: &[(i64, i64)], kernels: &[(usize, i64)]) -> Removal {
    Removal {
        host: host.iter().map(|&(start, end)| Span { start: start * MICRO, end: end * MICRO }).collect(),
        device: kernels.iter().map(|&(at, left)| (at, left * MICRO)).collect(),
        ..Removal::default()
    }
}

/// Microseconds of the step as it is, and with each removal.
fn check(end: i64, events: &[Event], as_it_is: i64, removals: &[(Removal, i64)]) {
    let trace = trace_of(end, events);
    let view = View::new(&trace);
    let simulation = Simulation::new(&view);
    assert_eq!(simulation.run(&Removal::default()), as_it_is * MICRO, "as it is");
    for (removal, left) in removals {
        assert_eq!(simulation.run(removal), left * MICRO, "{removal:?}");
        assert_eq!(simulation.saved(removal), (as_it_is - left).max(0) * MICRO, "{removal:?}");
    }
}

#[test]
fn without_a_device_a_step_shrinks_by_what_is_taken_from_the_host() {
    let removals = [
        (removal(&[(10, 30)], &[]), 80),
        (removal(&[(10, 30), (20, 50)], &[]), 60),
        (removal(&[(0, 100)], &[]), 0),
        (removal(&[(100, 500)], &[]), 100),
    ];
    check(100, &[("cpu_op", "a", 1, 0, 100, 0)], 100, &removals);
}

#[test]
fn a_kernel_that_the_host_outlasts_costs_nothing() {
    let events = [launch(10, 2, 1), kernel(7, 15, 20, 1)];
    check(100, &events, 100, &[(removal(&[], &[(0, 5)]), 100), (removal(&[(0, 10)], &[]), 90)]);
}

#[test]
fn a_kernel_that_outlasts_the_host_ends_the_step() {
    // Ordered at 10, it starts 5 later and runs 84 long: past the host's end by 3 (less than what would cut steps by the device).
    let events = [launch(10, 2, 1), kernel(7, 15, 84, 1)];
    let removals = [(removal(&[], &[(0, 50)]), 96), (removal(&[(0, 8)], &[]), 91), (removal(&[(20, 60)], &[]), 99)];
    check(96, &events, 99, &removals);
}

#[test]
fn the_host_waits_for_the_device_and_no_longer() {
    // The wait ends when the kernel does.
    let events = [launch(10, 2, 1), kernel(7, 12, 80, 1), wait(20, 92)];
    let removals = [
        (removal(&[], &[(0, 30)]), 50),
        // Without the kernel the host is there first: the wait takes no time.
        (removal(&[], &[(0, 0)]), 28),
        // Without the wait the device still ends when it does.
        (removal(&[(20, 92)], &[]), 92),
        // Earlier orders are earlier work.
        (removal(&[(0, 6)], &[]), 94),
        // What the host does meanwhile is hidden behind the device.
        (removal(&[(12, 20)], &[]), 100),
    ];
    check(100, &events, 100, &removals);
}

#[test]
fn the_time_from_the_devices_end_to_the_hosts_return_stays() {
    let events = [launch(10, 2, 1), kernel(7, 12, 78, 1), wait(20, 94)];
    check(100, &events, 100, &[(removal(&[], &[(0, 28)]), 50)]);
    // A device that was done before the wait began: all of the wait is the host's own.
    let events = [launch(2, 2, 1), kernel(7, 6, 4, 1), wait(20, 30)];
    check(100, &events, 100, &[(removal(&[], &[(0, 0)]), 100), (removal(&[(20, 30)], &[]), 90)]);
}

#[test]
fn work_of_one_stream_queues_and_of_two_does_not() {
    let one = [launch(10, 2, 1), launch(14, 2, 2), kernel(7, 12, 40, 1), kernel(7, 52, 40, 2), wait(20, 92)];
    // The second starts as late after its order as any on an idle stream: ten at most.
    check(100, &one, 100, &[(removal(&[], &[(0, 0)]), 72), (removal(&[], &[(0, 20)]), 80)]);
    let two = [launch(10, 2, 1), launch(14, 2, 2), kernel(7, 12, 40, 1), kernel(8, 16, 76, 2), wait(20, 92)];
    check(100, &two, 100, &[(removal(&[], &[(0, 0)]), 100), (removal(&[], &[(1, 30)]), 60)]);
}

#[test]
fn without_gaps_queued_work_follows_at_once() {
    // Three kernels with 3 between them; the wait ends with the last.
    let events = [
        launch(10, 2, 1),
        launch(12, 2, 2),
        launch(14, 2, 3),
        kernel(7, 20, 20, 1),
        kernel(7, 43, 20, 2),
        kernel(7, 66, 20, 3),
        wait(20, 86),
    ];
    let packed = Removal { without_gaps: true, ..Removal::default() };
    check(90, &events, 90, &[(packed.clone(), 84), (packed.and(&removal(&[], &[(0, 10)])), 74)]);
}

#[test]
fn work_that_starts_before_its_order_starts_with_it() {
    let events = [launch(20, 2, 1), kernel(7, 10, 60, 1), wait(30, 80)];
    // Ten longer than it was: the replay does not know that clocks differ.
    check(90, &events, 100, &[(removal(&[], &[(0, 40)]), 80)]);
}

#[test]
fn orders_and_waits_outside_of_the_steps_do_not_count() {
    let late = [launch(100, 2, 1), kernel(7, 101, 1, 1), wait(104, 110), launch(50, 1, 2), kernel(7, 52, 8, 2)];
    check(100, &late, 100, &[(removal(&[], &[(1, 0)]), 100), (removal(&[(0, 50)], &[]), 50)]);
}

#[test]
fn a_launch_into_a_full_queue_waits_for_the_device() {
    // The second launch takes 500, of which 400 are spent waiting for room; all the while the device works.
    let events = |name: &'static str, second: i64| {
        [
            launch(0, 10, 1),
            kernel(7, 10, 890, 1),
            ("cuda_runtime", name, 1, 20, second, 2),
            kernel(7, 900, 100, 2),
            wait(600, 1000),
        ]
    };
    let faster = removal(&[], &[(0, 90)]);
    check(1010, &events("cudaLaunchKernel", 500), 1010, &[(faster.clone(), 210)]);
    // Other calls that take as long do so by themselves.
    check(1010, &events("cudaMallocAsync", 500), 1010, &[(faster, 610)]);
}

#[test]
fn nine_tenths_of_work_make_a_launch_a_blocked_one() {
    let with_work_until = |end: i64| {
        let events = [launch(0, 5, 1), kernel(7, 5, end - 5, 1), launch(100, 1000, 2)];
        let trace = trace_of(1_200, &events);
        let view = View::new(&trace);
        blocked(&view)
    };
    assert_eq!(with_work_until(1_000), [Span { start: 200 * MICRO, end: 1_100 * MICRO }]);
    assert_eq!(with_work_until(999), []);
}

#[test]
fn two_removals_together_are_all_of_the_host_and_the_shorter_of_the_kernels() {
    let (left, right) = (removal(&[(0, 1)], &[(1, 5), (2, 7)]), removal(&[(4, 6)], &[(2, 3), (3, 9)]));
    let both = left.and(&right);
    assert_eq!(both.host, removal(&[(0, 1), (4, 6)], &[]).host);
    assert_eq!(both.device, removal(&[], &[(1, 5), (2, 3), (3, 9)]).device);
    assert_eq!(right.and(&left).device, both.device);
    assert!(Removal::default().is_empty());
    assert!(!removal(&[(0, 1)], &[]).is_empty() && !removal(&[], &[(0, 1)]).is_empty());
}

#[test]
fn time_without_the_removed_spans_is_right_in_any_order_of_asking() {
    let removed = merged(vec![
        Span { start: 10, end: 20 },
        Span { start: 30, end: 35 },
        Span { start: 50, end: 80 },
        Span { start: 90, end: 91 },
    ]);
    let plain = |time: i64| time - removed.iter().map(|span| span.overlap(Span { start: 0, end: time })).sum::<i64>();
    let mut clock = Clock { removed: &removed, next: 0, passed: 0, from: 0, share: 1.0 };
    let times = (0..100).chain((0..100).rev()).chain((0..300).map(|turn| turn * 37 % 101));
    for time in times {
        assert_eq!(clock.without_removed(time), plain(time), "at {time}");
    }
    for (time, is_removed) in [(9, false), (10, true), (19, true), (20, false), (79, true), (90, true), (91, false)] {
        assert_eq!(removed_at(&removed, time), is_removed, "at {time}");
    }
}

#[test]
fn a_quick_host_takes_four_fifths_of_its_time_and_the_device_all_of_its_own() {
    let quick = |host: &[(i64, i64)]| Removal { quick_host: true, ..removal(host, &[]) };
    // The host alone: 100 become 80, and 60 become 48.
    check(100, &[("cpu_op", "a", 1, 0, 100, 0)], 100, &[(quick(&[]), 80), (quick(&[(10, 50)]), 48)]);
    // Ordered at 10, the kernel starts 2 later and runs 80 long; the host waits for it and goes on for 8. A quick one orders at 8.
    let events = [launch(10, 2, 1), kernel(7, 12, 80, 1), wait(20, 92), ("cpu_op", "b", 1, 92, 10, 0)];
    let left = 8 + 2 + 80 + 8;
    check(102, &events, 102, &[(quick(&[]), left)]);
}

#[test]
fn what_recording_took_of_a_host_with_time_to_spare_is_not_there_in_any_replay() {
    // The device works from 12 to 92. With a shorter kernel the host, which is busy up to 90, would set the pace.
    let events = [("cpu_op", "a", 1, 0, 90, 0), launch(10, 2, 1), kernel(7, 12, 82, 1)];
    let trace = trace_of(90, &events);
    let view = View::new(&trace);
    let quicker = removal(&[], &[(0, 20)]);
    assert_eq!(Simulation::new(&view).run(&quicker), 90 * MICRO);
    let spare = vec![Span { start: 30 * MICRO, end: 80 * MICRO }];
    let simulation = Simulation::new(&view).without_recording(spare);
    assert_eq!(simulation.run(&Removal::default()), 94 * MICRO, "as it is");
    assert_eq!(simulation.run(&quicker), 40 * MICRO);
}

#[test]
fn a_graphs_launch_waits_for_its_former_replay_and_not_for_itself() {
    // The second launch waits for 7,990 µs while the first replay runs: with a quicker replay it is over as soon.
    let events = [
        ("cuda_runtime", "cudaGraphLaunch", 1, 0, 10, 1),
        kernel(7, 10, 8_000, 1),
        ("cuda_runtime", "cudaGraphLaunch", 1, 20, 7_990, 2),
        kernel(7, 8_010, 8_000, 2),
    ];
    check(8_100, &events, 16_010, &[(removal(&[], &[(0, 2_000), (1, 2_000)]), 4_010)]);
}
