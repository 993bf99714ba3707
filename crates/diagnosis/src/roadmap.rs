//! What to do first: findings by what they save against what they cost, each saving beyond those before it.

use serde::Serialize;

use crate::finding::{Confidence, Effort};
use crate::measures::view::View;
use crate::simulation::{Removal, Simulation};
use crate::trace_rules::TraceFinding;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Roadmap {
    pub items: Vec<RoadmapItem>,
    /// Of all items together: at most this much of the step.
    pub total_saving_bound_share: f64,
    pub step_seconds_now: f64,
    pub step_seconds_at_best: f64,
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
    /// At most, by itself.
    pub alone_share: f64,
    /// At most, beyond what the items before it save.
    pub additional_share: f64,
}

const METHOD: &str = "upper bound: the step replayed without each cost";

/// Sets each finding's own bound, and orders those that save something.
pub fn roadmap(view: &View, findings: &mut [TraceFinding]) -> Roadmap {
    let simulation = Simulation::new(view);
    let wall = view.steps.range().nanos().max(1) as f64;
    for finding in findings.iter_mut() {
        if !finding.found.removal.is_empty() {
            finding.saving_bound_share = (simulation.saved(&finding.found.removal) as f64 / wall).min(1.0);
        }
    }
    let mut order: Vec<usize> = (0..findings.len()).filter(|&at| findings[at].saving_bound_share > 0.0005).collect();
    // A saving of low effort before a larger one of high effort, but not before a much larger one.
    let worth = |finding: &TraceFinding| {
        finding.saving_bound_share
            / match finding.effort {
                Effort::Low => 1.0,
                Effort::Medium => 2.0,
                Effort::High => 4.0,
            }
    };
    order.sort_by(|&left, &right| {
        worth(&findings[right]).total_cmp(&worth(&findings[left])).then(findings[left].code.cmp(findings[right].code))
    });
    let mut removed = Removal::default();
    let mut saved_so_far = 0.0;
    let mut items = Vec::new();
    for at in order {
        let finding = &findings[at];
        removed = removed.and(&finding.found.removal);
        let saved = (simulation.saved(&removed) as f64 / wall).min(1.0);
        // Together with those before it, it may free more than by itself; what bounds that bounds it alone as well.
        let additional = (saved - saved_so_far).max(0.0);
        let alone = finding.saving_bound_share.max(additional);
        items.push(RoadmapItem {
            code: finding.code,
            name: finding.name,
            message: finding.message.clone(),
            advice: finding.advice.clone(),
            effort: finding.effort,
            confidence: finding.confidence,
            alone_share: alone,
            additional_share: additional,
        });
        saved_so_far = saved_so_far.max(saved);
        findings[at].saving_bound_share = alone;
    }
    let now = view.steps.seconds_a_step(view.steps.wall_nanos());
    Roadmap {
        items,
        total_saving_bound_share: saved_so_far,
        step_seconds_now: now,
        step_seconds_at_best: now * (1.0 - saved_so_far),
        method: METHOD,
    }
}

#[cfg(test)]
mod tests;
