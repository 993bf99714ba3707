//! How much of the collectives' time is hidden behind compute.

use headroom_trace::Category;
use serde::Serialize;

use super::collectives::{Collective, collectives, is_collective_operator, is_communication};
use super::intervals::{Span, covered, merged, seconds, total, without};
use super::view::View;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Communication {
    pub collectives: usize,
    pub seconds: f64,
    /// The part that overlaps with compute.
    pub hidden_seconds: f64,
    pub exposed_seconds: f64,
    pub overlap_share: f64,
    pub exposed_share_of_steps: f64,
}

pub fn communication(view: &View) -> Communication {
    let range = view.steps.range();
    let inside = |collective: &&Collective| (range.start..range.end).contains(&collective.span.start);
    let found = collectives(view);
    let found: Vec<&Collective> = found.iter().filter(inside).collect();
    if found.is_empty() {
        return Communication::default();
    }
    let (communication, compute) = (merged(found.iter().map(|one| one.span).collect()), compute(view));
    let all = total(&communication);
    let hidden: i64 = communication.iter().map(|span| covered(&compute, *span)).sum();
    Communication {
        collectives: found.len(),
        seconds: seconds(all),
        hidden_seconds: seconds(hidden),
        exposed_seconds: seconds(all - hidden),
        overlap_share: if all > 0 { hidden as f64 / all as f64 } else { 0.0 },
        exposed_share_of_steps: view.steps.share(all - hidden),
    }
}

/// When anything other than a collective was computed: by kernels, or by operators of a run on the host.
pub fn compute(view: &View) -> Vec<Span> {
    let device = &view.trace.device;
    if view.has_device_work() {
        let collective = view.of_kernels(is_communication);
        let is_compute = |&at: &usize| device.category[at] == Category::Kernel && !collective[device.name[at].index()];
        return merged(device.busy().filter(is_compute).map(|at| view.device_span(at)).collect());
    }
    let host = &view.trace.host;
    let operators = (0..host.len()).filter(|&at| view.is_operator(at));
    // An operator that launches a collective is part of it and does not count as compute; nor does one that is a
    // collective.
    let computes = operators.filter(|&at| !is_collective_operator(view.host_name(at)));
    merged(computes.map(|at| view.host_span(at)).collect())
}

/// When collectives ran without any compute.
pub fn exposed(view: &View) -> Vec<Span> {
    let spans = collectives(view).into_iter().map(|collective| collective.span).collect();
    without(&merged(spans), &compute(view))
}
