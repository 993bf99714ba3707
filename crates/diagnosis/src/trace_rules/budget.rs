//! Limits shares: no finding costs more than the replay says, and findings on one resource cost no more than all of it.

use crate::measures::breakdown::WhereWorkRuns;

use super::{Evidence, TRACE_RULES, TraceFinding, percent, severity};

/// Findings about idle time, the more specific first: each takes from what those before it leave.
const OF_IDLE_TIME: &[&str] = &["TR104", "TR119", "TR130", "TR101", "TR103", "TR102"];
/// Findings about busy time; the largest takes its share first.
const OF_BUSY_TIME: &[&str] =
    &["TR106", "TR107", "TR108", "TR113", "TR115", "TR131", "TR132", "TR133", "TR134", "TR135", "TR136", "TR137"];

/// A finding of at least this share that costs less than half of it says why.
const WORTH_A_REASON: f64 = 0.01;

/// Limits findings about device time to what the replay saves: if the host is the bottleneck, a faster kernel only
/// widens the gap after it.
pub fn pace(evidence: &Evidence, findings: &mut [TraceFinding]) {
    if !findings.iter().any(|finding| finding.found.on_device) {
        return;
    }
    let wall = evidence.view.steps.range().nanos().max(1) as f64;
    for finding in findings.iter_mut().filter(|finding| finding.found.on_device) {
        let saved = evidence.simulation.saved(&finding.found.removal) as f64 / wall;
        if finding.share_of_step.is_some_and(|share| share >= WORTH_A_REASON && saved < share / 2.0) {
            let less = percent(saved.max(0.0));
            finding.evidence.push(format!("the host sets the pace: less device time shortens the step by {less}"));
        }
        limit(finding, saved);
    }
}

/// Limits the findings on one resource to its total.
pub fn share_out(evidence: &Evidence, findings: &mut [TraceFinding]) {
    let breakdown = &evidence.measures.breakdown;
    let wall = breakdown.wall_seconds.max(f64::MIN_POSITIVE);
    let mut left = (breakdown.idle.total_seconds / wall).min(1.0);
    for code in OF_IDLE_TIME {
        for finding in findings.iter_mut().filter(|finding| finding.code == *code) {
            limit(finding, left);
            left = (left - finding.share_of_step.unwrap_or(0.0)).max(0.0);
        }
    }
    // In a CPU run, collectives are not part of the busy time.
    let communicating = match breakdown.where_work_runs {
        WhereWorkRuns::Host => breakdown.communication_exposed_seconds / wall,
        WhereWorkRuns::Device => 0.0,
    };
    let mut left = (breakdown.busy_share + communicating).min(1.0);
    let mut busy: Vec<&mut TraceFinding> =
        findings.iter_mut().filter(|finding| OF_BUSY_TIME.contains(&finding.code)).collect();
    busy.sort_by(|one, two| two.share_of_step.unwrap_or(0.0).total_cmp(&one.share_of_step.unwrap_or(0.0)));
    for finding in busy {
        limit(finding, left);
        left = (left - finding.share_of_step.unwrap_or(0.0)).max(0.0);
    }
    findings.iter_mut().for_each(|finding| limit(finding, 1.0));
}

fn limit(finding: &mut TraceFinding, most: f64) {
    let Some(share) = finding.share_of_step.filter(|share| *share > most) else { return };
    debug_assert!(share.is_finite(), "{}", finding.code);
    finding.share_of_step = Some(most.max(0.0));
    if let Some(rule) = TRACE_RULES.iter().find(|rule| rule.code == finding.code) {
        finding.severity = severity(rule, finding.share_of_step, finding.confidence);
    }
}
