//! Ranks what to do first: findings by saving against effort, each with its saving beyond those before it.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::constants::cost::LEAST_COST;
use crate::cost::told;
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
    /// Upper bound for this item alone; `None` if it says nothing.
    pub alone_share: Option<f64>,
    /// Upper bound beyond the items before it.
    pub additional_share: f64,
    /// Expected saving: for this item alone, and beyond the items before it.
    pub expected_share: f64,
    pub additional_expected_share: f64,
    /// The step with only this fixed: lower bound, and expected.
    pub bound_step_seconds: Option<f64>,
    pub expected_step_seconds: f64,
}

const METHOD: &str =
    "the step replayed with what each fix leaves of its cost, and at most without that cost and with nothing slower";

/// Rounds savings for comparison: those that differ by less are equal.
fn rounded(worth: f64) -> i64 {
    (1e3 * worth).round() as i64
}

/// Sorts the findings that save something, by the savings that the cost model has set. What an item adds to those
/// before it can be more than it saves alone, where two costs hide each other: that bound then also holds for it alone.
pub fn roadmap(view: &View, simulation: &Simulation, findings: &mut [TraceFinding]) -> Roadmap {
    let saves = |finding: &TraceFinding| finding.saving_expected_share > LEAST_COST.get();
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
    let (mut saved_before, mut expected_before) = (0.0f64, 0.0f64);
    let (mut total, mut total_expected) = (0.0f64, 0.0f64);
    let mut items = Vec::new();
    for at in order {
        let finding = &mut findings[at];
        let found = &finding.found;
        removed = removed.and(&found.removal);
        expected_removed = expected_removed.and(found.expected.as_ref().unwrap_or(&found.removal));
        let (saved, expected_saved) = (simulation.saved_share(&removed), simulation.saved_share(&expected_removed));
        let most = finding.share_of_step.unwrap_or(1.0);
        let additional = (saved - saved_before).clamp(0.0, most);
        let additional_expected = (expected_saved - expected_before).clamp(0.0, additional);
        if finding.saving_bound_share.is_none_or(|bound| bound < additional) {
            finding.saving_bound_share = told(additional.max(finding.saving_expected_share));
        }
        items.push(RoadmapItem {
            code: finding.code,
            name: finding.name,
            message: finding.message.clone(),
            advice: finding.advice.clone(),
            effort: finding.effort,
            confidence: finding.confidence,
            model: model(finding.cause).unwrap_or_default(),
            alone_share: finding.saving_bound_share,
            additional_share: additional,
            expected_share: finding.saving_expected_share,
            additional_expected_share: additional_expected,
            bound_step_seconds: finding.saving_bound_share.map(|bound| now * (1.0 - bound)),
            expected_step_seconds: now * (1.0 - finding.saving_expected_share),
        });
        (saved_before, expected_before) = (saved_before.max(saved), expected_before.max(expected_saved));
        (total, total_expected) = (total + additional, total_expected + additional_expected);
    }
    let has_model = |finding: &TraceFinding| model(finding.cause).is_some() && !finding.found.removal.is_empty();
    let without_model = findings.iter().filter(|finding| !has_model(finding));
    let outside_bound: BTreeSet<String> =
        without_model.map(|finding| format!("{} {}", finding.code, finding.name)).collect();
    Roadmap {
        items,
        total_saving_bound_share: total,
        step_seconds_now: now,
        step_seconds_at_best: now * (1.0 - total),
        total_saving_expected_share: total_expected,
        step_seconds_expected: now * (1.0 - total_expected),
        outside_bound: outside_bound.into_iter().collect(),
        method: METHOD,
    }
}

#[cfg(test)]
mod tests;
