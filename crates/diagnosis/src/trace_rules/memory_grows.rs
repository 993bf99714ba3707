//! TR112 memory-grows: live memory rises from step to step.

use super::{Evidence, Found, TraceRule};
use crate::constants::tr112;
use crate::finding::{Cause, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR112",
    name: "memory-grows",
    cause: Cause::MemoryGrows,
    page: include_str!("memory_grows.md"),
    effort: Effort::Low,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let live = &evidence.measures.memory.live_after_steps;
    let grows = |pair: &[u64]| pair[1] as f64 > pair[0] as f64 * (1.0 + evidence.thresholds.of(&tr112::GROWTH_A_STEP));
    if live.len() < 3 || !live.windows(2).all(grows) {
        return Vec::new();
    }
    let (first, last) = (live[0], live[live.len() - 1]);
    let a_step = (last - first) as f64 / (live.len() - 1) as f64;
    let message = format!("live memory grows by {:.1} MB per step: something keeps tensors alive", a_step / 1e6);
    let advice = "accumulate loss.detach() (or read it back at the log interval), not the loss itself: it keeps every step's graph";
    let mut found = Found::new(None, message, advice);
    found.evidence =
        vec![format!("{:.1} MB after the first step, {:.1} MB after the last", first as f64 / 1e6, last as f64 / 1e6)];
    vec![found]
}
