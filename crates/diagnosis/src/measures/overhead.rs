//! Estimates the profiler's share of the step if the run was not timed without it: a middle value and two bounds, from
//! the number of recorded events.
//!
//! The bounds are the lowest and highest measured costs of recording. The middle value depends on the machine: a view
//! such as `aten::transpose` does little but call `aten::as_strided`, so its self time is mostly the cost of recording
//! the inner call. It was fitted to three scripts on an H200 that were timed with and without the profiler (60, 55 and
//! 52% of the step); without such views it is half of the upper bound.

use std::collections::HashMap;

use headroom_trace::{CallKind, Category, NameId};

use super::launches::median;
use super::view::View;
use crate::constants::overhead::{MOST_ABOVE_FIT, SECONDS_PER_LAUNCH};

/// The profiler's shares of the recorded step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overhead {
    pub low: f64,
    pub middle: f64,
    pub high: f64,
    pub events_per_step: f64,
    pub functions_per_step: f64,
}

/// Seconds per operator, runtime call or allocation, and per Python function (built-in ones cost next to nothing).
const LOW: (f64, f64) = (0.5e-6, 0.5e-6);
const HIGH: (f64, f64) = (1.6e-6, 6e-6);
/// With shapes, stacks and FLOPs; includes functions.
const HIGH_WITH_FLOPS: (f64, f64) = (4.6e-6, 0.0);
/// Recording cost per event and per function, in multiples of a thin view's self time.
const OF_A_VIEW: (f64, f64) = (1.8, 1.0);

/// `None` for a trace without any time.
pub fn estimate(view: &View) -> Option<Overhead> {
    let steps = &view.steps;
    let step_seconds = steps.seconds_per_step(steps.wall_nanos());
    if step_seconds <= 0.0 {
        return None;
    }
    let range = steps.host_range();
    let (header, host) = (&view.trace.header, &view.trace.host);
    let inside = |time: i64| (range.start..range.end).contains(&time);
    let is_built_in: Vec<bool> = view.trace.names.iter().map(|(_, name)| name.starts_with("<built-in")).collect();
    let (mut events, mut functions) = (view.trace.memory.time.iter().filter(|time| inside(**time)).count(), 0);
    let mut launches = 0;
    for at in (0..host.len()).filter(|&at| inside(host.start[at])) {
        match host.category[at] {
            Category::CpuOp | Category::Runtime => events += 1,
            Category::PythonFunction if !is_built_in[host.name[at].index()] => functions += 1,
            _ => {}
        }
        launches += usize::from(view.call_kind(at) == Some(CallKind::Launch));
    }
    let (events, functions) = (events as f64 / steps.count(), functions as f64 / steps.count());
    // The host needs some of its time for the launches themselves.
    let most = (1.0 - SECONDS_PER_LAUNCH.get() * launches as f64 / steps.count() / step_seconds).clamp(0.0, 0.9);
    let share = |(event, function): (f64, f64)| ((events * event + functions * function) / step_seconds).min(most);
    let high_costs = match header.records_stacks && header.records_shapes && header.records_flops {
        true => HIGH_WITH_FLOPS,
        false => HIGH,
    };
    let (low, high) = (share(LOW), share(high_costs).max(share(LOW)));
    let (middle, high) = match recording_in_views(view) {
        Some(seconds) => {
            let middle = share((OF_A_VIEW.0 * seconds, OF_A_VIEW.1 * seconds)).clamp(low, high);
            // With FLOPs the fit is accurate to a sixth; without them, functions were measured to cost more than the
            // views suggest.
            let fitted = if high_costs == HIGH_WITH_FLOPS { (MOST_ABOVE_FIT.get() * middle).min(high) } else { high };
            (middle, fitted.max(middle))
        }
        None => ((0.5 * high).max(low), high),
    };
    Some(Overhead { low, middle, high, events_per_step: events, functions_per_step: functions })
}

/// Median self time in seconds of a view that calls one operator, minus that of the innermost; `None` with fewer than
/// ten.
fn recording_in_views(view: &View) -> Option<f64> {
    let host = &view.trace.host;
    let known = |wanted: &dyn Fn(&str) -> bool| -> Vec<bool> {
        view.trace.names.iter().map(|(_, name)| wanted(name)).collect()
    };
    let is_view = known(&|name| matches!(name, "aten::t" | "aten::transpose" | "aten::permute"));
    let is_leaf = known(&|name| name == "aten::as_strided");
    let of = |set: &[bool], name: NameId| set[name.index()];
    let mut held: HashMap<usize, (u32, i64)> = HashMap::new();
    let mut leaves = Vec::new();
    for at in 0..host.len() {
        if of(&is_leaf, host.name[at]) {
            leaves.push(host.duration[at]);
        }
        let parent = view.parent[at];
        if parent != headroom_trace::NONE && of(&is_view, host.name[parent as usize]) {
            let sum = held.entry(parent as usize).or_default();
            sum.0 += 1;
            sum.1 += host.duration[at];
        }
    }
    let own: Vec<i64> = held
        .into_iter()
        .filter(|(_, (children, _))| *children == 1)
        .map(|(at, (_, inner))| (host.duration[at] - inner).max(0))
        .collect();
    if own.len() < 10 || leaves.len() < 10 {
        return None;
    }
    Some((median(own) - median(leaves)).max(0.0) / 1e9)
}
