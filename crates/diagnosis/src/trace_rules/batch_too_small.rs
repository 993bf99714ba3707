//! TR117 batch-too-small: kernels too small for the device while its memory is free.

use super::percent;
use crate::constants::tr117;
use crate::finding::Confidence;

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR117",
    name: "batch-too-small",
    cause: Cause::BatchTooSmall,
    page: include_str!("batch_too_small.md"),
    effort: Effort::Low,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let (kernels, memory) = (&evidence.measures.kernels, &evidence.measures.memory);
    let Some(capacity) = memory.capacity_bytes else { return Vec::new() };
    let held = memory.peak_bytes as f64 / capacity as f64;
    let (mut weighted, mut of) = (0.0, 0.0);
    for row in &kernels.rows {
        if let Some(percent) = row.occupancy_percent {
            weighted += percent * row.seconds;
            of += row.seconds;
        }
    }
    let occupancy = weighted / f64::max(of, f64::MIN_POSITIVE);
    // A large GEMM may keep every multiprocessor busy at low occupancy, so its number of blocks decides.
    let underfilled = kernels.underfilled_share;
    let fills = underfilled.is_some_and(|share| share < 0.5);
    if of == 0.0 || held > 0.5 || occupancy > evidence.thresholds.of(&tr117::OCCUPANCY_PERCENT) || fills {
        return Vec::new();
    }
    let message = match underfilled {
        Some(share) => format!(
            "{} of the kernels' time is in kernels with fewer blocks than the device has multiprocessors, while \
             {} of its memory is free: the batch is too small for this device",
            percent(share),
            percent(1.0 - held)
        ),
        None => format!(
            "kernels occupy the device to {occupancy:.0}% on average while {} of its memory is free: the batch \
             is too small for this device",
            percent(1.0 - held)
        ),
    };
    let mut found = Found::new(
        None,
        message,
        "a larger batch takes little more time per step; watch the learning rate and the loss",
    );
    found.confidence = Confidence::Medium;
    found.evidence = vec![
        format!("estimated occupancy {occupancy:.0}%, weighted by time"),
        format!("peak memory {:.1} GB of {:.1} GB", memory.peak_bytes as f64 / 1e9, capacity as f64 / 1e9),
        format!("the device is busy for {} of the step", percent(evidence.measures.breakdown.busy_share)),
    ];
    vec![found]
}
