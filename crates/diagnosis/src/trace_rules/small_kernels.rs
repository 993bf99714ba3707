//! TR108 small-kernels-fusable: runs of short element-wise kernels that a compiler would fuse.

use super::{milliseconds, percent};
use crate::finding::Confidence;
use crate::simulation::Removal;

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
    if evidence.trust.withheld.contains(&"operators") {
        return Vec::new();
    }
    let message = format!(
        "element-wise work is not fused: it takes {} of the device's time, {:.0} of {kernels:.0} kernels per step stand in runs that one kernel \
         each could do, and {} of the step is what the runs take beyond their longest kernels",
        percent(small.elementwise_share_of_device),
        small.kernels_per_step,
        percent(small.share_of_steps)
    );
    let mut found = Found::new(
        Some(small.share_of_steps),
        message,
        "torch.compile fuses them; or use fused operators (norm, activation, optimizer)",
    );
    found.confidence = Confidence::Medium;
    found.on_device = true;
    let steps = evidence.view.steps.count();
    found.evidence = vec![
        format!(
            "{:.0} runs per step of {:.1} kernels each",
            small.runs_per_step,
            small.kernels_per_step / small.runs_per_step.max(1.0)
        ),
        format!(
            "{} per step from start to end, {} of it in the kernels",
            milliseconds(small.span_seconds / steps),
            milliseconds(small.device_seconds / steps)
        ),
    ];
    // One kernel of each run stays, and what launched it.
    let view = evidence.view;
    let launchers = small.beside_longest.iter().filter_map(|&at| view.operator_of_device(at));
    found.removal = Removal {
        host: launchers.map(|at| view.host_span(at)).collect(),
        device: small.beside_longest.iter().map(|&at| (at, 0)).collect(),
        ..Removal::default()
    };
    vec![found]
}
