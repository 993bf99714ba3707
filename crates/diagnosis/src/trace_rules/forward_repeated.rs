//! TR135 forward-repeated: the trained layers run once more without contributing to training.

use super::{Evidence, Found, TraceRule, for_nothing, percent};
use crate::constants::tr135;
use crate::finding::{Cause, Confidence, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR135",
    name: "forward-repeated",
    cause: Cause::Recomputed,
    page: include_str!("forward_repeated.md"),
    effort: Effort::Low,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let repeated = &evidence.measures.patterns.repeated_forward;
    let said = |share| {
        format!(
            "{:.1} forward pass(es) per step through the trained layers produce no gradient: {} of the step",
            repeated.parts_per_step,
            percent(share)
        )
    };
    let advice = "reuse the training pass's outputs (outputs.detach()) and evaluate at an interval; a second \
                  model with the same layers (a teacher, an average, a reference) does need this pass";
    let mut found = for_nothing::found(evidence, &tr135::NEEDLESS_SHARE, repeated, said, advice);
    found.iter_mut().for_each(|found| found.confidence = Confidence::Low);
    found.into_iter().collect()
}
