//! Per-event costs, calculated by hand.

use super::*;
use crate::fabricated::{Fabricated, MICRO};

const COSTS: EventCosts = EventCosts {
    operator_micros: 10.0,
    runtime_micros: 20.0,
    query_micros: 2.0,
    wait_micros: 40.0,
    python_micros: 5.0,
    compiled_kernel_micros: 100.0,
    staging_share: 0.0,
};

/// Spans in microseconds.
fn spans(made: &Fabricated, costs: EventCosts) -> Vec<(i64, i64)> {
    let trace = made.trace();
    let view = View::new(&trace);
    cost_spans(&view, costs, view.steps.host_range())
        .iter()
        .map(|span| (span.start / MICRO, span.end / MICRO))
        .collect()
}

fn step() -> Fabricated {
    let mut made = Fabricated::default();
    made.step(1, 0, 1_000 * MICRO);
    made
}

fn at(made: &mut Fabricated, category: &str, name: &str, start: i64, end: i64) {
    made.span(category, name, 1, start * MICRO, end * MICRO, "");
}

#[test]
fn an_event_is_paid_for_after_it_began_and_the_rest_is_carried_over() {
    let mut made = step();
    at(&mut made, "cpu_op", "aten::mul", 100, 200);
    at(&mut made, "cuda_runtime", "cudaLaunchKernel", 110, 116);
    at(&mut made, "cpu_op", "aten::add", 300, 310);
    // There is room for four fifths of the operator's 10 µs before the launch; the other 2 are added to the launch's
    // 20. Half of the launch remains.
    assert_eq!(spans(&made, COSTS), [(100, 108), (110, 113), (116, 135)]);
    assert_eq!(spans(&made, COSTS.times(0.5)), [(100, 105), (110, 113), (116, 123)]);
    assert_eq!(spans(&made, EventCosts::default()), []);
}

#[test]
fn a_wait_is_paid_for_when_it_is_over() {
    let mut made = step();
    at(&mut made, "cuda_runtime", "cudaStreamSynchronize", 300, 400);
    at(&mut made, "cpu_op", "aten::add", 600, 610);
    assert_eq!(spans(&made, COSTS), [(400, 460)], "20 of a call and 40 of a wait");
}

#[test]
fn each_kind_of_event_has_its_own_cost() {
    for (category, name, cost) in [
        ("python_function", "train.py(1): f", 5),
        ("cpu_op", "triton_poi_fused_add_0", 110),
        ("cpu_op", "aten::mul", 10),
        ("cuda_runtime", "cudaMemcpyAsync", 20),
        ("cuda_runtime", "cudaStreamWaitEvent", 2),
    ] {
        let mut made = step();
        at(&mut made, category, name, 100, 300);
        at(&mut made, "cpu_op", "aten::add", 400, 410);
        assert_eq!(spans(&made, COSTS), [(100, 100 + cost)], "{name}");
    }
    let mut made = step();
    at(&mut made, "user_annotation", "mine", 100, 300);
    at(&mut made, "cpu_op", "aten::add", 400, 410);
    assert_eq!(spans(&made, COSTS), [], "an annotation costs nothing to speak of");
}

#[test]
fn threads_without_work_and_time_outside_of_the_steps_are_left_alone() {
    let mut made = step();
    for start in [100, 300] {
        made.span("python_function", "logger.py(1): run", 2, start * MICRO, (start + 50) * MICRO, "");
    }
    at(&mut made, "cpu_op", "aten::late", 1_100, 1_110);
    at(&mut made, "cpu_op", "aten::later", 1_300, 1_310);
    assert_eq!(spans(&made, COSTS), []);
    // The backward thread works as well.
    for start in [100, 300] {
        made.span("cpu_op", "MulBackward0", 3, start * MICRO, (start + 50) * MICRO, "");
    }
    assert_eq!(spans(&made, COSTS), [(100, 110)]);
}

#[test]
fn no_more_than_a_fifth_of_a_millisecond_is_carried_over() {
    let mut made = step();
    at(&mut made, "cpu_op", "aten::mul", 100, 110);
    at(&mut made, "cpu_op", "aten::mul", 800, 810);
    assert_eq!(spans(&made, EventCosts { operator_micros: 500.0, ..COSTS }), [(100, 300)]);
}

