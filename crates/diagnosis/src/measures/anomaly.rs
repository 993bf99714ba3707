//! Autograd's detection of anomalies, left on: every gradient is looked through for NaN and the answer read back, and every operator of
//! the forward pass keeps the stack it was called from.

use hashbrown::HashSet;
use headroom_trace::{Category, NONE};

use super::intervals::{Span, merged};
use super::view::{View, is_backward_node};

#[derive(Clone, Debug, Default)]
pub struct AnomalyChecks {
    pub checks_per_step: f64,
    /// From the search for NaN to the end of the read-back.
    pub checks: Vec<Span>,
    pub kernels: Vec<usize>,
    /// Operators of the forward pass, while they collect a stack.
    pub stacks: Vec<Span>,
}

const FEWEST_CHECKS: f64 = 8.0;
/// An operator is not longer at what is its own; the rest is the stack's.
const OWN_NANOS: i64 = 15_000;

pub fn anomaly_checks(view: &View) -> AnomalyChecks {
    let host = &view.trace.host;
    let mut result = AnomalyChecks::default();
    let (mut nodes, mut checked) = (0usize, 0usize);
    let mut learnt: HashSet<u32> = HashSet::new();
    let mut spans = Vec::new();
    for node in view.host_spans_named(is_backward_node) {
        if host.sequence[node] == NONE || view.steps.at_host(host.start[node]).is_none() {
            continue;
        }
        nodes += 1;
        learnt.insert(host.sequence[node]);
        let before = spans.len();
        let mut since = None;
        for at in view.within(node).skip(1).filter(|&at| view.parent[at] == node as u32) {
            match view.host_name(at) {
                "aten::isnan" => since = Some(host.start[at]),
                "aten::item" | "aten::is_nonzero" => {
                    spans.extend(since.take().map(|start| Span { start, end: host.end(at) }));
                }
                _ => {}
            }
        }
        checked += usize::from(spans.len() > before);
    }
    let per_step = spans.len() as f64 / view.steps.count();
    if per_step < FEWEST_CHECKS || checked * 2 < nodes {
        return result;
    }
    result.checks_per_step = per_step;
    result.checks = merged(spans);
    result.kernels = view.ordered_in(&result.checks);
    result.stacks = stacks(view, &learnt);
    result
}

/// The longest time that each operator with a gradient spends in nothing that it calls, beyond what an operator takes by itself.
fn stacks(view: &View, learnt: &HashSet<u32>) -> Vec<Span> {
    let host = &view.trace.host;
    let is_one = |&at: &usize| {
        host.category[at] == Category::CpuOp
            && learnt.contains(&host.sequence[at])
            && view.steps.at_host(host.start[at]).is_some()
            && !view.host_name(at).contains("Backward")
    };
    let mut found = Vec::new();
    for at in (0..host.len()).filter(is_one) {
        let (mut longest, mut from) = (Span { start: 0, end: 0 }, host.start[at]);
        let calls = view.within(at).skip(1).filter(|&inner| {
            matches!(host.category[inner], Category::CpuOp | Category::Runtime) && host.end(inner) <= host.end(at)
        });
        for (start, end) in calls.map(|inner| (host.start[inner], host.end(inner))).chain([(host.end(at), 0)]) {
            if start - from > longest.nanos() {
                longest = Span { start: from, end: start };
            }
            from = from.max(end);
        }
        if longest.nanos() > OWN_NANOS {
            found.push(Span { start: longest.start + OWN_NANOS, end: longest.end });
        }
    }
    merged(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::Fabricated;

    const MICRO: i64 = 1_000;
    const NODE: &str = "autograd::engine::evaluate_function";

    /// Ten operators of 400 µs that order a kernel at their end, and their nodes, of which `checked` look for NaN.
    fn pass(checked: i64) -> AnomalyChecks {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, 20_000 * MICRO);
        for place in 0..10 {
            let start = (10 + 500 * place) * MICRO;
            let args = format!(r#""Sequence number":{}"#, 50 + place);
            made.span("cpu_op", "aten::gelu", 1, start, start + 400 * MICRO, &args);
            made.launch((start + 380 * MICRO, start + 390 * MICRO), "gelu", (start + 395 * MICRO, start + 410 * MICRO));
        }
        for place in 0..10 {
            let start = (6_000 + 500 * place) * MICRO;
            let args = format!(r#""Sequence number":{}"#, 59 - place);
            made.span("cpu_op", &format!("{NODE}: GeluBackward0"), 1, start, start + 300 * MICRO, &args);
            if place < checked {
                made.operator("aten::isnan", start + 40 * MICRO, start + 50 * MICRO);
                made.launch(
                    (start + 42 * MICRO, start + 45 * MICRO),
                    "isnan",
                    (start + 60 * MICRO, start + 160 * MICRO),
                );
                made.operator("aten::_is_any_true", start + 55 * MICRO, start + 70 * MICRO);
                made.operator("aten::item", start + 75 * MICRO, start + 290 * MICRO);
            }
        }
        let trace = made.trace();
        anomaly_checks(&View::new(&trace))
    }

    #[test]
    fn checks_their_kernels_and_the_stacks_of_the_forward_pass_are_found() {
        let found = pass(10);
        assert!((found.checks_per_step - 10.0).abs() < 1e-9);
        assert_eq!(found.checks[0], Span { start: 6_040 * MICRO, end: 6_290 * MICRO });
        assert_eq!(found.kernels.len(), 10);
        assert_eq!(found.stacks.len(), 10);
        assert_eq!(found.stacks[0], Span { start: 25 * MICRO, end: 390 * MICRO });
    }

    #[test]
    fn a_check_of_a_few_gradients_is_the_scripts_own() {
        assert!(pass(4).checks.is_empty());
        assert!(pass(0).stacks.is_empty(), "slow operators alone have another cause");
    }
}
