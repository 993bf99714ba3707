//! TR115 communication-exposed: collectives that no compute hides.

use super::{milliseconds, percent};
use crate::measures::communication::is_collective;
use crate::measures::intervals::{covered, merged};
use crate::simulation::Removal;
use headroom_trace::Category;

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR115",
    name: "communication-exposed",
    cause: Cause::CommunicationExposed,
    page: include_str!("communication_exposed.md"),
    effort: Effort::Medium,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let communication = &evidence.measures.communication;
    let thresholds = evidence.thresholds;
    let little = communication.exposed_share_of_steps < thresholds.exposed_share;
    if communication.collectives == 0 || little || communication.overlap_share >= thresholds.overlap_share {
        return Vec::new();
    }
    let message = format!(
        "collectives are exposed for {} of the step; {} of them is hidden behind compute",
        percent(communication.exposed_share_of_steps),
        percent(communication.overlap_share)
    );
    let advice = "overlap them with the backward pass (DDP buckets, FSDP prefetch), no_sync() while accumulating, no collective for logging alone";
    let mut found = Found::new(Some(communication.exposed_share_of_steps), message, advice);
    let steps = evidence.view.steps.count();
    found.evidence = vec![format!(
        "{} collectives, {} a step, {} of it exposed",
        communication.collectives,
        milliseconds(communication.seconds / steps),
        milliseconds(communication.exposed_seconds / steps)
    )];
    found.removal = hidden(evidence);
    vec![found]
}

/// Each collective as long as the compute beside it.
fn hidden(evidence: &Evidence) -> Removal {
    let (view, device) = (evidence.view, &evidence.view.trace.device);
    let collective: Vec<bool> = view.trace.names.iter().map(|(_, name)| is_collective(name)).collect();
    let is_kernel = |at: &usize| device.category[*at] == Category::Kernel;
    let compute = device.busy().filter(is_kernel).filter(|&at| !collective[device.name[at].index()]);
    let compute = merged(compute.map(|at| view.device_span(at)).collect());
    let collectives = device.busy().filter(is_kernel).filter(|&at| collective[device.name[at].index()]);
    Removal {
        device: collectives.map(|at| (at, covered(&compute, view.device_span(at)))).collect(),
        ..Removal::default()
    }
}
