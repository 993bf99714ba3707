//! Host time spent on recording: a cost per recorded event, by category, with bounds.

use hashbrown::HashMap;
use headroom_trace::{CallKind, Category, NONE};
use serde::Serialize;

use super::copies::is_from_pageable;
use super::intervals::Span;
use super::view::View;
use crate::constants::profiler_cost::*;

/// Microseconds of host time for recording one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct EventCosts {
    pub operator_micros: f64,
    /// A runtime call that launches work, recorded through the driver's own callbacks; the work itself is recorded as
    /// well.
    pub runtime_micros: f64,
    /// A call that neither launches nor waits: it queries an attribute, or marks or holds a stream.
    pub query_micros: f64,
    /// Extra cost of a call that waits: the profiler collects its records there.
    pub wait_micros: f64,
    pub python_micros: f64,
    /// Extra cost of a torch.compile kernel, whose launcher describes its arguments to the profiler.
    pub compiled_kernel_micros: f64,
    /// For copies from pageable memory, which the host stages piece by piece: the share of their time that recording
    /// adds.
    pub staging_share: f64,
}

/// Measured on an H200 with PyTorch 2.11: 53 scripts, each timed with nothing attached, with a light profiler and with
/// everything, in one process (docs/benchmarks/true-step.md). The quickest tenth of recorded launches took 5.2 µs
/// there. A call that waits cost no more than any other.
const LIGHT: EventCosts = EventCosts {
    operator_micros: 1.2,
    runtime_micros: 8.0,
    query_micros: 0.3,
    wait_micros: 0.0,
    python_micros: 0.0,
    compiled_kernel_micros: 2.0,
    staging_share: 0.13,
};

/// Proportions for dividing a known total cost among events, from the first eight of those scripts, whose launches took
/// 4.5 µs. Measured savings matched these more often than the costs above; totals matched worse.
const SHARED: EventCosts = EventCosts {
    operator_micros: 1.5,
    runtime_micros: 6.0,
    query_micros: 6.0,
    wait_micros: 40.0,
    python_micros: 0.0,
    compiled_kernel_micros: 16.0,
    staging_share: 0.13,
};

impl EventCosts {
    /// The middle of the costs seen, for what the trace recorded and how fast the host launches.
    pub fn usual(view: &View) -> EventCosts {
        let more = EventCosts::beyond_light(view);
        let light = LIGHT.times(speed(view));
        EventCosts {
            operator_micros: light.operator_micros + more.operator_micros,
            python_micros: more.python_micros,
            ..light
        }
    }

    /// The part of [`EventCosts::usual`] that a light profiler does not have: for shapes and stacks.
    pub fn beyond_light(view: &View) -> EventCosts {
        let [operator_micros, python_micros] = for_more(view, SHAPES_MICROS.get(), PYTHON_MICROS.get());
        EventCosts { operator_micros, python_micros, ..EventCosts::default() }.times(speed(view))
    }

    /// Costs to be scaled if the total is known: from a true time, or from what the device hides.
    pub fn shared(view: &View) -> EventCosts {
        let [shapes, python_micros] = for_more(view, SHARED_SHAPES_MICROS.get(), SHARED_PYTHON_MICROS.get());
        let costs = EventCosts { operator_micros: SHARED.operator_micros + shapes, python_micros, ..SHARED };
        let slower = quick_launch_micros(view, LEAST_LAUNCHES.get()).map(|micros| micros / SHARED_LAUNCH_MICROS.get());
        costs.times(slower.map_or(0.5, |slower| slower.clamp(0.4, 1.5).powf(SHARED_FOLLOWS.get())))
    }

    /// The lowest and the highest costs seen.
    pub fn bounds(self) -> [EventCosts; 2] {
        let least = EventCosts { python_micros: LEAST_OF_PYTHON.get() * self.python_micros, ..self.times(LEAST.get()) };
        [least, EventCosts { python_micros: MOST_OF_PYTHON.get() * self.python_micros, ..self.times(MOST.get()) }]
    }

    pub fn times(self, factor: f64) -> EventCosts {
        EventCosts {
            operator_micros: factor * self.operator_micros,
            runtime_micros: factor * self.runtime_micros,
            query_micros: factor * self.query_micros,
            wait_micros: factor * self.wait_micros,
            python_micros: factor * self.python_micros,
            compiled_kernel_micros: factor * self.compiled_kernel_micros,
            staging_share: (factor * self.staging_share).min(MOST_STAGING.get()),
        }
    }
}

/// Costs of an operator's shapes and of a Python function, where they were recorded.
fn for_more(view: &View, shapes: f64, python: f64) -> [f64; 2] {
    let header = &view.trace.header;
    [if header.records_shapes { shapes } else { 0.0 }, if header.records_stacks { python } else { 0.0 }]
}

/// How slow this host is compared with the one that the costs were measured on, by the quickest tenth of its launches.
fn speed(view: &View) -> f64 {
    if quick_launch_micros(view, 1).is_none() {
        return WITHOUT_A_DEVICE.get();
    }
    let micros = quick_launch_micros(view, LEAST_LAUNCHES.get()).unwrap_or(LAUNCH_MICROS_THEN.get());
    let slower = micros / LAUNCH_MICROS_THEN.get();
    slower.max((QUICK_IN_PART.get() * slower).min(QUICK.get())).clamp(0.4, 1.6)
}

