//! TR109 optimizer-per-parameter: the optimizer launches its kernels one parameter at a time.

use super::{milliseconds, percent};
use crate::simulation::Removal;

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR109",
    name: "optimizer-per-parameter",
    cause: Cause::OptimizerPerParameter,
    page: include_str!("optimizer_per_parameter.md"),
    effort: Effort::Low,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let optimizer = &evidence.measures.patterns.optimizer;
    let most = evidence.thresholds.optimizer_kernels_per_step;
    if optimizer.kernels_per_step < most && optimizer.zeroed_per_step < most {
        return Vec::new();
    }
    let message = format!(
        "the optimizer launches {:.0} kernels per step and zeroes {:.0} gradients one by one: {} of the step",
        optimizer.kernels_per_step,
        optimizer.zeroed_per_step,
        percent(optimizer.share_of_steps)
    );
    let advice = "fused=True (or foreach=True) in the optimizer, zero_grad(set_to_none=True)";
    let mut found = Found::new(Some(optimizer.share_of_steps), message, advice);
    let steps = evidence.view.steps.count();
    found.evidence = vec![format!(
        "{} of host and {} of device time per step in the optimizer",
        milliseconds(optimizer.host_seconds / steps),
        milliseconds(optimizer.device_seconds / steps)
    )];
    found.removal = Removal { host: optimizer.host.clone(), ..Removal::default() };
    vec![found]
}
