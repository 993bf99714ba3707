//! Replays the steps with some cost removed: launches in the host's order, each stream's queue behind them.

mod points;

use std::sync::OnceLock;

use hashbrown::HashMap;
use headroom_trace::CallKind;

use crate::constants::simulation::{LONGEST_GRAPH_LAUNCH_NANOS, LONGEST_LAUNCH_NANOS};
use crate::measures::intervals::{Span, covered, holds, merged};
use crate::measures::view::View;
use points::{Point, PointKind, points};

/// Time to remove: spans of the host, and device spans, which get a new duration.
#[derive(Clone, Debug, Default)]
pub struct Removal {
    pub host: Vec<Span>,
    pub device: HashMap<usize, i64>,
    /// Share of each gap between kernels of one graph to remove: recording each kernel lengthens the gap.
    pub graph_gaps: f64,
}

impl Removal {
    /// Combines both: the union of the host's spans, and the shorter of two durations.
    pub fn and(&self, other: &Removal) -> Removal {
        let mut both = self.clone();
        both.host.extend_from_slice(&other.host);
        both.graph_gaps = both.graph_gaps.max(other.graph_gaps);
        for (at, nanos) in &other.device {
            both.device.entry(*at).and_modify(|kept| *kept = (*kept).min(*nanos)).or_insert(*nanos);
        }
        both
    }

    pub fn is_empty(&self) -> bool {
        self.host.is_empty() && self.device.is_empty()
    }
}

/// The points at which the host meets the device, in order of time.
pub struct Simulation {
    /// The host's time range of the steps.
    host: Span,
    /// When the device becomes free for the steps: work launched before them runs until then.
    device_free: i64,
    points: Vec<Point>,
    /// Number of points at which the host waits.
    waits: usize,
    tracks: usize,
    device_spans: usize,
    /// Host time to spare: launches that waited for room in a full queue, and the cost of recording.
    spare: Vec<Span>,
    /// The steps' length, to which shares refer.
    wall: i64,
    /// The replay that removes nothing, made on first use.
    as_it_is: OnceLock<i64>,
}

/// One replay: when everything happened in it.
pub struct Replay {
    /// Start of each device span that the steps launched; [`NOT_PLAYED`] for the others.
    pub device_start: Vec<i64>,
    /// Host waits that remain, as recorded and as replayed.
    pub waits: Vec<(Span, Span)>,
    /// Host time that was removed, as merged spans.
    pub removed: Vec<Span>,
    /// When host and device have finished.
    pub end: i64,
}

pub const NOT_PLAYED: i64 = i64::MIN;

impl Simulation {
    pub fn new(view: &View) -> Simulation {
        Simulation::of_first_steps(view, view.steps.ordered.len())
    }

    /// Simulates the first `count` steps alone.
    pub fn of_first_steps(view: &View, count: usize) -> Simulation {
        let host = view.steps.host_range_of_first(count);
        let points = points(view, host);
        Simulation {
            host,
            device_free: view.steps.range().start,
            waits: points.iter().filter(|point| matches!(point.what, PointKind::Wait { .. })).count(),
            points,
            tracks: view.trace.tracks.len(),
            device_spans: view.trace.device.len(),
            spare: blocked(view),
            wall: view.steps.range().nanos().max(1),
            as_it_is: OnceLock::new(),
        }
    }

    /// Also removes the cost of recording from the host's time: where the device is the bottleneck, the host without a
    /// profiler would keep up with a quicker device.
    pub fn without_recording(mut self, spans: Vec<Span>) -> Simulation {
        self.spare = merged([self.spare, spans].concat());
        self.as_it_is = OnceLock::new();
        self
    }

    /// From the first step's start to the end of all work, in nanoseconds.
    pub fn run(&self, removal: &Removal) -> i64 {
        self.play(removal).end - self.host.start
    }

    /// The time saved by `removal`, compared with a replay that removes nothing; never negative.
    pub fn saved(&self, removal: &Removal) -> i64 {
        (self.as_it_is.get_or_init(|| self.run(&Removal::default())) - self.run(removal)).max(0)
    }

    /// The same as a share of the steps.
    pub fn saved_share(&self, removal: &Removal) -> f64 {
        (self.saved(removal) as f64 / self.wall as f64).min(1.0)
    }

