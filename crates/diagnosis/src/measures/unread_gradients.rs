//! Gradients of parameters that no optimizer updates: a backward pass goes on through what nobody trains.

use std::collections::HashSet;
use std::ops::Range;

use hashbrown::HashMap;
use headroom_trace::{Category, LaneId, NONE, NameId};
use serde_json::Value;

use super::flops::shapes;
use super::intervals::Span;
use super::recomputed::Recomputed;
use super::view::{View, is_backward_node};

/// Share of the elements with a gradient that no optimizer reads.
const LEAST_SHARE: f64 = 0.3;
/// Fewer are an oversight that costs nothing.
const FEWEST_PER_STEP: f64 = 4.0;
/// Nodes of the graph before the accumulation of a gradient among which is the one that made it.
const MOST_BEFORE: usize = 4;

const ACCUMULATES: &str = "torch::autograd::AccumulateGrad";

/// A gradient as a node of the graph accumulates it.
struct Gradient {
    /// In ascending order.
    sizes: Vec<u64>,
    is_read: bool,
    /// It is added to one that is there already.
    is_added: bool,
}

type Node = (usize, Option<Gradient>);

/// All of each backward pass behind the last gradient that is read, and before it what leads to unread ones alone and the products whose
/// result is not read. `optimizer` is when the host was in optimizers' own code, `zeroing` when it was in `zero_grad`.
pub fn unread_gradients(view: &View, optimizer: &[Span], zeroing: &[Span]) -> Recomputed {
    let is_alone = view.trace.header.distributed.as_ref().is_none_or(|distributed| distributed.world_size <= 1);
    if optimizer.is_empty() || !is_alone {
        return Recomputed::default(); // a rank may update its part alone
    }
    let updated = updated_sizes(view, optimizer);
    let mut passes = passes(view, &updated);
    // Lists of many tensors are recorded without their sizes: then what is left of a gradient tells.
    if updated.is_empty() && !told_by_what_is_left(view, &mut passes, zeroing) {
        return Recomputed::default();
    }
    let (mut read, mut unread, mut count) = (0.0, 0.0, 0usize);
    for gradient in passes.iter().flatten().filter_map(|(_, gradient)| gradient.as_ref()) {
        let elements: f64 = gradient.sizes.iter().map(|size| *size as f64).product();
        match gradient.is_read {
            true => read += elements,
            false => (unread, count) = (unread + elements, count + 1),
        }
    }
    if read == 0.0 || unread < LEAST_SHARE * (read + unread) || (count as f64) < FEWEST_PER_STEP * view.steps.count() {
        return Recomputed::default();
    }
    let mut spans = Vec::new();
    for pass in &passes {
        let is_read = |node: &Node| node.1.as_ref().is_some_and(|gradient| gradient.is_read);
        let Some(last) = pass.iter().rposition(is_read) else { continue };
        spans.extend(pass[last + 1..].iter().map(|(at, _)| view.host_span(*at)));
        let for_nothing = runs_for_nothing(view, &pass[..last]);
        spans.extend(for_nothing.iter().flat_map(|run| &pass[run.clone()]).map(|(at, _)| view.host_span(*at)));
        for place in (0..last).filter(|place| !for_nothing.iter().any(|run| run.contains(place))) {
            let (at, Some(gradient)) = &pass[place] else { continue };
            if !gradient.is_read {
                spans.push(view.host_span(*at));
                let before = &pass[place.saturating_sub(MOST_BEFORE)..place];
                // Under autocast it comes in half precision.
                let cast = before.last().filter(|(node, _)| view.host_name(*node).ends_with("ToCopyBackward0"));
                spans.extend(cast.map(|(node, _)| view.host_span(*node)));
                let made = before.iter().rev().map(|(node, _)| made_by(view, *node, &gradient.sizes));
                spans.extend(made.filter(|made| !made.is_empty()).take(1).flatten());
            }
        }
    }
    Recomputed::of(view, count, spans)
}

/// Runs of nodes between two gradients that are read whose own gradients are read by nobody, and of which nothing goes on: the last is made
/// by a node that a network begins with. A second model that is differentiated beside the one that is trained is such a run.
fn runs_for_nothing(view: &View, pass: &[Node]) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let mut begin = 0;
    let reads = |place: &usize| pass[*place].1.as_ref().is_some_and(|gradient| gradient.is_read);
    for end in (0..pass.len()).filter(reads).chain([pass.len()]) {
        let mut unread = (begin..end).filter(|place| pass[*place].1.is_some());
        if unread.clone().count() as f64 >= FEWEST_PER_STEP
            && let Some(last) = unread.next_back()
            && last > begin
            && is_where_a_network_begins(view, pass[last - 1].0)
        {
            runs.push(begin..last + 1);
        }
        begin = end + 1;
    }
    runs
}

