//! TR108 small-kernels-fusable: runs of short element-wise kernels that a compiler would fuse.

use super::{milliseconds, percent};
use crate::finding::Confidence;

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR108",
    name: "small-kernels-fusable",
    cause: Cause::SmallKernels,
    page: include_str!("small_kernels.md"),
    effort: Effort::Medium,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let small = &evidence.measures.patterns.small_kernels;
    let kernels = evidence.measures.kernels.per_step.max(1.0);
    if small.share_of_steps < evidence.thresholds.small_kernels_share || small.kernels_per_step < 0.05 * kernels {
        return Vec::new();
    }
    let message = format!(
        "{:.0} of {kernels:.0} kernels a step are short element-wise ones in runs; from start to end the runs take {} of the step",
        small.kernels_per_step,
        percent(small.share_of_steps)
    );
    let mut found = Found::new(
        Some(small.share_of_steps),
        message,
        "torch.compile fuses them; or use fused operators (norm, activation, optimizer)",
    );
    found.confidence = Confidence::Medium;
    let steps = evidence.view.steps.count();
    found.evidence = vec![
        format!(
            "{:.0} runs a step of {:.1} kernels each",
            small.runs_per_step,
            small.kernels_per_step / small.runs_per_step.max(1.0)
        ),
        format!(
            "{} a step from start to end, {} of it in the kernels",
            milliseconds(small.span_seconds / steps),
            milliseconds(small.device_seconds / steps)
        ),
    ];
    vec![found]
}
