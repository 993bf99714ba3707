//! Memory over time, by the phase of the step that allocated it.

use std::collections::HashMap;

use headroom_trace::{HOST_MEMORY, MemoryEvents};
use serde::Serialize;

use super::intervals::{Span, merged};
use super::view::View;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Memory {
    /// `cuda:0`, or `host` where no device allocated.
    pub device: Option<String>,
    pub peak_bytes: u64,
    pub peak_reserved_bytes: u64,
    pub capacity_bytes: Option<u64>,
    /// From the first step's start, in seconds, and the phase in which the peak was reached.
    pub peak_at_seconds: f64,
    pub peak_phase: Option<Phase>,
    /// Live at the end of each step.
    pub live_after_steps: Vec<u64>,
    pub allocations: usize,
    /// At most `MOST_POINTS`, the peak among them.
    pub curve: Vec<Point>,
}

/// Who allocated the bytes that are live. What was live before the trace began (parameters, optimizer state) is `earlier`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    pub seconds: f64,
    pub earlier: u64,
    pub forward: u64,
    pub backward: u64,
    pub optimizer: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Forward,
    Backward,
    Optimizer,
}

const MOST_POINTS: usize = 400;

pub fn memory(view: &View) -> Memory {
    let events = &view.trace.memory;
    let Some(device) = busiest_device(events) else {
        return Memory::default();
    };
    let rows: Vec<usize> = (0..events.len()).filter(|&at| events.device[at] == device).collect();
    let mut result = Memory {
        device: Some(if device == HOST_MEMORY { "host".into() } else { format!("cuda:{device}") }),
        capacity_bytes: view
            .trace
            .header
            .devices
            .iter()
            .find(|one| one.id == u32::from(device))
            .map(|one| one.memory_bytes)
            .filter(|bytes| *bytes > 0 && device != HOST_MEMORY),
        peak_reserved_bytes: rows.iter().map(|&at| events.reserved[at]).max().unwrap_or(0),
        allocations: rows.iter().filter(|&&at| events.bytes[at] > 0).count(),
        ..Memory::default()
    };
    let phases = Phases::new(view);
    let mut owners: HashMap<u64, (u64, Phase)> = HashMap::new();
    let mut by_phase: HashMap<Phase, u64> = HashMap::new();
    let origin = view.steps.range().start;
    let stride = rows.len().div_ceil(MOST_POINTS).max(1);
    let mut peak_point = Point::default();
    for (index, &at) in rows.iter().enumerate() {
        let phase = phases.at(events, at);
        if events.bytes[at] > 0 {
            let bytes = events.bytes[at].unsigned_abs();
            owners.insert(events.address[at], (bytes, phase));
            *by_phase.entry(phase).or_default() += bytes;
        } else if let Some((bytes, phase)) = owners.remove(&events.address[at]) {
            *by_phase.entry(phase).or_default() -= bytes;
        }
        let live = |phase: Phase| by_phase.get(&phase).copied().unwrap_or(0);
        let [forward, backward, optimizer] = [Phase::Forward, Phase::Backward, Phase::Optimizer].map(live);
        let point = Point {
            seconds: (events.time[at] - origin) as f64 / 1e9,
            earlier: events.allocated[at].saturating_sub(forward + backward + optimizer),
            forward,
            backward,
            optimizer,
        };
        if events.allocated[at] > result.peak_bytes {
            result.peak_bytes = events.allocated[at];
            result.peak_at_seconds = point.seconds;
            result.peak_phase = Some(phase);
            peak_point = point;
        }
        if index % stride == 0 {
            result.curve.push(point);
        }
    }
    if result.peak_bytes > 0 {
        let place = result.curve.partition_point(|point| point.seconds < peak_point.seconds);
        result.curve.insert(place, peak_point);
    }
    result.live_after_steps = view
        .steps
        .list
        .iter()
        .filter_map(|step| {
            let after = rows.partition_point(|&at| events.time[at] < step.span.end);
            after.checked_sub(1).map(|index| events.allocated[rows[index]])
        })
        .collect();
    result
}

/// The device with the most events; the host only where no device has any.
fn busiest_device(events: &MemoryEvents) -> Option<u16> {
    let mut counts: HashMap<u16, usize> = HashMap::new();
    events.device.iter().for_each(|device| *counts.entry(*device).or_default() += 1);
    counts.into_iter().max_by_key(|(device, count)| (*device != HOST_MEMORY, *count, *device)).map(|(device, _)| device)
}

struct Phases {
    optimizer: Vec<Span>,
    backward: Vec<(u16, Vec<Span>)>,
}

impl Phases {
    fn new(view: &View) -> Phases {
        let optimizer = view.host_spans_named(|name| name.starts_with("Optimizer.step"));
        let mut by_lane: HashMap<u16, Vec<Span>> = HashMap::new();
        for at in view.host_spans_named(|name| name.starts_with("autograd::engine::evaluate_function")) {
            by_lane.entry(view.trace.host.lane[at].0).or_default().push(view.host_span(at));
        }
        Phases {
            optimizer: merged(optimizer.into_iter().map(|at| view.host_span(at)).collect()),
            backward: by_lane.into_iter().map(|(lane, spans)| (lane, merged(spans))).collect(),
        }
    }

    fn at(&self, events: &MemoryEvents, at: usize) -> Phase {
        let time = events.time[at];
        let holds = |set: &[Span]| {
            let next = set.partition_point(|span| span.end <= time);
            set.get(next).is_some_and(|span| span.start <= time)
        };
        let lane = events.lane[at].0;
        if self.backward.iter().any(|(of, set)| *of == lane && holds(set)) {
            Phase::Backward
        } else if holds(&self.optimizer) {
            Phase::Optimizer
        } else {
            Phase::Forward
        }
    }
}