/// Tokens have no gradient, and neither has a picture: then a convolution makes the gradient by its weight alone.
fn is_where_a_network_begins(view: &View, node: usize) -> bool {
    let name = view.host_name(node);
    let makes = |kernel: &str| !launches_in(view, node, kernel).is_empty();
    name.contains("EmbeddingBackward") || (name.contains("ConvolutionBackward") && makes("wgrad") && !makes("dgrad"))
}

/// The backward passes of all steps, their nodes in order, with what they accumulate.
fn passes(view: &View, updated: &HashSet<Vec<u64>>) -> Vec<Vec<Node>> {
    let host = &view.trace.host;
    let mut by_step: HashMap<(LaneId, usize), Vec<Node>> = HashMap::new();
    let is_node = |at: usize| is_backward_node(view.host_name(at));
    for at in view.host_spans_named(is_backward_node) {
        let Some(step) = view.steps.at_host(host.start[at]) else { continue };
        if view.ancestors(at).skip(1).any(is_node) {
            continue;
        }
        let gradient = view
            .within(at)
            .skip(1)
            .take(2)
            .find(|&inner| view.host_name(inner) == ACCUMULATES)
            .and_then(|inner| Some((inner, shapes(view.name(host.dims[inner])).into_iter().next()?)))
            .map(|(inner, sizes)| {
                let sizes = sorted(sizes);
                let is_added = view.within(inner).skip(1).any(|at| view.host_name(at) == "aten::add_");
                Gradient { is_read: updated.contains(&sizes), sizes, is_added }
            });
        by_step.entry((host.lane[at], step)).or_default().push((at, gradient));
    }
    by_step.into_values().flat_map(|nodes| one_by_one(view, nodes)).collect()
}

/// Takes for unread what every step adds to a gradient that nobody cleared, while others are made anew. That tells where one pass per
/// step accumulates, and where nothing is filled with zeros to be added to.
fn told_by_what_is_left(view: &View, passes: &mut [Vec<Node>], zeroing: &[Span]) -> bool {
    let host = &view.trace.host;
    let is_cleared = |at: &usize| {
        let next = zeroing.partition_point(|span| span.end <= host.start[*at]);
        zeroing.get(next).is_some_and(|span| span.start <= host.start[*at])
    };
    let fills = view.host_spans_named(|name| matches!(name, "aten::zero_" | "aten::_foreach_zero_"));
    if fills.iter().any(is_cleared) {
        return false;
    }
    let gradients = |pass: &[Node]| {
        let all = pass.iter().filter_map(|(_, gradient)| gradient.as_ref());
        let added = all.clone().filter(|gradient| gradient.is_added).count();
        (added, all.count() - added)
    };
    let mut counts = passes.iter().map(|pass| gradients(pass)).filter(|(added, anew)| added + anew > 0);
    let Some(first) = counts.next() else { return false };
    // Micro-batches add all of their gradients or none.
    let is_same = first.0 > 0 && first.1 > 0 && counts.clone().all(|other| other == first);
    if !is_same || 1 + counts.count() > view.steps.count().ceil() as usize {
        return false;
    }
    for gradient in passes.iter_mut().flatten().filter_map(|(_, gradient)| gradient.as_mut()) {
        gradient.is_read = !gradient.is_added;
    }
    true
}

/// Backward passes of one step: each begins with the operator that was called last.
fn one_by_one(view: &View, nodes: Vec<Node>) -> Vec<Vec<Node>> {
    let sequence = &view.trace.host.sequence;
    let (mut first, mut passes) = (NONE, vec![Vec::new()]);
    for node in nodes {
        let number = sequence[node.0];
        if number != NONE && (first == NONE || number > first) {
            if first != NONE {
                passes.push(Vec::new());
            }
            first = number;
        }
        if let Some(pass) = passes.last_mut() {
            pass.push(node);
        }
    }
    passes
}

