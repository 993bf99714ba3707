//! Where the host waits for the device, and the Python function responsible.

use std::collections::{BTreeMap, HashMap, HashSet};

use headroom_trace::{CallKind, Category, NONE};
use serde::Serialize;

use super::checks::tested_before;
use super::copies::{Direction, direction};
use super::graph_breaks::graph_break;
use super::intervals::{Span, covered, merged, seconds, total, without};
use super::python::{frame_name, user_frame};
use super::roles::Role;
use super::stops::Stop;
use super::view::View;
use crate::constants::breakdown::LONG_GAP_NANOS;
use crate::constants::simulation::LONGEST_LAUNCH_NANOS;
use crate::constants::synchronisation::FEW_LAUNCHES_NANOS;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Synchronisation {
    /// Waits grouped by kind and place, the most expensive first.
    pub groups: Vec<Waits>,
    pub calls: usize,
    pub wait_seconds: f64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Waits {
    pub kind: WaitKind,
    /// The operator that waits (`aten::item`), or the runtime call if there is none.
    pub what: String,
    /// The operator or annotation that ended last before it: tells apart the read-backs within one function.
    pub after: Option<String>,
    /// The innermost function of the user's own code, and the outermost call it made towards the wait.
    pub function: Option<String>,
    pub through: Option<String>,
    pub calls: u64,
    pub per_step: f64,
    /// Time in the runtime's waiting calls alone.
    pub wait_seconds: f64,
    /// Time by which the step would be shorter without it: the part of the operator, and of the restart after it, in
    /// which the device had nothing to run. If work is queued while the device is idle, the wait is not the cause.
    pub cost_seconds: f64,
    pub share_of_steps: f64,
    /// Idle time of the device from the wait until it works again, whatever the host does meanwhile.
    #[serde(skip)]
    pub idle_seconds: f64,
    /// Start of the first of them, to sort groups of one function in the order of its lines.
    #[serde(skip)]
    pub first: i64,
    #[serde(skip)]
    pub spans: Vec<Span>,
    /// Host time around the waits that split compiled code.
    #[serde(skip)]
    pub breaks: Vec<Span>,
    /// Operators that only compute the value that is read.
    #[serde(skip)]
    pub tests: Vec<Span>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitKind {
    /// The host reads a value from the device.
    #[default]
    ReadBack,
    /// A copy to the device that the host waits for because its memory is pageable.
    CopyToDevice,
    /// A copy whose direction the trace does not show.
    Copy,
    /// `synchronize()` and similar calls.
    Explicit,
}

pub fn synchronisation(view: &View, stops: &[Stop]) -> Synchronisation {
    let host = &view.trace.host;
    let range = view.steps.host_range();
    let copies = copies_by_call(view);
    let kernels = kernel_time(view);
    let last_work = last_work(view);
    // When nothing was queued for the device and it was idle.
    let starved = stops.iter().map(|stop| stop.starved().unwrap_or(stop.span));
    let starved = without(&merged(starved.collect()), &view.cold.spans);
    let mut groups: BTreeMap<Key, Waits> = BTreeMap::new();
    let mut sum = Synchronisation::default();
    let mut waits: Vec<(usize, WaitKind, Key)> = Vec::new();
    for at in 0..host.len() {
        let blocks = match view.call_kind(at) {
            Some(CallKind::Synchronise) => true,
            // A copy from pageable memory blocks the host until it is done. Where copies are recorded, they tell.
            Some(CallKind::Copy) => !view.has_device_work() && host.duration[at] > LONGEST_LAUNCH_NANOS.get(),
            _ => false,
        };
        if !blocks || !(range.start..range.end).contains(&host.start[at]) {
            continue;
        }
        let stack = view.python_stack(at);
        if is_profilers_own(view, at, &stack, last_work) {
            continue;
        }
        sum.calls += 1;
        sum.wait_seconds += seconds(host.duration[at]);
        let operator = reading_operator(view, at);
        let whole = operator.unwrap_or(at);
        let kind = match (operator, copy_before(view, at, &copies)) {
            (_, Some(Direction::HostToDevice)) => WaitKind::CopyToDevice,
            (Some(at), None) if Role::Copy.is_of(view.host_name(at)) => WaitKind::Copy,
            (Some(_), _) | (_, Some(Direction::DeviceToHost)) => WaitKind::ReadBack,
            (None, _) => WaitKind::Explicit,
        };
        let (function, through) = user_frame(view, &stack);
        let key = Key {
            kind,
            what: view.host_name(whole).to_string(),
            after: operator.and_then(|at| before(view, at)),
            function: function.map(|at| frame_name(view.host_name(at))),
            through: through.map(|at| frame_name(view.host_name(at))),
        };
        waits.push((at, kind, key));
    }
    // In order of time, so that device time lost to one wait is not charged to the next as well.
    waits.sort_by_key(|(at, ..)| host.start[*at]);
    let (mut charged, mut charged_until, mut stop_until) = (HashSet::new(), i64::MIN, i64::MIN);
    for (nth, (at, kind, key)) in waits.iter().enumerate() {
        let (at, kind) = (*at, *kind);
        let whole = reading_operator(view, at).unwrap_or(at);
        let group = groups.entry(key.clone()).or_insert_with(|| Waits { first: host.start[at], ..Waits::default() });
        group.first = group.first.min(host.start[at]);
        group.wait_seconds += seconds(host.duration[at]);
        if !charged.insert(whole) {
            continue;
        }
        group.calls += 1;
        let span = view.host_span(whole);
        group.cost_seconds += seconds(match kind {
            // The copy itself and the idle time around it; setting up the device is not part of it.
            WaitKind::CopyToDevice => {
                let rest = without(&[span], &kernels);
                total(&without(&rest, &view.cold.spans))
            }
            _ => {
                let was_fed = was_fed(view, span, host.duration[at]);
                let next = |work: &[Span]| if was_fed { restart(work, span.end) } else { span.end };
                // Only a kernel ends the stop: values read one after the other leave idle time around their copies too.
                stop_until = stop_until.max(next(&kernels));
                let next_wait = waits.get(nth + 1).map_or(i64::MAX, |(at, ..)| host.start[*at]);
                let after = Span { start: span.end, end: stop_until.min(next_wait).max(span.end) };
                group.idle_seconds += seconds(covered(&starved, span) + total(&without(&[after], &view.busy)));
                // In a longer gap the host does something else than launching.
                let end = next(&view.busy).min(span.end + LONG_GAP_NANOS.get());
                let start = span.start.max(charged_until);
                charged_until = charged_until.max(end);
                covered(&starved, Span { start, end })
            }
        });
        group.spans.push(span);
        if kind == WaitKind::ReadBack {
            group.breaks.extend(graph_break(view, whole));
            group.tests.extend(tested_before(view, whole));
        }
    }
    sum.groups = groups.into_iter().map(|(key, waits)| finished(view, key, waits)).collect();
    sum.groups
        .sort_by(|left, right| right.cost_seconds.total_cmp(&left.cost_seconds).then(left.first.cmp(&right.first)));
    sum
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    kind: WaitKind,
    what: String,
    after: Option<String>,
    function: Option<String>,
    through: Option<String>,
}

fn finished(view: &View, key: Key, waits: Waits) -> Waits {
    Waits {
        kind: key.kind,
        what: key.what,
        after: key.after,
        function: key.function,
        through: key.through,
        per_step: waits.calls as f64 / view.steps.count(),
        share_of_steps: waits.cost_seconds * 1e9 / view.steps.wall_nanos().max(1) as f64,
        ..waits
    }
}

/// When kernels ran.
fn kernel_time(view: &View) -> Vec<Span> {
    let device = &view.trace.device;
    let kernels = device.busy().filter(|&at| device.category[at] == Category::Kernel);
    merged(kernels.map(|at| view.device_span(at)).collect())
}

/// When the host last launched anything, or began an operator.
fn last_work(view: &View) -> i64 {
    let host = &view.trace.host;
    let works = |&at: &usize| view.is_operator(at) || view.call_kind(at).is_some_and(CallKind::queues_work);
    (0..host.len()).filter(works).map(|at| host.start[at]).max().unwrap_or(i64::MAX)
}

/// Whether the profiler itself waits, as it does when it stops: in its own code, or, without stacks, after the last
/// work.
fn is_profilers_own(view: &View, at: usize, stack: &[usize], last_work: i64) -> bool {
    let in_profiler = |&at: &usize| {
        let name = view.host_name(at);
        name.contains("torch/profiler/") || name.contains("torch/autograd/profiler")
    };
    match stack {
        [] => view.trace.host.start[at] > last_work,
        stack => stack.iter().any(in_profiler),
    }
}

/// The outermost operator around a wait whose purpose is the read-back.
fn reading_operator(view: &View, at: usize) -> Option<usize> {
    let is_operator = |at: &usize| view.is_operator(*at);
    view.ancestors(at).filter(is_operator).take_while(|&at| Role::ReadBack.is_of(view.host_name(at))).last()
}

fn copies_by_call(view: &View) -> HashMap<u32, Direction> {
    let device = &view.trace.device;
    let copies = device.busy().filter(|&at| device.category[at] == Category::Memcpy && view.call_of[at] != NONE);
    copies.map(|at| (view.call_of[at], direction(view.name(device.name[at])))).collect()
}

/// The direction of the copy that is waited for: launched just before it in the same operator, or by the wait itself.
fn copy_before(view: &View, at: usize, copies: &HashMap<u32, Direction>) -> Option<Direction> {
    let host = &view.trace.host;
    (at.saturating_sub(4)..=at)
        .rev()
        .filter(|&before| host.track[before] == host.track[at] && view.parent[before] == view.parent[at])
        .find_map(|before| copies.get(&(before as u32)).copied())
}

/// The outermost operator or annotation that ended last before `at` on its thread.
fn before(view: &View, at: usize) -> Option<String> {
    let host = &view.trace.host;
    let counts = |at: usize| match host.category[at] {
        Category::CpuOp => true,
        Category::UserAnnotation => !view.host_name(at).starts_with("ProfilerStep"),
        _ => false,
    };
    let last = (0..at)
        .rev()
        .take_while(|&other| host.track[other] == host.track[at])
        .take(10_000)
        .find(|&other| counts(other) && host.end(other) <= host.start[at])?;
    let outermost = view.ancestors(last).filter(|&outer| counts(outer) && host.end(outer) <= host.start[at]).last()?;
    Some(view.host_name(outermost).to_string())
}

/// Whether the host mostly waited for a busy device, for longer than a few launches. The device was fed then: the loss
/// is its idle time until work arrives again.
fn was_fed(view: &View, span: Span, waited_nanos: i64) -> bool {
    covered(&view.busy, span) * 2 >= span.nanos()
        && waited_nanos * 2 >= span.nanos()
        && waited_nanos > FEW_LAUNCHES_NANOS.get()
}

/// When the next of this work runs after a wait; the wait's own end if none does.
fn restart(work: &[Span], end: i64) -> i64 {
    work.get(work.partition_point(|work| work.end <= end)).map_or(end, |work| work.start.max(end))
}
