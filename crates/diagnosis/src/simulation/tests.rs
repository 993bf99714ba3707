//! Tests on steps small enough to be replayed by hand, in microseconds.

use super::*;
use headroom_trace::{Trace, read_bytes};

const MICRO: i64 = 1_000;

/// Events of a trace, each `(category, name, thread, start, duration, correlation)`.
pub(crate) type Event<'e> = (&'e str, &'e str, u32, i64, i64, u32);

/// One step from 0 to `end`.
pub(crate) fn trace_of(end: i64, events: &[Event]) -> Trace {
    trace_from(0, end, events)
}

/// The same, `shift` later, after host work that belongs to no step.
fn trace_from(shift: i64, end: i64, events: &[Event]) -> Trace {
    let mut text = format!(
        r#"[{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":1,"tid":1,"ts":{shift},"dur":{end}}}"#
    );
    if shift > 0 {
        text += r#",{"ph":"X","cat":"cpu_op","name":"before","pid":1,"tid":1,"ts":0,"dur":1}"#;
    }
    for (category, name, thread, start, duration, correlation) in events {
        let start = start + shift;
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

/// The host's spans to remove, and the time left of kernels by index, in microseconds.
fn removal(host: &[(i64, i64)], kernels: &[(usize, i64)]) -> Removal {
    Removal {
        host: host.iter().map(|&(start, end)| Span { start: start * MICRO, end: end * MICRO }).collect(),
        device: kernels.iter().map(|&(at, left)| (at, left * MICRO)).collect(),
        ..Removal::default()
    }
}

/// Checks the step's microseconds without and with each removal, wherever in the trace the step lies.
fn check(end: i64, events: &[Event], as_it_is: i64, removals: &[(Removal, i64)]) {
    for shift in [0, 5_000] {
        let trace = trace_from(shift, end, events);
        let view = View::new(&trace);
        let simulation = Simulation::new(&view);
        assert_eq!(simulation.run(&Removal::default()), as_it_is * MICRO, "as it is, {shift} later");
        for (removal, left) in removals {
            let mut shifted = removal.clone();
            for span in &mut shifted.host {
                *span = Span { start: span.start + shift * MICRO, end: span.end + shift * MICRO };
            }
            assert_eq!(simulation.run(&shifted), left * MICRO, "{shifted:?}");
            assert_eq!(simulation.saved(&shifted), (as_it_is - left).max(0) * MICRO, "{shifted:?}");
        }
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
fn a_kernel_that_is_gone_leaves_no_gap() {
    let launches = [launch(0, 2, 1), launch(3, 2, 2), launch(6, 2, 3)];
    let kernels = [kernel(7, 5, 35, 1), kernel(7, 42, 10, 2), kernel(7, 54, 20, 3)];
    let removals = [(removal(&[], &[(1, 1)]), 67), (removal(&[], &[(1, 0)]), 64)];
    check(20, &[launches, kernels].concat(), 76, &removals);
}

#[test]
fn a_kernel_that_the_host_outlasts_costs_nothing() {
    let events = [launch(10, 2, 1), kernel(7, 15, 20, 1)];
    check(100, &events, 100, &[(removal(&[], &[(0, 5)]), 100), (removal(&[(0, 10)], &[]), 90)]);
}

#[test]
fn a_kernel_that_outlasts_the_host_ends_the_step() {
    // Launched at 10, it starts 5 later and runs for 84: past the host's end by 3 (too little to cut steps by the
    // device).
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
        // Without the kernel the host arrives first: the wait takes no time.
        (removal(&[], &[(0, 0)]), 28),
        // Without the wait the device still ends when it does.
        (removal(&[(20, 92)], &[]), 92),
        // Earlier launches mean earlier work.
        (removal(&[(0, 6)], &[]), 94),
        // Host work in the meantime is hidden behind the device.
        (removal(&[(12, 20)], &[]), 100),
    ];
    check(100, &events, 100, &removals);
}

#[test]
fn the_time_from_the_devices_end_to_the_hosts_return_stays() {
    let events = [launch(10, 2, 1), kernel(7, 12, 78, 1), wait(20, 94)];
    check(100, &events, 100, &[(removal(&[], &[(0, 28)]), 50)]);
    // The device was done before the wait began: all of the wait is the host's own.
    let events = [launch(2, 2, 1), kernel(7, 6, 4, 1), wait(20, 30)];
    check(100, &events, 100, &[(removal(&[], &[(0, 0)]), 100), (removal(&[(20, 30)], &[]), 90)]);
}

#[test]
fn work_of_one_stream_queues_and_of_two_does_not() {
    let one = [launch(10, 2, 1), launch(14, 2, 2), kernel(7, 12, 40, 1), kernel(7, 52, 40, 2), wait(20, 92)];
    // The second starts as late after its launch as any on an idle stream: at most ten.
    check(100, &one, 100, &[(removal(&[], &[(0, 0)]), 72), (removal(&[], &[(0, 20)]), 80)]);
    let two = [launch(10, 2, 1), launch(14, 2, 2), kernel(7, 12, 40, 1), kernel(8, 16, 76, 2), wait(20, 92)];
    check(100, &two, 100, &[(removal(&[], &[(0, 0)]), 100), (removal(&[], &[(1, 30)]), 60)]);
}

#[test]
fn work_that_starts_before_its_order_starts_with_it() {
    let events = [launch(20, 2, 1), kernel(7, 10, 60, 1), wait(30, 80)];
    // Ten longer than recorded: the replay does not know that clocks differ.
    check(90, &events, 100, &[(removal(&[], &[(0, 40)]), 80)]);
}

#[test]
fn orders_and_waits_outside_of_the_steps_do_not_count() {
    let late = [launch(100, 2, 1), kernel(7, 101, 1, 1), wait(104, 110), launch(50, 1, 2), kernel(7, 52, 8, 2)];
    check(100, &late, 100, &[(removal(&[], &[(1, 0)]), 100), (removal(&[(0, 50)], &[]), 50)]);
}

#[test]
fn a_launch_into_a_full_queue_waits_for_the_device() {
    // The second launch takes 500, of which 400 are spent waiting for room in the queue, while the device works.
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
    // Other calls of the same length take the time themselves.
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
    let packed = Removal { graph_gaps: 0.5, ..Removal::default() };
    for both in [packed.and(&Removal::default()), Removal::default().and(&packed), packed.and(&packed)] {
        assert_eq!(both.graph_gaps, 0.5);
    }
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
    let mut clock = Clock { removed: &removed, next: 0, passed: 0 };
    let times = (0..100).chain((0..100).rev()).chain((0..300).map(|turn| turn * 37 % 101));
    for time in times {
        assert_eq!(clock.without_removed(time), plain(time), "at {time}");
    }
    for (time, is_removed) in [(9, false), (10, true), (19, true), (20, false), (79, true), (90, true), (91, false)] {
        assert_eq!(holds(&removed, time), is_removed, "at {time}");
    }
}

#[test]
fn what_recording_took_of_a_host_with_time_to_spare_is_not_there_in_any_replay() {
    // The device works from 12 to 92. With a shorter kernel the host, which is busy until 90, would be the bottleneck.
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
    // The second launch waits for 7,990 µs while the first replay runs: with a quicker replay it ends that much sooner.
    let events = [
        ("cuda_runtime", "cudaGraphLaunch", 1, 0, 10, 1),
        kernel(7, 10, 8_000, 1),
        ("cuda_runtime", "cudaGraphLaunch", 1, 20, 7_990, 2),
        kernel(7, 8_010, 8_000, 2),
    ];
    check(8_100, &events, 16_010, &[(removal(&[], &[(0, 2_000), (1, 2_000)]), 4_010)]);
}

#[test]
fn work_that_waited_for_another_stream_starts_as_long_after_it() {
    // The second stream's kernel starts 2 after the end of the first's, long after its own launch.
    let events = [launch(10, 2, 1), launch(14, 2, 2), kernel(7, 12, 60, 1), kernel(8, 74, 20, 2), wait(20, 94)];
    // With an empty first kernel, its own launch limits it: at most ten after it.
    check(100, &events, 100, &[(removal(&[], &[(0, 20)]), 60), (removal(&[], &[(0, 0)]), 50)]);
    // Directly after it, and at the longest distance that counts as a wait.
    for (end, start) in [(74, 74), (72, 82)] {
        let events = [
            launch(10, 2, 1),
            launch(14, 2, 2),
            kernel(7, 12, end - 12, 1),
            kernel(8, start, 20, 2),
            wait(20, start + 20),
        ];
        let left = 32 + (start - end) + 20 + 6;
        check(start + 26, &events, start + 26, &[(removal(&[], &[(0, 20)]), left)]);
    }
    // A longer distance is not a wait: the kernel would have started ten after its launch.
    let events = [launch(10, 2, 1), launch(14, 2, 2), kernel(7, 12, 60, 1), kernel(8, 83, 20, 2), wait(20, 103)];
    check(110, &events, 79, &[(removal(&[], &[(0, 20)]), 51)]);
}

#[test]
fn work_that_queued_on_its_own_stream_waited_for_no_other() {
    // Another stream's kernel ends just before the second starts, which was nevertheless queued behind the first.
    let events = [
        launch(8, 1, 3),
        launch(10, 2, 1),
        launch(14, 2, 2),
        kernel(8, 10, 39, 3),
        kernel(7, 12, 38, 1),
        kernel(7, 52, 40, 2),
        wait(20, 92),
    ];
    let shorter = |left: i64| {
        let trace = trace_of(100, &events);
        let device = &trace.device;
        let first = (0..device.len()).find(|&at| device.start[at] == 12 * MICRO).expect("is there");
        removal(&[], &[(first, left)])
    };
    check(100, &events, 100, &[(shorter(10), 72)]);
}

#[test]
fn work_that_the_steps_did_not_order_holds_nothing_back() {
    // The first stream's kernel has no launch in the trace, so it is not replayed.
    let events = [launch(14, 2, 2), kernel(7, 12, 60, 1), kernel(8, 74, 20, 2), wait(20, 94)];
    check(100, &events, 50, &[]);
}

#[test]
fn gaps_within_a_graph_shrink_by_their_share_and_others_do_not() {
    let graph =
        [("cuda_runtime", "cudaGraphLaunch", 1, 0, 10, 1), kernel(7, 10, 20, 1), kernel(7, 34, 20, 1), wait(20, 54)];
    let share = |graph_gaps: f64| Removal { graph_gaps, ..Removal::default() };
    check(60, &graph, 60, &[(share(0.5), 58), (share(1.0), 56), (share(0.0), 60)]);
    let single = [launch(0, 2, 1), launch(2, 2, 2), kernel(7, 10, 20, 1), kernel(7, 34, 20, 2), wait(20, 54)];
    check(60, &single, 60, &[(share(1.0), 60)]);
}

#[test]
fn every_wait_is_for_the_work_that_was_done_by_its_end() {
    let events =
        [launch(10, 2, 1), launch(14, 2, 2), kernel(7, 12, 18, 1), kernel(8, 16, 64, 2), wait(18, 30), wait(40, 80)];
    let removals = [
        // The first wait ends at 30; the second takes no time.
        (removal(&[], &[(1, 10)]), 50),
        // The host reaches the second wait earlier, but it ends at the same time.
        (removal(&[], &[(0, 8)]), 90),
        (removal(&[], &[(0, 8), (1, 10)]), 40),
    ];
    check(90, &events, 90, &removals);
}

#[test]
fn work_that_ends_with_a_wait_by_the_clocks_is_waited_for() {
    // Clocks differ by a microsecond: a kernel that ends one after the wait was waited for, one that ends two after it
    // was not.
    let events = |duration: i64| [launch(10, 2, 1), kernel(7, 12, duration, 1), wait(20, 92)];
    check(100, &events(81), 101, &[(removal(&[], &[(0, 30)]), 50)]);
    check(100, &events(82), 100, &[(removal(&[], &[(0, 30)]), 100)]);
}

#[test]
fn work_that_comes_late_would_queue_as_the_others_do() {
    // The second kernel starts `gap` after the first, and the third long after both: an earlier launch lets it queue
    // behind them.
    let events = |gap: i64| {
        [
            launch(10, 2, 1),
            launch(12, 2, 2),
            launch(60, 2, 3),
            kernel(7, 12, 18, 1),
            kernel(7, 30 + gap, 18, 2),
            kernel(7, 62, 20, 3),
            wait(65, 82),
        ]
    };
    let earlier = removal(&[(14, 50)], &[]);
    check(85, &events(2), 85, &[(earlier.clone(), 75)]);
    // At most three.
    check(85, &events(8), 85, &[(earlier.clone(), 82)]);
    // The usual gap is a median that includes gaps of zero: 0, 0 and 6 here.
    let events = [
        launch(10, 1, 1),
        launch(13, 1, 2),
        launch(14, 1, 3),
        launch(15, 1, 4),
        launch(70, 1, 5),
        kernel(7, 12, 18, 1),
        kernel(7, 30, 10, 2),
        kernel(7, 40, 10, 3),
        kernel(7, 56, 4, 4),
        kernel(7, 72, 18, 5),
        wait(75, 90),
    ];
    check(95, &events, 95, &[(removal(&[(16, 66)], &[]), 83)]);
}

#[test]
fn ten_microseconds_are_the_longest_way_to_an_idle_stream_and_the_longest_gap() {
    // Launched at 20, it starts 10 later: not queued, although the stream was busy until 28.
    let events = [launch(10, 2, 1), launch(20, 2, 2), kernel(7, 12, 16, 1), kernel(7, 30, 30, 2), wait(40, 60)];
    check(70, &events, 70, &[(removal(&[(12, 20)], &[]), 68)]);
    // A gap of ten after the first means that it was queued.
    let events = [launch(10, 2, 1), launch(14, 2, 2), kernel(7, 12, 18, 1), kernel(7, 40, 20, 2), wait(20, 60)];
    check(70, &events, 70, &[(removal(&[], &[(0, 8)]), 60)]);
}

#[test]
fn a_moment_of_the_host_is_found_in_a_replay() {
    let span = |start, end| Span { start, end };
    let play = Replay {
        device_start: Vec::new(),
        waits: vec![(span(30, 40), span(20, 24)), (span(70, 70), span(50, 53))],
        removed: vec![span(10, 20), span(50, 60)],
        end: 0,
    };
    let clock = HostClock::new(&play);
    let moments = [
        // Before the first wait: minus the removed time.
        (5, 5),
        (10, 10),
        (15, 10),
        (20, 10),
        (25, 15),
        // Within it, interpolated: 10 have become 4.
        (30, 20),
        (35, 22),
        (40, 24),
        // After it, counted from its new end.
        (45, 29),
        (55, 34),
        (69, 43),
        // After a wait of zero length.
        (70, 53),
        (80, 63),
    ];
    for (time, is) in moments {
        assert_eq!(clock.at(time), is, "at {time}");
    }
}
