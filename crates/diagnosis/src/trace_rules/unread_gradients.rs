//! TR134 unread-gradients: the backward pass computes gradients of parameters that no optimizer updates: it continues
//! through layers that are not trained.

use std::collections::HashSet;
use std::ops::Range;

use hashbrown::HashMap;
use headroom_trace::{NONE, NameId, TrackId};
use serde_json::Value;

use super::{Evidence, Found, TraceRule, for_nothing, percent};
use crate::constants::tr134;
use crate::constants::unread_gradients::{BLOCK_ELEMENTS, FEWEST_PER_STEP, LEAST_UNREAD_SHARE, MOST_BEFORE};
use crate::finding::{Cause, Confidence, Effort};
use crate::measures::flops::element_bytes;
use crate::measures::intervals::{Span, holds};
use crate::measures::recomputed::Recomputed;
use crate::measures::roofline::rates;
use crate::measures::view::View;

pub const RULE: TraceRule = TraceRule {
    code: "TR134",
    name: "unread-gradients",
    cause: Cause::Recomputed,
    page: include_str!("unread_gradients.md"),
    effort: Effort::Low,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let optimizer = &evidence.measures.patterns.optimizer;
    let unread = &unread_gradients(evidence.view, &optimizer.host, &optimizer.zeroing);
    let said = |share| {
        format!(
            "no optimizer reads {:.0} gradients per step: computing them takes {} of the step",
            unread.parts_per_step,
            percent(share)
        )
    };
    let advice = "freeze parameters that are not trained (requires_grad_(False)), run them under \
                  torch.no_grad() where nothing trained comes before them, or detach() another network's \
                  outputs before this pass";
    let mut found = for_nothing::found(evidence, &tr134::NEEDLESS_SHARE, unread, said, advice);
    found.iter_mut().for_each(|found| found.confidence = Confidence::Medium);
    found.into_iter().collect()
}

const ACCUMULATES: &str = "torch::autograd::AccumulateGrad";

/// A gradient accumulated by a graph node.
struct Gradient {
    /// In ascending order.
    sizes: Vec<u64>,
    bytes: f64,
    is_read: bool,
    /// Whether it is added to an existing gradient.
    is_added: bool,
}

type Node = (usize, Option<Gradient>);

/// Everything in each backward pass after the last gradient that is read; before it, what leads only to unread
/// gradients and the GEMMs whose result is not read. `optimizer` is when the host was in optimizers' own code,
/// `zeroing` when it was in `zero_grad`.
fn unread_gradients(view: &View, optimizer: &[Span], zeroing: &[Span]) -> Recomputed {
    let is_alone = view.trace.header.distributed.as_ref().is_none_or(|distributed| distributed.world_size <= 1);
    if optimizer.is_empty() || !is_alone {
        return Recomputed::default(); // a rank may update its part alone
    }
    let operators = operators_in(view, optimizer);
    let updated = updated_sizes(view, &operators);
    let mut passes = passes(view, &updated);
    // Long lists of tensors are recorded without sizes; then it depends on what is left of a gradient, what becomes of
    // it, and how many blocks of threads the update has or how long it takes.
    let is_told = !updated.is_empty() && !has_lists_without_sizes(view, &operators);
    if !is_told
        && !told_by_what_is_left(view, &mut passes, zeroing)
        && !thrown_away(view, &mut passes, &operators)
        && !beyond_the_update(view, &mut passes, optimizer)
        && !more_than_is_moved(view, &mut passes, optimizer)
    {
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
    if read == 0.0
        || unread < LEAST_UNREAD_SHARE.get() * (read + unread)
        || (count as f64) < FEWEST_PER_STEP.get() * view.steps.count()
    {
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
                let before = &pass[place.saturating_sub(MOST_BEFORE.get())..place];
                // Under autocast the gradient arrives in half precision.
                let cast = before.last().filter(|(node, _)| view.host_name(*node).ends_with("ToCopyBackward0"));
                spans.extend(cast.map(|(node, _)| view.host_span(*node)));
                let made = before.iter().rev().map(|(node, _)| made_by(view, *node, &gradient.sizes));
                spans.extend(made.filter(|made| !made.is_empty()).take(1).flatten());
            }
        }
    }
    Recomputed::of(view, count, spans)
}

