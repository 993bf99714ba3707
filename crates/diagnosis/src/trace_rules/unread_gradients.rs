//! TR134 unread-gradients: the backward pass computes gradients of parameters that no optimizer updates.

use super::{Evidence, Found, TraceRule, for_nothing, percent};
use crate::finding::{Cause, Confidence, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR134",
    name: "unread-gradients",
    cause: Cause::Recomputed,
    page: include_str!("unread_gradients.md"),
    effort: Effort::Low,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let unread = &evidence.measures.patterns.unread_gradients;
    let said = |share| {
        format!(
            "{:.0} gradients per step are read by no optimizer: computing them takes {} of the step",
            unread.parts_per_step,
            percent(share)
        )
    };
    let advice = "freeze what is not trained (requires_grad_(False) on its parameters), run it under torch.no_grad() where nothing trained \
                  comes before it, or detach() what another network made before this pass";
    let mut found = for_nothing::found(evidence, unread, said, advice);
    found.iter_mut().for_each(|found| found.confidence = Confidence::Medium);
    found.into_iter().collect()
}
