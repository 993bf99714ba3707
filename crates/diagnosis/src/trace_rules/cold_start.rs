//! TR129 cold-start: the window contains one-time work of the process.

use super::{percent, shown_time};
use crate::constants::tr129;
use crate::measures::intervals::Span;

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR129",
    name: "cold-start",
    cause: Cause::ColdStart,
    page: include_str!("cold_start.md"),
    effort: Effort::Low,
    check,
};

/// About the trace, not the run: later steps do not pay for it. If it spoils the other findings, it comes first.
fn check(evidence: &Evidence) -> Vec<Found> {
    let (view, trust) = (evidence.view, evidence.trust);
    if trust.cold_share < evidence.thresholds.of(&tr129::COLD_SHARE) {
        return Vec::new();
    }
    let spoils = trust.withheld.contains(&"steady-state");
    let rest = match spoils {
        true => "the trace says nothing about later steps",
        false => "the other findings leave it out",
    };
    let message = format!(
        "the window holds a cold start: the device is idle for {} of it during one-time setup on the host; {rest}",
        percent(trust.cold_share)
    );
    let advice = "record after warm-up: torch.profiler.schedule(wait=…, warmup=…, active=…), or some steps before the profiler starts";
    let mut found = Found::new(Some(trust.cold_share).filter(|_| spoils), message, advice);
    let windows: Vec<Span> = view.steps.list.iter().map(|step| step.span).collect();
    let longest = view.cold.longest(view.trace, &windows);
    found.evidence =
        longest.iter().map(|(name, nanos)| format!("`{name}` {}", shown_time(*nanos as f64 / 1e9))).collect();
    vec![found]
}
