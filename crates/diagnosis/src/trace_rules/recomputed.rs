//! TR132 activations-recomputed: the backward pass recomputes parts of the forward pass although memory is free.

use super::for_nothing::{removal, times};
use super::{Evidence, Found, TraceRule, percent};
use crate::constants::tr132;
use crate::finding::{Cause, Confidence, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR132",
    name: "activations-recomputed",
    cause: Cause::Recomputed,
    page: include_str!("recomputed.md"),
    effort: Effort::Low,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let (recomputed, memory) = (&evidence.measures.patterns.recomputed, &evidence.measures.memory);
    let share = recomputed.device_seconds / evidence.measures.breakdown.wall_seconds.max(f64::MIN_POSITIVE);
    let Some(capacity) = memory.capacity_bytes.filter(|_| share >= evidence.thresholds.of(&tr132::NEEDLESS_SHARE))
    else {
        return Vec::new();
    };
    let held = memory.peak_bytes.max(memory.peak_reserved_bytes);
    let held_share = held as f64 / capacity.max(1) as f64;
    if held == 0 || held_share > evidence.thresholds.of(&tr132::MEMORY_SHARE) {
        return Vec::new();
    }
    let message = format!(
        "the backward pass recomputes {:.0} part(s) of the forward pass, {} of the step, with {:.0}% of the device's memory in use",
        recomputed.parts_per_step,
        percent(share),
        100.0 * held_share
    );
    let advice = "checkpoint fewer layers or no layers (torch.utils.checkpoint, gradient_checkpointing_enable): \
                  keep the activations that fit into memory";
    let mut found = Found::new(Some(share), message, advice);
    found.confidence = Confidence::Medium;
    found.on_device = true;
    found.evidence = vec![times(evidence, recomputed)];
    found.removal = removal(recomputed);
    vec![found]
}
