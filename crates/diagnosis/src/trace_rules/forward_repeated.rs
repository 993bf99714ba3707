//! TR135 forward-repeated: the trained layers run once more without contributing to training.
//!
//! It is a forward pass without gradients, in addition to a trained one through the same layers: computed twice, or
//! evaluated in every step.

use std::collections::BTreeMap;

use hashbrown::{HashMap, HashSet};
use headroom_trace::{Category, NONE, NameId};

use super::{Evidence, Found, TraceRule, for_nothing, percent};
use crate::constants::forward_repeated::{FEWEST_LAYERS, LONGEST_PAUSE_NANOS, MOST_PASSES};
use crate::constants::tr135;
use crate::finding::{Cause, Confidence, Effort};
use crate::measures::intervals::Span;
use crate::measures::recomputed::Recomputed;
use crate::measures::view::{View, is_backward_node};

pub const RULE: TraceRule = TraceRule {
    code: "TR135",
    name: "forward-repeated",
    cause: Cause::Recomputed,
    page: include_str!("forward_repeated.md"),
    effort: Effort::Low,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let repeated = &repeated_forward(evidence.view);
    let said = |share| {
        format!(
            "{:.1} forward pass(es) per step through the trained layers produce no gradient: {} of the step",
            repeated.parts_per_step,
            percent(share)
        )
    };
    let advice = "reuse the training pass's outputs (outputs.detach()) and evaluate at an interval; a second \
                  model with the same layers (a teacher, an average, a reference) does need this pass";
    let mut found = for_nothing::found(evidence, &tr135::NEEDLESS_SHARE, repeated, said, advice);
    found.iter_mut().for_each(|found| found.confidence = Confidence::Low);
    found.into_iter().collect()
}

/// Layers by their weights: the operator, and the index of the weight among its inputs.
const LAYERS: &[(&str, usize)] = &[
    ("aten::linear", 1),
    ("aten::conv1d", 1),
    ("aten::conv2d", 1),
    ("aten::conv3d", 1),
    ("aten::conv_transpose2d", 1),
    ("aten::embedding", 0),
];

/// Compiled code counts as one layer, by the number of the compiled function: with and without gradients it is compiled
/// twice, as `0/0` and `0/1`.
const COMPILED: &str = "Torch-Compiled Region: ";

type Layer = (NameId, Vec<u64>);

/// Consecutive layers of one step that run without gradients.
struct Pass {
    step: usize,
    layers: Vec<(Layer, usize)>,
    is_compiled: bool,
}

/// From the first to the last layer of each pass without gradients, if it goes through exactly the layers that have
/// one, once or several times. Frozen layers below trained ones are not such a pass. Nor is another model that shares
/// some layer shapes, nor one with the same layers if the trace numbers modules: a teacher, a reference, an average.
fn repeated_forward(view: &View) -> Recomputed {
    let host = &view.trace.host;
    let nodes = view.host_spans_named(is_backward_node);
    // Gradient accumulation has no number: it belongs to no operator.
    let learnt: HashSet<u32> = nodes.iter().map(|&at| host.sequence[at]).filter(|&sequence| sequence != NONE).collect();
    if nodes.is_empty() {
        return Recomputed::default();
    }
    let weight_at: HashMap<&str, usize> = LAYERS.iter().copied().collect();
    let mut weights: HashMap<(NameId, NameId), Vec<u64>> = HashMap::new();
    // By step: layers with gradients, the number of those without, and passes without.
    let mut with: BTreeMap<usize, HashMap<Layer, usize>> = BTreeMap::new();
    let mut without: BTreeMap<usize, usize> = BTreeMap::new();
    let mut passes: Vec<Pass> = Vec::new();
    let mut last: Option<(bool, u32)> = None;
    let mut compiled: HashMap<&str, NameId> = HashMap::new();
    let mut trained: HashSet<String> = HashSet::new();
    for at in view.host_spans_named(|name| weight_at.contains_key(name) || name.starts_with(COMPILED)) {
        let (Category::CpuOp, Some(step)) = (host.category[at], view.step_of(at)) else { continue };
        if view.is_in_graph_node(at) {
            continue; // computed again by the backward pass
        }
        let region = view.host_name(at).strip_prefix(COMPILED).and_then(|number| number.split('/').next());
        let weight = weights.entry((host.name[at], host.dims[at])).or_insert_with(|| {
            let place = weight_at.get(view.host_name(at)).copied().unwrap_or_default();
            view.shapes(at).into_iter().nth(place).unwrap_or_default()
        });
        let layer = match region {
            Some(number) => (*compiled.entry(number).or_insert(host.name[at]), vec![]),
            None => (host.name[at], weight.clone()),
        };
        if region.is_none() && layer.1.is_empty() {
            continue;
        }
        // One of the operators within has the number of the backward node.
        let is_learnt = view.within(at).any(|inner| learnt.contains(&host.sequence[inner]));
        let goes_on = last == Some((false, host.track[at].0));
        last = Some((is_learnt, host.track[at].0));
        if is_learnt {
            trained.extend(view.module_of(at));
            *with.entry(step).or_default().entry(layer).or_default() += 1;
            continue;
        }
        *without.entry(step).or_default() += 1;
        let layer = (layer, at);
        let is_near = |pass: &Pass| {
            pass.layers.last().is_some_and(|(_, last)| host.start[at] - host.end(*last) <= LONGEST_PAUSE_NANOS.get())
        };
        match passes.last_mut() {
            Some(pass) if goes_on && pass.step == step && is_near(pass) => {
                pass.layers.push(layer);
                pass.is_compiled |= region.is_some();
            }
            _ => passes.push(Pass { step, layers: vec![layer], is_compiled: region.is_some() }),
        }
    }
    let is_anothers = |layers: &[(Layer, usize)]| {
        // A function outside all modules, such as a loss, belongs to none.
        let names: Vec<String> = layers.iter().filter_map(|(_, at)| view.module_of(*at)).collect();
        !trained.is_empty() && 2 * names.len() >= layers.len() && !names.iter().any(|name| trained.contains(name))
    };
    let mut spans = Vec::new();
    for pass in passes.iter().filter(|pass| pass.is_compiled || pass.layers.len() >= FEWEST_LAYERS.get()) {
        let Some(with) = with.get(&pass.step) else { continue };
        let once = with.values().sum::<usize>();
        let is_few = without.get(&pass.step).is_some_and(|count| *count <= MOST_PASSES.get() * once);
        if is_few && is_multiple(&pass.layers, with) {
            let own = pass.layers.chunks(once).filter(|layers| !is_anothers(layers));
            spans.extend(own.filter_map(|layers| {
                let (first, last) = (layers.first()?.1, layers.last()?.1);
                Some(Span { start: host.start[first], end: host.end(last) })
            }));
        }
    }
    Recomputed::of(view, spans.len(), spans)
}

