//! A forward pass that nothing is learnt from, beside one of the same layers that is: computed twice, or evaluated in every step.

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};
use headroom_trace::{Category, NONE, NameId};

use super::flops::shapes;
use super::intervals::Span;
use super::recomputed::Recomputed;
use super::view::{View, is_backward_node};

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
/// More layers in a step than so many times the trained ones are no second look at a batch: episodes are played, or a text is written.
const MOST_PASSES: usize = 2;
/// Whoever is elsewhere for longer between two layers is in another pass.
const LONGEST_PAUSE_NANOS: i64 = 20_000_000;

type Layer = (NameId, Vec<u64>);

/// From the first to the last layer of each pass without a gradient, where it is of exactly the layers that have one, once or several
/// times. Frozen layers below trained ones are no such pass, nor is another model of which some layers are alike.
pub fn repeated_forward(view: &View) -> Recomputed {
    let host = &view.trace.host;
    let nodes = view.host_spans_named(is_backward_node);
    // Accumulating a gradient has no number: it belongs to no operator.
    let learnt: HashSet<u32> = nodes.iter().map(|&at| host.sequence[at]).filter(|&sequence| sequence != NONE).collect();
    if nodes.is_empty() {
        return Recomputed::default();
    }
    let weight_at: HashMap<&str, usize> = LAYERS.iter().copied().collect();
    let mut weights: HashMap<(NameId, NameId), Vec<u64>> = HashMap::new();
    // By step: layers with a gradient, the number of those without, and passes without.
    let mut with: BTreeMap<usize, HashMap<Layer, usize>> = BTreeMap::new();
    let mut without: BTreeMap<usize, usize> = BTreeMap::new();
    let mut passes: Vec<(usize, Span, Vec<Layer>)> = Vec::new();
    let mut last: Option<(bool, u32)> = None;
    for at in view.host_spans_named(|name| weight_at.contains_key(name)) {
        let (Category::CpuOp, Some(step)) = (host.category[at], view.steps.at_host(host.start[at])) else { continue };
        let is_node = |outer: usize| is_backward_node(view.host_name(outer));
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
        // One of the operators within has the number of the node that computes the gradient.
        let is_learnt = view.within(at).any(|inner| learnt.contains(&host.sequence[inner]));
        let goes_on = last == Some((false, host.lane[at].0));
        last = Some((is_learnt, host.lane[at].0));
        if is_learnt {
            *with.entry(step).or_default().entry(layer).or_default() += 1;
            continue;
        }
        *without.entry(step).or_default() += 1;
        match passes.last_mut() {
            Some((of, span, layers)) if goes_on && *of == step && host.start[at] - span.end <= LONGEST_PAUSE_NANOS => {
                span.end = span.end.max(host.end(at));
                layers.push(layer);
            }
            _ => passes.push((step, view.host_span(at), vec![layer])),
        }
    }
    passes.retain(|(step, _, layers)| {
        let is_second = |with: &HashMap<Layer, usize>| {
            let most = MOST_PASSES * with.values().sum::<usize>();
            without.get(step).is_some_and(|count| *count <= most) && is_multiple(layers, with)
        };
        layers.len() >= FEWEST_LAYERS && with.get(step).is_some_and(is_second)
    });
    let spans = passes.iter().map(|(_, span, _)| *span).collect();
    Recomputed::of(view, passes.len(), spans)
}

/// Whether a pass is through every layer of `with` as often as that says, or the same whole number of times as often.
fn is_multiple(pass: &[Layer], with: &HashMap<Layer, usize>) -> bool {
    let times = pass.len() / with.values().sum::<usize>().max(1);
    let mut counts: HashMap<&Layer, usize> = HashMap::new();
    for layer in pass {
        *counts.entry(layer).or_default() += 1;
    }
    let is_so = |(layer, count): (&Layer, &usize)| counts.get(layer) == Some(&(times * count));
    times > 0 && counts.len() == with.len() && with.iter().all(is_so)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::Fabricated;

    const MICRO: i64 = 1_000;

    /// Passes through layers of these widths without a gradient, 30 ms apart, after a trained one through `trained`.
    fn passes(trained: &[u64], others: &[&[u64]]) -> Recomputed {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, 200_000 * MICRO);
        for (pass, widths) in [trained].iter().chain(others).enumerate() {
            for (place, width) in widths.iter().enumerate() {
                let start = (30_000 * pass as i64 + 10 + 100 * place as i64) * MICRO;
                let number = if pass == 0 { format!(r#","Sequence number":{}"#, 50 + place) } else { String::new() };
                let args = format!(r#""Input Dims":[[8,64],[{width},64]]{number}"#);
                made.span("cpu_op", "aten::linear", 1, start, start + 60 * MICRO, &args);
                made.launch((start + 10 * MICRO, start + 15 * MICRO), "gemm", (start + 20 * MICRO, start + 50 * MICRO));
            }
        }
        for place in 0..trained.len() as i64 {
            let start = (150_000 + 100 * place) * MICRO;
            let args = format!(r#""Sequence number":{}"#, 50 + place);
            let name = "autograd::engine::evaluate_function: AddmmBackward0";
            made.span("cpu_op", name, 1, start, start + 60 * MICRO, &args);
        }
        let trace = made.trace();
        repeated_forward(&View::new(&trace))
    }

    #[test]
    fn a_pass_of_exactly_the_trained_layers_is_a_second_one() {
        let layers = [64, 64, 64, 128];
        assert_eq!(passes(&layers, &[&layers]).kernels.len(), 4);
        assert_eq!(passes(&layers, &[&[64, 64, 64, 128, 64, 64, 64, 128]]).kernels.len(), 8, "twice");
    }

    #[test]
    fn a_pass_of_more_or_other_layers_is_another_model_s() {
        let layers = [64, 64, 64, 128];
        assert!(passes(&layers, &[&[64, 64, 64, 64, 128]]).kernels.is_empty(), "a deeper one");
        assert!(passes(&layers, &[&[64, 64, 64, 128, 32]]).kernels.is_empty(), "a layer on top");
        assert!(passes(&layers, &[&[64, 64, 64, 64]]).kernels.is_empty(), "frozen layers");
    }

    #[test]
    fn many_passes_in_a_step_write_a_text() {
        let layers: &[u64] = &[64, 64, 64, 128];
        assert_eq!(passes(layers, &[layers, layers]).kernels.len(), 8);
        assert!(passes(layers, &[layers, layers, layers]).kernels.is_empty());
    }
}
