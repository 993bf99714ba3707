//! Batches that the training loop prepares itself: the host works in Python before the step's first copy to the device.

use headroom_trace::{CallKind, Category, NONE};

use super::copies::{Direction, direction};
use super::intervals::{Span, covered, merged, total, without};
use super::recorded::tells_what_the_host_did;
use super::view::View;
use crate::constants::by_hand::{LEAST_BYTES, LEAST_NANOS, LEAST_PREPARED_SHARE, MOST_IN_OPERATORS};

/// The time from the start of each step, or from the end of the spans that `fetched` its data, to the first launch, if
/// that copies a batch to the device. Empty if most steps have none, or if nothing tells what the host did meanwhile.
pub fn prepared_by_hand(view: &View, fetched: &[Span]) -> Vec<Span> {
    if !tells_what_the_host_did(view) {
        return Vec::new();
    }
    let (host, device) = (&view.trace.host, &view.trace.device);
    let named = |wanted: &dyn Fn(usize) -> bool| -> Vec<Span> {
        merged((0..host.len()).filter(|&at| wanted(at)).map(|at| view.host_span(at)).collect())
    };
    let optimizers = view.time_named(|name| name.starts_with("Optimizer."));
    let elsewhere = merged([fetched.to_vec(), optimizers].concat());
    let is_elsewhere = |time: i64| covered(&elsewhere, Span { start: time, end: time + 1 }) > 0;
    // The first launch of each step, and its time.
    let mut first: Vec<Option<(i64, usize)>> = vec![None; view.steps.ordered.len()];
    for at in device.busy().filter(|&at| view.call_of[at] != NONE) {
        let time = host.start[view.call_of[at] as usize];
        let Some(step) = view.steps.at_host(time) else { continue };
        if first[step].is_none_or(|(known, _)| time < known) && !is_elsewhere(time) {
            first[step] = Some((time, at));
        }
    }
    let mut spans: Vec<(usize, Span)> = Vec::new();
    for (step, first) in view.steps.ordered.iter().zip(first) {
        let Some((_, at)) = first else { continue };
        let is_batch = device.category[at] == Category::Memcpy
            && device.bytes[at] >= LEAST_BYTES.get()
            && direction(view.name(device.name[at])) == Direction::HostToDevice;
        if !is_batch {
            continue;
        }
        let call = view.call_of[at] as usize;
        let operators = view.ancestors(call).filter(|&at| view.is_operator(at));
        let end = operators.last().map_or(host.start[call], |at| host.start[at]);
        let known = elsewhere.iter().map(|span| span.end).filter(|known| (step.start..end).contains(known));
        let span = Span { start: known.max().unwrap_or(step.start), end };
        if span.nanos() >= LEAST_NANOS.get() && span.nanos() as f64 >= LEAST_PREPARED_SHARE.get() * step.nanos() as f64
        {
            spans.push((call, span));
        }
    }
    if spans.is_empty() {
        return Vec::new();
    }
    let waits = named(&|at| view.call_kind(at) == Some(CallKind::Synchronise));
    let operators = named(&|at| view.is_operator(at) && host.track[at] == host.track[spans[0].0]);
    let is_python = |span: &Span| (covered(&operators, *span) as f64) < MOST_IN_OPERATORS.get() * span.nanos() as f64;
    let spans: Vec<Span> = spans.into_iter().map(|(_, span)| span).filter(is_python).collect();
    let often = spans.len() * 2 > view.steps.ordered.len();
    let spans = without(&merged(spans), &waits);
    if often && total(&spans) > 0 { spans } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};

    /// Three steps of 10 ms: 6 ms on the host, `in_operators` µs of it in operators; then the batch is copied and
    /// processed.
    fn steps(in_operators: i64, bytes: u64, first: &str) -> Vec<Span> {
        let mut made = Fabricated::on("NVIDIA H200");
        for step in 0..3i64 {
            let start = step * 10_000 * MICRO;
            made.step(step as u32 + 1, start, start + 10_000 * MICRO);
            made.span("user_annotation", "Optimizer.zero_grad#SGD.zero_grad", 1, start + MICRO, start + 50 * MICRO, "");
            made.operator("aten::div", start + 60 * MICRO, start + (60 + in_operators) * MICRO);
            made.operator("aten::to", start + 6_050 * MICRO, start + 6_150 * MICRO);
            let id = format!(r#""correlation":{},"bytes":{bytes}"#, 900 + step);
            made.span("cuda_runtime", "cudaMemcpyAsync", 1, start + 6_060 * MICRO, start + 6_100 * MICRO, &id);
            made.span("gpu_memcpy", first, 7, start + 6_080 * MICRO, start + 6_140 * MICRO, &id);
            made.launch(
                (start + 6_200 * MICRO, start + 6_210 * MICRO),
                "k",
                (start + 6_220 * MICRO, start + 9_000 * MICRO),
            );
        }
        let trace = made.trace();
        prepared_by_hand(&View::new(&trace), &[])
    }

    #[test]
    fn the_host_s_time_before_the_first_copy_of_a_step_prepares_its_batch() {
        let found = steps(10, 1 << 20, "Memcpy HtoD (Pageable -> Device)");
        assert_eq!(found.len(), 3);
        assert_eq!(found[1], Span { start: 10_050 * MICRO, end: 16_050 * MICRO });
    }

    #[test]
    fn where_only_the_device_was_recorded_nothing_tells_what_the_host_did() {
        let mut made = Fabricated::on("NVIDIA H200");
        made.span("cuda_runtime", "cudaGetDevice", 1, 0, MICRO, r#""correlation":899"#);
        let id = r#""correlation":900,"bytes":1048576"#;
        made.span("cuda_runtime", "cudaMemcpyAsync", 1, 6_060 * MICRO, 6_100 * MICRO, id);
        made.span("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 7, 6_080 * MICRO, 6_140 * MICRO, id);
        made.launch((6_200 * MICRO, 6_210 * MICRO), "k", (6_220 * MICRO, 9_000 * MICRO));
        assert!(made.viewed(|view| prepared_by_hand(view, &[])).is_empty());
        made.operator("aten::to", 6_050 * MICRO, 6_110 * MICRO);
        assert!(!made.viewed(|view| prepared_by_hand(view, &[])).is_empty());
    }

    #[test]
    fn operators_single_values_and_other_orders_are_no_batch() {
        assert!(steps(5_000, 1 << 20, "Memcpy HtoD (Pageable -> Device)").is_empty(), "operators on the host");
        assert!(steps(10, 8, "Memcpy HtoD (Pageable -> Device)").is_empty(), "one value");
        assert!(steps(10, 1 << 20, "Memcpy DtoD (Device -> Device)").is_empty(), "stays on the device");
    }
}
