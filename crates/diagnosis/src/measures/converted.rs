//! Tensors that the host creates, or converts to a wider type, before it copies them to the device. The device creates
//! and converts them at negligible cost, and fewer bytes or none need to be copied.

use hashbrown::HashMap;
use headroom_trace::{CallKind, Category, NONE};

use super::copies::is_from_pageable;
use super::data_loading::loading_spans;
use super::flops::element_bytes;
use super::intervals::{Span, covered, merged, seconds, total};
use super::roles::Role;
use super::view::View;
use crate::constants::converted::{LEAST_BYTES, LEAST_MADE_BYTES};

#[derive(Clone, Debug, Default)]
pub struct Converted {
    /// Copies, each with the share of its bytes that would be copied before the conversion; 0 for a tensor that the
    /// host created.
    pub copies: HashMap<usize, f64>,
    /// Host time from the first operator on the tensor to the copy.
    pub host: Vec<Span>,
    pub host_seconds: f64,
    /// Number of tensors that the host created without data, such as masks, noise and positions.
    pub made: usize,
}

/// Number of host spans examined before a copy.
const MOST_SPANS: usize = 200;

pub fn converted(view: &View) -> Converted {
    let (host, device) = (&view.trace.host, &view.trace.device);
    let mut result = Converted::default();
    let is_one = |&at: &usize| {
        device.category[at] == Category::Memcpy
            && device.bytes[at] >= LEAST_MADE_BYTES.get()
            && is_from_pageable(view.name(device.name[at]))
            && view.call_of[at] != NONE
            && view.steps.at_host(host.start[view.call_of[at] as usize]).is_some()
    };
    let (mut spans, loading) = (Vec::new(), loading_spans(view));
    for at in device.busy().filter(is_one) {
        let (call, bytes) = (view.call_of[at] as usize, device.bytes[at]);
        let made =
            making_before(view, call, bytes).filter(|&start| covered(&loading, Span { start, end: start + 1 }) == 0);
        let converted = || {
            Some(bytes)
                .filter(|bytes| *bytes >= LEAST_BYTES.get())
                .and_then(|bytes| conversion_before(view, call, bytes))
        };
        if let Some((start, share)) = made.map(|start| (start, 0.0)).or_else(converted) {
            result.made += usize::from(made.is_some());
            result.copies.insert(at, share);
            spans.push(Span { start, end: host.start[call] });
        }
    }
    result.host = merged(spans);
    result.host_seconds = seconds(total(&result.host));
    result
}

/// Host spans on the thread of `call` since it last launched work, the latest first.
fn since_last_order<'v>(view: &'v View, call: usize) -> impl Iterator<Item = usize> + 'v {
    let host = &view.trace.host;
    (0..call).rev().take(MOST_SPANS).take_while(move |&at| {
        host.track[at] == host.track[call] && !view.call_kind(at).is_some_and(CallKind::queues_work)
    })
}

/// When the host began to create the copied tensor: the first operator since its last launch that fills as many
/// elements, whatever the element size.
fn making_before(view: &View, call: usize, bytes: u64) -> Option<i64> {
    let host = &view.trace.host;
    let fills = |&at: &usize| {
        let is_maker = view.is_operator(at) && Role::Maker.is_of(view.host_name(at));
        let elements = || -> u64 { view.shapes(at).first().map_or(0, |shape| shape.iter().product()) };
        is_maker && host.end(at) <= host.start[call] && [1, 2, 4, 8].iter().any(|length| elements() * length == bytes)
    };
    let first = since_last_order(view, call).filter(fills).last()?;
    let is_before = |&at: &usize| view.is_operator(at) && host.end(at) <= host.start[call];
    view.ancestors(first).filter(is_before).last().map(|at| host.start[at])
}

