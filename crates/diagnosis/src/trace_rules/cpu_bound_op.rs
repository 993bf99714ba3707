//! TR119 cpu-bound-op: operators on the host take much of the step while the device is idle.

use std::collections::BTreeMap;

use super::{percent, shown_time};
use crate::constants::cpu_bound_op::SHORTEST_NANOS;
use crate::constants::tr119;
use crate::measures::breakdown::{WhereWorkRuns, waiting_spans};
use crate::measures::data_loading::loading_spans;
use crate::measures::intervals::{Span, covered, gaps, merged, without};
use crate::measures::operators::OperatorRow;
use crate::measures::recorded::{gpu, used_device};
use crate::measures::stops::Stop;
use crate::simulation::Removal;
use headroom_trace::{CallKind, Category};

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Confidence, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR119",
    name: "cpu-bound-op",
    cause: Cause::CpuBoundOperator,
    page: include_str!("cpu_bound_op.md"),
    effort: Effort::Medium,
    check,
};

const ADVICE: &str = "move it to the device, or prepare its result ahead in the loader's workers";

fn check(evidence: &Evidence) -> Vec<Found> {
    if evidence.trust.withheld.contains(&"steady-state") {
        return Vec::new();
    }
    let view = evidence.view;
    let wall = evidence.measures.breakdown.wall_seconds.max(f64::MIN_POSITIVE);
    let on_host = evidence.measures.breakdown.where_work_runs == WhereWorkRuns::Host;
    let mut rows: Vec<&OperatorRow> = evidence.measures.operators.rows.iter().collect();
    rows.sort_by(|left, right| right.host_self_seconds.total_cmp(&left.host_self_seconds));
    let Some(&row) = rows.first() else { return Vec::new() };
    if on_host {
        return rows
            .into_iter()
            .map_while(|row| dominating(evidence, row))
            .find_map(|found| found)
            .into_iter()
            .collect();
    }
    if row.host_self_seconds / wall < evidence.thresholds.of(&tr119::ONE_OPERATOR_SHARE) {
        return together(evidence).into_iter().collect();
    }
    let spans = view.host_spans_named(|name| name == row.name);
    // An operator may contain another of the same name.
    let spans = merged(spans.into_iter().filter(|&at| view.is_operator(at)).map(|at| view.host_span(at)).collect());
    let free = view.steps.list.iter().flat_map(|step| gaps(&view.busy, step.span));
    // Neither one-time setup nor waiting for the device is the operator's work.
    let spans = without(&without(&spans, &view.cold.spans), &waiting_spans(view));
    let idle: i64 = free.map(|gap| covered(&spans, gap)).sum();
    let share = view.steps.share(idle);
    if share < evidence.thresholds.of(&tr119::ONE_OPERATOR_SHARE) {
        return together(evidence).into_iter().collect();
    }
    let message =
        format!("`{}` runs on the host for {} of the step while the device is idle", row.name, percent(share));
    let mut found = Found::new(Some(share), message, ADVICE);
    found.evidence =
        vec![format!("{} calls, {} per step", row.calls, shown_time(row.host_self_seconds / view.steps.count()))];
    found.removal = Removal { host: spans, ..Removal::default() };
    vec![found]
}