/// Where a node makes a gradient of these sizes: a product, or of a convolution's gradients the one by its weight or its bias.
fn made_by(view: &View, node: usize, sizes: &[u64]) -> Vec<Span> {
    let host = &view.trace.host;
    for at in view.within(node).skip(1).filter(|&at| host.category[at] == Category::CpuOp) {
        let inputs = shapes(view.name(host.dims[at]));
        match (view.host_name(at), inputs.as_slice()) {
            ("aten::mm", [left, right, ..])
                if left.len() == 2 && right.len() == 2 && sorted(vec![left[0], right[1]]) == sizes =>
            {
                return vec![view.host_span(at)];
            }
            ("aten::convolution_backward", [_, _, weight, ..]) if sorted(weight.clone()) == sizes => {
                return launches_in(view, at, "wgrad");
            }
            ("aten::convolution_backward", [_, _, weight, ..])
                if weight.first() == sizes.first() && sizes.len() == 1 =>
            {
                return launches_in(view, at, "reduce_kernel");
            }
            _ => {}
        }
    }
    Vec::new()
}

/// Calls within an operator that launch kernels of this name.
fn launches_in(view: &View, operator: usize, name: &str) -> Vec<Span> {
    let kernels = view.ordered_in(&[view.host_span(operator)]).into_iter();
    let named = kernels.filter(|&at| view.name(view.trace.device.name[at]).contains(name));
    named.filter(|&at| view.call_of[at] != NONE).map(|at| view.host_span(view.call_of[at] as usize)).collect()
}

/// Sizes of all tensors that optimizers touch, each in ascending order; empty where they do not say.
fn updated_sizes(view: &View, optimizer: &[Span]) -> HashSet<Vec<u64>> {
    let host = &view.trace.host;
    let mut dims: HashSet<NameId> = HashSet::new();
    for at in (0..host.len()).filter(|&at| host.category[at] == Category::CpuOp) {
        let next = optimizer.partition_point(|span| span.end <= host.start[at]);
        if optimizer.get(next).is_none_or(|span| span.start > host.start[at]) {
            continue;
        }
        // Compiled updates name their tensors in an order of their own.
        if !view.host_name(at).starts_with("aten::") {
            return HashSet::new();
        }
        dims.insert(host.dims[at]);
    }
    let mut sizes = HashSet::new();
    for dims in dims {
        let Ok(Value::Array(inputs)) = serde_json::from_str(view.name(dims)) else { continue };
        for input in &inputs {
            sizes.extend(tensors(input).into_iter().map(sorted));
        }
    }
    sizes
}

/// Sizes of one tensor, or of those of a list.
fn tensors(input: &Value) -> Vec<Vec<u64>> {
    let sizes = |value: &Value| -> Option<Vec<u64>> { value.as_array()?.iter().map(Value::as_u64).collect() };
    match sizes(input).filter(|sizes| !sizes.is_empty()) {
        Some(one) => vec![one],
        None => input.as_array().map_or(Vec::new(), |list| list.iter().filter_map(sizes).collect()),
    }
}

