//! TR133 differentiated-twice: several backward passes of one step go through the same nodes.
//!
//! There is one pass per loss over the part of the graph that the losses share.

mod repeated_backward;

use hashbrown::HashMap;
use headroom_trace::{NONE, NameId, TrackId};

use super::{Evidence, Found, TraceRule, for_nothing, percent};
use crate::constants::differentiated_twice::{FEWEST_NODES, LEAST_AGAIN_SHARE};
use crate::constants::tr133;
use crate::finding::{Cause, Confidence, Effort};
use crate::measures::recomputed::Recomputed;
use crate::measures::view::View;
use repeated_backward::{numbers_to_differentiate, repeated_backward};

pub const RULE: TraceRule = TraceRule {
    code: "TR133",
    name: "differentiated-twice",
    cause: Cause::Recomputed,
    page: include_str!("differentiated_twice.md"),
    effort: Effort::Low,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let again = &differentiated_again(evidence.view);
    let said = |share| {
        format!(
            "several backward passes traverse the same graph: {:.0} nodes per step are differentiated again, {} of the step",
            again.parts_per_step,
            percent(share)
        )
    };
    let advice = "add up the losses and call backward once (without retain_graph), unless a loss needs a \
                  separate gradient; get the gradients of several inputs in one call of torch.autograd.grad";
    let mut found = for_nothing::found(evidence, &tr133::NEEDLESS_SHARE, again, said, advice);
    found.iter_mut().for_each(|found| found.confidence = Confidence::Medium);
    found.into_iter().collect()
}

/// Every pass but the first through a node, with the gradient accumulation that follows it.
fn differentiated_again(view: &View) -> Recomputed {
    let host = &view.trace.host;
    let mut first: HashMap<(usize, TrackId, u32, NameId), usize> = HashMap::new();
    let (mut numbered, mut again, mut spans) = (0usize, 0usize, Vec::new());
    let mut nodes: HashMap<(TrackId, usize), Vec<usize>> = HashMap::new();
    let mut was_again = false;
    for (at, step) in view.graph_nodes() {
        if host.sequence[at] == NONE {
            // A gradient is added to the one that the first pass left.
            if was_again {
                spans.push(view.host_span(at));
            }
            continue;
        }
        numbered += 1;
        nodes.entry((host.track[at], step)).or_default().push(at);
        // Each thread that runs a replica of the model numbers its nodes separately.
        let before = *first.entry((step, host.track[at], host.sequence[at], host.name[at])).or_insert(at);
        // A gradient that is itself differentiated has to go through the same nodes again.
        was_again = before != at && !leaves_a_graph(view, before) && !leaves_a_graph(view, at);
        if was_again {
            again += 1;
            spans.push(view.host_span(at));
        }
    }
    let asked = repeated_backward(view, &nodes);
    again += asked.len();
    spans.extend(asked.into_iter().map(|at| view.host_span(at)));
    let per_step = again as f64 / view.steps.count();
    if per_step < FEWEST_NODES.get() || (again as f64) < LEAST_AGAIN_SHARE.get() * numbered as f64 {
        return Recomputed::default();
    }
    Recomputed::of(view, again, spans)
}

