//! Gradients of parameters that no optimizer updates: a backward pass goes on through what nobody trains.

use std::collections::HashSet;

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

/// All of each backward pass behind the last gradient that is read, and before it the products whose result is not. `optimizer` is when
/// the host was in optimizers' own code.
pub fn unread_gradients(view: &View, optimizer: &[Span]) -> Recomputed {
    let is_alone = view.trace.header.distributed.as_ref().is_none_or(|distributed| distributed.world_size <= 1);
    let updated = updated_sizes(view, optimizer);
    if updated.is_empty() || !is_alone {
        return Recomputed::default(); // a rank may update its part alone
    }
    let host = &view.trace.host;
    let (mut read, mut unread, mut count) = (0.0, 0.0, 0usize);
    // By thread and step, the nodes in order, with what they accumulate.
    let mut passes: HashMap<(LaneId, usize), Vec<(usize, Option<Vec<u64>>)>> = HashMap::new();
    let is_node = |at: usize| is_backward_node(view.host_name(at));
    for at in view.host_spans_named(is_backward_node) {
        let Some(step) = view.steps.at_host(host.start[at]) else { continue };
        if view.ancestors(at).skip(1).any(is_node) {
            continue;
        }
        let sizes = view
            .within(at)
            .skip(1)
            .take(2)
            .find(|&inner| view.host_name(inner) == ACCUMULATES)
            .and_then(|inner| shapes(view.name(host.dims[inner])).into_iter().next())
            .map(sorted);
        if let Some(sizes) = &sizes {
            let elements: f64 = sizes.iter().map(|size| *size as f64).product();
            match updated.contains(sizes) {
                true => read += elements,
                false => (unread, count) = (unread + elements, count + 1),
            }
        }
        passes.entry((host.lane[at], step)).or_default().push((at, sizes));
    }
    if read == 0.0 || unread < LEAST_SHARE * (read + unread) || (count as f64) < FEWEST_PER_STEP * view.steps.count() {
        return Recomputed::default();
    }
    let mut spans = Vec::new();
    for nodes in passes.values() {
        for pass in one_by_one(view, nodes) {
            let Some(last) =
                pass.iter().rposition(|(_, sizes)| sizes.as_ref().is_some_and(|sizes| updated.contains(sizes)))
            else {
                continue;
            };
            spans.extend(pass[last + 1..].iter().map(|(at, _)| view.host_span(*at)));
            for place in 0..last {
                let (at, Some(sizes)) = &pass[place] else { continue };
                if !updated.contains(sizes) {
                    spans.push(view.host_span(*at));
                    let before = pass[place.saturating_sub(MOST_BEFORE)..place].iter().rev();
                    spans.extend(before.flat_map(|(node, _)| product_of(view, *node, sizes)).take(1));
                }
            }
        }
    }
    Recomputed::of(view, count, spans)
}

/// Backward passes of one step: each begins with the operator that was called last.
fn one_by_one<'n>(view: &View, nodes: &'n [(usize, Option<Vec<u64>>)]) -> Vec<&'n [(usize, Option<Vec<u64>>)]> {
    let sequence = &view.trace.host.sequence;
    let (mut first, mut begins) = (NONE, vec![0]);
    for (place, (at, _)) in nodes.iter().enumerate().filter(|(_, (at, _))| sequence[*at] != NONE) {
        if first != NONE && sequence[*at] > first {
            begins.push(place);
        }
        if first == NONE || sequence[*at] > first {
            first = sequence[*at];
        }
    }
    begins.push(nodes.len());
    begins.windows(2).map(|pair| &nodes[pair[0]..pair[1]]).collect()
}

/// The product within a node whose result has these sizes.
fn product_of(view: &View, node: usize, sizes: &[u64]) -> Option<Span> {
    let host = &view.trace.host;
    let makes = |&at: &usize| {
        if host.category[at] != Category::CpuOp || view.host_name(at) != "aten::mm" {
            return false;
        }
        match shapes(view.name(host.dims[at])).as_slice() {
            [left, right, ..] if left.len() == 2 && right.len() == 2 => sorted(vec![left[0], right[1]]) == sizes,
            _ => false,
        }
    };
    view.within(node).skip(1).find(makes).map(|at| view.host_span(at))
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
        unread_gradients(&View::new(&trace), &[Span { start: 4_000 * MICRO, end: 4_100 * MICRO }])
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
        let found = unread_gradients(&View::new(&trace), &[Span { start: 4_000 * MICRO, end: 4_100 * MICRO }]);
        assert_eq!(found.kernels.len(), 8, "one product of two in each layer but the last");
    }

    #[test]
    fn gradients_that_are_read_or_whose_reader_does_not_say_are_none() {
        assert!(step("[[14,256],[256,256]]", "aten::_fused_adam_").kernels.is_empty());
        assert!(step("[[14,256]]", "triton_for_fused_0").kernels.is_empty());
        assert!(step("[]", "aten::_fused_adam_").kernels.is_empty(), "no sizes are recorded");
    }
}