    pub fn play(&self, removal: &Removal) -> Replay {
        let removed = merged([removal.host.as_slice(), &self.spare].concat());
        let mut clock = Clock { removed: &removed, next: 0, passed: 0 };
        let mut stream_ends = vec![self.device_free; self.tracks];
        let mut last_end = self.device_free;
        let mut device_start = vec![NOT_PLAYED; self.device_spans];
        let mut device_end = vec![NOT_PLAYED; self.device_spans];
        let mut waits = Vec::new();
        // When everything that each wait and the waits before it waited for is done.
        let mut done_by_wait: Vec<i64> = vec![self.device_free; self.waits];
        let (mut finished_end, mut wait) = (self.device_free, 0);
        // How much later (or, if negative, earlier) the host is than "time minus removed time", because of waits.
        let mut lag = 0;
        for point in &self.points {
            match point.what {
                PointKind::Order { device, track, delay, gap, is_in_graph, after, waited_by, duration } => {
                    let (device, track) = (device as usize, track as usize);
                    let ordered = clock.without_removed(point.time) + lag;
                    let left = removal.device.get(&device).copied();
                    if left == Some(0) {
                        // Work that is gone leaves no gap either, and nothing waits for its launch.
                        (device_start[device], device_end[device]) = (stream_ends[track], stream_ends[track]);
                        continue;
                    }
                    let duration = left.unwrap_or(duration);
                    let shrinks = if is_in_graph { removal.graph_gaps } else { 0.0 };
                    let gap = gap - (shrinks * gap.max(0) as f64) as i64;
                    let mut start = (stream_ends[track] + gap).max(ordered + delay);
                    if let Some((other, distance)) = after
                        && device_end[other as usize] != NOT_PLAYED
                    {
                        start = start.max(device_end[other as usize] + distance);
                    }
                    (device_start[device], device_end[device]) = (start, start + duration);
                    stream_ends[track] = start + duration;
                    last_end = last_end.max(start + duration);
                    if let Some(done) = done_by_wait.get_mut(waited_by as usize) {
                        *done = (*done).max(start + duration);
                    }
                }
                PointKind::Wait { end, after_device } => {
                    finished_end = finished_end.max(done_by_wait[wait]);
                    wait += 1;
                    let was_removed = holds(&removed, point.time);
                    let began = clock.without_removed(point.time) + lag;
                    let ends = clock.without_removed(end);
                    if !was_removed {
                        let ended = began.max(finished_end) + after_device;
                        lag = ended - ends;
                        waits.push((Span { start: point.time, end }, Span { start: began, end: ended }));
                    }
                }
            }
        }
        let host_end = clock.without_removed(self.host.end) + lag;
        Replay { device_start, waits, end: host_end.max(last_end), removed }
    }
}

/// Launch time spent blocked. A launch is quick unless the queue is full, and then the device is busy throughout. A
/// graph launch also waits until the graph's previous replay is done.
fn blocked(view: &View) -> Vec<Span> {
    let host = &view.trace.host;
    let blocked = (0..host.len()).filter_map(|at| {
        let own = match view.call_kind(at)? {
            CallKind::Launch => LONGEST_LAUNCH_NANOS.get(),
            CallKind::GraphLaunch => LONGEST_GRAPH_LAUNCH_NANOS.get(),
            _ => return None,
        };
        let span = view.host_span(at);
        let is_blocked = span.nanos() > own && covered(&view.busy, span) * 10 >= span.nanos() * 9;
        is_blocked.then_some(Span { start: span.start + own, end: span.end })
    });
    blocked.collect()
}

/// Maps times to times without the removed spans. Queries ascend, except for the ends of waits, which lie a little
/// ahead.
struct Clock<'r> {
    removed: &'r [Span],
    /// The first span that does not lie entirely before the last queried time, and the total length of those before it.
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

/// Maps a moment of the host to its time in a replay.
pub struct HostClock<'p> {
    play: &'p Replay,
    /// Total length of the removed spans before each one.
    passed: Vec<i64>,
}

impl<'p> HostClock<'p> {
    pub fn new(play: &'p Replay) -> HostClock<'p> {
        let mut sum = 0;
        let passed = play.removed.iter().map(|span| {
            sum += span.nanos();
            sum - span.nanos()
        });
        HostClock { passed: passed.collect(), play }
    }

    pub fn at(&self, time: i64) -> i64 {
        let next = self.play.waits.partition_point(|(was, _)| was.start <= time);
        let Some((was, is)) = next.checked_sub(1).map(|at| self.play.waits[at]) else {
            return self.without_removed(time);
        };
        if time < was.end {
            // Within a wait, interpolate.
            let share = (time - was.start) as f64 / was.nanos().max(1) as f64;
            return is.start + (share * is.nanos() as f64) as i64;
        }
        is.end + self.without_removed(time) - self.without_removed(was.end)
    }

    fn without_removed(&self, time: i64) -> i64 {
        let next = self.play.removed.partition_point(|span| span.start < time);
        let Some(last) = next.checked_sub(1) else { return time };
        let span = self.play.removed[last];
        time - self.passed[last] - (time.min(span.end) - span.start)
    }
}

#[cfg(test)]
pub(crate) mod tests;
