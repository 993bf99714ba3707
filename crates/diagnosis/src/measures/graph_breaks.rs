//! Read-backs that split a compiled function: the rest of it is looked up, guarded and entered again, which takes host
//! time in addition to the wait.

use headroom_trace::CallKind;

use super::compiled::is_compiled_region;
use super::intervals::Span;
use super::view::View;

/// Number of host spans examined on either side.
const MOST_SPANS: usize = 5_000;

/// From the last launch before a read-back to the first after it, if both are compiled code: without the break they
/// would be adjacent.
pub fn graph_break(view: &View, reading: usize) -> Option<Span> {
    let host = &view.trace.host;
    let launches = |&at: &usize| view.call_kind(at) == Some(CallKind::Launch);
    let same_thread = |&at: &usize| host.track[at] == host.track[reading];
    let before = (0..reading).rev().take(MOST_SPANS).take_while(same_thread).find(launches)?;
    let later = (reading + 1..host.len()).take(MOST_SPANS).take_while(same_thread);
    let after = later.filter(|&at| host.start[at] >= host.end(reading)).find(|at| launches(at))?;
    let is_one_step = view.step_of(before) == view.step_of(after);
    let is_break = is_one_step && is_compiled(view, before) && is_compiled(view, after);
    is_break.then(|| Span { start: host.end(before), end: host.start[after] })
}

fn is_compiled(view: &View, call: usize) -> bool {
    view.ancestors(call).any(|at| is_compiled_region(view.host_name(at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};

    /// A function in two pieces, with a value read in between.
    fn in_two(region: &str) -> Option<Span> {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, 10_000 * MICRO);
        made.operator(region, 10 * MICRO, 500 * MICRO);
        made.launch((100 * MICRO, 110 * MICRO), "triton_a", (120 * MICRO, 400 * MICRO));
        made.operator("aten::item", 510 * MICRO, 600 * MICRO);
        made.span("cuda_runtime", "cudaStreamSynchronize", 1, 520 * MICRO, 590 * MICRO, "");
        made.operator(region, 650 * MICRO, 1_000 * MICRO);
        made.launch((900 * MICRO, 910 * MICRO), "triton_b", (920 * MICRO, 990 * MICRO));
        let trace = made.trace();
        let view = View::new(&trace);
        let reading = view.host_spans_named(|name| name == "aten::item")[0];
        graph_break(&view, reading)
    }

    #[test]
    fn a_break_goes_from_launch_to_launch_of_compiled_code() {
        assert_eq!(in_two("Torch-Compiled Region: 0/0"), Some(Span { start: 110 * MICRO, end: 900 * MICRO }));
        assert_eq!(in_two("aten::add"), None, "eager code has no pieces");
    }
}
