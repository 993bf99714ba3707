//! TR134 unread-gradients: the backward pass computes gradients of parameters that no optimizer updates.

use super::{Evidence, Found, TraceRule, for_nothing, percent};
use crate::constants::tr134;
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
            "no optimizer reads {:.0} gradients per step: computing them takes {} of the step",
            unread.parts_per_step,
            percent(share)
        )
    };
    let advice = "freeze parameters that are not trained (requires_grad_(False)), run them under \
                  torch.no_grad() where nothing trained comes before them, or detach() another network's \
                  outputs before this pass";
    let mut found = for_nothing::found(evidence, &tr134::NEEDLESS_SHARE, unread, said, advice);
    found.iter_mut().for_each(|found| found.confidence = Confidence::Medium);
    found.into_iter().collect()
}
