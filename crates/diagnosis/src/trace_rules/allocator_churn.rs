//! TR111 allocator-churn: device memory is allocated and freed inside steps.

use super::{percent, shown_time};
use crate::simulation::Removal;
use headroom_trace::CallKind;

use super::{Evidence, Found, TraceRule};
use crate::constants::tr111;
use crate::finding::{Cause, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR111",
    name: "allocator-churn",
    cause: Cause::AllocatorChurn,
    page: include_str!("allocator_churn.md"),
    effort: Effort::Low,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    if evidence.trust.withheld.contains(&"steady-state") {
        return Vec::new();
    }
    let allocator = &evidence.measures.patterns.allocator;
    // One per step may be a growing pool; several are a pattern.
    if allocator.calls_per_step < evidence.thresholds.of(&tr111::CALLS_PER_STEP) {
        return Vec::new();
    }
    let message = format!(
        "{:.0} calls per step allocate or free device memory, {} of the step; each may also stop the device",
        allocator.calls_per_step,
        percent(allocator.share_of_steps)
    );
    let advice = "do not call empty_cache() in the loop; keep shapes the same from step to step so that the allocator reuses its blocks";
    let mut found = Found::new(Some(allocator.share_of_steps), message, advice);
    let steps = evidence.view.steps.count();
    found.evidence = vec![format!("{} per step in such calls", shown_time(allocator.host_seconds / steps))];
    let view = evidence.view;
    let calls = (0..view.trace.host.len())
        .filter(|&at| matches!(view.call_kind(at), Some(CallKind::Allocate | CallKind::Free)))
        .map(|at| view.host_span(at));
    found.removal = Removal { host: calls.collect(), ..Removal::default() };
    vec![found]
}
