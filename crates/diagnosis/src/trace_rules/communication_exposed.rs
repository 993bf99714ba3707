//! TR115 communication-exposed: collectives that are not hidden behind compute.

use super::{percent, shown_time};
use crate::constants::tr115;
use crate::measures::collectives::collectives;
use crate::measures::communication::{compute, exposed};
use crate::measures::intervals::{Span, clipped, covered, merged, total, without};
use crate::measures::ranks::CollectiveRow;
use crate::simulation::Removal;

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
    if evidence.trust.withheld.contains(&"communication") {
        return Vec::new();
    }
    let thresholds = evidence.thresholds;
    // The straggler rule reports waiting for another rank.
    let (view, waits) = (evidence.view, waits(evidence));
    let exposed = without(&exposed(view), &waits);
    let inside: i64 = view.steps.list.iter().map(|step| covered(&exposed, step.span)).sum();
    let share = view.steps.share(inside);
    let little = share < thresholds.of(&tr115::EXPOSED_SHARE);
    if communication.collectives == 0 || little || communication.overlap_share >= thresholds.of(&tr115::OVERLAP_SHARE) {
        return Vec::new();
    }
    let waiting = if waits.is_empty() { "" } else { ", in addition to waits for other ranks" };
    let message = format!(
        "collectives are exposed for {} of the step{waiting}; {}",
        percent(share),
        match percent(communication.overlap_share) {
            none if none == "0.00%" => "none of them is hidden behind compute".to_string(),
            some => format!("{some} of them is hidden behind compute"),
        }
    );
    let advice = "overlap them with the backward pass (DDP buckets, FSDP prefetch), use no_sync() while \
                  accumulating, avoid collectives that only serve logging";
    let mut found = Found::new(Some(share), message, advice);
    let steps = view.steps.count();
    found.evidence = vec![format!(
        "{} collectives, {} per step, {} of it exposed",
        communication.collectives,
        shown_time(communication.seconds / steps),
        shown_time(communication.exposed_seconds / steps)
    )];
    found.evidence.extend(evidence.ranks.into_iter().flat_map(|ranks| ranks.collectives.iter().take(3)).map(rate));
    found.removal = hidden(evidence);
    vec![found]
}

/// The speed of collectives of one kind and size, compared with the link.
fn rate(row: &CollectiveRow) -> String {
    let giga = |rate: f64| format!("{:.1} GB/s", rate / 1e9);
    let bus = row.bus_bytes_per_second.map(|bus| format!(", {} on the bus", giga(bus))).unwrap_or_default();
    let link = row.link_bytes_per_second.map(|link| format!(" of the link's {}", giga(link)));
    let link = link.filter(|_| row.bus_bytes_per_second.is_some()).unwrap_or_default();
    format!(
        "{} of {} bytes among {}: {} of transfer{bus}{link}",
        row.kind.name(),
        row.bytes,
        row.group_size,
        shown_time(row.transfer_seconds)
    )
}

fn waits(evidence: &Evidence) -> Vec<Span> {
    merged(evidence.ranks.into_iter().flat_map(|ranks| ranks.waits.iter().map(|wait| wait.wait)).collect())
}

/// Reduces each collective to the compute beside it and its wait.
fn hidden(evidence: &Evidence) -> Removal {
    let view = evidence.view;
    let (compute, waits) = (compute(view), waits(evidence));
    let kept = |span: Span| covered(&compute, span) + total(&without(&clipped(&waits, span), &compute));
    if view.has_device_work() {
        let found = collectives(view);
        let device = found.iter().map(|collective| (collective.at, kept(collective.span).min(collective.span.nanos())));
        return Removal { device: device.collect(), ..Removal::default() };
    }
    Removal { host: without(&exposed(view), &waits), ..Removal::default() }
}
