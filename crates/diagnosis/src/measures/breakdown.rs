//! Splits a step's time into parts that add up to it, with causes for idle time.

use headroom_trace::{CallKind, Category, NONE};
use serde::Serialize;

use super::collectives::{is_collective_operator, is_communication};
use super::data_loading::loading_spans;
use super::intervals::{Span, clipped, covered, gaps, merged, seconds, total, without};
use super::stops::Stop;
use super::view::View;
use crate::constants::breakdown::LONG_GAP_NANOS;

/// Seconds over all steps. Every moment belongs to exactly one part: those that keep the device busy take precedence,
/// in this order.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Breakdown {
    pub wall_seconds: f64,
    pub compute_seconds: f64,
    pub communication_exposed_seconds: f64,
    pub copies_exposed_seconds: f64,
    pub idle: Idle,
    /// Share of the steps in which the device worked; in CPU-only runs, in which an operator ran.
    pub busy_share: f64,
    pub where_work_runs: WhereWorkRuns,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhereWorkRuns {
    #[default]
    Device,
    Host,
}

/// Seconds in which no device worked, by the host's activity at the time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Idle {
    pub total_seconds: f64,
    pub data_loading_seconds: f64,
    /// In a call that waits for the device.
    pub host_waiting_seconds: f64,
    /// In Python and operators, before it launched the next work.
    pub host_busy_seconds: f64,
    /// The part of `host_busy_seconds` in gaps too long to be caused by launches.
    pub host_busy_in_long_gaps_seconds: f64,
    /// Between the launch of the next work and its start.
    pub launch_delay_seconds: f64,
    /// Busy host and launch delay in short gaps not ended by a kernel launch: a graph or its copies follow, or nothing
    /// does.
    #[serde(skip)]
    pub without_launches_seconds: f64,
    /// The next work was queued but the device stayed idle: it waited for another stream, another rank, or something
    /// outside the trace.
    pub stalled_seconds: f64,
    /// Nothing shows what launched the next work.
    pub unknown_seconds: f64,
    pub longest_seconds: f64,
}

pub fn breakdown(view: &View, stops: &[Stop]) -> Breakdown {
    let mut sum = match view.has_device_work() {
        true => of_device(view, stops),
        false => of_host(view),
    };
    sum.wall_seconds = seconds(view.steps.wall_nanos());
    sum
}

fn of_device(view: &View, stops: &[Stop]) -> Breakdown {
    let device = &view.trace.device;
    let sets = |wanted: &dyn Fn(usize) -> bool| -> Vec<Span> {
        merged(device.busy().filter(|&at| wanted(at)).map(|at| view.device_span(at)).collect())
    };
    let collective = view.of_kernels(is_communication);
    let communicates = |at: usize| collective[device.name[at].index()];
    let compute = sets(&|at| device.category[at] == Category::Kernel && !communicates(at));
    let communication = sets(&|at| device.category[at] == Category::Kernel && communicates(at));
    let exposed_communication = without(&communication, &compute);
    let copies = sets(&|at| device.category[at] != Category::Kernel);
    let exposed_copies = without(&without(&copies, &compute), &communication);

    let loading = loading_spans(view);
    let waiting = waiting_spans(view);
    let mut sum = Breakdown::default();
    let mut busy_nanos = 0;
    for step in &view.steps.list {
        sum.compute_seconds += seconds(covered(&compute, step.span));
        sum.communication_exposed_seconds += seconds(covered(&exposed_communication, step.span));
        sum.copies_exposed_seconds += seconds(covered(&exposed_copies, step.span));
        busy_nanos += covered(&view.busy, step.span);
    }
    stops.iter().for_each(|stop| add_stop(view, &mut sum.idle, stop, &loading, &waiting));
    sum.busy_share = view.steps.share(busy_nanos);
    sum
}

