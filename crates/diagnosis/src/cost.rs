//! The cost of a finding, in one place: findings and roadmap take their figures from here, for any trace and any run.
//!
//! - *Share*: the time that it occupies on the critical path, as a share of the step. A rule states its time; device
//!   time counts no more than its replay saves, and findings about one resource divide that resource between them.
//! - *Bound*: the step minus its replay with that time removed and nothing slower. Never more than the share.
//! - *Expected*: the same replay with what the remedy leaves of that time. Never more than the bound.

use crate::constants::cost::{LEAST_LEFT_BY_A_BOUND, WORTH_A_REASON};
use crate::finding::Cause;
use crate::measures::breakdown::WhereWorkRuns;
use crate::trace_rules::{Evidence, TRACE_RULES, TraceFinding, percent, severity, sort};
use crate::what_if;

/// Causes of idle time, the more specific first: each takes from what those before it leave.
const OF_IDLE_TIME: &[Cause] = &[
    Cause::DataLoading,
    Cause::CpuBoundOperator,
    Cause::DeviceStalled,
    Cause::HostSync,
    Cause::LaunchBound,
    Cause::GpuIdle,
];

/// Whether findings of this cause are about busy time, of which the largest takes its share first. Where all work runs on
/// the host, operators and reads are work, not idle time.
fn is_work(cause: Cause, on_host: bool) -> bool {
    match cause {
        Cause::HostSync | Cause::CpuBoundOperator => on_host,
        Cause::NoTensorCores | Cause::AttentionMaterialised | Cause::SmallKernels | Cause::BelowRoof => true,
        Cause::CommunicationExposed | Cause::DeviceCopies | Cause::Recomputed => true,
        _ => false,
    }
}

/// The bound as reported. One that leaves next to nothing of the step says only that a step takes time, so it is
/// absent.
pub fn told(bound: f64) -> Option<f64> {
    (bound > 0.0 && bound <= 1.0 - LEAST_LEFT_BY_A_BOUND.get()).then_some(bound)
}

/// Sets share, bound and expected saving of each finding, and sorts by share.
pub fn price(evidence: &Evidence, findings: &mut [TraceFinding]) {
    what_if::fill(evidence.view, evidence.measures, findings);
    let simulation = evidence.simulation;
    // A window that says nothing about later steps promises nothing for them.
    let is_withheld = evidence.trust.withheld.contains(&"steady-state");
    for finding in findings.iter_mut().filter(|finding| !finding.found.removal.is_empty()) {
        let bound = simulation.saved_share(&finding.found.removal);
        if finding.found.on_device {
            pace(finding, bound);
        }
        if !is_withheld {
            let expected = finding.found.expected.as_ref();
            finding.saving_expected_share =
                expected.map_or(bound, |expected| simulation.saved_share(expected).min(bound));
            finding.saving_bound_share = Some(bound);
        }
    }
    share_out(evidence, findings);
    findings.iter_mut().for_each(settle);
    sort(findings);
}

/// No more is saved than the time that is there. A finding whose share is not known promises nothing.
fn settle(finding: &mut TraceFinding) {
    let most = finding.share_of_step.unwrap_or(0.0);
    let bound = finding.saving_bound_share.map(|bound| bound.min(most));
    finding.saving_expected_share = finding.saving_expected_share.min(bound.unwrap_or(0.0));
    finding.saving_bound_share = bound.and_then(told);
}

/// Limits a finding about device time to what its replay saves: if the host is the bottleneck, a faster kernel only
/// widens the gap after it.
fn pace(finding: &mut TraceFinding, saved: f64) {
    if finding.share_of_step.is_some_and(|share| share >= WORTH_A_REASON.get() && saved < share / 2.0) {
        let less = percent(saved);
        finding.evidence.push(format!("the host sets the pace: less device time shortens the step by {less}"));
    }
    limit(finding, saved);
}

/// Limits the findings on one resource to its total.
fn share_out(evidence: &Evidence, findings: &mut [TraceFinding]) {
    let breakdown = &evidence.measures.breakdown;
    let wall = breakdown.wall_seconds.max(f64::MIN_POSITIVE);
    let on_host = breakdown.where_work_runs == WhereWorkRuns::Host;
    let mut of_idle: Vec<(usize, &mut TraceFinding)> = Vec::new();
    let mut of_work: Vec<&mut TraceFinding> = Vec::new();
    for finding in findings.iter_mut() {
        limit(finding, 1.0);
        match OF_IDLE_TIME.iter().position(|cause| *cause == finding.cause) {
            _ if is_work(finding.cause, on_host) => of_work.push(finding),
            Some(place) => of_idle.push((place, finding)),
            None => {}
        }
    }
    of_idle.sort_by_key(|(place, _)| *place);
    of_work.sort_by(|one, two| two.share_of_step.unwrap_or(0.0).total_cmp(&one.share_of_step.unwrap_or(0.0)));
    divide(of_idle.into_iter().map(|(_, finding)| finding), breakdown.idle.total_seconds / wall);
    // In a CPU run, collectives are not part of the busy time.
    let communicating = if on_host { breakdown.communication_exposed_seconds / wall } else { 0.0 };
    divide(of_work.into_iter(), breakdown.busy_share + communicating);
}

/// Each takes its share from what those before it leave.
fn divide<'f>(findings: impl Iterator<Item = &'f mut TraceFinding>, whole: f64) {
    let mut left = whole.min(1.0);
    for finding in findings {
        limit(finding, left);
        left = (left - finding.share_of_step.unwrap_or(0.0)).max(0.0);
    }
}

fn limit(finding: &mut TraceFinding, most: f64) {
    let Some(share) = finding.share_of_step.filter(|share| *share > most) else { return };
    debug_assert!(share.is_finite(), "{}", finding.code);
    finding.share_of_step = Some(most.max(0.0));
    if let Some(rule) = TRACE_RULES.iter().find(|rule| rule.code == finding.code) {
        finding.severity = severity(rule, finding.share_of_step, finding.confidence);
    }
}

#[cfg(test)]
mod tests;
