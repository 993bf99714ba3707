//! TR106 no-tensor-cores: products run on plain units although tensor cores could do them.

use super::{milliseconds, percent};
use crate::peaks;
use crate::simulation::Removal;

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR106",
    name: "no-tensor-cores",
    cause: Cause::NoTensorCores,
    page: include_str!("no_tensor_cores.md"),
    effort: Effort::Low,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let cores = &evidence.measures.patterns.tensor_cores;
    let part = evidence.view.trace.header.devices.first().and_then(|device| peaks::find(&device.name));
    let has_cores = part.is_none_or(|part| part.tf32 > 0.0 || part.bf16 > part.fp32);
    if cores.without_share_of_steps < evidence.thresholds.tensor_core_share || !has_cores {
        return Vec::new();
    }
    let share_of_eligible = cores.without_seconds / cores.eligible_seconds.max(f64::MIN_POSITIVE);
    let message = format!(
        "{} of the time of matrix products runs without tensor cores, {} of the step",
        percent(share_of_eligible),
        percent(cores.without_share_of_steps)
    );
    let advice = "train in bf16 (torch.autocast), or allow TF32: torch.set_float32_matmul_precision(\"high\"); both change results slightly";
    let mut found = Found::new(Some(cores.without_share_of_steps), message, advice);
    found.evidence =
        vec![format!("{} a step in such kernels", milliseconds(cores.without_seconds / evidence.view.steps.count()))];
    found.evidence.extend(cores.kernels.iter().map(|kernel| format!("`{kernel}`")));
    // By the datasheet's ratio of the two units.
    let ratio = part.map_or(0.5, |part| part.fp32 / part.tf32.max(part.bf16));
    let device = &evidence.view.trace.device;
    let shorter = cores.spans.iter().map(|&at| (at, (device.duration[at] as f64 * ratio) as i64));
    found.removal = Removal { device: shorter.collect(), ..Removal::default() };
    vec![found]
}
