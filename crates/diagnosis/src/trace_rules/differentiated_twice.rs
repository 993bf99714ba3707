//! TR133 differentiated-twice: several backward passes of one step go through the same nodes.

use super::{Evidence, Found, TraceRule, for_nothing, percent};
use crate::constants::tr133;
use crate::finding::{Cause, Confidence, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR133",
    name: "differentiated-twice",
    cause: Cause::Recomputed,
    page: include_str!("differentiated_twice.md"),
    effort: Effort::Low,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let again = &evidence.measures.patterns.differentiated_again;
    let said = |share| {
        format!(
            "several backward passes traverse the same graph: {:.0} nodes per step are differentiated again, {} of the step",
            again.parts_per_step,
            percent(share)
        )
    };
    let advice = "add up the losses and call backward once (without retain_graph), unless a loss needs a \
                  separate gradient; get the gradients of several inputs in one call of torch.autograd.grad";
    let mut found = for_nothing::found(evidence, &tr133::NEEDLESS_SHARE, again, said, advice);
    found.iter_mut().for_each(|found| found.confidence = Confidence::Medium);
    found.into_iter().collect()
}
