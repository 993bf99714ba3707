//! Autograd's anomaly detection, left on: every gradient is searched for NaN and the result read back, and every
//! forward operator keeps the stack it was called from.

use hashbrown::HashSet;
use headroom_trace::{Category, NONE};

use super::intervals::{Span, merged};
use super::view::{View, is_backward_node};
use crate::constants::anomaly::{FEWEST_CHECKS, OWN_NANOS};

#[derive(Clone, Debug, Default)]
pub struct AnomalyChecks {
    pub checks_per_step: f64,
    /// From the search for NaN to the end of the read-back.
    pub checks: Vec<Span>,
    pub kernels: Vec<usize>,
    /// The time in which forward operators collect their stack.
    pub stacks: Vec<Span>,
}

pub fn anomaly_checks(view: &View) -> AnomalyChecks {
    let host = &view.trace.host;
    let mut result = AnomalyChecks::default();
    let (mut nodes, mut checked) = (0usize, 0usize);
    let mut learnt: HashSet<u32> = HashSet::new();
    let mut spans = Vec::new();
    for node in view.host_spans_named(is_backward_node) {
        if host.sequence[node] == NONE || view.step_of(node).is_none() {
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
    if per_step < FEWEST_CHECKS.get() || checked * 2 < nodes {
        return result;
    }
    result.checks_per_step = per_step;
    result.checks = merged(spans);
    result.kernels = view.ordered_in(&result.checks);
    result.stacks = stacks(view, &learnt);
    result
}

/// The longest time that each operator with a gradient spends outside its calls, beyond an operator's own work.
fn stacks(view: &View, learnt: &HashSet<u32>) -> Vec<Span> {
    let host = &view.trace.host;
    let is_one = |&at: &usize| {
        view.is_operator(at)
            && learnt.contains(&host.sequence[at])
            && view.step_of(at).is_some()
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
        if longest.nanos() > OWN_NANOS.get() {
            found.push(Span { start: longest.start + OWN_NANOS.get(), end: longest.end });
        }
    }
    merged(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};

    const NODE: &str = "autograd::engine::evaluate_function";

    /// Ten operators of 400 µs that launch a kernel at their end, and their backward nodes, of which `checked` search
    /// for NaN.
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
        made.viewed(anomaly_checks)
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
        // Eight per step are enough, seven are not.
        assert_eq!(pass(8).checks.len(), 8);
        assert!(pass(7).checks.is_empty());
    }

    /// A backward node, 300 µs long, that searches `checks` gradients for NaN.
    fn node(made: &mut Fabricated, start: i64, args: &str, checks: i64) {
        made.span("cpu_op", &format!("{NODE}: GeluBackward0"), 1, start, start + 300 * MICRO, args);
        for check in 0..checks {
            let start = start + (10 + 100 * check) * MICRO;
            made.operator("aten::isnan", start, start + 10 * MICRO);
            made.operator("aten::is_nonzero", start + 20 * MICRO, start + 90 * MICRO);
        }
    }

    fn number(sequence: i64) -> String {
        format!(r#""Sequence number":{sequence}"#)
    }

    /// A step from 1 to 41 ms whose backward pass, from 20 ms on, has nodes with these numbers of checks.
    fn step_of(checks: &[i64], others: impl FnOnce(&mut Fabricated)) -> AnomalyChecks {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 1_000 * MICRO, 41_000 * MICRO);
        others(&mut made);
        for (place, checks) in (0..).zip(checks) {
            node(&mut made, (20_000 + 500 * place) * MICRO, &number(100 + place), *checks);
        }
        made.viewed(anomaly_checks)
    }

    #[test]
    fn half_of_the_nodes_are_checked_where_detection_is_on() {
        let nodes = |checked: usize, unchecked: usize, each: i64| {
            let checks = [vec![each; checked], vec![0; unchecked]].concat();
            step_of(&checks, |_| {}).checks_per_step
        };
        assert_eq!(nodes(8, 8, 1), 8.0);
        assert_eq!(nodes(8, 9, 1), 0.0);
        // A node may have several gradients; it still counts as one node.
        assert_eq!(nodes(8, 8, 2), 16.0);
        assert_eq!(nodes(4, 6, 2), 0.0);
    }

    #[test]
    fn nodes_outside_of_steps_or_without_a_number_do_not_count() {
        let before = |made: &mut Fabricated| (0..2).for_each(|at| node(made, (10 + 400 * at) * MICRO, &number(at), 1));
        let found = step_of(&[1; 8], before);
        assert_eq!((found.checks_per_step, found.checks.len()), (8.0, 8));
        // Gradients are accumulated into parameters by nodes that no operator created.
        let unnumbered = |made: &mut Fabricated| (0..9).for_each(|at| node(made, (5_000 + 500 * at) * MICRO, "", 0));
        assert_eq!(step_of(&[1; 8], unnumbered).checks_per_step, 8.0);
        let outside =
            |made: &mut Fabricated| (0..9).for_each(|at| node(made, (42_000 + 500 * at) * MICRO, &number(at), 0));
        assert_eq!(step_of(&[1; 8], outside).checks_per_step, 8.0);
    }

    #[test]
    fn a_search_for_nan_within_an_operator_of_the_node_is_that_operators_own() {
        let nodes_with = |operators: &[(&str, i64, i64)]| {
            let found = step_of(&[], |made| {
                for place in 0..16 {
                    let start = (5_000 + 500 * place) * MICRO;
                    node(made, start, &number(200 + place), 0);
                    for (name, from, to) in operators {
                        made.operator(name, start + from * MICRO, start + to * MICRO);
                    }
                }
            });
            found.checks_per_step
        };
        assert_eq!(nodes_with(&[("aten::isnan", 10, 20), ("aten::item", 30, 200)]), 16.0);
        assert_eq!(nodes_with(&[("own::check", 5, 290), ("aten::isnan", 10, 20), ("aten::item", 30, 200)]), 0.0);
        // A value read back without a search before it does not count either.
        assert_eq!(nodes_with(&[("aten::item", 30, 200), ("aten::isnan", 210, 220)]), 0.0);
    }

    /// The stacks found in one operator of `micros`, with calls at these times within it.
    fn stack_of(name: &str, args: &str, micros: i64, calls: &[(i64, i64)]) -> Vec<(i64, i64)> {
        let start = 2_000 * MICRO;
        let found = step_of(&[1; 10], |made| {
            made.span("cpu_op", name, 1, start, start + micros * MICRO, args);
            for (from, to) in calls {
                made.operator("aten::empty", start + from * MICRO, start + to * MICRO);
            }
        });
        found.stacks.iter().map(|span| ((span.start - start) / MICRO, (span.end - start) / MICRO)).collect()
    }

    #[test]
    fn a_stack_is_the_longest_time_between_calls_beyond_what_an_operator_takes_itself() {
        let own = number(100);
        let stack = |micros: i64, calls: &[(i64, i64)]| stack_of("aten::gelu", &own, micros, calls);
        assert_eq!(stack(15, &[]), []);
        assert_eq!(stack(20, &[]), [(15, 20)]);
        assert_eq!(stack(400, &[(300, 390)]), [(15, 300)]);
        assert_eq!(stack(400, &[(10, 100)]), [(115, 400)]);
        assert_eq!(stack(400, &[(10, 100), (300, 390)]), [(115, 300)]);
        // A call within a call does not reduce the outer one.
        assert_eq!(stack(395, &[(10, 380), (50, 60)]), []);
        assert_eq!(stack(60, &[(14, 28), (42, 50)]), []);
    }

    #[test]
    fn operators_that_no_node_answers_keep_no_stack() {
        assert_eq!(stack_of("aten::gelu", &number(109), 400, &[]), [(15, 400)]);
        assert_eq!(stack_of("aten::gelu", &number(110), 400, &[]), []);
        assert_eq!(stack_of("aten::gelu", "", 400, &[]), []);
        assert_eq!(stack_of("GeluBackward0", &number(100), 400, &[]), []);
        // Operators before the step do not count.
        let early =
            step_of(&[1; 10], |made| made.span("cpu_op", "aten::gelu", 1, 10 * MICRO, 410 * MICRO, &number(100)));
        assert!(early.stacks.is_empty() && !early.checks.is_empty());
    }
}
