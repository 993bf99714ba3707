//! Joins recordings of one loop with known differences.

use super::*;
use crate::fabricated::{Fabricated, MICRO};

/// Operators of one step, each 10 µs long, with starts `apart` microseconds apart.
fn operators(names: &[&str], apart: i64) -> Trace {
    on_thread(names, apart, 1)
}

fn on_thread(names: &[&str], apart: i64, thread: u32) -> Trace {
    let mut made = Fabricated::default();
    made.step(1, 0, names.len() as i64 * apart * MICRO);
    for (nth, name) in names.iter().enumerate() {
        let start = nth as i64 * apart * MICRO;
        made.span("cpu_op", name, thread, start, start + 10 * MICRO, "");
    }
    made.trace()
}

/// Operators by name and start in microseconds.
fn starts(trace: &Trace) -> Vec<(&str, i64)> {
    let host = &trace.host;
    let operators = (0..host.len()).filter(|&at| host.category[at] == Category::CpuOp);
    operators.map(|at| (trace.name(host.name[at]), host.start[at] / MICRO)).collect()
}

fn join(full: &Trace, light: &Trace) -> Option<Joined> {
    joined(&View::new(full), &View::new(light), light)
}

#[test]
fn equal_orders_take_the_lights_times() {
    let (full, light) = (operators(&["a", "b", "c", "d"], 200), operators(&["a", "b", "c", "d"], 50));
    let joined = join(&full, &light).expect("they are alike");
    assert_eq!(joined.share, 1.0);
    assert_eq!(starts(&joined.trace), [("a", 0), ("b", 50), ("c", 100), ("d", 150)]);
    assert!(joined.trace.host.duration[1..].iter().all(|nanos| *nanos == 10 * MICRO));
}

#[test]
fn an_operator_that_one_of_them_lacks_does_not_shift_the_others() {
    let (full, light) = (operators(&["a", "x", "b", "c", "d"], 200), operators(&["a", "b", "c", "d"], 50));
    let joined = join(&full, &light).expect("they are alike");
    assert_eq!(joined.share, 0.8, "four of five");
    // Between the end of `a` (10 and 210) and the start of `b` (50 and 400): 190 of 390 of the way.
    assert_eq!(starts(&joined.trace), [("a", 0), ("x", 10 + 40 * 190 / 390), ("b", 50), ("c", 100), ("d", 150)]);
    let joined = join(&light, &full).expect("they are alike");
    assert_eq!((joined.share, starts(&joined.trace)[1]), (1.0, ("b", 400)));
}

#[test]
fn one_equal_name_by_chance_is_not_where_both_go_on() {
    // After `a`, the light trace's `b` soon occurs in the full one, but another operator follows it there.
    let full = operators(&["a", "x", "b", "y", "z", "b", "c", "d", "e"], 200);
    let light = operators(&["a", "b", "c", "d", "e"], 50);
    let joined = join(&full, &light).expect("they are alike");
    let placed = starts(&joined.trace);
    assert_eq!((placed[5], placed[6]), (("b", 50), ("c", 100)), "{placed:?}");
    assert!(placed[2].1 < 50, "{placed:?}");
}

#[test]
fn nothing_in_common_is_not_joined() {
    assert!(join(&operators(&["a", "b"], 200), &operators(&["c", "d"], 50)).is_none());
    let empty = Trace::default();
    assert!(join(&operators(&["a"], 10), &empty).is_none());
}

#[test]
fn threads_are_paired_by_number_else_by_how_much_they_do() {
    let names = ["a", "b", "c", "d"];
    let joined = join(&on_thread(&names, 200, 5), &on_thread(&names, 50, 9)).expect("each has one thread that works");
    assert_eq!((joined.share, starts(&joined.trace)[2]), (1.0, ("c", 100)));
    // Two threads with equally many operators: their numbers tell them apart, though they begin in the opposite order.
    let two = |first: u32, second: u32, apart: i64| {
        let mut made = Fabricated::default();
        made.step(1, 0, 10 * apart * MICRO);
        for nth in 0..5 {
            let start = nth * apart * MICRO;
            made.span("cpu_op", &format!("a{nth}"), first, start, start + 5 * MICRO, "");
            made.span("cpu_op", &format!("b{nth}"), second, start + 6 * MICRO, start + 8 * MICRO, "");
        }
        made.trace()
    };
    assert_eq!(join(&two(4, 3, 100), &two(4, 3, 50)).map(|joined| joined.share), Some(1.0));
}

