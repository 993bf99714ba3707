//! Tensors that the host converts to a longer type before it copies them to the device: fewer bytes would do, and the device converts
//! at no cost worth the name.

use hashbrown::HashMap;
use headroom_trace::{CallKind, Category, NONE};

use super::copies::is_from_pageable;
use super::flops::{element_bytes, shapes};
use super::intervals::{Span, merged, seconds, total};
use super::view::View;

#[derive(Clone, Debug, Default)]
pub struct Converted {
    /// Copies, each with the share of its bytes that would be copied before the conversion.
    pub copies: HashMap<usize, f64>,
    /// The host, from the conversion to the copy.
    pub host: Vec<Span>,
    pub host_seconds: f64,
}

/// Smaller tensors are not worth a word.
const LEAST_BYTES: u64 = 1 << 20;
/// Spans of the host before a copy that are looked at.
const MOST_SPANS: usize = 200;

pub fn converted(view: &View) -> Converted {
    let (host, device) = (&view.trace.host, &view.trace.device);
    let mut result = Converted::default();
    let is_one = |&at: &usize| {
        device.category[at] == Category::Memcpy
            && device.bytes[at] >= LEAST_BYTES
            && is_from_pageable(view.name(device.name[at]))
            && view.call_of[at] != NONE
            && view.steps.at_host(host.start[view.call_of[at] as usize]).is_some()
    };
    let mut spans = Vec::new();
    for at in device.busy().filter(is_one) {
        let call = view.call_of[at] as usize;
        if let Some((start, share)) = conversion_before(view, call, device.bytes[at]) {
            result.copies.insert(at, share);
            spans.push(Span { start, end: host.start[call] });
        }
    }
    result.host = merged(spans);
    result.host_seconds = seconds(total(&result.host));
    result
}

/// The first conversion on the host of as many elements as are copied, since it last ordered work: when it began, and how long an element
/// was before, against after.
fn conversion_before(view: &View, call: usize, bytes: u64) -> Option<(i64, f64)> {
    let host = &view.trace.host;
    let before = (0..call)
        .rev()
        .take(MOST_SPANS)
        .take_while(|&at| host.lane[at] == host.lane[call] && !view.call_kind(at).is_some_and(CallKind::queues_work));
    let of_one = |at: usize| {
        let is_copy = host.category[at] == Category::CpuOp && view.host_name(at) == "aten::copy_";
        if !is_copy || host.end(at) > host.start[call] {
            return None;
        }
        let elements: f64 = shapes(view.name(host.dims[at])).first()?.iter().map(|size| *size as f64).product();
        let types: Vec<String> = serde_json::from_str(view.name(host.types[at])).unwrap_or_default();
        let (to, from) = (element_bytes(types.first()?), element_bytes(types.get(1)?));
        let is_longer = from > 0.0 && from < to && (elements * to - bytes as f64).abs() < 1.0;
        is_longer.then_some((host.start[at], from / to))
    };
    before.filter_map(of_one).last()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::Fabricated;

    const MICRO: i64 = 1_000;

    /// Bytes become numbers of type `to` on the host and are scaled there, then copied; with `between`, other work is ordered in between.
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
        made.operator("aten::to", 2_500 * MICRO, 4_100 * MICRO);
        let id = r#""correlation":77,"bytes":4194304"#;
        made.span("cuda_runtime", "cudaMemcpyAsync", 1, 2_510 * MICRO, 4_050 * MICRO, id);
        made.span("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 7, 2_600 * MICRO, 4_000 * MICRO, id);
        let trace = made.trace();
        converted(&View::new(&trace))
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
}
