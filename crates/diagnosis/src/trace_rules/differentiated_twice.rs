//! TR133 differentiated-twice: several backward passes of one step go through the same nodes.

use super::{milliseconds, percent};
use crate::simulation::Removal;

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Confidence, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR133",
    name: "differentiated-twice",
    cause: Cause::Recomputed,
    page: include_str!("differentiated_twice.md"),
    effort: Effort::Low,
    check,
};

/// Less is not worth a word.
const LEAST_SHARE: f64 = 0.03;

fn check(evidence: &Evidence) -> Vec<Found> {
    let (again, view) = (&evidence.measures.patterns.differentiated_again, evidence.view);
    let removal = Removal {
        host: again.host.clone(),
        device: again.kernels.iter().map(|&at| (at, 0)).collect(),
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
        "several backward passes go through the same graph: {:.0} nodes per step are differentiated again, {} of the step",
        again.parts_per_step,
        percent(share)
    );
    let advice =
        "add the losses up and call backward once (without retain_graph), where no loss needs its gradient by itself";
    let mut found = Found::new(Some(share), message, advice);
    found.confidence = Confidence::Medium;
    let steps = view.steps.count();
    found.evidence = vec![format!(
        "{} of the device's and {} of the host's time per step",
        milliseconds(again.device_seconds / steps),
        milliseconds(again.host_seconds / steps)
    )];
    found.removal = removal;
    vec![found]
}
