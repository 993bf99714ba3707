//! Tests on loops small enough to be replayed by hand.

use super::*;
use crate::fabricated::{Fabricated, MICRO};

/// Twenty iterations `turn` nanoseconds apart: an operator, after 10 µs a launch of 4.5 µs, after 20 µs a kernel of 5
/// µs. The host is the bottleneck, and its launches are as quick as those that the costs were measured with.
fn launching(turn: i64, more: impl Fn(&mut Fabricated, i64)) -> Fabricated {
    let mut made = Fabricated::default();
    made.step(1, 0, 20 * turn);
    for start in (0..20).map(|nth| nth * turn) {
        made.operator("aten::mul", start, start + 40 * MICRO);
        let call = start + 10 * MICRO;
        made.launch((call, call + 4_500), "k", (call + 10 * MICRO, call + 15 * MICRO));
        more(&mut made, start);
    }
    made
}

fn near(found: f64, wanted: f64, within: f64) -> bool {
    (found - wanted).abs() <= within
}

fn micros_of(times: &[i64]) -> Vec<f64> {
    times.iter().map(|time| *time as f64 / 1e3).collect()
}

/// Starts of the spans of one category, in microseconds.
fn starts_of(trace: &Trace, wanted: headroom_trace::Category) -> Vec<f64> {
    let host = &trace.host;
    micros_of(&(0..host.len()).filter(|&at| host.category[at] == wanted).map(|at| host.start[at]).collect::<Vec<_>>())
}

#[test]
fn the_fit_finds_the_cost_under_which_the_step_takes_the_true_time() {
    // An operator costs 1.5 µs and a launch 6; nothing after the last launch could be earlier: 20 · 7.5 - 6 = 144.
    let trace = launching(100 * MICRO, |_, _| {}).trace();
    let view = View::new(&trace);
    for (factor, true_micros) in [(1.0, 1_856.0), (2.0, 1_712.0), (0.5, 1_928.0)] {
        let (costs, play) = fit(&view, true_micros * 1e-6);
        assert!(near(costs.operator_micros, 1.5 * factor, 0.01), "{factor}: {costs:?}");
        assert!(near(costs.runtime_micros, 6.0 * factor, 0.03), "{factor}: {costs:?}");
        assert!(near(play.end as f64 / 1e3, true_micros, 0.5), "{factor}: {}", play.end);
    }
    // A run that takes as long without the profiler, or longer, has no cost to remove.
    for true_micros in [2_000.0, 2_500.0] {
        assert_eq!(fit(&view, true_micros * 1e-6).0, EventCosts::default());
    }
    // The fit stops at four times the usual cost per event.
    let (most, play) = fit(&view, 1e-6);
    assert!(
        near(most.runtime_micros, 24.0, 0.2) && near(play.end as f64 / 1e3, 2_000.0 - 4.0 * 144.0, 3.0),
        "{most:?}"
    );
}

#[test]
fn a_thread_of_the_light_recording_is_as_quick_as_in_the_full_one() {
    // Ten operators of another thread per iteration.
    let of = |micros: i64| {
        let more = |made: &mut Fabricated, start: i64| {
            for at in (0..10).map(|nth| start + (50 + 4 * nth) * MICRO) {
                made.span("cpu_op", "aten::empty", 2, at, at + micros * MICRO, "");
            }
        };
        launching(100 * MICRO, more).trace()
    };
    let (light, full) = (of(4), of(2));
    let quick = undisturbed::as_quick_as(&View::new(&full), &View::new(&light)).expect("was slow");
    let seconds = mean_step(&View::new(&quick));
    assert!(near(seconds, 1_600e-6, 1e-9), "{seconds}");
    assert!(undisturbed::as_quick_as(&View::new(&light), &View::new(&full)).is_none(), "the full one was slow");
}

