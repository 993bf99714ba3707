//! TR135 forward-repeated: the layers that are trained run once more, and nothing is learnt from it.

use super::{milliseconds, percent};
use crate::simulation::Removal;

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Confidence, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR135",
    name: "forward-repeated",
    cause: Cause::Recomputed,
    page: include_str!("forward_repeated.md"),
    effort: Effort::Low,
    check,
};

/// Less is not worth a word.
const LEAST_SHARE: f64 = 0.03;

fn check(evidence: &Evidence) -> Vec<Found> {
    let (repeated, view) = (&evidence.measures.patterns.repeated_forward, evidence.view);
    let removal = Removal {
        host: repeated.host.clone(),
        device: repeated.kernels.iter().map(|&at| (at, 0)).collect(),
        ..Removal::default()
    };
    if removal.is_empty() {
        return Vec::new();
    }
    let share = evidence.simulation.saved(&removal) as f64 / view.steps.range().nanos().max(1) as f64;
    if share < LEAST_SHARE {
        return Vec::new();
    }
    let message = format!(
        "{:.1} forward pass(es) per step through the layers that are trained leave no gradient: {} of the step",
        repeated.parts_per_step,
        percent(share)
    );
    let advice = "take what the training pass computed (outputs.detach()) and evaluate at an interval; a second model of the same layers \
                  (a teacher, an average, a reference) has to run";
    let mut found = Found::new(Some(share), message, advice);
    found.confidence = Confidence::Low;
    let steps = view.steps.count();
    found.evidence = vec![format!(
        "{} of the device's and {} of the host's time per step",
        milliseconds(repeated.device_seconds / steps),
        milliseconds(repeated.host_seconds / steps)
    )];
    found.removal = removal;
    vec![found]
}
