//! TR120 profiler-overhead: the profiler itself takes much of the step.

use super::percent;
use crate::constants::tr120;
use crate::finding::Confidence;

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR120",
    name: "profiler-overhead",
    cause: Cause::ProfilerOverhead,
    page: include_str!("profiler_overhead.md"),
    effort: Effort::Low,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let Some(share) = evidence.trust.profiler_overhead_share else { return Vec::new() };
    // If the device is the bottleneck, a slower host changes nothing.
    let hidden = evidence.measures.breakdown.busy_share > 0.8;
    if share < evidence.thresholds.of(&tr120::PROFILER_SHARE) || hidden {
        return Vec::new();
    }
    let measured = evidence.trust.overhead_from == Some("measured");
    let message = format!(
        "profiling takes {} {} of the step, all of it on the host",
        if measured { "" } else { "about" },
        percent(share)
    );
    let message = message.replace("  ", " ");
    let advice =
        "compare with the step time without the profiler; record without stacks and shapes, or record fewer steps";
    let mut found = Found::new(None, message, advice);
    found.confidence = if measured { Confidence::High } else { Confidence::Low };
    found.evidence = vec![evidence.trust.overhead_from.unwrap_or("assumed").to_string()];
    vec![found]
}