#[test]
fn a_played_trace_takes_the_given_time_and_its_kernels_follow_their_launches() {
    let trace = launching(100 * MICRO, |_, _| {}).trace();
    let played = played(&View::new(&trace), Some(1_712e-6)).expect("a time is given");
    let step = &played.step;
    assert_eq!((step.from, step.timed_steps, step.joined_share), ("given", 0, None));
    assert!(near(step.recorded_seconds, 2e-3, 1e-9) && near(step.played_seconds, 1_712e-6, 1e-6), "{step:?}");
    assert!(step.notes.is_empty(), "{step:?}");
    // Each iteration is 15 µs shorter, 3 of them between the operator's start and its launch; work keeps its duration.
    let operators = starts_of(&played.trace, headroom_trace::Category::CpuOp);
    let kernels = micros_of(&played.trace.device.start);
    for nth in 0..20 {
        assert!(near(operators[nth], 85.0 * nth as f64, 0.5), "operator {nth}: {}", operators[nth]);
        assert!(near(kernels[nth], 85.0 * nth as f64 + 17.0, 0.5), "kernel {nth}: {}", kernels[nth]);
    }
    assert!(played.trace.device.duration.iter().all(|nanos| *nanos == 5 * MICRO));
}

#[test]
fn where_the_device_sets_the_pace_no_cost_explains_a_shorter_step() {
    // The host is 190 µs ahead at the end and waits for kernels of 100 µs each.
    let mut made = Fabricated::default();
    made.step(1, 0, 2_030 * MICRO);
    for nth in 0..20 {
        let (start, work) = (10 * MICRO * nth, (12 + 100 * nth) * MICRO);
        made.operator("aten::mul", start, start + 8 * MICRO);
        made.launch((start + 2 * MICRO, start + 6_500), "k", (work, work + 100 * MICRO));
    }
    made.span("cuda_runtime", "cudaDeviceSynchronize", 1, 220 * MICRO, 2_014 * MICRO, "");
    let trace = made.trace();
    let played = played(&View::new(&trace), Some(1_500e-6)).expect("a time is given");
    assert!(near(played.step.played_seconds, 2_020e-6, 12e-6), "{:?}", played.step);
    assert!(played.step.notes[0].contains("instead of 1.50: recording cost more than its events explain"));
    let lengths: i64 = played.trace.device.duration.iter().sum();
    assert_eq!(lengths, 2_000 * MICRO, "the device works as long as it did");
}

#[test]
fn where_the_device_sets_the_pace_recording_is_as_dear_as_it_was_seen() {
    // As above, and the true time is the recorded one: the device hides the recording cost, which is removed
    // nevertheless.
    let mut made = Fabricated::default();
    made.step(1, 0, 2_012 * MICRO);
    for nth in 0..20 {
        let (start, work) = (40 * MICRO * nth, (12 + 100 * nth) * MICRO);
        made.operator("aten::mul", start, start + 30 * MICRO);
        made.launch((start + 2 * MICRO, start + 6_500), "k", (work, work + 100 * MICRO));
    }
    made.span("cuda_runtime", "cudaDeviceSynchronize", 1, 800 * MICRO, 2_012 * MICRO, "");
    let trace = made.trace();
    let view = View::new(&trace);
    let (costs, _) = fit(&view, 2_012e-6);
    assert_eq!(costs, EventCosts::shared(&view).times(MOST.get()));
}

#[test]
fn a_loop_that_waits_for_a_worker_is_no_quicker_without_a_profiler() {
    let step = |iterator: &str| {
        let trace = launching(100 * MICRO, |made, start| {
            let name = format!("enumerate(DataLoader)#_{iterator}DataLoaderIter.__next__");
            made.span("user_annotation", &name, 1, start + 60 * MICRO, start + 90 * MICRO, "");
        });
        estimated(&View::new(&trace.trace()))
    };
    let (own, workers) = (step("SingleProcess"), step("MultiProcessing"));
    assert!(own.seconds < 0.95 * own.recorded_seconds, "{own:?}");
    assert!(near(workers.seconds, workers.recorded_seconds, 1e-9), "{workers:?}");
    assert_eq!(workers.lower_seconds, own.lower_seconds, "it may have been there in time as well");
}