/// Operators within the node have numbers: their results will be differentiated.
fn leaves_a_graph(view: &View, node: usize) -> bool {
    !numbers_to_differentiate(view, node).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};

    const NODE: &str = "autograd::engine::evaluate_function";

    /// Two passes through twelve nodes, on `threads`; the second shares `shared` nodes with the first. `inner` are
    /// arguments of the operators within.
    fn two_passes(shared: i64, inner: &str, threads: [u32; 2]) -> Recomputed {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, 20_000 * MICRO);
        for turn in 0..24 {
            let (pass, place) = (turn / 12, turn % 12);
            let number = if pass == 1 && place >= shared { 100 + place } else { 50 + place };
            let start = (10 + 100 * turn) * MICRO;
            let args = format!(r#""Sequence number":{number}"#);
            made.span(
                "cpu_op",
                &format!("{NODE}: AddmmBackward0"),
                threads[pass as usize],
                start,
                start + 60 * MICRO,
                &args,
            );
            made.span("cpu_op", "aten::mm", threads[pass as usize], start + 5 * MICRO, start + 40 * MICRO, inner);
            made.launch((start + 10 * MICRO, start + 15 * MICRO), "gemm", (start + 20 * MICRO, start + 50 * MICRO));
            made.operator(&format!("{NODE}: torch::autograd::AccumulateGrad"), start + 70 * MICRO, start + 90 * MICRO);
            made.launch((start + 72 * MICRO, start + 75 * MICRO), "add", (start + 80 * MICRO, start + 85 * MICRO));
        }
        made.viewed(differentiated_again)
    }

    #[test]
    fn the_second_pass_through_shared_nodes_is_found_with_its_sums() {
        let found = two_passes(10, "", [1, 1]);
        assert!((found.parts_per_step - 10.0).abs() < 1e-9);
        assert_eq!(found.kernels.len(), 20, "ten products and what adds their gradients up");
        assert!((found.device_seconds - 10.0 * 35e-6).abs() < 1e-12);
        assert_eq!(found.host.len(), 20);
    }

    #[test]
    fn separate_graphs_few_nodes_and_gradients_of_gradients_are_none() {
        assert!(two_passes(0, "", [1, 1]).kernels.is_empty(), "two micro-batches");
        assert!(two_passes(4, "", [1, 1]).kernels.is_empty(), "a few nodes");
        assert!(two_passes(10, r#""Sequence number":900"#, [1, 1]).kernels.is_empty(), "a gradient penalty");
        assert!(two_passes(10, "", [1, 2]).kernels.is_empty(), "replicas, each with numbers of its own");
    }

    /// Gradients with respect to three inputs, one pass each, from one node or separate roots, each leaving a graph;
    /// then a pass through all that they left.
    fn by_each_input(has_one_root: bool) -> Recomputed {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, 50_000 * MICRO);
        for place in 0..13 {
            let start = (10 + 20 * place) * MICRO;
            made.span(
                "cpu_op",
                "aten::addmm",
                1,
                start,
                start + 10 * MICRO,
                &format!(r#""Sequence number":{}"#, 50 + place),
            );
        }
        let mut node = |start: i64, name: &str, number: i64, leaves: Option<i64>| {
            let start = start * MICRO;
            let args = format!(r#""Sequence number":{number}"#);
            made.span("cpu_op", &format!("{NODE}: {name}"), 2, start, start + 60 * MICRO, &args);
            let args = leaves.map_or(String::new(), |number| format!(r#""Sequence number":{number}"#));
            made.span("cpu_op", "aten::mm", 2, start + 5 * MICRO, start + 40 * MICRO, &args);
            let call = (start + 10 * MICRO, start + 15 * MICRO);
            made.launch(call, "gemm", (start + 20 * MICRO, start + 50 * MICRO));
        };
        for pass in 0..3 {
            let begin = 1_000 + 2_000 * pass;
            if !has_one_root {
                node(begin, "SumBackward0", 200 + pass, Some(400 + 20 * pass + 19));
            }
            for place in 0..12 {
                node(begin + 100 + 100 * place, "AddmmBackward0", 61 - place, Some(400 + 20 * pass + place));
            }
        }
        for nth in 0..36 {
            let (pass, place) = (2 - nth / 12, 11 - nth % 12);
            node(8_000 + 100 * nth, "MmBackward0", 400 + 20 * pass + place, None);
        }
        for pass in 0..4 {
            let start = (990 + 2_000 * pass) * MICRO;
            made.operator("aten::ones_like", start, start + 5 * MICRO);
        }
        made.viewed(differentiated_again)
    }

    #[test]
    fn gradients_by_each_input_and_what_differentiates_them_are_one_pass() {
        let found = by_each_input(true);
        assert!((found.parts_per_step - 48.0).abs() < 1e-9, "two passes of twelve, and two thirds of the last one");
        assert_eq!(found.kernels.len(), 48);
    }

    #[test]
    fn gradients_of_different_results_are_asked_for_once() {
        assert!(by_each_input(false).kernels.is_empty());
    }
}
