//! Stalls of the device inside the steps, each split at the launch of the work that ended it.

use headroom_trace::NONE;

use super::intervals::{Span, gaps};
use super::view::View;
use crate::constants::stops::LONGEST_LAUNCH_DELAY_NANOS;

/// A gap between device spans. It consists of a starved part, the launch delay and a stalled part, in this order. A
/// large trace has as many gaps as kernels, so each is kept small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    pub span: Span,
    /// When the work that ends the gap was launched, within the gap; [`UNKNOWN`] if nothing tells.
    ordered: i64,
    /// Start of the time in which that work was already queued; the gap's end if it was not.
    stalled: i64,
    /// The device span that ends the gap, or [`NONE`].
    after: u32,
}

const UNKNOWN: i64 = i64::MIN;

impl Stop {
    /// The time with nothing queued: from the gap's start to the launch of the work that ends it. `None` if that launch
    /// is unknown.
    pub fn starved(&self) -> Option<Span> {
        (self.ordered != UNKNOWN).then_some(Span { start: self.span.start, end: self.ordered })
    }

    /// The time with work queued and the device idle: it waited for another stream, another rank, or something outside
    /// the file.
    pub fn stalled(&self) -> Span {
        Span { start: self.stalled, end: self.span.end }
    }

    pub fn after(&self) -> Option<usize> {
        (self.after != NONE).then_some(self.after as usize)
    }

    /// The device span that ended last before the gap.
    pub fn before(&self, view: &View) -> Option<usize> {
        let device = &view.trace.device;
        let ended = device.busy().filter(|&at| device.end(at) <= self.span.start);
        ended.max_by_key(|&at| device.end(at))
    }
}

pub fn stops(view: &View) -> Vec<Stop> {
    let device = &view.trace.device;
    let mut starts: Vec<(i64, u32)> = device.busy().map(|at| (device.start[at], at as u32)).collect();
    // Each stream is already sorted, and a stable sort merges such runs quickly.
    starts.sort();
    let mut stops = Vec::new();
    for step in &view.steps.list {
        stops.extend(gaps(&view.busy, step.span).into_iter().map(|gap| stop(view, &starts, gap)));
    }
    stops
}

fn stop(view: &View, starts: &[(i64, u32)], gap: Span) -> Stop {
    // A gap at a step's end is closed by work of the next step, which tells equally well what the host was doing.
    let next = starts.partition_point(|(start, _)| *start < gap.end);
    let Some(&(start, after)) = starts.get(next) else {
        // Nothing more was launched: the host was busy with the rest of the step.
        return Stop { span: gap, ordered: gap.end, stalled: gap.end, after: NONE };
    };
    let call = view.call_of[after as usize];
    if call == NONE {
        return Stop { span: gap, ordered: UNKNOWN, stalled: gap.end, after };
    }
    let call = view.host_span(call as usize);
    // During the call the host is still launching.
    let queued = call.end.clamp(gap.start, gap.end);
    let stands = start - queued > LONGEST_LAUNCH_DELAY_NANOS.get();
    // Before the first recorded work the device may have been busy with work that was launched before the recording.
    if stands && view.busy.first().is_some_and(|first| gap.end <= first.start) {
        return Stop { span: gap, ordered: UNKNOWN, stalled: gap.end, after };
    }
    let stalled = if stands { queued } else { gap.end };
    Stop { span: gap, ordered: call.start.clamp(gap.start, gap.end), stalled, after }
}
