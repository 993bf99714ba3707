//! Forward passes that the backward pass recomputes (activation checkpointing).

use hashbrown::HashSet;
use headroom_trace::NameId;
use serde::Serialize;

use super::intervals::{Span, merged, seconds, total};
use super::roles::Role;
use super::view::{View, is_backward_node};
use crate::constants::recomputed::FEWEST;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Recomputed {
    /// Parts of the model that are recomputed.
    pub parts_per_step: f64,
    pub device_seconds: f64,
    pub host_seconds: f64,
    #[serde(skip)]
    pub host: Vec<Span>,
    #[serde(skip)]
    pub kernels: Vec<usize>,
}

impl Recomputed {
    /// The given number of parts, in these host spans, with the device work launched there.
    pub fn of(view: &View, parts: usize, spans: Vec<Span>) -> Recomputed {
        if spans.is_empty() {
            return Recomputed::default();
        }
        let host = merged(spans);
        let kernels = view.ordered_in(&host);
        Recomputed {
            parts_per_step: parts as f64 / view.steps.count(),
            device_seconds: seconds(view.device_nanos(&kernels)),
            host_seconds: seconds(total(&host)),
            host,
            kernels,
        }
    }
}

pub fn recomputed(view: &View) -> Recomputed {
    let is_node = |at: usize| is_backward_node(view.host_name(at));
    // The span from the first to the last such operator of each node.
    let mut parts: Vec<(u32, Span, usize)> = Vec::new();
    for at in view.operators_named(|name| Role::Forward.is_of(name)) {
        let Some(node) = view.ancestors(at).skip(1).find(|&outer| is_node(outer)) else { continue };
        let span = view.host_span(at);
        match parts.last_mut() {
            Some((last, part, count)) if *last == node as u32 => {
                part.end = part.end.max(span.end);
                *count += 1;
            }
            _ => parts.push((node as u32, span, 1)),
        }
    }
    parts.retain(|(_, _, count)| *count >= FEWEST.get());
    let compiled = compiled_again(view);
    let count = parts.len() + compiled.len();
    let spans = parts.iter().map(|(_, span, _)| *span).chain(compiled).collect();
    Recomputed::of(view, count, spans)
}

/// Compiled code that a backward node enters from the start and that the forward pass also runs: its kernels belong to
/// no operator that would reveal it. A compiled gradient runs within its node without being entered again.
fn compiled_again(view: &View) -> Vec<Span> {
    let host = &view.trace.host;
    let (mut first, mut again): (HashSet<NameId>, Vec<usize>) = Default::default();
    for at in view.host_spans_named(|name| name.starts_with("Torch-Compiled Region")) {
        if view.step_of(at).is_none() {
            continue;
        }
        match view.is_in_graph_node(at) {
            true => again.push(at),
            false => drop(first.insert(host.name[at])),
        }
    }
    again.into_iter().filter(|&at| first.contains(&host.name[at])).map(|at| view.host_span(at)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};

    /// A region of the forward pass, and one that a backward node enters, with two kernels each; then the gradient's
    /// own.
    fn regions(of_forward: &str, of_backward: &str) -> Recomputed {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, 3_000 * MICRO);
        let mut region = |start: i64, name: &str| {
            made.operator(name, start * MICRO, (start + 100) * MICRO);
            for nth in 0..2 {
                let call = start + 10 + 20 * nth;
                let (begins, ends) = ((call + 5) * MICRO, (call + 15) * MICRO);
                made.launch((call * MICRO, (call + 2) * MICRO), "triton_poi_fused_gelu_0", (begins, ends));
            }
        };
        region(10, of_forward);
        region(1_020, of_backward);
        let node = "autograd::engine::evaluate_function: CompiledFunctionBackward";
        made.operator(node, 1_000 * MICRO, 2_000 * MICRO);
        made.launch((1_500 * MICRO, 1_502 * MICRO), "triton_poi_fused_gelu_backward_1", (1_510 * MICRO, 1_550 * MICRO));
        made.viewed(recomputed)
    }

    #[test]
    fn compiled_code_of_the_forward_pass_that_the_backward_pass_enters_is_computed_again() {
        let again = regions("Torch-Compiled Region: 0/0", "Torch-Compiled Region: 0/0");
        assert_eq!((again.parts_per_step, again.kernels.len()), (1.0, 2), "not the gradient's own kernel");
        assert_eq!(again.host, [Span { start: 1_020 * MICRO, end: 1_120 * MICRO }]);
        let other = regions("Torch-Compiled Region: 0/0", "Torch-Compiled Region: 7/0");
        assert!(other.kernels.is_empty(), "a function that only the backward pass calls");
    }
}
