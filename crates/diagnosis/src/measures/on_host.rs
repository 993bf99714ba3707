//! Tensors that are copied to the host, and the host's work on them while the device is idle.

use headroom_trace::{Category, NONE};

use super::copies::{Direction, direction};
use super::data_loading::loading_spans;
use super::intervals::{Span, merged, seconds, total, without};
use super::stops::Stop;
use super::view::View;
use crate::constants::on_host::{SCALAR_BYTES, SHORTEST_NANOS, SOON_NANOS};

/// Copies to the host of more than single values.
#[derive(Clone, Debug, Default)]
pub struct WorkOnHost {
    pub copies: Vec<usize>,
    /// The operators that copy and wait.
    pub readers: Vec<Span>,
    /// From the end of such an operator to the next launch, while nothing was queued: the host works on the copied
    /// data.
    pub work: Vec<Span>,
    pub work_seconds: f64,
}

pub fn work_on_host(view: &View, stops: &[Stop]) -> WorkOnHost {
    let (host, device) = (&view.trace.host, &view.trace.device);
    let range = view.steps.host_range();
    let is_one = |&at: &usize| {
        device.category[at] == Category::Memcpy
            && device.bytes[at] > SCALAR_BYTES.get()
            && direction(view.name(device.name[at])) == Direction::DeviceToHost
            && view.call_of[at] != NONE
            && (range.start..range.end).contains(&host.start[view.call_of[at] as usize])
    };
    let copies: Vec<usize> = device.busy().filter(is_one).collect();
    let mut result = WorkOnHost::default();
    if copies.is_empty() {
        return result;
    }
    let mut ends: Vec<i64> = copies.iter().map(|&at| device.end(at)).collect();
    ends.sort_unstable();
    // The device is idle after the copy until more work is launched.
    let after_a_copy = |stop: &&Stop| {
        let next = ends.partition_point(|end| *end <= stop.span.start);
        next > 0 && stop.span.start - ends[next - 1] <= SOON_NANOS.get()
    };
    let starved = stops
        .iter()
        .filter(after_a_copy)
        .filter_map(Stop::starved)
        .filter(|starved| starved.nanos() >= SHORTEST_NANOS.get());
    let elsewhere = merged([loading_spans(view), view.cold.spans.clone()].concat());
    result.work = without(&merged(starved.collect()), &elsewhere);
    result.readers = copies.iter().filter_map(|&at| copying_operator(view, view.call_of[at] as usize)).collect();
    result.work_seconds = seconds(total(&result.work));
    result.copies = copies;
    result
}

/// The outermost operator around a call whose purpose is copying.
fn copying_operator(view: &View, call: usize) -> Option<Span> {
    let copies =
        |&at: &usize| matches!(view.host_name(at), "aten::to" | "aten::_to_copy" | "aten::copy_" | "aten::cpu");
    let operators = view.ancestors(call).filter(|&at| view.is_operator(at));
    operators.take_while(copies).last().map(|at| view.host_span(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};
    use crate::measures::stops::stops;

    /// A step of 10 ms: a kernel, its result of `bytes` copied to the host, 4 ms on the host, another kernel.
    fn copied(bytes: u64) -> WorkOnHost {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, 10_000 * MICRO);
        made.operator("aten::argmax", 0, 40 * MICRO);
        made.launch((5 * MICRO, 10 * MICRO), "k", (20 * MICRO, 1_000 * MICRO));
        made.operator("aten::to", 50 * MICRO, 2_100 * MICRO);
        made.operator("aten::copy_", 60 * MICRO, 2_090 * MICRO);
        let id = format!(r#""correlation":77,"bytes":{bytes}"#);
        made.span("cuda_runtime", "cudaMemcpyAsync", 1, 70 * MICRO, 2_050 * MICRO, &id);
        made.span("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 7, 1_000 * MICRO, 2_000 * MICRO, &id);
        made.operator("aten::add", 6_000 * MICRO, 6_040 * MICRO);
        made.launch((6_005 * MICRO, 6_010 * MICRO), "k", (6_020 * MICRO, 9_000 * MICRO));
        let trace = made.trace();
        let view = View::new(&trace);
        work_on_host(&view, &stops(&view))
    }

    #[test]
    fn the_hosts_work_until_the_next_order_belongs_to_the_copy_before_it() {
        let found = copied(1 << 20);
        assert_eq!(found.copies.len(), 1);
        assert_eq!(found.readers, [Span { start: 50 * MICRO, end: 2_100 * MICRO }]);
        assert_eq!(found.work, [Span { start: 2_000 * MICRO, end: 6_005 * MICRO }]);
        assert!((found.work_seconds - 4.005e-3).abs() < 1e-9);
    }

    #[test]
    fn a_single_value_is_no_tensor_to_work_on() {
        assert!(copied(8).copies.is_empty() && copied(8).work.is_empty());
    }
}