/// A run on the host alone works there; an operator that dominates it is told. Where a device worked unrecorded, the time
/// of operators that call its runtime is that of launches and waits, and says nothing. `None` if it takes too little.
fn dominating(evidence: &Evidence, row: &OperatorRow) -> Option<Option<Found>> {
    let (view, wall) = (evidence.view, evidence.measures.breakdown.wall_seconds.max(f64::MIN_POSITIVE));
    let share = (row.host_self_seconds / wall).min(1.0);
    if share < evidence.thresholds.of(&tr119::ON_HOST_SHARE) {
        return None;
    }
    let host = &view.trace.host;
    let calls = |&at: &usize| view.within(at).any(|inner| host.category[inner] == Category::Runtime);
    // If launches are recorded, an operator without any works on the host.
    let are_recorded = || (0..host.len()).any(|at| view.call_kind(at) == Some(CallKind::Launch));
    let named = || view.host_spans_named(|name| name == row.name);
    let may_wait = || used_device(view).is_some() && (!are_recorded() || named().iter().any(calls));
    if !row.name.starts_with("aten::") || evidence.run.is_some() || may_wait() {
        return Some(None);
    }
    let name = &row.name;
    let (message, advice) = match gpu(view) {
        Some(gpu) => (
            format!("`{name}` takes {} of the step on the CPU, although the machine has a {gpu}", percent(share)),
            "move model and batches to the GPU: .to(\"cuda\"); if they are there, record device events as well \
             (activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])",
        ),
        None => (
            format!("`{name}` takes {} of the step on the CPU", percent(share)),
            "run it on a GPU; on the CPU: bf16 where the processor has units for it, channels_last for convolutions, \
             torch.compile, all cores (torch.set_num_threads)",
        ),
    };
    let mut found = Found::new(Some(share), message, advice);
    // Without a GPU somebody has to do the work: only what dominates is more than a remark.
    let is_the_work = gpu(view).is_none() && share < evidence.thresholds.of(&tr119::MOST_OF_HOST_SHARE);
    found.confidence = if is_the_work { Confidence::Low } else { Confidence::Medium };
    found.evidence = vec![format!(
        "{:.1} calls and {} per step",
        row.calls as f64 / view.steps.count(),
        shown_time(row.host_self_seconds / view.steps.count())
    )];
    let shapes =
        row.shapes.iter().take(2).filter(|shape| shape.input_dims.contains(|letter: char| letter.is_ascii_digit()));
    found.evidence.extend(shapes.map(|shape| {
        let seconds = shape.host_self_seconds / view.steps.count();
        format!("{} of it for {}", shown_time(seconds), shape.input_dims)
    }));
    Some(Some(found))
}

/// Operators that are long and launch no device work: mostly on the host's own tensors.
fn together(evidence: &Evidence) -> Option<Found> {
    let (view, host) = (evidence.view, &evidence.view.trace.host);
    // Decided by time: if light and full traces were joined, an annotation may extend beyond the operator it began in.
    let calls = |at: usize| {
        let inside = (at + 1..host.len())
            .take_while(|&inner| host.track[inner] == host.track[at] && host.start[inner] < host.end(at));
        inside.into_iter().any(|inner| host.category[inner] == Category::Runtime)
    };
    let communicates = |name: &str| {
        ["autograd::", "c10d::", "nccl", "gloo:", "mpi:", "record_param_comms"]
            .iter()
            .any(|start| name.starts_with(start))
    };
    let is_own = |&at: &usize| {
        let counts = view.is_operator(at) && host.duration[at] >= SHORTEST_NANOS.get();
        counts && view.step_of(at).is_some() && view.is_outermost(at) && !communicates(view.host_name(at)) && !calls(at)
    };
    let own: Vec<usize> = (0..host.len()).filter(is_own).collect();
    let elsewhere = merged([loading_spans(view), view.cold.spans.clone(), waiting_spans(view)].concat());
    let spans = without(&merged(own.iter().map(|&at| view.host_span(at)).collect()), &elsewhere);
    let free = view.steps.list.iter().flat_map(|step| gaps(&view.busy, step.span));
    let free: Vec<Span> = free.collect();
    let share_of = |spans: &[Span]| view.steps.share(free.iter().map(|gap| covered(spans, *gap)).sum());
    if share_of(&spans) < evidence.thresholds.of(&tr119::TOGETHER_SHARE) {
        return None;
    }
    // A stall that is mostly theirs counts fully: the Python code between them goes with them.
    let starved = evidence.measures.stops.iter().filter_map(Stop::starved);
    let theirs = starved.filter(|starved| starved.nanos() > 0 && covered(&spans, *starved) * 2 >= starved.nanos());
    let theirs = without(&merged(theirs.collect()), &elsewhere);
    let spans = merged([spans, theirs].concat());
    let share = share_of(&spans);
    let mut sums: BTreeMap<&str, (usize, i64)> = BTreeMap::new();
    for at in own {
        let sum = sums.entry(view.host_name(at)).or_default();
        *sum = (sum.0 + 1, sum.1 + host.duration[at]);
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, (_, nanos))| std::cmp::Reverse(*nanos));
    let names: Vec<String> = sums.iter().take(3).map(|(name, _)| format!("`{name}`")).collect();
    let message = format!(
        "host operators that launch nothing on the device take {} of the step while the device is idle: {}",
        percent(share),
        names.join(", ")
    );
    let mut found = Found::new(Some(share), message, ADVICE);
    let steps = view.steps.count();
    let said = |(name, (calls, nanos)): &(&str, (usize, i64))| {
        format!("`{name}`: {:.1} calls and {} per step", *calls as f64 / steps, shown_time(*nanos as f64 / 1e9 / steps))
    };
    found.evidence = sums.iter().take(3).map(said).collect();
    found.removal = Removal { host: spans, ..Removal::default() };
    Some(found)
}