/// The costs of a host with `launches` launches of `nanos` each.
fn costs_of(kind: fn(&View) -> EventCosts, header: &str, launches: usize, nanos: i64) -> EventCosts {
    let mut made = step();
    made.header = header.to_string();
    for nth in 0..launches as i64 {
        let start = nth * 20 * MICRO;
        made.launch((start, start + nanos), "k", (start + nanos, start + nanos + 1));
    }
    kind(&View::new(&made.trace()))
}

#[test]
fn shared_costs_go_by_what_was_recorded_and_in_part_by_the_hosts_launches() {
    let of = |header: &str, launches: usize, nanos: i64| costs_of(EventCosts::shared, header, launches, nanos);
    assert_eq!(of("", 20, 4_500), SHARED);
    assert_eq!(of("", 20, 2_250), SHARED.times(0.5f64.powf(2.0 / 3.0)), "a host that launches twice as fast");
    let limits = [1.5f64, 0.4].map(|slower| SHARED.times(slower.powf(2.0 / 3.0)));
    assert_eq!([of("", 20, 45_000), of("", 20, 450)], limits, "within limits");
    assert_eq!(of("", 19, 45_000), SHARED.times(0.5), "too few to go by");
    assert_eq!(of(r#""record_shapes":1,"#, 20, 4_500).operator_micros, 2.5);
    assert_eq!(of(r#""with_stack":1,"#, 20, 4_500).python_micros, 2.5);
}

#[test]
fn usual_costs_go_by_what_was_recorded_and_by_the_hosts_launches() {
    let of = |header: &str, launches: usize, nanos: i64| costs_of(EventCosts::usual, header, launches, nanos);
    assert_eq!(of("", 20, 5_200), LIGHT);
    assert_eq!(of("", 20, 6_500), LIGHT.times(1.25), "a slower host pays more");
    assert_eq!(of("", 20, 4_300), LIGHT.times(0.9), "a somewhat quicker one hardly less");
    assert_eq!(of("", 20, 2_600), LIGHT.times(0.5 * 1.23), "one that launches twice as fast does");
    assert_eq!([of("", 20, 52_000), of("", 20, 520)], [1.6, 0.4].map(|slower| LIGHT.times(slower)), "within limits");
    assert_eq!(of("", 19, 52_000), LIGHT, "too few to go by");
    assert_eq!(of("", 0, 0), LIGHT.times(0.6), "no device");
    assert_eq!(of(r#""record_shapes":1,"#, 20, 5_200).operator_micros, 3.2);
    assert_eq!(of(r#""with_stack":1,"#, 20, 5_200).python_micros, 1.5);
    let [least, most] = COSTS.bounds();
    assert_eq!((least.operator_micros, least.python_micros, most.wait_micros), (5.5, 0.5, 68.0));
}

#[test]
fn copies_from_pageable_memory_are_staged_more_slowly_while_they_are_recorded() {
    let mut made = step();
    let id = r#""correlation":1,"bytes":1000"#;
    made.span("cuda_runtime", "cudaMemcpyAsync", 1, 100 * MICRO, 300 * MICRO, id);
    made.span("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 7, 110 * MICRO, 310 * MICRO, id);
    let id = r#""correlation":2,"bytes":1000"#;
    made.span("cuda_runtime", "cudaMemcpyAsync", 1, 400 * MICRO, 405 * MICRO, id);
    made.span("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 7, 410 * MICRO, 510 * MICRO, id);
    let trace = made.trace();
    let view = View::new(&trace);
    let costs = EventCosts { staging_share: 0.1, ..COSTS };
    let (spans, lengths) = staging(&view, costs, view.steps.host_range());
    assert_eq!(spans, [Span { start: 280 * MICRO, end: 300 * MICRO }], "a tenth of the call");
    assert_eq!(lengths, HashMap::from([(0, 180 * MICRO)]), "and of the copy; the pinned one stays");
    assert_eq!(staging(&view, costs, Span { start: 500 * MICRO, end: 900 * MICRO }).0, []);
    assert_eq!(LIGHT.times(4.0).staging_share, MOST_STAGING.get());
}

#[test]
fn a_part_of_a_time_is_whole_nanoseconds_however_long_it_is() {
    for nanos in -12..=12i64 {
        assert_eq!(four_fifths(nanos), nanos * 4 / 5, "{nanos}");
    }
    assert_eq!(four_fifths(i64::MAX), 7_378_697_629_483_820_645);
}