#[test]
fn work_takes_its_fellows_place_and_length_and_else_keeps_its_distance() {
    let made = |apart: i64, kernel: i64, with_last: bool| {
        let mut made = Fabricated::default();
        made.step(1, 0, 5 * apart * MICRO);
        for nth in 0..4 {
            let start = nth * apart * MICRO;
            made.operator("aten::mul", start, start + 20 * MICRO);
            if nth < 3 || with_last {
                let work = start + 8 * MICRO;
                made.launch((start + 2 * MICRO, start + 6 * MICRO), "k", (work, work + kernel * MICRO));
            }
        }
        made.trace()
    };
    let (full, light) = (made(200, 9, true), made(50, 5, false));
    let joined = join(&full, &light).expect("they are alike").trace;
    let micros = |times: &[i64]| times.iter().map(|time| time / MICRO).collect::<Vec<_>>();
    // The last launch is missing in the light trace: its call lies 2 of 20 into its operator, and the kernel 6 after
    // it.
    assert_eq!(micros(&joined.device.start), [8, 58, 108, 158]);
    assert_eq!(micros(&joined.device.duration), [5, 5, 5, 9]);
}

#[test]
fn work_of_one_stream_keeps_its_order() {
    // The second kernel waits long in the queue, and the light recording lacks it.
    let made = |queue: i64, with_second: bool| {
        let mut made = Fabricated::default();
        made.step(1, 0, 1_000 * MICRO);
        for nth in 0..4 {
            let start = nth * 50 * MICRO;
            made.operator(&format!("aten::op{nth}"), start, start + 20 * MICRO);
            if nth != 1 || with_second {
                let work = start + (8 + queue) * MICRO;
                made.launch((start + 2 * MICRO, start + 6 * MICRO), "k", (work, work + 9 * MICRO));
            }
        }
        made.trace()
    };
    let joined = join(&made(400, true), &made(0, false)).expect("they are alike").trace;
    let starts: Vec<i64> = joined.device.start.iter().map(|time| time / MICRO).collect();
    assert_eq!(starts[0], 8);
    assert!(starts[1] > 400 && starts.is_sorted(), "{starts:?}");
}

#[test]
fn moments_between_anchors_lie_on_a_line_and_never_run_backwards() {
    let map = Map::new(vec![(100, 40), (0, 0), (200, 30), (100, 99)]);
    assert_eq!([0, 50, 100, 150, 200].map(|time| map.at(time)), [0, 20, 40, 40, 40]);
    assert_eq!((map.at(-10), map.at(260)), (-10, 100), "outside as far from the anchor as it was");
    assert_eq!(Map::new(Vec::new()).at(7), 7);
}

#[test]
fn what_follows_the_last_operator_of_a_thread_ends_with_the_step() {
    // The light step ends 20 µs after its last operator, the full one 470.
    let made = |apart: i64, end: i64| {
        let mut made = Fabricated::default();
        made.step(1, 0, end * MICRO);
        (0..3).for_each(|nth| made.operator("aten::mul", nth * apart * MICRO, (nth * apart + 10) * MICRO));
        made.trace()
    };
    let joined = join(&made(100, 680), &made(50, 130)).expect("they are alike").trace;
    let steps = View::new(&joined).steps;
    assert_eq!((steps.list.len(), steps.wall_nanos()), (1, 130 * MICRO));
}

#[test]
fn a_loader_that_was_quick_in_one_recording_is_as_slow_as_in_the_other() {
    // In the full recording the worker's batch was ready at once, in the light one the loop waits 800 µs.
    let made = |loading: i64| {
        let mut made = Fabricated::default();
        made.step(1, 0, (loading + 130) * MICRO);
        let name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";
        made.span("user_annotation", name, 1, 10 * MICRO, (10 + loading) * MICRO, "");
        (0..2).for_each(|nth| {
            made.operator("aten::mul", (loading + 30 + 50 * nth) * MICRO, (loading + 40 + 50 * nth) * MICRO)
        });
        made.trace()
    };
    let joined = join(&made(5), &made(800)).expect("they are alike").trace;
    let loader = (0..joined.host.len()).find(|&at| joined.name(joined.host.name[at]).starts_with("enumerate"));
    let loader = loader.expect("is kept");
    assert_eq!((joined.host.start[loader], joined.host.duration[loader]), (10 * MICRO, 800 * MICRO));
    assert_eq!(starts(&joined)[0], ("aten::mul", 830));
}
