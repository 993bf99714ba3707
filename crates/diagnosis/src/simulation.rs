//! Replays the steps without a cost: launches in the host's order, each stream's queue behind them.

use std::collections::HashMap;

use headroom_trace::{CallKind, NONE};

use crate::measures::intervals::{Span, covered, merged};
use crate::measures::view::View;

/// What is taken out: time on the host, and time of device spans, which get a new duration.
#[derive(Clone, Debug, Default)]
pub struct Removal {
    pub host: Vec<Span>,
    pub device: HashMap<usize, i64>,
}

impl Removal {
    /// Both together: the host's time as a set, of two durations the shorter.
    pub fn and(&self, other: &Removal) -> Removal {
        let mut both = self.clone();
        both.host.extend_from_slice(&other.host);
        for (at, nanos) in &other.device {
            both.device.entry(*at).and_modify(|kept| *kept = (*kept).min(*nanos)).or_insert(*nanos);
        }
        both
    }

    pub fn is_empty(&self) -> bool {
        self.host.is_empty() && self.device.is_empty()
    }
}

/// The host's points at which it meets the device, in order of time.
pub struct Simulation {
    /// When the host was at the steps.
    host: Span,
    /// When the device is free for them: what was ordered before them runs until then.
    device_free: i64,
    points: Vec<Point>,
    lanes: usize,
    /// Launches that waited for room in a full queue: the host has that time to spare.
    blocked: Vec<Span>,
}

#[derive(Clone, Copy)]
struct Point {
    time: i64,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    Order { device: usize, lane: usize, delay: i64, duration: i64 },
    Wait { end: i64, after_device: i64 },
}

/// From an order to the start of its work on an idle stream, at least; what is longer in the trace was spent in a queue.
const LONGEST_DELAY_NANOS: i64 = 10_000;

const LONGEST_LAUNCH_NANOS: i64 = 100_000;

impl Simulation {
    pub fn new(view: &View) -> Simulation {
        let (host, device) = (&view.trace.host, &view.trace.device);
        let range = view.steps.host_range();
        let inside = |time: i64| (range.start..range.end).contains(&time);
        let mut points = Vec::new();
        for at in device.busy().filter(|&at| view.call_of[at] != NONE) {
            let time = host.start[view.call_of[at] as usize];
            if inside(time) {
                let delay = (device.start[at] - time).clamp(0, LONGEST_DELAY_NANOS);
                let lane = device.lane[at].0 as usize;
                points
                    .push(Point { time, what: What::Order { device: at, lane, delay, duration: device.duration[at] } });
            }
        }
        for at in (0..host.len()).filter(|&at| view.call_kind(at) == Some(CallKind::Synchronise)) {
            if inside(host.start[at]) {
                let next = view.busy.partition_point(|busy| busy.end <= host.end(at));
                let ready = next.checked_sub(1).map_or(i64::MIN, |index| view.busy[index].end);
                let after_device = host.end(at) - ready.clamp(host.start[at], host.end(at));
                points.push(Point { time: host.start[at], what: What::Wait { end: host.end(at), after_device } });
            }
        }
        points.sort_by_key(|point| point.time);
        Simulation {
            host: range,
            device_free: view.steps.range().start,
            points,
            lanes: view.trace.lanes.len(),
            blocked: blocked(view),
        }
    }

    /// From the first step's start to the end of all work, in nanoseconds.
    pub fn run(&self, removal: &Removal) -> i64 {
        let removed = merged([removal.host.as_slice(), &self.blocked].concat());
        let mut clock = Clock { removed: &removed, next: 0, passed: 0 };
        let mut stream_ends = vec![self.device_free; self.lanes];
        let mut last_end = self.device_free;
        // How much later (or, negative, earlier) than "time less what is removed" the host is, because of waits.
        let mut lag = 0;
        for point in &self.points {
            match point.what {
                What::Order { device, lane, delay, duration } => {
                    let ordered = clock.without_removed(point.time) + lag;
                    let duration = removal.device.get(&device).copied().unwrap_or(duration);
                    let start = stream_ends[lane].max(ordered + delay);
                    stream_ends[lane] = start + duration;
                    last_end = last_end.max(stream_ends[lane]);
                }
                What::Wait { end, after_device } => {
                    let was_removed = removed_at(&removed, point.time);
                    let began = clock.without_removed(point.time) + lag;
                    let ends = clock.without_removed(end);
                    if !was_removed {
                        lag = began.max(last_end) + after_device - ends;
                    }
                }
            }
        }
        let host_end = clock.without_removed(self.host.end) + lag;
        host_end.max(last_end) - self.host.start
    }

    /// The time saved by `removal`, against the same play with nothing removed; never negative.
    pub fn saved(&self, removal: &Removal) -> i64 {
        (self.run(&Removal::default()) - self.run(removal)).max(0)
    }
}

/// A launch is quick unless the queue is full; then the device works throughout.
fn blocked(view: &View) -> Vec<Span> {
    let host = &view.trace.host;
    let is_blocked = |&at: &usize| {
        let span = view.host_span(at);
        host.duration[at] > LONGEST_LAUNCH_NANOS
            && view.call_kind(at) == Some(CallKind::Launch)
            && covered(&view.busy, span) * 10 >= span.nanos() * 9
    };
    let blocked = (0..host.len()).filter(is_blocked);
    blocked.map(|at| Span { start: host.start[at] + LONGEST_LAUNCH_NANOS, end: host.end(at) }).collect()
}

fn removed_at(removed: &[Span], time: i64) -> bool {
    let next = removed.partition_point(|span| span.end <= time);
    removed.get(next).is_some_and(|span| span.start <= time)
}

/// Times with the removed spans cut out. Asked in ascending order but for the ends of waits, which lie a little ahead.
struct Clock<'r> {
    removed: &'r [Span],
    /// The first span that does not lie wholly before the last time asked for, and the length of those before it.
    next: usize,
    passed: i64,
}

impl Clock<'_> {
    fn without_removed(&mut self, time: i64) -> i64 {
        while self.next > 0 && self.removed[self.next - 1].end > time {
            self.next -= 1;
            self.passed -= self.removed[self.next].nanos();
        }
        while self.next < self.removed.len() && self.removed[self.next].end <= time {
            self.passed += self.removed[self.next].nanos();
            self.next += 1;
        }
        let within = self.removed.get(self.next).map_or(0, |span| (time - span.start).max(0));
        time - self.passed - within
    }
}

#[cfg(test)]
pub(crate) mod tests;