/// Whether a pass goes through every layer of `with` as often as given there, or a common multiple of that.
fn is_multiple(pass: &[(Layer, usize)], with: &HashMap<Layer, usize>) -> bool {
    let times = pass.len() / with.values().sum::<usize>().max(1);
    let mut counts: HashMap<&Layer, usize> = HashMap::new();
    for (layer, _) in pass {
        *counts.entry(layer).or_default() += 1;
    }
    let is_so = |(layer, count): (&Layer, &usize)| counts.get(layer) == Some(&(times * count));
    times > 0 && counts.len() == with.len() && with.iter().all(is_so)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};

    /// A trained pass through `trained`, then passes without gradients through layers of these widths, 30 ms apart.
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
        made.viewed(repeated_forward)
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

    /// A trained pass through one model's compiled blocks, then passes without gradients through those of the named
    /// models.
    fn compiled(others: &[&str]) -> Recomputed {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, 200_000 * MICRO);
        for (pass, model) in ["Decoder_1"].iter().chain(others).enumerate() {
            for place in 0..2 {
                let start = (10_000 * pass as i64 + 10 + 100 * place) * MICRO;
                let (module, region) = (format!("nn.Module: {model}"), if pass == 0 { "0/1" } else { "0/0" });
                made.span("python_function", &module, 1, start - MICRO, start + 70 * MICRO, "");
                made.operator(&format!("{COMPILED}{region}"), start, start + 60 * MICRO);
                let number = if pass == 0 { format!(r#""Sequence number":{}"#, 50 + place) } else { String::new() };
                made.span("cpu_op", "CompiledFunction", 1, start + MICRO, start + 59 * MICRO, &number);
                made.launch((start + 10 * MICRO, start + 15 * MICRO), "gemm", (start + 20 * MICRO, start + 50 * MICRO));
            }
        }
        for place in 0..2 {
            let start = (150_000 + 100 * place) * MICRO;
            let args = format!(r#""Sequence number":{}"#, 50 + place);
            let name = "autograd::engine::evaluate_function: CompiledFunctionBackward";
            made.span("cpu_op", name, 1, start, start + 60 * MICRO, &args);
        }
        made.viewed(repeated_forward)
    }

    #[test]
    fn a_compiled_pass_of_the_model_goes_and_its_references_stays() {
        assert_eq!(compiled(&["Decoder_1"]).kernels.len(), 2);
        assert_eq!(compiled(&["Decoder_1", "Decoder_0"]).kernels.len(), 2, "the reference has to run");
        assert!(compiled(&["Decoder_0"]).kernels.is_empty());
    }

    #[test]
    fn many_passes_in_a_step_write_a_text() {
        let layers: &[u64] = &[64, 64, 64, 128];
        assert_eq!(passes(layers, &[layers, layers]).kernels.len(), 8);
        assert!(passes(layers, &[layers, layers, layers]).kernels.is_empty());
    }
}
