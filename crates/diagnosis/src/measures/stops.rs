//! Stops of the device inside the steps, each cut by when the work that ended it was ordered.

use headroom_trace::NONE;

use super::intervals::{Span, gaps};
use super::view::View;

/// A gap between the device's spans. `dry`, the launch's way and `stalled` follow each other and fill it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    pub span: Span,
    /// Nothing was queued: from the gap's start to the order for the work that ends it. `None` where nothing tells who
    /// ordered that work.
    pub dry: Option<Span>,
    /// Work was queued and the device stood: it waited for another stream, another rank, or something outside of the file.
    pub stalled: Span,
    /// The device span before the gap and the one that ends it.
    pub before: Option<usize>,
    pub after: Option<usize>,
}

/// A launch reaches an idle stream in some 10 µs, under a profiler in some 50. Work that stands longer in a queue waits for
/// something.
const LONGEST_LAUNCH_DELAY_NANOS: i64 = 100_000;

/// Device work in order of time.
struct Work {
    /// Start, index, and the call that queued it where that is known.
    starts: Vec<(i64, usize, Option<Span>)>,
    /// End and index, by end.
    ends: Vec<(i64, usize)>,
}

pub fn stops(view: &View) -> Vec<Stop> {
    let work = Work::new(view);
    let within = |step: Span| gaps(&view.busy, step).into_iter().map(|gap| work.stop(gap));
    view.steps.list.iter().flat_map(|step| within(step.span).collect::<Vec<_>>()).collect()
}

impl Work {
    fn new(view: &View) -> Work {
        let device = &view.trace.device;
        let call =
            |at: usize| Some(view.call_of[at]).filter(|call| *call != NONE).map(|call| view.host_span(call as usize));
        let mut starts: Vec<_> = device.busy().map(|at| (device.start[at], at, call(at))).collect();
        let mut ends: Vec<_> = device.busy().map(|at| (device.end(at), at)).collect();
        // Each stream's are in order already, and a stable sort merges such runs.
        starts.sort();
        ends.sort();
        Work { starts, ends }
    }

    fn stop(&self, gap: Span) -> Stop {
        // A gap at a step's end is closed by work of the next step, which tells just as well what the host was doing.
        let next = self.starts.partition_point(|(start, ..)| *start < gap.end);
        let before = self.ends.partition_point(|(end, _)| *end <= gap.start).checked_sub(1).map(|at| self.ends[at].1);
        let nothing = Span { start: gap.end, end: gap.end };
        let Some(&(start, after, call)) = self.starts.get(next) else {
            // Nothing more was ordered: the host was busy with the rest of the step.
            return Stop { span: gap, dry: Some(gap), stalled: nothing, before, after: None };
        };
        let dry = call.map(|call| Span { start: gap.start, end: call.start.clamp(gap.start, gap.end) });
        // Inside the call the host is still at it.
        let queued = call.map_or(gap.end, |call| call.end.clamp(gap.start, gap.end));
        let stands = start - queued > LONGEST_LAUNCH_DELAY_NANOS;
        let stalled = if stands { Span { start: queued, end: gap.end } } else { nothing };
        Stop { span: gap, dry, stalled, before, after: Some(after) }
    }
}
