//! Time that recording itself takes on the host: a cost per recorded event, by category, with bounds.

use hashbrown::HashMap;
use headroom_trace::{CallKind, Category, NONE};
use serde::Serialize;

use super::copies::is_from_pageable;
use super::intervals::Span;
use super::view::View;

/// Microseconds that an event costs the host while it is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct EventCosts {
    pub operator_micros: f64,
    /// A call into the device's runtime, seen by the driver's own callbacks.
    pub runtime_micros: f64,
    /// More for a call that waits: the profiler takes its records in there.
    pub wait_micros: f64,
    pub python_micros: f64,
    /// More for a kernel of torch.compile, whose launcher describes its arguments to a profiler.
    pub compiled_kernel_micros: f64,
    /// A copy from pageable memory, which the host stages piece by piece: the share of its time that recording adds.
    pub staging_share: f64,
}

/// Measured on an H200 with PyTorch 2.11: eight scripts, each timed with nothing attached, with a light profiler and with
/// everything, in one process (docs/benchmarks/true-step.md). The quickest tenth of
/// launches took 4.5 µs there while they were recorded.
const LIGHT: EventCosts = EventCosts {
    operator_micros: 1.5,
    runtime_micros: 6.0,
    wait_micros: 40.0,
    python_micros: 0.0,
    compiled_kernel_micros: 16.0,
    staging_share: 0.13,
};
/// With shapes, FLOPs and memory; and with stacks each Python function.
const SHAPES_MICROS: f64 = 1.0;
const PYTHON_MICROS: f64 = 2.5;
const LAUNCH_MICROS_THEN: f64 = 4.5;
/// The power of the launches' speed that costs follow.
const FOLLOWS: f64 = 2.0 / 3.0;

/// Costs between these multiples of the middle one were seen; of Python functions, which differ most, from a tenth to twice.
const LEAST: f64 = 0.4;
const LEAST_OF_PYTHON: f64 = 0.1;
pub const MOST: f64 = 1.7;
const MOST_OF_PYTHON: f64 = 2.0;
/// One script's copies of 154 MB took 23% of their time less without a profiler.
const MOST_STAGING: f64 = 0.3;

impl EventCosts {
    /// The middle of what was seen, by what the trace says was recorded and by how fast the host launches.
    pub fn usual(view: &View) -> EventCosts {
        let header = &view.trace.header;
        let shapes = if header.records_shapes { SHAPES_MICROS } else { 0.0 };
        let python = if header.records_stacks { PYTHON_MICROS } else { 0.0 };
        let costs = EventCosts { operator_micros: LIGHT.operator_micros + shapes, python_micros: python, ..LIGHT };
        costs.times(speed(view))
    }

    /// The least and the most that was seen.
    pub fn bounds(self) -> [EventCosts; 2] {
        let least = EventCosts { python_micros: LEAST_OF_PYTHON * self.python_micros, ..self.times(LEAST) };
        [least, EventCosts { python_micros: MOST_OF_PYTHON * self.python_micros, ..self.times(MOST) }]
    }

    pub fn times(self, factor: f64) -> EventCosts {
        EventCosts {
            operator_micros: factor * self.operator_micros,
            runtime_micros: factor * self.runtime_micros,
            wait_micros: factor * self.wait_micros,
            python_micros: factor * self.python_micros,
            compiled_kernel_micros: factor * self.compiled_kernel_micros,
            staging_share: (factor * self.staging_share).min(MOST_STAGING),
        }
    }
}

/// How slow this host is, against the one that the costs were measured on: by the quickest tenth of its launches.
fn speed(view: &View) -> f64 {
    let host = &view.trace.host;
    let launches = (0..host.len()).filter(|&at| view.call_kind(at) == Some(CallKind::Launch));
    let mut nanos: Vec<i64> = launches.map(|at| host.duration[at]).collect();
    if nanos.len() < 20 {
        return 0.5; // a host alone: nothing is seen by a driver
    }
    nanos.sort_unstable();
    let slower = (nanos[nanos.len() / 10] as f64 / 1e3 / LAUNCH_MICROS_THEN).clamp(0.4, 1.5);
    // In eleven recordings on one machine launches differed by half from process to process, and costs followed only in part.
    slower.powf(FOLLOWS)
}

/// Where the host's time within `range` went into recording, as spans to be taken out: after each event as much as it costs, as far as the
/// host was not waiting. At most four fifths of the time up to the next event, so that spans stay within each other, and half of a
/// call of the runtime, which takes its time without a profiler as well; the rest is carried over to the next event.
pub fn cost_spans(view: &View, costs: EventCosts, range: Span) -> Vec<Span> {
    let host = &view.trace.host;
    let is_compiled: Vec<bool> = view.trace.names.iter().map(|(_, name)| name.starts_with("triton_")).collect();
    let nanos = |micros: f64| (1e3 * micros) as i64;
    let mut spans: Vec<Span> = Vec::new();
    let (mut lane, mut debt, mut free_from, mut is_working) = (None, 0, i64::MIN, false);
    // The call before gives as much as may be taken out of it.
    let mut call: Option<i64> = None;
    let mut last_start = i64::MIN;
    let works = working_lanes(view);
    let pay = |debt: &mut i64, from: i64, until: i64, spans: &mut Vec<Span>| {
        let paid = (*debt).min((until - from) * 4 / 5);
        if paid > 0 {
            spans.push(Span { start: from, end: from + paid });
            *debt -= paid;
        }
    };
    for at in 0..host.len() {
        let start = host.start[at];
        if lane != Some(host.lane[at]) {
            (lane, debt, free_from, call) = (Some(host.lane[at]), 0, i64::MIN, None);
            is_working = works[host.lane[at].0 as usize];
        }
        if !is_working || start < range.start || start >= range.end {
            continue;
        }
        if let Some(most) = call.take() {
            pay(&mut debt, last_start, start.min(last_start + most * 5 / 4), &mut spans);
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
                let waits = view.call_kind(at) == Some(CallKind::Synchronise);
                call = (!waits && free_from == start).then(|| host.duration[at] / 2);
                free_from = free_from.max(host.end(at));
                costs.runtime_micros + if waits { costs.wait_micros } else { 0.0 }
            }
            _ => 0.0,
        };
        debt = (debt + nanos(cost)).min(MOST_DEBT_NANOS);
    }
    spans
}

/// Copies from pageable memory ordered within `range` without the part that recording adds: the host's time in their calls, and
/// their new lengths.
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

/// More than this is not carried over: the thread was waiting for another.
const MOST_DEBT_NANOS: i64 = 200_000;

/// Lanes of threads that run operators or order work.
fn working_lanes(view: &View) -> Vec<bool> {
    let host = &view.trace.host;
    let mut works = vec![false; view.trace.lanes.len()];
    for at in 0..host.len() {
        if matches!(host.category[at], Category::CpuOp | Category::Runtime) {
            works[host.lane[at].0 as usize] = true;
        }
    }
    works
}

#[cfg(test)]
mod tests;
