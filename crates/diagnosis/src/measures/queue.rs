//! How much work waits on the device's streams over time, and when a full queue blocked the host.

use headroom_trace::{CallKind, NONE};
use serde::Serialize;

use super::intervals::{Span, covered, merged, seconds, total};
use super::view::View;
use crate::constants::queue::{FULL_QUEUE, HELD_BACK_NANOS};

#[derive(Clone, Debug, Default, Serialize)]
pub struct Queue {
    /// Pieces of work launched but not finished, over the steps: mean and maximum of each interval.
    pub curve: Vec<QueuePoint>,
    pub most: u32,
    /// Launches that took far longer than usual while the queue was full: the host was blocked.
    pub blocked_calls: usize,
    pub blocked_seconds_per_step: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct QueuePoint {
    /// From the first step's start.
    pub seconds: f64,
    pub mean: f64,
    pub most: u32,
}

const POINTS: i64 = 240;

pub fn queue(view: &View) -> Queue {
    let (host, device) = (&view.trace.host, &view.trace.device);
    let range = view.steps.range();
    // A graph's work is launched by one call and does not take up the launch queue.
    let ordered_singly = |at: &usize| {
        view.call_of[*at] != NONE && view.call_kind(view.call_of[*at] as usize) != Some(CallKind::GraphLaunch)
    };
    let mut edges: Vec<(i64, i32)> = Vec::new();
    for at in device.busy().filter(ordered_singly) {
        edges.push((host.start[view.call_of[at] as usize], 1));
        edges.push((device.end(at), -1));
    }
    if edges.is_empty() || range.nanos() == 0 {
        return Queue::default();
    }
    edges.sort_unstable();
    let depths = depths(&edges);
    let most = depths.iter().map(|(_, depth)| *depth).max().unwrap_or(0);
    let blocked = blocked(view, &depths, most);
    Queue {
        curve: curve(&depths, range),
        most,
        blocked_calls: blocked.len(),
        blocked_seconds_per_step: seconds(total(&merged(blocked))) / view.steps.count(),
    }
}

/// The amount of unfinished work from each moment on.
fn depths(edges: &[(i64, i32)]) -> Vec<(i64, u32)> {
    let mut depth = 0i64;
    let change = |&(time, by): &(i64, i32)| {
        depth += i64::from(by);
        (time, depth.max(0) as u32)
    };
    edges.iter().map(change).collect()
}

fn curve(depths: &[(i64, u32)], range: Span) -> Vec<QueuePoint> {
    let width = (range.nanos() / POINTS).max(1);
    let mut points = Vec::new();
    let mut next = depths.partition_point(|(time, _)| *time < range.start);
    let mut depth = next.checked_sub(1).map_or(0, |before| depths[before].1);
    let mut start = range.start;
    while start < range.end {
        let end = (start + width).min(range.end);
        let (mut time, mut area, mut most) = (start, 0.0, depth);
        while let Some(&(at, to)) = depths.get(next).filter(|(at, _)| *at < end) {
            area += f64::from(depth) * (at - time) as f64;
            (time, depth) = (at, to);
            most = most.max(depth);
            next += 1;
        }
        area += f64::from(depth) * (end - time) as f64;
        points.push(QueuePoint { seconds: seconds(start - range.start), mean: area / (end - start) as f64, most });
        start = end;
    }
    points
}

fn blocked(view: &View, depths: &[(i64, u32)], most: u32) -> Vec<Span> {
    if most < FULL_QUEUE.get() {
        return Vec::new();
    }
    let host = &view.trace.host;
    let range = view.steps.host_range();
    let depth_at = |time: i64| {
        let next = depths.partition_point(|(at, _)| *at <= time);
        next.checked_sub(1).map_or(0, |before| depths[before].1)
    };
    let is_held = |at: &usize| {
        view.call_kind(*at) == Some(CallKind::Launch)
            && host.duration[*at] > HELD_BACK_NANOS.get()
            && covered(&[range], view.host_span(*at)) > 0
            && f64::from(depth_at(host.start[*at])) > 0.8 * f64::from(most)
    };
    (0..host.len()).filter(is_held).map(|at| view.host_span(at)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_holds_the_mean_and_the_most_of_each_stretch() {
        let depths = depths(&[(0, 1), (0, 1), (120, -1), (240, -1)]);
        let points = curve(&depths, Span { start: 0, end: 480 });
        assert_eq!(points.len(), 240);
        assert_eq!((points[0].mean, points[0].most), (2.0, 2));
        assert_eq!((points[60].mean, points[119].mean, points[120].mean), (1.0, 1.0, 0.0));
    }

    #[test]
    fn work_that_ends_before_it_was_ordered_does_not_make_the_queue_negative() {
        assert_eq!(depths(&[(0, -1), (5, 1)]), [(0, 0), (5, 0)]);
    }
}
