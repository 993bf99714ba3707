//! The critical path: the chain of work on host and device that sets the length of the steps, walked backwards from
//! their end.

use headroom_trace::{CallKind, NONE};
use serde::Serialize;
use std::collections::HashMap;

use super::intervals::Span;
use super::view::View;
use crate::constants::critical_path::BACK_TO_BACK_NANOS;

#[derive(Clone, Debug, Default, Serialize)]
pub struct CriticalPath {
    pub device_seconds: f64,
    pub host_seconds: f64,
    /// From a launch to the start of its work, while the device was waiting for it.
    pub launch_seconds: f64,
    /// Kernels on the path, the longest first.
    pub kernels: Vec<PathRow>,
    /// The chain itself, from the steps' start to their end.
    #[serde(skip)]
    pub links: Vec<Link>,
}

/// A segment of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    pub span: Span,
    pub on: On,
}

/// Where a segment of the path lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    Host,
    Launch,
    /// The device span with this index.
    Device(usize),
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct PathRow {
    pub name: String,
    pub seconds: f64,
}

const MOST_ROWS: usize = 15;

pub fn critical_path(view: &View) -> CriticalPath {
    let range = view.steps.range();
    let (host, device) = (&view.trace.host, &view.trace.device);
    let mut path = Path::default();
    let work = in_order_of_end(view);
    let mut waits: Vec<Span> = (0..host.len())
        .filter(|&at| view.call_kind(at) == Some(CallKind::Synchronise))
        .map(|at| view.host_span(at))
        .collect();
    waits.sort_by_key(|span| span.end);
    // Each wait is visited at most once, so that one of zero length cannot stop the walk.
    let mut waits_left = waits.len();

    // The step ends on the host, unless the device was still busy then.
    let last_end = work.last().map_or(range.start, |&at| device.end(at));
    let mut time = range.end;
    let mut at_work: Option<usize> = (last_end >= range.end).then(|| last_before(view, &work, range.end)).flatten();
    while time > range.start {
        match at_work {
            Some(at) => {
                path.device(view, at, Span { start: device.start[at].max(range.start), end: time });
                time = device.start[at];
                let ordered = Some(view.call_of[at]).filter(|call| *call != NONE).map(|call| host.start[call as usize]);
                // Prefers work on its own stream, skipping annotations; otherwise whatever ended last before it on any
                // stream.
                let on_stream = (0..at).rev().take_while(|&before| device.track[before] == device.track[at]);
                let on_stream = on_stream.take(64).find(|&before| sets_length(view, before));
                let queued = on_stream.filter(|&before| ordered.is_none_or(|ordered| ordered < device.end(before)));
                // Never later, and on another stream strictly earlier, so that spans cannot form a cycle.
                let queued = queued.filter(|&before| device.start[before] <= device.start[at]);
                let on_any =
                    last_before(view, &work, device.start[at]).filter(|&last| device.start[last] < device.start[at]);
                let before = queued.or(on_any);
                // Work launched before the previous work ended was waiting for it, however long the switch took.
                let waited = before.filter(|&before| match ordered {
                    Some(ordered) => ordered < device.end(before),
                    None => device.start[at] - device.end(before) < BACK_TO_BACK_NANOS.get(),
                });
                at_work = match (waited, ordered) {
                    (Some(before), _) => {
                        path.launch(Span { start: device.end(before), end: time });
                        time = time.min(device.end(before));
                        Some(before)
                    }
                    (None, Some(ordered)) => {
                        path.launch(Span { start: ordered.max(range.start), end: time });
                        time = ordered.min(time);
                        None
                    }
                    (None, None) => {
                        // The launch is unknown: assume the host, at the same time.
                        None
                    }
                };
            }
            None => {
                waits_left = waits[..waits_left].partition_point(|wait| wait.end <= time);
                let wait = waits[..waits_left].last().copied().filter(|wait| wait.end > range.start);
                let Some(wait) = wait else {
                    path.host(Span { start: range.start, end: time });
                    break;
                };
                waits_left -= 1;
                path.host(Span { start: wait.end, end: time });
                time = wait.end;
                at_work = last_before(view, &work, wait.end).filter(|&at| device.end(at) > wait.start);
                match at_work {
                    Some(at) => {
                        path.launch(Span { start: device.end(at), end: time });
                        time = device.end(at);
                    }
                    None => {
                        path.host(wait);
                        time = wait.start;
                    }
                }
            }
        }
    }
    path.finished(view)
}

fn in_order_of_end(view: &View) -> Vec<usize> {
    let mut work: Vec<usize> = (0..view.trace.device.len()).filter(|&at| sets_length(view, at)).collect();
    work.sort_by_key(|&at| view.trace.device.end(at));
    work
}

/// Work of zero length is skipped, so that every piece of work is visited at most once.
fn sets_length(view: &View, at: usize) -> bool {
    view.trace.device.category[at].keeps_device_busy() && view.trace.device.duration[at] > 0
}

fn last_before(view: &View, work: &[usize], time: i64) -> Option<usize> {
    let next = work.partition_point(|&at| view.trace.device.end(at) <= time);
    next.checked_sub(1).map(|index| work[index])
}

#[derive(Default)]
struct Path {
    device: i64,
    host: i64,
    launch: i64,
    kernels: HashMap<u32, i64>,
    /// Backwards, in the order of the walk.
    links: Vec<Link>,
}

impl Path {
    fn host(&mut self, span: Span) {
        self.host += span.nanos();
        self.links.push(Link { span, on: On::Host });
    }

    fn launch(&mut self, span: Span) {
        self.launch += span.nanos();
        self.links.push(Link { span, on: On::Launch });
    }

    fn device(&mut self, view: &View, at: usize, span: Span) {
        self.device += span.nanos();
        self.links.push(Link { span, on: On::Device(at) });
        *self.kernels.entry(view.trace.device.name[at].0).or_default() += span.nanos();
    }

    fn finished(mut self, view: &View) -> CriticalPath {
        self.links.retain(|link| link.span.nanos() > 0);
        self.links.reverse();
        let seconds = |nanos: i64| nanos as f64 / 1e9;
        let mut kernels: Vec<(i64, &str)> =
            self.kernels.iter().map(|(name, nanos)| (*nanos, view.name(headroom_trace::NameId(*name)))).collect();
        kernels.sort_by_key(|(nanos, name)| (std::cmp::Reverse(*nanos), *name));
        let kernels = kernels.into_iter().take(MOST_ROWS);
        CriticalPath {
            device_seconds: seconds(self.device),
            host_seconds: seconds(self.host),
            launch_seconds: seconds(self.launch),
            kernels: kernels.map(|(nanos, name)| PathRow { name: name.to_string(), seconds: seconds(nanos) }).collect(),
            links: self.links,
        }
    }
}
