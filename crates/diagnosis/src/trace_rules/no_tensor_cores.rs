//! TR106 no-tensor-cores: GEMMs run on plain units although tensor cores could run them.

use super::{percent, shown_time};
use crate::constants::tr106;
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
    let part = evidence.view.part();
    let has_cores = part.is_none_or(|part| part.gains_from_tf32() || part.bf16 > part.fp32);
    if cores.without_share_of_steps < evidence.thresholds.of(&tr106::TENSOR_CORE_SHARE) || !has_cores {
        return Vec::new();
    }
    let share_of_eligible = cores.without_seconds / cores.eligible_seconds.max(f64::MIN_POSITIVE);
    let convolutions = cores.convolution_seconds / cores.without_seconds.max(f64::MIN_POSITIVE);
    let what = match convolutions {
        share if share > 0.9 => "convolutions",
        share if share > 0.1 => "GEMMs and convolutions",
        _ => "GEMMs",
    };
    let message = format!(
        "{what} spend {} of their time without tensor cores, {} of the step",
        percent(share_of_eligible),
        percent(cores.without_share_of_steps)
    );
    let advice = match part {
        Some(part) if evidence.run.is_some() && !part.gains_from_tf32() => {
            "`--precision bf16` runs GEMMs on tensor cores; it changes results slightly"
        }
        _ if evidence.run.is_some() => {
            "`--precision tf32` or `--precision bf16` runs GEMMs on tensor cores; both change results slightly"
        }
        // Volta, Turing and AMD's older parts do not support single precision on matrix units.
        Some(part) if part.tf32 == 0.0 => {
            "train in half precision (torch.autocast with fp16 and a GradScaler, or bf16 where the device \
             supports it); it changes results slightly"
        }
        Some(part) if !part.gains_from_tf32() => {
            "train in bf16 (torch.autocast); it changes results slightly. TF32 is no faster than fp32 on this device"
        }
        _ => {
            "train in bf16 (torch.autocast), or allow TF32: torch.set_float32_matmul_precision(\"high\") and torch.backends.cudnn.allow_tf32; both change results slightly"
        }
    };
    // By the datasheet's ratio of the two units.
    let ratio = part.map_or(0.5, |part| part.fp32 / part.tf32.max(part.bf16));
    let mut found = Found::new(Some(cores.without_share_of_steps * (1.0 - ratio)), message, advice);
    found.is_flag = evidence.run.is_some();
    found.on_device = true;
    found.evidence =
        vec![format!("{} per step in such kernels", shown_time(cores.without_seconds / evidence.view.steps.count()))];
    found.evidence.extend(cores.kernels.iter().map(|kernel| format!("`{kernel}`")));
    let device = &evidence.view.trace.device;
    let shorter = cores.spans.iter().map(|&at| (at, (device.duration[at] as f64 * ratio) as i64));
    found.removal = Removal { device: shorter.collect(), ..Removal::default() };
    vec![found]
}