/// The longest of the quickest tenth of launches; `None` with fewer than `least`.
fn quick_launch_micros(view: &View, least: usize) -> Option<f64> {
    let host = &view.trace.host;
    let launches = (0..host.len()).filter(|&at| view.call_kind(at) == Some(CallKind::Launch));
    let mut nanos: Vec<i64> = launches.map(|at| host.duration[at]).collect();
    nanos.sort_unstable();
    (nanos.len() >= least).then(|| nanos[nanos.len() / 10] as f64 / 1e3)
}

/// Cannot overflow, however long a duration a damaged trace gives.
fn four_fifths(nanos: i64) -> i64 {
    nanos / 5 * 4 + nanos % 5 * 4 / 5
}

/// Host time within `range` spent on recording, as spans to remove: after each event as much as it costs, unless the
/// host was waiting. At most four fifths of the time up to the next event, so that spans stay nested, and at most half
/// of a runtime call, which takes time without a profiler as well; the rest is carried over to the next event.
pub fn cost_spans(view: &View, costs: EventCosts, range: Span) -> Vec<Span> {
    let host = &view.trace.host;
    let is_compiled: Vec<bool> = view.trace.names.iter().map(|(_, name)| name.starts_with("triton_")).collect();
    let nanos = |micros: f64| (1e3 * micros) as i64;
    let mut spans: Vec<Span> = Vec::new();
    let (mut track, mut debt, mut free_from, mut is_working) = (None, 0, i64::MIN, false);
    // How much may be removed from the previous call.
    let mut call: Option<i64> = None;
    let mut last_start = i64::MIN;
    let works = working_lanes(view);
    let pay = |debt: &mut i64, from: i64, until: i64, spans: &mut Vec<Span>| {
        let paid = (*debt).min(four_fifths(until.saturating_sub(from)));
        if paid > 0 {
            spans.push(Span { start: from, end: from + paid });
            *debt -= paid;
        }
    };
    for at in 0..host.len() {
        let start = host.start[at];
        if track != Some(host.track[at]) {
            (track, debt, free_from, call) = (Some(host.track[at]), 0, i64::MIN, None);
            is_working = works[host.track[at].0 as usize];
        }
        if !is_working || start < range.start || start >= range.end {
            continue;
        }
        if let Some(most) = call.take() {
            pay(&mut debt, last_start, start.min(last_start.saturating_add(most + most / 4)), &mut spans);
        }
        if free_from != i64::MIN {
            pay(&mut debt, free_from, start, &mut spans);
        }
        (free_from, last_start) = (free_from.max(start), start);
        let cost = match host.category[at] {
            Category::CpuOp if is_compiled[host.name[at].index()] => {
                costs.operator_micros + costs.compiled_kernel_micros
            }
            Category::CpuOp => costs.operator_micros,
            Category::PythonFunction => costs.python_micros,
            Category::Runtime => {
                let kind = view.call_kind(at);
                let waits = kind == Some(CallKind::Synchronise);
                call = (!waits && free_from == start).then(|| host.duration[at] / 2);
                free_from = free_from.max(host.end(at));
                match kind {
                    Some(CallKind::Synchronise) => costs.runtime_micros + costs.wait_micros,
                    Some(CallKind::Other) => costs.query_micros,
                    _ => costs.runtime_micros,
                }
            }
            _ => 0.0,
        };
        debt = (debt + nanos(cost)).min(MOST_DEBT_NANOS.get());
    }
    spans
}

/// Copies from pageable memory launched within `range`, without the part that recording adds: the host's time in their
/// calls, and their new durations.
pub fn staging(view: &View, costs: EventCosts, range: Span) -> (Vec<Span>, HashMap<usize, i64>) {
    let device = &view.trace.device;
    let is_pageable = view.of_kernels(is_from_pageable);
    let less = |nanos: i64| (costs.staging_share * nanos as f64) as i64;
    let (mut spans, mut lengths) = (Vec::new(), HashMap::new());
    for at in device.busy().filter(|&at| is_pageable[device.name[at].index()] && view.call_of[at] != NONE) {
        let call = view.host_span(view.call_of[at] as usize);
        if (range.start..range.end).contains(&call.start) && costs.staging_share > 0.0 {
            spans.push(Span { start: call.end - less(call.nanos()), end: call.end });
            lengths.insert(at, device.duration[at] - less(device.duration[at]));
        }
    }
    (spans, lengths)
}

/// Tracks of threads that run operators or launch work.
fn working_lanes(view: &View) -> Vec<bool> {
    let host = &view.trace.host;
    let mut works = vec![false; view.trace.tracks.len()];
    for at in 0..host.len() {
        if matches!(host.category[at], Category::CpuOp | Category::Runtime) {
            works[host.track[at].0 as usize] = true;
        }
    }
    works
}

#[cfg(test)]
mod tests;
