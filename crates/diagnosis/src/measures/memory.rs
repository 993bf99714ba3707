//! Memory over time, by purpose and by the phase of the step that allocated it.

use std::collections::HashMap;

use headroom_trace::run::Timing;
use headroom_trace::{HOST_MEMORY, MemoryEvents, Phase};
use serde::Serialize;

use super::calls::{Call, Calls};
use super::intervals::{Span, holds, merged};
use super::view::{View, is_backward_node};

#[derive(Clone, Debug, Default, Serialize)]
pub struct Memory {
    /// `cuda:0`, or `host` if no device allocated.
    pub device: Option<String>,
    pub peak_bytes: u64,
    pub peak_reserved_bytes: u64,
    pub capacity_bytes: Option<u64>,
    /// Seconds from the first step's start to the peak, and the phase in which it was reached.
    pub peak_at_seconds: f64,
    pub peak_phase: Option<Phase>,
    /// Bytes live at the end of each step.
    pub live_after_steps: Vec<u64>,
    pub allocations: usize,
    /// At most `MOST_POINTS` points, including the peak.
    pub curve: Vec<Point>,
}

/// Live bytes by purpose: as a headroom run states it, otherwise as far as an allocation's lifetime shows. Memory live
/// before such a trace began (parameters, optimizer state) is `earlier`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Point {
    pub seconds: f64,
    pub earlier: u64,
    pub parameters: u64,
    pub gradients: u64,
    pub optimizer_state: u64,
    pub activations: u64,
    pub temporaries: u64,
}

impl Point {
    pub fn total(&self) -> u64 {
        let stated = [self.parameters, self.gradients, self.optimizer_state, self.activations, self.temporaries];
        self.earlier + stated.iter().sum::<u64>()
    }
}

/// Purpose of an allocation, by the phases of its allocation and release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Use {
    /// Allocated in the forward pass and still live when it ends.
    Activation,
    /// Allocated in the backward pass and still live when it ends.
    Gradient,
    /// Allocated by the optimizer and still live when it ends.
    OptimizerState,
    /// Freed within the phase that allocated it.
    Temporary,
}

fn use_of(made: Phase, freed: Option<(Phase, bool)>) -> Use {
    match (made, freed) {
        // The flag means the same pass of the same step, not one of a later step.
        (made, Some((freed, true))) if made == freed => Use::Temporary,
        (Phase::Forward, _) => Use::Activation,
        (Phase::Backward, _) => Use::Gradient,
        (Phase::Optimizer, _) => Use::OptimizerState,
    }
}

const MOST_POINTS: usize = 400;