fn add_stop(view: &View, idle: &mut Idle, stop: &Stop, loading: &[Span], waiting: &[Span]) {
    let gap = stop.span;
    idle.total_seconds += seconds(gap.nanos());
    idle.longest_seconds = idle.longest_seconds.max(seconds(gap.nanos()));
    let Some(before) = stop.starved() else {
        let loading_nanos = covered(loading, gap);
        idle.data_loading_seconds += seconds(loading_nanos);
        idle.unknown_seconds += seconds(gap.nanos() - loading_nanos);
        return;
    };
    let loading_nanos = covered(loading, before);
    // A wait inside the loader counts as loading.
    let waiting_nanos = total(&without(&clipped(waiting, before), loading));
    idle.data_loading_seconds += seconds(loading_nanos);
    idle.host_waiting_seconds += seconds(waiting_nanos);
    let host_busy = seconds(before.nanos() - loading_nanos - waiting_nanos);
    idle.host_busy_seconds += host_busy;
    if gap.nanos() > LONG_GAP_NANOS.get() {
        idle.host_busy_in_long_gaps_seconds += host_busy;
    }
    let delay = seconds(gap.nanos() - before.nanos() - stop.stalled().nanos());
    idle.stalled_seconds += seconds(stop.stalled().nanos());
    idle.launch_delay_seconds += delay;
    if stop.after().is_none_or(|at| begins_a_graph(view, at)) {
        idle.without_launches_seconds += delay + if gap.nanos() > LONG_GAP_NANOS.get() { 0.0 } else { host_busy };
    }
}

/// Whether a device span belongs to a graph, or is a copy or fill of the next graph's inputs.
fn begins_a_graph(view: &View, at: usize) -> bool {
    let device = &view.trace.device;
    let kinds = (at..device.len()).take_while(|&next| device.track[next] == device.track[at]).map(|next| {
        let call = Some(view.call_of[next]).filter(|call| *call != NONE)?;
        view.call_kind(call as usize)
    });
    let first = kinds.take(MOST_COPIES).find(|kind| !matches!(kind, Some(CallKind::Copy | CallKind::Fill)));
    first == Some(Some(CallKind::GraphLaunch))
}

/// Most input copies before a graph launch.
const MOST_COPIES: usize = 16;

/// When the host was in a call that waits for the device.
pub fn waiting_spans(view: &View) -> Vec<Span> {
    let waits = |at: &usize| view.call_kind(*at) == Some(CallKind::Synchronise);
    merged((0..view.trace.host.len()).filter(waits).map(|at| view.host_span(at)).collect())
}

/// A run on the host alone: operators are the work; the loader and the rest are idle time.
fn of_host(view: &View) -> Breakdown {
    let host = &view.trace.host;
    let is_work = |&at: &usize| view.is_operator(at) && !is_collective_operator(view.host_name(at));
    let operators = merged((0..host.len()).filter(is_work).map(|at| view.host_span(at)).collect());
    let loading = loading_spans(view);
    let working = without(&operators, &loading);
    let communication = without(&without(&super::communication::exposed(view), &working), &loading);
    let mut sum = Breakdown { where_work_runs: WhereWorkRuns::Host, ..Breakdown::default() };
    let mut busy_nanos = 0;
    for step in &view.steps.list {
        let work = covered(&working, step.span);
        busy_nanos += work;
        sum.compute_seconds += seconds(work);
        let idle = &mut sum.idle;
        let communicating = covered(&communication, step.span);
        sum.communication_exposed_seconds += seconds(communicating);
        let rest = step.span.nanos() - work - communicating;
        let loading_nanos = covered(&loading, step.span);
        idle.total_seconds += seconds(rest);
        idle.data_loading_seconds += seconds(loading_nanos);
        idle.host_busy_seconds += seconds(rest - loading_nanos);
        let longest = gaps(&working, step.span).into_iter().map(Span::nanos).max().unwrap_or(0);
        idle.longest_seconds = idle.longest_seconds.max(seconds(longest));
    }
    sum.busy_share = view.steps.share(busy_nanos);
    sum
}
