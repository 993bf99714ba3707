//! TR110 memory-near-limit: the device is nearly full.

use super::{Evidence, Found, TraceRule};
use crate::constants::tr110;
use crate::finding::{Cause, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR110",
    name: "memory-near-limit",
    cause: Cause::MemoryNearLimit,
    page: include_str!("memory_near_limit.md"),
    effort: Effort::Medium,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let memory = &evidence.measures.memory;
    let Some(capacity) = memory.capacity_bytes else { return Vec::new() };
    let held = memory.peak_bytes.max(memory.peak_reserved_bytes) as f64 / capacity as f64;
    if held < evidence.thresholds.of(&tr110::MEMORY_SHARE_OF_DEVICE) {
        return Vec::new();
    }
    let gigabytes = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    let message = format!("{:.0}% of the device's memory is in use at the peak", 100.0 * held);
    let advice = "checkpoint activations, accumulate gradients over smaller batches, or use bf16; a nearly full \
                  device slows the allocator down before it fails";
    let mut found = Found::new(None, message, advice);
    found.evidence = vec![format!(
        "peak {:.1} GiB allocated, {:.1} GiB reserved, of {:.1} GiB",
        gigabytes(memory.peak_bytes),
        gigabytes(memory.peak_reserved_bytes),
        gigabytes(capacity)
    )];
    vec![found]
}