pub fn memory(view: &View, calls: Option<&Calls>) -> Memory {
    let events = &view.trace.memory;
    if let Some(calls) = calls {
        return of_run(view, calls);
    }
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
    let uses = uses(view, &phases, events, &rows);
    let mut owners: HashMap<u64, (u64, Use)> = HashMap::new();
    let mut by_use: HashMap<Use, u64> = HashMap::new();
    let origin = view.steps.host_range().start;
    let stride = rows.len().div_ceil(MOST_POINTS).max(1);
    let mut peak_point = Point::default();
    for (index, &at) in rows.iter().enumerate() {
        let phase = phases.at(events, at);
        if events.bytes[at] > 0 {
            let bytes = events.bytes[at].unsigned_abs();
            let what = uses[index];
            // The trace dropped a free: the address is allocated again.
            if let Some((bytes, what)) = owners.insert(events.address[at], (bytes, what)) {
                *by_use.entry(what).or_default() -= bytes;
            }
            *by_use.entry(what).or_default() += bytes;
        } else if let Some((bytes, what)) = owners.remove(&events.address[at]) {
            *by_use.entry(what).or_default() -= bytes;
        }
        let used = |what: Use| by_use.get(&what).copied().unwrap_or(0);
        let point = Point {
            seconds: (events.time[at] - origin) as f64 / 1e9,
            earlier: events.allocated[at].saturating_sub(by_use.values().sum()),
            parameters: 0,
            activations: used(Use::Activation),
            gradients: used(Use::Gradient),
            optimizer_state: used(Use::OptimizerState),
            temporaries: used(Use::Temporary),
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
        .ordered
        .iter()
        .filter_map(|span| {
            let after = rows.partition_point(|&at| events.time[at] < span.end);
            after.checked_sub(1).map(|index| events.allocated[rows[index]])
        })
        .collect();
    result
}

/// A headroom run: every call states the live bytes by category, exactly as planned.
fn of_run(view: &View, calls: &Calls) -> Memory {
    let origin = view.steps.list.first().map_or(0, |step| step.span.start);
    let point = |call: &Call| {
        let [parameters, gradients, optimizer_state, activations, temporaries] = call.stated.live;
        let seconds = (call.span.start - origin) as f64 / 1e9;
        Point { seconds, earlier: 0, parameters, gradients, optimizer_state, activations, temporaries }
    };
    let peak = calls.fullest();
    let peak_at = peak.map_or(0, |peak| peak.at);
    let stride = calls.list.len().div_ceil(MOST_POINTS).max(1);
    let shown = calls.list.iter().enumerate().filter(|(index, call)| index % stride == 0 || call.at == peak_at);
    let live_after = |index: usize| {
        let last = calls.list.partition_point(|call| call.step <= index);
        last.checked_sub(1).map(|last| calls.list[last].live_bytes())
    };
    let device = view.trace.header.devices.first();
    Memory {
        device: Some(if calls.header.timing == Timing::HostClock { "host".into() } else { "cuda:0".into() }),
        peak_bytes: peak.map_or(0, Call::live_bytes),
        peak_reserved_bytes: calls.header.plan.reserved_bytes,
        capacity_bytes: device.map(|device| device.memory_bytes).filter(|bytes| *bytes > 0),
        peak_at_seconds: peak.map_or(0.0, |peak| point(peak).seconds),
        peak_phase: peak.map(|peak| peak.phase),
        live_after_steps: (0..view.steps.list.len()).filter_map(live_after).collect(),
        allocations: calls.header.plan.allocations as usize,
        curve: shown.map(|(_, call)| point(call)).collect(),
    }
}

/// The purpose of every allocating row. Memory freed in a later step outlived its pass.
fn uses(view: &View, phases: &Phases, events: &MemoryEvents, rows: &[usize]) -> Vec<Use> {
    let mut uses: Vec<Use> = rows.iter().map(|&at| use_of(phases.at(events, at), None)).collect();
    let mut open: HashMap<u64, usize> = HashMap::new();
    for (index, &at) in rows.iter().enumerate() {
        if events.bytes[at] > 0 {
            open.insert(events.address[at], index);
        } else if let Some(made) = open.remove(&events.address[at]) {
            let same_step = view.steps.at_host(events.time[rows[made]]) == view.steps.at_host(events.time[at]);
            uses[made] = use_of(phases.at(events, rows[made]), Some((phases.at(events, at), same_step)));
        }
    }
    uses
}

/// The device with the most events; the host only if no device has any.
fn busiest_device(events: &MemoryEvents) -> Option<u16> {
    let mut counts: HashMap<u16, usize> = HashMap::new();
    events.device.iter().for_each(|device| *counts.entry(*device).or_default() += 1);
    counts.into_iter().max_by_key(|(device, count)| (*device != HOST_MEMORY, *count, *device)).map(|(device, _)| device)
}

struct Phases {
    optimizer: Vec<Span>,
    backward: HashMap<u32, Vec<Span>>,
}

impl Phases {
    fn new(view: &View) -> Phases {
        let optimizer = view.host_spans_named(|name| name.starts_with("Optimizer.step"));
        let mut by_lane: HashMap<u32, Vec<Span>> = HashMap::new();
        for at in view.host_spans_named(is_backward_node) {
            by_lane.entry(view.trace.host.track[at].0).or_default().push(view.host_span(at));
        }
        Phases {
            optimizer: merged(optimizer.into_iter().map(|at| view.host_span(at)).collect()),
            backward: by_lane.into_iter().map(|(track, spans)| (track, merged(spans))).collect(),
        }
    }

    fn at(&self, events: &MemoryEvents, at: usize) -> Phase {
        let time = events.time[at];
        let track = events.track[at].0;
        if self.backward.get(&track).is_some_and(|set| holds(set, time)) {
            Phase::Backward
        } else if holds(&self.optimizer, time) {
            Phase::Optimizer
        } else {
            Phase::Forward
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_life_of_an_allocation_says_what_it_was_for() {
        use Phase::{Backward, Forward, Optimizer};
        for (made, freed, want) in [
            (Forward, Some((Forward, true)), Use::Temporary),
            (Forward, Some((Backward, true)), Use::Activation),
            (Backward, Some((Backward, true)), Use::Temporary),
            // Gradients of one step are freed by the backward pass of the next if they are set to none in between.
            (Backward, Some((Backward, false)), Use::Gradient),
            (Backward, Some((Forward, false)), Use::Gradient),
            (Optimizer, None, Use::OptimizerState),
            (Optimizer, Some((Optimizer, true)), Use::Temporary),
        ] {
            assert_eq!(use_of(made, freed), want, "{made:?} {freed:?}");
        }
    }
}
