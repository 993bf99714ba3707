//! TR136 metrics-each-step: a library's metrics are taken at every step.

use super::{Evidence, Found, TraceRule, for_nothing, percent};
use crate::finding::{Cause, Confidence, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR136",
    name: "metrics-each-step",
    cause: Cause::Recomputed,
    page: include_str!("metrics_each_step.md"),
    effort: Effort::Low,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let metrics = &evidence.measures.patterns.metrics_each_step;
    let said = |share| {
        format!(
            "metrics are taken at every step, in {:.0} call(s) of a library: {} of the step",
            metrics.parts_per_step,
            percent(share)
        )
    };
    let advice = "take them every so many steps, or in validation alone; keep what is logged on the device until then, and switch the \
                  library's checks of its inputs off (validate_args=False)";
    let mut found = for_nothing::found(evidence, metrics, said, advice);
    found.iter_mut().for_each(|found| found.confidence = Confidence::Medium);
    found.into_iter().collect()
}