#[test]
fn a_true_time_comes_from_the_header_and_a_run_of_ours_is_left_as_it_is() {
    let mut made = launching(100 * MICRO, |_, _| {});
    assert!(played(&View::new(&made.trace()), None).is_none(), "nobody timed it");
    made.header = r#""headroom_recording":{"true_step_seconds":[0.0018,0.0017,0.0019],"profiler":"full"},"#.into();
    let trace = made.trace();
    let step = played(&View::new(&trace), None).expect("it was timed").step;
    assert_eq!((step.from, step.timed_steps, step.seconds), ("measured", 3, 0.0018));
    assert_eq!((step.lower_seconds, step.upper_seconds), (0.0017, 0.0019));
    let mut ours = made.trace();
    ours.header.headroom = Some(Default::default());
    assert!(played(&View::new(&ours), None).is_none());
    let unplayed = estimated(&View::new(&ours));
    assert_eq!((unplayed.from, unplayed.seconds), ("recorded", unplayed.recorded_seconds));
}

#[test]
fn light_and_full_trace_give_the_lights_times_and_the_fulls_attributes() {
    // With everything recorded, iterations take twice as long, Python functions lie in between, and shapes are known.
    let light = launching(100 * MICRO, |_, _| {}).trace();
    let mut full = launching(200 * MICRO, |made, start| {
        made.span("python_function", "train.py(3): work", 1, start + 60 * MICRO, start + 160 * MICRO, "");
    });
    full.header = r#""headroom_recording":{"true_step_seconds":[0.001712],"profiler":"full"},"with_stack":1,"#.into();
    let mut full = full.trace();
    full.light = Some(Box::new(light));
    let played = played(&View::new(&full), None).expect("it was timed");
    let step = &played.step;
    assert_eq!(step.joined_share, Some(1.0), "{step:?}");
    assert!(near(step.light_seconds.unwrap_or(0.0), 2e-3, 1e-9) && near(step.recorded_seconds, 4e-3, 1e-9), "{step:?}");
    assert!(near(step.played_seconds, 1_712e-6, 1e-6) && step.notes.is_empty(), "{step:?}");
    let operators = starts_of(&played.trace, headroom_trace::Category::CpuOp);
    let functions = starts_of(&played.trace, headroom_trace::Category::PythonFunction);
    let kernels = micros_of(&played.trace.device.start);
    assert_eq!(functions.len(), 20);
    for nth in 0..19 {
        assert!(near(operators[nth], 85.0 * nth as f64, 0.5), "operator {nth}: {}", operators[nth]);
        assert!(near(kernels[nth], 85.0 * nth as f64 + 17.0, 0.5), "kernel {nth}: {}", kernels[nth]);
        assert!(functions[nth] > operators[nth] && functions[nth] < operators[nth + 1], "function {nth}");
    }
}

#[test]
fn traces_that_have_little_in_common_are_not_joined_and_that_is_said() {
    let mut other = Fabricated::default();
    other.step(1, 0, 1_000 * MICRO);
    (0..20).for_each(|nth| other.operator("aten::other", nth * 50 * MICRO, (nth * 50 + 40) * MICRO));
    let mut full = launching(100 * MICRO, |_, _| {}).trace();
    full.light = Some(Box::new(other.trace()));
    let played = played(&View::new(&full), Some(1_712e-6)).expect("a time is given");
    assert!(played.step.joined_share.is_none_or(|share| share < LEAST_JOINED.get()));
    assert!(played.step.notes[0].contains("differ too much"), "{:?}", played.step);
    assert!(near(played.step.played_seconds, 1_712e-6, 1e-6), "only the full one is replayed");
}

#[test]
fn the_median_lies_between_two_values_that_rarely_both_miss_it() {
    let values = [5.0, 1.0, 2.0, 8.0, 3.0, 7.0, 4.0, 6.0];
    assert_eq!(median_interval(&values), (1.0, 8.0), "of eight the outermost: one in 128");
    let many: Vec<f64> = (0..20).map(f64::from).collect();
    assert_eq!(median_interval(&many), (5.0, 14.0), "of twenty the sixth from either end: 0.041");
    assert_eq!(median_interval(&[3.0]), (3.0, 3.0));
}

