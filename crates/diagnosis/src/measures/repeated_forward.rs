//! A forward pass that nothing is learnt from, beside one of the same layers that is: computed twice, or evaluated in every step.

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};
use headroom_trace::{Category, NONE, NameId};

use super::flops::shapes;
use super::intervals::{Span, merged, seconds};
use super::recomputed::Recomputed;
use super::view::View;

/// Layers by their weights: the operator, and which of its inputs the weight is.
const LAYERS: &[(&str, usize)] = &[
    ("aten::linear", 1),
    ("aten::conv1d", 1),
    ("aten::conv2d", 1),
    ("aten::conv3d", 1),
    ("aten::conv_transpose2d", 1),
    ("aten::embedding", 0),
];
/// A pass of fewer layers is a part of something.
const FEWEST_LAYERS: usize = 4;
/// More layers than so many times the trained ones are no second look at a batch: episodes are played, or a text is written.
const MOST_PASSES: usize = 2;
/// Whoever is elsewhere for longer between two layers is in another pass.
const LONGEST_PAUSE_NANOS: i64 = 20_000_000;

/// From the first to the last layer of each pass without a gradient, where all layers that have one are in it as well. Frozen layers below
/// trained ones are no such pass: it lacks those on top.
pub fn repeated_forward(view: &View) -> Recomputed {
    let (host, device) = (&view.trace.host, &view.trace.device);
    let mut result = Recomputed::default();
    let nodes = view.host_spans_named(|name| name.starts_with("autograd::engine::evaluate_function"));
    // Accumulating a gradient has no number: it belongs to no operator.
    let learnt: HashSet<u32> = nodes.iter().map(|&at| host.sequence[at]).filter(|&sequence| sequence != NONE).collect();
    if nodes.is_empty() {
        return result;
    }
    let weight_at: HashMap<&str, usize> = LAYERS.iter().copied().collect();
    let mut weights: HashMap<(NameId, NameId), Vec<u64>> = HashMap::new();
    // Of each step: layers with a gradient, and passes without.
    let mut with: BTreeMap<usize, (usize, HashSet<(NameId, Vec<u64>)>)> = BTreeMap::new();
    let mut passes: Vec<(usize, Span, Vec<(NameId, Vec<u64>)>)> = Vec::new();
    let mut last: Option<(bool, u32)> = None;
    for at in view.host_spans_named(|name| weight_at.contains_key(name)) {
        let (Category::CpuOp, Some(step)) = (host.category[at], view.steps.at_host(host.start[at])) else { continue };
        let is_node = |outer: usize| view.host_name(outer).starts_with("autograd::engine::evaluate_function");
        if view.ancestors(at).skip(1).any(is_node) {
            continue; // computed again by the backward pass
        }
        let weight = weights.entry((host.name[at], host.dims[at])).or_insert_with(|| {
            let place = weight_at.get(view.host_name(at)).copied().unwrap_or_default();
            shapes(view.name(host.dims[at])).into_iter().nth(place).unwrap_or_default()
        });
        if weight.is_empty() {
            continue;
        }
        let layer = (host.name[at], weight.clone());
        let is_learnt = inside(view, at).any(|inner| learnt.contains(&host.sequence[inner]));
        let goes_on = last == Some((false, host.lane[at].0));
        last = Some((is_learnt, host.lane[at].0));
        if is_learnt {
            let (count, layers) = with.entry(step).or_default();
            *count += 1;
            layers.insert(layer);
            continue;
        }
        match passes.last_mut() {
            Some((of, span, layers)) if goes_on && *of == step && host.start[at] - span.end <= LONGEST_PAUSE_NANOS => {
                span.end = span.end.max(host.end(at));
                layers.push(layer);
            }
            _ => passes.push((step, view.host_span(at), vec![layer])),
        }
    }
    passes.retain(|(step, _, layers)| {
        let has = |layer: &(NameId, Vec<u64>)| layers.contains(layer);
        let is_second =
            |(count, with): &(usize, HashSet<_>)| layers.len() <= MOST_PASSES * count && with.iter().all(has);
        layers.len() >= FEWEST_LAYERS && with.get(step).is_some_and(is_second)
    });
    result.parts_per_step = passes.len() as f64 / view.steps.count();
    result.host = merged(passes.into_iter().map(|(_, span, _)| span).collect());
    result.host_seconds = result.host.iter().map(|span| seconds(span.nanos())).sum();
    let is_inside = |time: i64| {
        let next = result.host.partition_point(|span| span.end <= time);
        result.host.get(next).is_some_and(|span| span.start <= time)
    };
    let ordered = device.busy().filter(|&at| view.call_of[at] != NONE);
    result.kernels = ordered.filter(|&at| is_inside(host.start[view.call_of[at] as usize])).collect();
    result.device_seconds = seconds(result.kernels.iter().map(|&at| device.duration[at]).sum());
    result
}

/// An operator and those within it: one of them has the number of the node that computes the gradient.
pub(super) fn inside<'v>(view: &'v View, at: usize) -> impl Iterator<Item = usize> + 'v {
    let host = &view.trace.host;
    (at..host.len()).take_while(move |&inner| host.lane[inner] == host.lane[at] && host.start[inner] < host.end(at))
}
