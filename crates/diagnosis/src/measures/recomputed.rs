//! Forward passes that the backward pass computes again (activation checkpointing).

use headroom_trace::Category;
use serde::Serialize;

use super::intervals::{Span, merged, seconds, total};
use super::view::{View, is_backward_node};

#[derive(Clone, Debug, Default, Serialize)]
pub struct Recomputed {
    /// Parts of the model that are computed again.
    pub parts_per_step: f64,
    pub device_seconds: f64,
    pub host_seconds: f64,
    #[serde(skip)]
    pub host: Vec<Span>,
    #[serde(skip)]
    pub kernels: Vec<usize>,
}

impl Recomputed {
    /// So many parts, in these spans of the host, with the work of the device that was ordered there.
    pub fn of(view: &View, parts: usize, spans: Vec<Span>) -> Recomputed {
        if spans.is_empty() {
            return Recomputed::default();
        }
        let host = merged(spans);
        let kernels = view.ordered_in(&host);
        Recomputed {
            parts_per_step: parts as f64 / view.steps.count(),
            device_seconds: seconds(kernels.iter().map(|&at| view.trace.device.duration[at]).sum()),
            host_seconds: seconds(total(&host)),
            host,
            kernels,
        }
    }
}

/// Operators that only a forward pass calls: a gradient is computed from what they are made of.
const OF_FORWARD: &[&str] = &[
    "aten::linear",
    "aten::conv1d",
    "aten::conv2d",
    "aten::conv3d",
    "aten::layer_norm",
    "aten::batch_norm",
    "aten::group_norm",
    "aten::rms_norm",
    "aten::embedding",
    "aten::dropout",
    "aten::softmax",
    "aten::scaled_dot_product_attention",
    "aten::matmul",
];
/// A node of the graph that calls fewer of them has a gradient of its own kind.
const FEWEST: usize = 2;

pub fn recomputed(view: &View) -> Recomputed {
    let host = &view.trace.host;
    let is_node = |at: usize| is_backward_node(view.host_name(at));
    // From the first to the last such operator of each node.
    let mut parts: Vec<(u32, Span, usize)> = Vec::new();
    for at in view.host_spans_named(|name| OF_FORWARD.contains(&name)) {
        if host.category[at] != Category::CpuOp || view.steps.at_host(host.start[at]).is_none() {
            continue;
        }
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
    parts.retain(|(_, _, count)| *count >= FEWEST);
    let spans = parts.iter().map(|(_, span, _)| *span).collect();
    Recomputed::of(view, parts.len(), spans)
}