#[test]
fn without_a_true_time_the_step_lies_between_cheap_and_dear_events() {
    // 20 · 0.9 · 9.2 - 0.9 · 8 = 158.4 µs of usual recording cost on a host as quick as this; between 0.55 and 1.7
    // times that, plus 8% noise.
    let trace = launching(100 * MICRO, |_, _| {}).trace();
    let step = estimated(&View::new(&trace));
    assert_eq!(step.from, "estimated");
    assert!(near(step.seconds, 1_841.6e-6, 1e-6), "{step:?}");
    assert!(near(step.lower_seconds, 0.92 * (2_000.0 - 1.7 * 158.4) * 1e-6, 1e-6), "{step:?}");
    assert!(near(step.upper_seconds, 1.08 * (2_000.0 - 0.55 * 158.4) * 1e-6, 1e-6), "{step:?}");
    assert!(step.notes.is_empty(), "{step:?}");
}

#[test]
fn a_step_that_mostly_loads_has_wider_bounds() {
    let share = |trace: &Fabricated| {
        let step = estimated(&View::new(&trace.trace()));
        step.upper_seconds / step.lower_seconds
    };
    let loading = launching(100 * MICRO, |made, start| {
        let name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
        made.span("user_annotation", name, 1, start + 50 * MICRO, start + 90 * MICRO, "");
    });
    let (with, without) = (share(&loading), share(&launching(100 * MICRO, |_, _| {})));
    assert!(with > without * 1.1, "{with} {without}");
}

#[test]
fn many_waits_leave_the_devices_own_work_as_the_lower_bound() {
    // The host waits in each of 20 iterations; the device works 100 µs of 2,000.
    let trace = launching(100 * MICRO, |made, start| {
        made.span("cuda_runtime", "cudaStreamSynchronize", 1, start + 50 * MICRO, start + 60 * MICRO, "");
    });
    let step = estimated(&View::new(&trace.trace()));
    assert!(near(step.lower_seconds, 0.92 * 100e-6, 1e-6), "{step:?}");
    assert!(step.seconds > 0.9e-3 && step.notes[0].contains("waits for the device 20 times per step"), "{step:?}");
}

#[test]
fn of_many_equal_steps_the_first_few_give_the_same_estimate() {
    let steps = |count: i64| {
        let mut made = Fabricated::default();
        for number in 0..count {
            let first = number * 1_000 * MICRO;
            made.step(number as u32, first, first + 1_000 * MICRO);
            for start in (0..10).map(|nth| first + nth * 100 * MICRO) {
                made.operator("aten::mul", start, start + 40 * MICRO);
                let call = start + 10 * MICRO;
                made.launch((call, call + 4_500), "k", (call + 10 * MICRO, call + 15 * MICRO));
            }
        }
        estimated(&View::new(&made.trace()))
    };
    let (few, many) = (steps(8), steps(40));
    // Ten launches of 0.9 · 9.2 µs per step; the very last one may cost nothing.
    assert!(near(few.seconds, 917.2e-6, 1e-6) && near(many.seconds, 917.2e-6, 1e-6), "{few:?} {many:?}");
    assert!(near(many.lower_seconds, few.lower_seconds, 2e-6), "{few:?} {many:?}");
}

#[test]
fn a_host_with_time_to_spare_is_rid_of_what_recording_took() {
    // Kernels of 97 µs every 98, launched every 60: the host is ahead, and 7.5 µs of recording per iteration lengthen
    // nothing.
    let mut ahead = Fabricated::default();
    ahead.step(1, 0, 1_975 * MICRO);
    for nth in 0..20 {
        let start = nth * 60 * MICRO;
        ahead.operator("aten::mul", start, start + 40 * MICRO);
        let (call, work) = (start + 10 * MICRO, 20 * MICRO + nth * 98 * MICRO);
        ahead.launch((call, call + 4_500), "k", (work, work + 97 * MICRO));
    }
    let trace = ahead.trace();
    let view = View::new(&trace);
    let taken: i64 = spare(&view, &Simulation::new(&view)).into_iter().map(Span::nanos).sum();
    assert!(taken > 100 * MICRO, "{taken}");
    // Where the host is the bottleneck, its time is the step's.
    let trace = launching(100 * MICRO, |_, _| {}).trace();
    let view = View::new(&trace);
    assert!(spare(&view, &Simulation::new(&view)).is_empty());
}