/// Runs of nodes between two read gradients whose own gradients are unread and lead nowhere: the last is computed by a
/// node at which a network begins. A second model, differentiated along with the trained one, is such a run.
fn runs_for_nothing(view: &View, pass: &[Node]) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let mut begin = 0;
    let reads = |place: &usize| pass[*place].1.as_ref().is_some_and(|gradient| gradient.is_read);
    for end in (0..pass.len()).filter(reads).chain([pass.len()]) {
        let mut unread = (begin..end).filter(|place| pass[*place].1.is_some());
        if unread.clone().count() as f64 >= FEWEST_PER_STEP.get()
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

/// Whether a network begins at this node: tokens and images have no gradient, so a convolution computes only that of
/// its weight.
fn is_where_a_network_begins(view: &View, node: usize) -> bool {
    let name = view.host_name(node);
    let makes = |kernel: &str| !launches_in(view, node, kernel).is_empty();
    name.contains("EmbeddingBackward") || (name.contains("ConvolutionBackward") && makes("wgrad") && !makes("dgrad"))
}

/// The backward passes of all steps, with their nodes in order and the gradients they accumulate.
fn passes(view: &View, updated: &HashSet<Vec<u64>>) -> Vec<Vec<Node>> {
    let host = &view.trace.host;
    let mut by_step: HashMap<(TrackId, usize), Vec<Node>> = HashMap::new();
    for (at, step) in view.graph_nodes() {
        let gradient = view
            .within(at)
            .skip(1)
            .take(2)
            .find(|&inner| view.host_name(inner) == ACCUMULATES)
            .and_then(|inner| Some((inner, view.shapes(inner).into_iter().next()?)))
            .map(|(inner, sizes)| {
                let sizes = sorted(sizes);
                let is_added = view.within(inner).skip(1).any(|at| view.host_name(at) == "aten::add_");
                let of_element = view.types(inner).first().map_or(0.0, |kind| element_bytes(kind));
                let bytes = sizes.iter().map(|size| *size as f64).product::<f64>() * of_element;
                Gradient { is_read: updated.contains(&sizes), sizes, bytes, is_added }
            });
        by_step.entry((host.track[at], step)).or_default().push((at, gradient));
    }
    by_step.into_values().flat_map(|nodes| one_by_one(view, nodes)).collect()
}

/// The fate of the gradients of one kind of pass, over all steps.
#[derive(Default)]
struct Fate {
    /// Sizes of tensors named in the update after it.
    named: HashSet<Vec<u64>>,
    /// Sizes that the next pass creates again, because they were cleared in between; and those it adds to.
    cleared: HashSet<Vec<u64>>,
    kept: HashSet<Vec<u64>>,
}

/// Marks as unread what an optimizer of other tensors leaves and the next pass creates again. This works if an update
/// between two passes names its tensors; all others are assumed to read everything.
fn thrown_away(view: &View, passes: &mut [Vec<Node>], operators: &[usize]) -> bool {
    let host = &view.trace.host;
    let start = |pass: &Vec<Node>| pass.first().map_or(i64::MAX, |(at, _)| host.start[*at]);
    passes.sort_by_key(|pass| start(pass));
    // Passes of one kind accumulate the same gradients in the same order.
    let kind = |pass: &[Node]| -> Vec<Vec<u64>> {
        pass.iter().filter_map(|(_, gradient)| Some(gradient.as_ref()?.sizes.clone())).collect()
    };
    let mut fates: HashMap<Vec<Vec<u64>>, Fate> = HashMap::new();
    // Walks backwards, with whether the next gradient of these sizes is added to an existing one.
    let mut is_added_next: HashMap<&Vec<u64>, bool> = HashMap::new();
    let mut next = i64::MAX;
    for pass in passes.iter().rev() {
        let from = |time: i64| operators.partition_point(|&at| host.start[at] < time);
        let between = &operators[from(start(pass)).min(from(next))..from(next)];
        let gradients = || pass.iter().filter_map(|(_, gradient)| gradient.as_ref());
        let fate = fates.entry(kind(pass)).or_default();
        if !has_lists_without_sizes(view, between) {
            fate.named.extend(updated_sizes(view, between));
        }
        for gradient in gradients() {
            match is_added_next.get(&gradient.sizes) {
                Some(true) => drop(fate.kept.insert(gradient.sizes.clone())),
                Some(false) => drop(fate.cleared.insert(gradient.sizes.clone())),
                None => {}
            }
        }
        // The first gradient of its sizes in a pass counts.
        is_added_next.extend(gradients().collect::<Vec<_>>().into_iter().rev().map(|one| (&one.sizes, one.is_added)));
        next = start(pass);
    }
    drop(is_added_next);
    let mut found = false;
    for pass in passes {
        pass.iter_mut().filter_map(|(_, gradient)| gradient.as_mut()).for_each(|gradient| gradient.is_read = true);
        let Some(fate) = fates.get(&kind(pass)).filter(|fate| !fate.named.is_empty()) else { continue };
        for gradient in pass.iter_mut().filter_map(|(_, gradient)| gradient.as_mut()) {
            let is_dropped = fate.cleared.contains(&gradient.sizes) && !fate.kept.contains(&gradient.sizes);
            gradient.is_read = fate.named.contains(&gradient.sizes) || !is_dropped;
            found |= !gradient.is_read;
        }
    }
    found
}

/// Operators in these spans, in order of time.
fn operators_in(view: &View, spans: &[Span]) -> Vec<usize> {
    let host = &view.trace.host;
    let is_one = |&at: &usize| view.is_operator(at) && holds(spans, host.start[at]);
    let mut operators: Vec<usize> = (0..host.len()).filter(is_one).collect();
    operators.sort_by_key(|&at| host.start[at]);
    operators
}

/// Whether an optimizer's operator was recorded with lists of tensors but without their sizes.
fn has_lists_without_sizes(view: &View, operators: &[usize]) -> bool {
    let takes_lists =
        |at: usize| ["aten::_fused_", "aten::_foreach_"].iter().any(|of| view.host_name(at).starts_with(of));
    let dims = |at: usize| view.name(view.trace.host.dims[at]);
    let first = |at: usize| serde_json::from_str::<Vec<Value>>(dims(at)).ok()?.into_iter().next();
    let is_empty = |at: usize| first(at).is_some_and(|list| list.as_array().is_some_and(Vec::is_empty));
    operators.iter().any(|&at| takes_lists(at) && is_empty(at))
}

/// Marks as unread the gradients that every step adds to without clearing, while others are created again. This works
/// if one pass per step accumulates, and if nothing is filled with zeros to be added to.
fn told_by_what_is_left(view: &View, passes: &mut [Vec<Node>], zeroing: &[Span]) -> bool {
    let host = &view.trace.host;
    let is_cleared = |at: &usize| holds(zeroing, host.start[*at]);
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

/// Marks as unread what each pass computes last, if the blocks of the step's fused update are exactly those that the
/// gradients before it need. This works if every step has one pass and the same update.
fn beyond_the_update(view: &View, passes: &mut [Vec<Node>], optimizer: &[Span]) -> bool {
    let device = &view.trace.device;
    let mut of_steps: HashMap<usize, u64> = HashMap::new();
    for at in view.ordered_in(optimizer) {
        let is_fused = |&at: &usize| view.host_name(at).starts_with("aten::_fused_");
        let operator = view.operator_of_device(at).filter(is_fused);
        if view.name(device.name[at]).contains("multi_tensor_apply")
            && let Some(step) = operator.and_then(|at| view.step_of(at))
        {
            *of_steps.entry(step).or_default() += u64::from(device.grid[at][0]);
        }
    }
    let Some(&blocks) = of_steps.values().next().filter(|first| of_steps.values().all(|other| other == *first)) else {
        return false;
    };
    // Each block updates a part of one tensor.
    let of_gradient = |gradient: &Gradient| gradient.sizes.iter().product::<u64>().div_ceil(BLOCK_ELEMENTS.get());
    let ends: Vec<Option<usize>> = passes
        .iter()
        .map(|pass| {
            let mut sum = 0;
            pass.iter().position(|(_, gradient)| {
                sum += gradient.as_ref().map_or(0, of_gradient);
                sum == blocks
            })
        })
        .collect();
    if blocks == 0 || passes.len() > view.steps.list.len() || ends.iter().any(Option::is_none) {
        return false;
    }
    for (pass, end) in passes.iter_mut().zip(ends.into_iter().flatten()) {
        for (place, (_, gradient)) in pass.iter_mut().enumerate() {
            gradient.iter_mut().for_each(|gradient| gradient.is_read = place <= end);
        }
    }
    passes.iter().flatten().any(|(_, gradient)| gradient.as_ref().is_some_and(|gradient| !gradient.is_read))
}

/// Marks as unread what no update can have read in its time: all gradients of one size in a pass, if the longest
/// update of a step, at the memory bandwidth, moves less than they and their parameters are.
fn more_than_is_moved(view: &View, passes: &mut [Vec<Node>], optimizer: &[Span]) -> bool {
    let Some((rates, _)) = rates(view) else { return false };
    // A sparse gradient moves its rows alone.
    if view.trace.names.iter().any(|(_, name)| name.contains("sparse_backward")) {
        return false;
    }
    let mut of_steps: HashMap<Option<usize>, i64> = HashMap::new();
    for at in view.ordered_in(optimizer) {
        *of_steps.entry(view.step_of(view.call_of[at] as usize)).or_default() += view.trace.device.duration[at];
    }
    let Some(longest) = of_steps.into_values().max() else { return false };
    // It reads the gradient, and reads and writes the parameter.
    let most = longest as f64 / 1e9 * rates.bytes / 3.0;
    let mut found = false;
    for pass in passes {
        let mut of_sizes: HashMap<Vec<u64>, f64> = HashMap::new();
        for gradient in pass.iter().filter_map(|(_, gradient)| gradient.as_ref()) {
            *of_sizes.entry(gradient.sizes.clone()).or_default() += gradient.bytes;
        }
        for gradient in pass.iter_mut().filter_map(|(_, gradient)| gradient.as_mut()) {
            gradient.is_read = of_sizes[&gradient.sizes] <= most;
            found |= !gradient.is_read;
        }
    }
    found
}

/// Splits a step into backward passes: each begins with the operator called last.
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

/// Where a node computes a gradient of these sizes: in a GEMM, or in a convolution's gradient for its weight or bias.
fn made_by(view: &View, node: usize, sizes: &[u64]) -> Vec<Span> {
    for at in view.within(node).skip(1).filter(|&at| view.is_operator(at)) {
        let inputs = view.shapes(at);
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

/// Sizes of all tensors that optimizers touch, each in ascending order; empty if they do not say.
fn updated_sizes(view: &View, operators: &[usize]) -> HashSet<Vec<u64>> {
    // Compiled updates list their tensors in a different order.
    if !operators.iter().all(|&at| view.host_name(at).starts_with("aten::")) {
        return HashSet::new();
    }
    let dims: HashSet<NameId> = operators.iter().map(|&at| view.trace.host.dims[at]).collect();
    let mut sizes = HashSet::new();
    for dims in dims {
        let Ok(Value::Array(inputs)) = serde_json::from_str(view.name(dims)) else { continue };
        for input in &inputs {
            sizes.extend(tensors(input).into_iter().map(sorted));
        }
    }
    sizes
}

/// Sizes of one tensor, or of each tensor of a list.
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
mod tests;
