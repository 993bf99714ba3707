//! TR119 cpu-bound-op: one operator on the host takes most of the step while the device stands still.

use super::{milliseconds, percent};
use crate::measures::breakdown::{WhereWorkRuns, waiting_spans};
use crate::measures::intervals::{covered, gaps, merged, without};
use crate::simulation::Removal;
use headroom_trace::Category;

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR119",
    name: "cpu-bound-op",
    cause: Cause::CpuBoundOperator,
    page: include_str!("cpu_bound_op.md"),
    effort: Effort::Medium,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    if evidence.trust.withheld.contains(&"steady-state") {
        return Vec::new();
    }
    let (view, host) = (evidence.view, &evidence.view.trace.host);
    let wall = evidence.measures.breakdown.wall_seconds.max(f64::MIN_POSITIVE);
    let on_host = evidence.measures.breakdown.where_work_runs == WhereWorkRuns::Host;
    let rows = evidence.measures.operators.rows.iter();
    let Some(row) = rows.max_by(|left, right| left.host_self_seconds.total_cmp(&right.host_self_seconds)) else {
        return Vec::new();
    };
    // Of a run on the host alone the work is supposed to be there.
    if on_host || row.host_self_seconds / wall < evidence.thresholds.one_operator_share {
        return Vec::new();
    }
    let spans = view.host_spans_named(|name| name == row.name);
    // An operator may hold another of its name.
    let spans = merged(
        spans.into_iter().filter(|&at| host.category[at] == Category::CpuOp).map(|at| view.host_span(at)).collect(),
    );
    let free = view.steps.list.iter().flat_map(|step| gaps(&view.busy, step.span));
    // Neither setting up for the first time nor waiting for the device is the operator's work.
    let spans = without(&without(&spans, &view.cold.spans), &waiting_spans(view));
    let idle: i64 = free.map(|gap| covered(&spans, gap)).sum();
    let share = view.steps.share(idle);
    if share < evidence.thresholds.one_operator_share {
        return Vec::new();
    }
    let message =
        format!("`{}` runs on the host for {} of the step while the device stands still", row.name, percent(share));
    let mut found =
        Found::new(Some(share), message, "move it to the device, or prepare its result ahead in the loader's workers");
    found.evidence =
        vec![format!("{} calls, {} a step", row.calls, milliseconds(row.host_self_seconds / view.steps.count()))];
    found.removal = Removal { host: spans, ..Removal::default() };
    vec![found]
}
