//! The points of a trace at which the host launches work or waits for it, and what each piece of work depended on.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use headroom_trace::{CallKind, NONE};

use crate::constants::points::{CLOCK_NANOS, LONGEST_DELAY_NANOS, LONGEST_GAP_NANOS};
use crate::measures::intervals::Span;
use crate::measures::launches::median;
use crate::measures::view::View;

#[derive(Clone, Copy)]
pub struct Point {
    pub time: i64,
    pub what: PointKind,
}

#[derive(Clone, Copy)]
pub enum PointKind {
    Order {
        device: u32,
        track: u32,
        /// From the launch to the start on an idle stream.
        delay: i64,
        /// From the end of the previous work on the stream, if it was queued.
        gap: i64,
        /// Whether the previous work is of the same graph.
        is_in_graph: bool,
        /// Work of another stream that it waited for, and the time from that work's end to its own start.
        after: Option<(u32, i64)>,
        /// The first wait after the launch by which it was done in the trace, counted from 0; or [`NONE`].
        waited_by: u32,
        duration: i64,
    },
    Wait {
        end: i64,
        after_device: i64,
    },
}

/// The points of the host's work within `range`.
pub fn points(view: &View, range: Span) -> Vec<Point> {
    let (host, device) = (&view.trace.host, &view.trace.device);
    let inside = |time: i64| (range.start..range.end).contains(&time);
    let mut ends: Vec<(i64, u32)> = device.busy().map(|at| (device.end(at), at as u32)).collect();
    ends.sort_unstable();
    let mut points = Vec::new();
    let mut gaps = Vec::new();
    // The previous work of each stream, in order of start.
    let mut before: Vec<Option<usize>> = vec![None; view.trace.tracks.len()];
    for at in device.busy() {
        let track = device.track[at].0 as usize;
        let previous = before[track].replace(at);
        if view.call_of[at] == NONE || !inside(host.start[view.call_of[at] as usize]) {
            continue;
        }
        let time = host.start[view.call_of[at] as usize];
        let start = device.start[at];
        let is_late = start - time > LONGEST_DELAY_NANOS.get();
        let gap = previous.map(|previous| start - device.end(previous)).filter(|gap| *gap <= LONGEST_GAP_NANOS.get());
        let queued = gap.filter(|_| is_late);
        let after = if is_late && queued.is_none() { other_stream(view, &ends, at) } else { None };
        gaps.extend(queued.filter(|gap| *gap >= 0));
        let what = PointKind::Order {
            device: at as u32,
            track: track as u32,
            delay: (start - time).clamp(0, LONGEST_DELAY_NANOS.get()),
            gap: queued.unwrap_or(i64::MAX),
            is_in_graph: previous.is_some_and(|previous| view.call_of[previous] == view.call_of[at]),
            after,
            waited_by: NONE,
            duration: device.duration[at],
        };
        points.push((start, Point { time, what }));
    }
    // Work that was launched too late to be queued would follow the previous work with the usual gap.
    let usual = (median(gaps) as i64).min(3 * CLOCK_NANOS.get());
    for (_, point) in &mut points {
        if let PointKind::Order { gap, .. } = &mut point.what
            && *gap == i64::MAX
        {
            *gap = usual;
        }
    }
    for at in (0..host.len()).filter(|&at| view.call_kind(at) == Some(CallKind::Synchronise)) {
        if inside(host.start[at]) {
            let (start, end) = (host.start[at], host.end(at));
            let until = until(start, end);
            let next = ends.partition_point(|(ended, _)| *ended <= until);
            let ready = next.checked_sub(1).map_or(i64::MIN, |index| ends[index].0);
            let after_device = end - ready.clamp(start, end);
            points.push((i64::MAX, Point { time: start, what: PointKind::Wait { end, after_device } }));
        }
    }
    // Work of one graph shares one launch: it is sorted as the device ran it.
    points.sort_by_key(|(start, point)| (point.time, *start));
    let mut points: Vec<Point> = points.into_iter().map(|(_, point)| point).collect();
    tie_to_waits(view, &mut points);
    points
}

/// Work that was done by this time was waited for.
fn until(start: i64, end: i64) -> i64 {
    end + CLOCK_NANOS.get().min((end - start) / 2)
}

/// Finds, once for all replays, the wait by which each piece of work was done.
fn tie_to_waits(view: &View, points: &mut [Point]) {
    let device = &view.trace.device;
    // Work that was not done at the last wait, by end time.
    let mut unfinished: BinaryHeap<Reverse<(i64, usize)>> = BinaryHeap::new();
    let mut waits = 0;
    for at in 0..points.len() {
        match points[at].what {
            PointKind::Order { device: span, .. } => unfinished.push(Reverse((device.end(span as usize), at))),
            PointKind::Wait { end, .. } => {
                let until = until(points[at].time, end);
                while let Some(&Reverse((ended, order))) = unfinished.peek()
                    && ended <= until
                {
                    if let PointKind::Order { waited_by, .. } = &mut points[order].what {
                        *waited_by = waits;
                    }
                    unfinished.pop();
                }
                waits += 1;
            }
        }
    }
}

/// Work of another stream that ended just before this work began.
fn other_stream(view: &View, ends: &[(i64, u32)], at: usize) -> Option<(u32, i64)> {
    let device = &view.trace.device;
    let start = device.start[at];
    let next = ends.partition_point(|(end, _)| *end <= start);
    let (end, other) =
        ends[..next].iter().rev().take(8).find(|(_, other)| device.track[*other as usize] != device.track[at])?;
    (start - end <= LONGEST_GAP_NANOS.get()).then_some((*other, start - end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_reaches_past_its_end_by_what_clocks_differ_and_half_its_length_at_most() {
        for (start, end, reach) in [(0, 10_000, 11_000), (5_000, 7_000, 8_000), (4_000, 5_000, 5_500), (7, 7, 7)] {
            assert_eq!(until(start, end), reach, "{start} to {end}");
        }
    }
}