fn sorted(mut sizes: Vec<u64>) -> Vec<u64> {
    sizes.sort_unstable();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::Fabricated;

    const MICRO: i64 = 1_000;
    const NODE: &str = "autograd::engine::evaluate_function";

    /// A head and eight layers of a trunk are differentiated, the head first; then an optimizer's list of tensors.
    fn step(list: &str, operator: &str) -> Recomputed {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, 20_000 * MICRO);
        for layer in 0..9 {
            let (start, sizes) = ((10 + 200 * layer) * MICRO, if layer == 0 { "[14,256]" } else { "[256,256]" });
            let number = format!(r#""Sequence number":{}"#, 90 - layer);
            made.span("cpu_op", &format!("{NODE}: AddmmBackward0"), 1, start, start + 60 * MICRO, &number);
            made.shaped("aten::mm", start + 5 * MICRO, start + 20 * MICRO, "[[256,64],[64,256]]", "float");
            made.launch((start + 10 * MICRO, start + 15 * MICRO), "gemm", (start + 20 * MICRO, start + 50 * MICRO));
            made.operator(&format!("{NODE}: {ACCUMULATES}"), start + 70 * MICRO, start + 90 * MICRO);
            made.shaped(ACCUMULATES, start + 71 * MICRO, start + 89 * MICRO, &format!("[{sizes}]"), "float");
            made.launch((start + 72 * MICRO, start + 75 * MICRO), "add", (start + 80 * MICRO, start + 85 * MICRO));
        }
        made.span("user_annotation", "Optimizer.step#Adam.step", 1, 4_000 * MICRO, 4_100 * MICRO, "");
        made.span("cpu_op", operator, 1, 4_010 * MICRO, 4_090 * MICRO, &format!(r#""Input Dims":[{list},[]]"#));
        let trace = made.trace();
        unread_gradients(&View::new(&trace), &[Span { start: 4_000 * MICRO, end: 4_100 * MICRO }], &[])
    }

    #[test]
    fn a_pass_through_what_nobody_trains_goes_from_the_last_gradient_that_is_read() {
        let found = step("[[14,256],[14]]", "aten::_fused_adam_");
        assert!((found.parts_per_step - 8.0).abs() < 1e-9);
        assert_eq!(found.kernels.len(), 16, "products of the trunk and their sums");
    }

    #[test]
    fn before_it_only_the_products_of_unread_gradients_go() {
        // The innermost layer is an adapter that is trained.
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, 20_000 * MICRO);
        for layer in 0..9 {
            let (start, sizes) = ((10 + 200 * layer) * MICRO, if layer == 8 { "[8,256]" } else { "[256,512]" });
            let number = format!(r#""Sequence number":{}"#, 90 - layer);
            made.span("cpu_op", &format!("{NODE}: MmBackward0"), 1, start, start + 60 * MICRO, &number);
            made.shaped("aten::mm", start + 2 * MICRO, start + 20 * MICRO, "[[64,512],[512,256]]", "float");
            made.launch((start + 10 * MICRO, start + 15 * MICRO), "gemm", (start + 20 * MICRO, start + 50 * MICRO));
            made.shaped("aten::mm", start + 30 * MICRO, start + 50 * MICRO, "[[512,64],[64,256]]", "float");
            made.launch((start + 40 * MICRO, start + 45 * MICRO), "gemm", (start + 50 * MICRO, start + 80 * MICRO));
            made.operator(&format!("{NODE}: {ACCUMULATES}"), start + 70 * MICRO, start + 90 * MICRO);
            made.shaped(ACCUMULATES, start + 71 * MICRO, start + 89 * MICRO, &format!("[{sizes}]"), "float");
        }
        made.span("cpu_op", "aten::_fused_adam_", 1, 4_010 * MICRO, 4_090 * MICRO, r#""Input Dims":[[[8,256]],[]]"#);
        let trace = made.trace();
        let found = unread_gradients(&View::new(&trace), &[Span { start: 4_000 * MICRO, end: 4_100 * MICRO }], &[]);
        assert_eq!(found.kernels.len(), 8, "one product of two in each layer but the last");
    }

    #[test]
    fn gradients_that_are_read_or_whose_reader_does_not_say_are_none() {
        assert!(step("[[14,256],[256,256]]", "aten::_fused_adam_").kernels.is_empty());
        assert!(step("[[14,256]]", "triton_for_fused_0").kernels.is_empty());
        assert!(step("[]", "aten::_fused_adam_").kernels.is_empty(), "no sizes are recorded");
    }
    /// Nine layers of a net that judges and one that is trained behind them, in two steps; the optimizer's list has no sizes. `added` says which
    /// gradients of a step are added to what is there.
    fn behind_a_judge(added: impl Fn(i64, i64) -> bool, zeroed: bool) -> Recomputed {
        let mut made = Fabricated::on("NVIDIA H200");
        let zeroing = Span { start: 7_900 * MICRO, end: 7_950 * MICRO };
        for turn in 0..2 {
            let begin = turn * 10_000;
            made.step(turn as u32 + 1, begin * MICRO, (begin + 10_000) * MICRO);
            for layer in 0..10 {
                let start = (begin + 10 + 300 * layer) * MICRO;
                let number = format!(r#""Sequence number":{}"#, 1_000 * (turn + 1) - layer);
                made.span("cpu_op", &format!("{NODE}: ConvolutionBackward0"), 1, start, start + 60 * MICRO, &number);
                let sizes = "[[8,64,12,12],[8,64,12,12],[64,64,3,3]]";
                made.shaped("aten::convolution_backward", start + 2 * MICRO, start + 58 * MICRO, sizes, "float");
                for (nth, kernel) in ["sm90_xmma_dgrad", "sm90_xmma_wgrad"].into_iter().enumerate() {
                    let call = start + (5 + 20 * nth as i64) * MICRO;
                    made.launch((call, call + 4 * MICRO), kernel, (call + 5 * MICRO, call + 15 * MICRO));
                }
                let cast = format!("{NODE}: ToCopyBackward0");
                made.operator(&cast, start + 70 * MICRO, start + 90 * MICRO);
                made.launch((start + 72 * MICRO, start + 75 * MICRO), "cast", (start + 80 * MICRO, start + 85 * MICRO));
                made.operator(&format!("{NODE}: {ACCUMULATES}"), start + 100 * MICRO, start + 120 * MICRO);
                made.shaped(ACCUMULATES, start + 101 * MICRO, start + 119 * MICRO, "[[64,64,3,3]]", "float");
                if added(turn, layer) {
                    made.operator("aten::add_", start + 102 * MICRO, start + 118 * MICRO);
                    let call = (start + 103 * MICRO, start + 106 * MICRO);
                    made.launch(call, "add", (start + 110 * MICRO, start + 115 * MICRO));
                }
            }
        }
        if zeroed {
            made.operator("aten::_foreach_zero_", zeroing.start + MICRO, zeroing.end - MICRO);
        }
        let trace = made.trace();
        let optimizer = Span { start: 8_000 * MICRO, end: 8_100 * MICRO };
        unread_gradients(&View::new(&trace), &[optimizer], &[zeroing])
    }

    /// A model of five layers that nobody trains, called after one that is trained; `first` is the node that its pass ends with.
    fn beside_a_reference(first: &str) -> Recomputed {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, 20_000 * MICRO);
        for layer in 0..10 {
            let start = (10 + 200 * layer) * MICRO;
            let number = format!(r#""Sequence number":{}"#, 90 - layer);
            let name = if layer == 4 { first } else { "MmBackward0" };
            made.span("cpu_op", &format!("{NODE}: {name}"), 1, start, start + 60 * MICRO, &number);
            made.shaped("aten::mm", start + 2 * MICRO, start + 20 * MICRO, "[[64,512],[512,256]]", "float");
            made.launch((start + 10 * MICRO, start + 15 * MICRO), "gemm", (start + 20 * MICRO, start + 50 * MICRO));
            made.shaped("aten::mm", start + 30 * MICRO, start + 50 * MICRO, "[[512,64],[64,256]]", "float");
            made.launch((start + 40 * MICRO, start + 45 * MICRO), "gemm", (start + 50 * MICRO, start + 80 * MICRO));
            made.operator(&format!("{NODE}: {ACCUMULATES}"), start + 70 * MICRO, start + 90 * MICRO);
            let sizes = if layer < 5 { "[256,512]" } else { "[8,256]" };
            made.shaped(ACCUMULATES, start + 71 * MICRO, start + 89 * MICRO, &format!("[{sizes}]"), "float");
        }
        made.span("cpu_op", "aten::_fused_adam_", 1, 4_010 * MICRO, 4_090 * MICRO, r#""Input Dims":[[[8,256]],[]]"#);
        let trace = made.trace();
        unread_gradients(&View::new(&trace), &[Span { start: 4_000 * MICRO, end: 4_100 * MICRO }], &[])
    }

    #[test]
    fn a_model_beside_the_one_that_is_trained_is_differentiated_for_nothing() {
        assert_eq!(beside_a_reference("EmbeddingBackward0").kernels.len(), 10, "both products of its five layers");
        assert_eq!(beside_a_reference("MmBackward0").kernels.len(), 5, "its gradient may be wanted before it");
    }

    #[test]
    fn gradients_that_grow_from_step_to_step_are_read_by_nobody() {
        let found = behind_a_judge(|_, layer| layer < 9, false);
        assert!((found.parts_per_step - 9.0).abs() < 1e-9);
        assert_eq!(
            found.kernels.len(),
            2 * 9 * 3,
            "the gradient by the weight, its cast and its sum; not the one that goes on"
        );
    }

    #[test]
    fn sums_of_micro_batches_and_gradients_that_are_filled_with_zeros_do_not_tell() {
        assert!(behind_a_judge(|turn, _| turn == 1, false).kernels.is_empty(), "an update every other step");
        assert!(behind_a_judge(|turn, layer| turn == 1 && layer < 9, false).kernels.is_empty());
        assert!(behind_a_judge(|_, _| true, false).kernels.is_empty());
        assert!(behind_a_judge(|_, layer| layer < 9, true).kernels.is_empty());
    }
}
