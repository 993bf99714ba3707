//! Ranks what to do first: findings by saving against effort, each with its saving beyond those before it.

use serde::Serialize;

use crate::finding::{Cause, Confidence, Effort};
use crate::measures::view::View;
use crate::simulation::{Removal, Simulation};
use crate::trace_rules::TraceFinding;
use crate::what_if::model;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Roadmap {
    pub items: Vec<RoadmapItem>,
    /// Upper bound on the saving of all items together, as a share of the step.
    pub total_saving_bound_share: f64,
    pub step_seconds_now: f64,
    pub step_seconds_at_best: f64,
    /// Expected saving of all items together.
    pub total_saving_expected_share: f64,
    pub step_seconds_expected: f64,
    /// Findings without a model: their fix's saving is not part of the bound.
    pub outside_bound: Vec<String>,
    /// How the bound was found.
    pub method: &'static str,
}

#[derive(Clone, Debug, Serialize)]
pub struct RoadmapItem {
    pub code: &'static str,
    pub name: &'static str,
    pub message: String,
    pub advice: String,
    pub effort: Effort,
    pub confidence: Confidence,
    /// How the expected saving and the bound are computed.
    pub model: &'static str,
    /// Upper bound for this item alone.
    pub alone_share: f64,
    /// Upper bound beyond the items before it.
    pub additional_share: f64,
    /// Expected saving: for this item alone, and beyond the items before it.
    pub expected_share: f64,
    pub additional_expected_share: f64,
    /// The step with only this fixed: lower bound, and expected.
    pub bound_step_seconds: f64,
    pub expected_step_seconds: f64,
}

const METHOD: &str = "the step replayed without each cost: the expected saving by a model of the fix, and the bound that no fix can exceed";

/// Smaller savings are not worth a line.
const LEAST_SAVING: f64 = 0.0005;

/// Rounds savings for comparison: those that differ by less are equal.
fn rounded(worth: f64) -> i64 {
    (1e3 * worth).round() as i64
}

/// Sets each finding's own savings, and sorts those that save something.
pub fn roadmap(view: &View, simulation: &Simulation, findings: &mut [TraceFinding]) -> Roadmap {
    let wall = view.steps.range().nanos().max(1) as f64;
    let as_it_is = simulation.run(&Removal::default());
    let share = |removal: &Removal| ((as_it_is - simulation.run(removal)).max(0) as f64 / wall).min(1.0);
    for finding in findings.iter_mut().filter(|finding| !finding.found.removal.is_empty()) {
        finding.saving_bound_share = share(&finding.found.removal);
        let expected = finding.found.expected.as_ref();
        finding.saving_expected_share =
            expected.map_or(finding.saving_bound_share, |expected| share(expected).min(finding.saving_bound_share));
    }
    // A wider bound, quicker parts and fewer launches alone do not count as the finding's saving.
    let its_own = |removal: &Removal| Removal {
        quick_host: false,
        quick_device: false,
        launchers: Vec::new(),
        ..removal.clone()
    };
    let saves = |finding: &TraceFinding| {
        let found = &finding.found;
        let by_itself = || found.asked.as_ref().map_or_else(|| share(&its_own(&found.removal)), share);
        finding.saving_bound_share > LEAST_SAVING
            && (finding.saving_expected_share > LEAST_SAVING || by_itself() > LEAST_SAVING)
    };
    let mut order: Vec<usize> = (0..findings.len()).filter(|&at| saves(&findings[at])).collect();
    // A low-effort saving goes before a larger one of high effort, but not before a much larger one.
    let worth = |finding: &TraceFinding| {
        finding.saving_expected_share
            / match finding.effort {
                Effort::Low => 1.0,
                Effort::Medium => 2.0,
                Effort::High => 4.0,
            }
    };
    // Idle time is what no other finding explains: it saves only what the others leave.
    let is_rest = |finding: &TraceFinding| finding.cause == Cause::GpuIdle;
    order.sort_by(|&left, &right| {
        let (left, right) = (&findings[left], &findings[right]);
        // If two save the same, the one with the larger cost goes first: a copy before the wait for it.
        let cost = |finding: &TraceFinding| finding.share_of_step.unwrap_or(0.0);
        let by_cost = cost(right).total_cmp(&cost(left)).then(left.code.cmp(right.code));
        let by_worth = rounded(worth(right)).cmp(&rounded(worth(left))).then(by_cost);
        is_rest(left).cmp(&is_rest(right)).then(by_worth)
    });
    let now = view.steps.seconds_per_step(view.steps.wall_nanos());
    let (mut removed, mut expected_removed) = (Removal::default(), Removal::default());
    let (mut saved_so_far, mut expected_so_far) = (0.0f64, 0.0f64);
    let mut items = Vec::new();
    for at in order {
        let finding = &findings[at];
        let found = &finding.found;
        removed = removed.and(&found.removal);
        expected_removed = expected_removed.and(found.expected.as_ref().unwrap_or(&found.removal));
        let (saved, expected_saved) = (share(&removed), share(&expected_removed));
        // Together with the items before it, it may save more than alone; that bound then also applies to it alone.
        let additional = (saved - saved_so_far).max(0.0);
        let alone = finding.saving_bound_share.max(additional);
        items.push(RoadmapItem {
            code: finding.code,
            name: finding.name,
            message: finding.message.clone(),
            advice: finding.advice.clone(),
            effort: finding.effort,
            confidence: finding.confidence,
            model: model(finding.cause).unwrap_or_default(),
            alone_share: alone,
            additional_share: additional,
            expected_share: finding.saving_expected_share,
            additional_expected_share: (expected_saved - expected_so_far).max(0.0),
            bound_step_seconds: now * (1.0 - alone),
            expected_step_seconds: now * (1.0 - finding.saving_expected_share),
        });
        saved_so_far = saved_so_far.max(saved);
        expected_so_far = expected_so_far.max(expected_saved);
        findings[at].saving_bound_share = alone;
    }
    let expected = expected_so_far.min(saved_so_far);
    let has_model = |finding: &TraceFinding| {
        model(finding.cause).is_some() && !(finding.found.removal.is_empty() && finding.saving_bound_share == 0.0)
    };
    let without_model = findings.iter().filter(|finding| !has_model(finding));
    let mut outside_bound: Vec<String> =
        without_model.map(|finding| format!("{} {}", finding.code, finding.name)).collect();
    outside_bound.sort();
    outside_bound.dedup();
    Roadmap {
        items,
        total_saving_bound_share: saved_so_far,
        step_seconds_now: now,
        step_seconds_at_best: now * (1.0 - saved_so_far),
        total_saving_expected_share: expected,
        step_seconds_expected: now * (1.0 - expected),
        outside_bound,
        method: METHOD,
    }
}

#[cfg(test)]
mod tests;
