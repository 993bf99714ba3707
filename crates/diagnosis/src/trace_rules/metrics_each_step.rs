//! TR136 metrics-each-step: a library's metrics are computed at every step.

use super::{Evidence, Found, TraceRule, for_nothing, percent};
use crate::constants::tr136;
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
            "metrics are computed at every step, in {:.0} library call(s): {} of the step",
            metrics.parts_per_step,
            percent(share)
        )
    };
    let advice = "compute them at an interval, or only in validation; keep logged values on the device until \
                  then, and switch off the library's input checks (validate_args=False)";
    let mut found = for_nothing::found(evidence, &tr136::NEEDLESS_SHARE, metrics, said, advice);
    found.iter_mut().for_each(|found| found.confidence = Confidence::Medium);
    found.into_iter().collect()
}
