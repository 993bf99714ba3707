//! How work reaches the device: launch cost, delay until it starts, and queue depth.

use headroom_trace::CallKind;
use serde::Serialize;

use super::view::View;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Launches {
    pub count: usize,
    pub per_step: f64,
    pub graph_launches: usize,
    /// Without the profiler's cost, if it was subtracted.
    pub call_micros_median: f64,
    /// As recorded, if the profiler's cost was subtracted.
    pub recorded_call_micros_median: Option<f64>,
    pub call_seconds: f64,
    /// From the call's end to the work's start; a negative delay (start before the call returns) counts as 0.
    pub delay_micros_median: f64,
    /// Share of launches whose work takes less time than the call that queued it.
    pub shorter_than_launch_share: f64,
    /// Share of launches that found nothing queued or running ahead of them on their stream.
    pub nothing_ahead_share: f64,
    /// Number of pieces of work queued or running at the time of a launch.
    pub queue_depth_median: f64,
    pub queue_depth_most: usize,
}

pub fn launches(view: &View) -> Launches {
    let (host, device) = (&view.trace.host, &view.trace.device);
    let range = view.steps.host_range();
    let mut calls: Vec<(i64, usize)> = Vec::new(); // launch time, device span
    let mut graphs = std::collections::HashSet::new();
    for (at, call) in view.launched() {
        if host.start[call] < range.start || host.start[call] >= range.end {
            continue;
        }
        match view.call_kind(call) {
            Some(CallKind::GraphLaunch) => {
                graphs.insert(call);
            }
            Some(kind) if kind.queues_work() => calls.push((host.start[call], at)),
            _ => {}
        }
    }
    calls.sort_unstable();
    let mut sum = Launches {
        count: calls.len(),
        per_step: calls.len() as f64 / view.steps.count(),
        graph_launches: graphs.len(),
        ..Launches::default()
    };
    if calls.is_empty() {
        return sum;
    }
    let mut call_nanos = Vec::with_capacity(calls.len());
    let mut delays = Vec::with_capacity(calls.len());
    let mut shorter = 0;
    for &(_, at) in &calls {
        let call = view.call_of[at] as usize;
        call_nanos.push(host.duration[call]);
        delays.push((device.start[at] - host.end(call)).max(0));
        shorter += usize::from(device.duration[at] < host.duration[call]);
    }
    let depths = queue_depths(view, &calls);
    let ratio = |count: usize| count as f64 / calls.len() as f64;
    sum.call_seconds = call_nanos.iter().sum::<i64>() as f64 / 1e9;
    sum.shorter_than_launch_share = ratio(shorter);
    sum.nothing_ahead_share = ratio(depths.iter().filter(|depth| **depth == 0).count());
    sum.queue_depth_most = depths.iter().copied().max().unwrap_or(0) as usize;
    sum.call_micros_median = median(call_nanos) / 1e3;
    sum.delay_micros_median = median(delays) / 1e3;
    sum.queue_depth_median = median(depths);
    sum
}

pub fn median(mut values: Vec<i64>) -> f64 {
    values.sort_unstable();
    values.get(values.len() / 2).map_or(0.0, |value| *value as f64)
}

/// Work launched before each launch on the same stream and not finished by then.
fn queue_depths(view: &View, calls: &[(i64, usize)]) -> Vec<i64> {
    use std::cmp::Reverse;
    use std::collections::{BinaryHeap, HashMap};
    let device = &view.trace.device;
    let mut unfinished: HashMap<u32, BinaryHeap<Reverse<i64>>> = HashMap::new();
    calls
        .iter()
        .map(|&(time, at)| {
            let queue = unfinished.entry(device.track[at].0).or_default();
            while queue.peek().is_some_and(|Reverse(end)| *end <= time) {
                queue.pop();
            }
            let depth = queue.len() as i64;
            queue.push(Reverse(device.end(at)));
            depth
        })
        .collect()
}
