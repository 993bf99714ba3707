//! TR134 unread-gradients: the backward pass computes gradients of parameters that no optimizer updates.

use super::{milliseconds, percent};
use crate::simulation::Removal;

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Confidence, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR134",
    name: "unread-gradients",
    cause: Cause::Recomputed,
    page: include_str!("unread_gradients.md"),
    effort: Effort::Low,
    check,
};

/// Less is not worth a word.
const LEAST_SHARE: f64 = 0.03;

fn check(evidence: &Evidence) -> Vec<Found> {
    let (unread, view) = (&evidence.measures.patterns.unread_gradients, evidence.view);
    let removal = Removal {
        host: unread.host.clone(),
        device: unread.kernels.iter().map(|&at| (at, 0)).collect(),
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
        "{:.0} gradients per step belong to parameters that no optimizer updates: computing them takes {} of the step",
        unread.parts_per_step,
        percent(share)
    );
    let advice = "freeze what is not trained (requires_grad_(False) on its parameters), or run it under torch.no_grad() where nothing trained \
                  comes before it";
    let mut found = Found::new(Some(share), message, advice);
    found.confidence = Confidence::Medium;
    let steps = view.steps.count();
    found.evidence = vec![format!(
        "{} of the device's and {} of the host's time per step",
        milliseconds(unread.device_seconds / steps),
        milliseconds(unread.host_seconds / steps)
    )];
    found.removal = removal;
    vec![found]
}