/// The first conversion on the host, since its last launch, of as many elements as are copied: its start, and the
/// element size before divided by after.
fn conversion_before(view: &View, call: usize, bytes: u64) -> Option<(i64, f64)> {
    let host = &view.trace.host;
    let of_one = |at: usize| {
        let is_copy = view.is_operator(at) && view.host_name(at) == "aten::copy_";
        if !is_copy || host.end(at) > host.start[call] {
            return None;
        }
        let elements: f64 = view.shapes(at).first()?.iter().map(|size| *size as f64).product();
        let types = view.types(at);
        let (to, from) = (element_bytes(types.first()?), element_bytes(types.get(1)?));
        let is_longer = from > 0.0 && from < to && (elements * to - bytes as f64).abs() < 1.0;
        is_longer.then_some((host.start[at], from / to))
    };
    since_last_order(view, call).filter_map(of_one).last()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};

    /// Ends the trace with a copy of 4 MiB to the device.
    fn copied(mut made: Fabricated) -> Converted {
        made.operator("aten::to", 2_500 * MICRO, 4_100 * MICRO);
        let id = r#""correlation":77,"bytes":4194304"#;
        made.span("cuda_runtime", "cudaMemcpyAsync", 1, 2_510 * MICRO, 4_050 * MICRO, id);
        made.span("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 7, 2_600 * MICRO, 4_000 * MICRO, id);
        made.viewed(converted)
    }

    /// Bytes are converted to type `to` on the host, scaled and copied; with `between`, other work is launched in
    /// between.
    fn scaled(to: &str, between: bool) -> Converted {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, 20_000 * MICRO);
        let args =
            format!(r#""Input Dims":[[1024,1024],[1024,1024],[]],"Input type":["{to}","unsigned char","Scalar"]"#);
        made.span("cpu_op", "aten::copy_", 1, 10 * MICRO, 900 * MICRO, &args);
        made.shaped("aten::div", 1_000 * MICRO, 2_000 * MICRO, "[[1024,1024],[]]", to);
        if between {
            made.launch((2_100 * MICRO, 2_110 * MICRO), "k", (2_200 * MICRO, 2_300 * MICRO));
        }
        copied(made)
    }

    #[test]
    fn a_conversion_on_the_host_belongs_to_the_copy_after_it() {
        let found = scaled("float", false);
        assert_eq!(found.copies.values().copied().collect::<Vec<_>>(), [0.25]);
        assert_eq!(found.host, [Span { start: 10 * MICRO, end: 2_510 * MICRO }]);
    }

    #[test]
    fn other_tensors_and_earlier_work_do_not() {
        assert!(scaled("c10::Half", false).copies.is_empty(), "not as many bytes");
        assert!(scaled("float", true).copies.is_empty(), "ordered something since");
    }

    /// A mask is filled and cut to shape on the host, in a loader or not, and copied.
    fn masked(rows: u64, in_a_loader: bool) -> Converted {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, 20_000 * MICRO);
        if in_a_loader {
            made.span("user_annotation", "enumerate(DataLoader)#x.__next__", 1, 2 * MICRO, 5_000 * MICRO, "");
        }
        made.operator("aten::full", 10 * MICRO, 900 * MICRO);
        made.shaped("aten::fill_", 20 * MICRO, 890 * MICRO, &format!("[[{rows},1024],[]]"), "float");
        made.shaped("aten::triu", 1_000 * MICRO, 2_000 * MICRO, &format!("[[{rows},1024],[]]"), "float");
        copied(made)
    }

    #[test]
    fn a_tensor_made_on_the_host_belongs_to_its_copy_from_its_first_operator_on() {
        let found = masked(1024, false);
        assert_eq!((found.made, found.copies.values().copied().collect::<Vec<_>>()), (1, vec![0.0]));
        assert_eq!(found.host, [Span { start: 10 * MICRO, end: 2_510 * MICRO }]);
        assert_eq!(masked(100, false).made, 0, "another tensor is copied");
        assert_eq!(masked(1024, true).made, 0, "a batch of the loader");
    }
}
