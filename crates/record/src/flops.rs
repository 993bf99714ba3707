//! `flops_profile.json`: the arithmetic of a step, where it lies in the model, and how near the device's peak it ran.

use crate::performance::ModelConfig;
use crate::provenance::{Origin, Provenance};
use serde::{Deserialize, Serialize};

pub const FLOPS_FILE: &str = "flops_profile.json";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlopsRecord {
    pub schema_version: u32,
    pub model_info: ModelInfo,
    pub profiling_config: ProfilingConfig,
    pub flops_analysis: FlopsAnalysis,
    pub performance_metrics: PerformanceMetrics,
    pub efficiency_metrics: EfficiencyMetrics,
    pub step_by_step_results: Vec<StepFlops>,
    pub timestamp: String,
    pub provenance: Provenance,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelInfo {
    pub total_params: u64,
    pub trainable_params: u64,
    pub config: ModelConfig,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProfilingConfig {
    pub batch_size: u64,
    pub sequence_length: u64,
    pub gradient_accumulation_steps: u64,
    pub num_steps: u64,
    pub device: String,
}

/// FLOPs of one optimizer step unless a key says otherwise; a multiply-add is two.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlopsAnalysis {
    /// Sum over all steps that ran.
    pub total_flops: u64,
    /// Products of forward and backward, and the optimizer's arithmetic: what ran.
    pub avg_flops_per_step: u64,
    pub flops_per_parameter: f64,
    /// Products (GEMM and attention) of the forward pass as they were executed.
    pub forward_flops: u64,
    /// Products of the backward pass, those that are computed again included.
    pub backward_flops: u64,
    pub optimizer_flops: u64,
    /// Part of the backward pass that repeats the forward one.
    pub recomputed_flops: u64,
    /// FLOPs that the model itself needs, the same for every list of passes: causal attention as S(S+1)/2, nothing counted twice.
    pub needed_forward_flops: u64,
    pub needed_flops_per_step: u64,
    /// Forward and backward arithmetic outside products: norms, softmax, activations.
    pub elementwise_flops: u64,
    /// Everything that ran: `by_op` and `by_module` add up to it.
    pub executed_flops_per_step: u64,
    pub by_module: ModuleFlops,
    pub by_op: Vec<OperatorFlops>,
}

/// A module and what lies in it, its children included; `flops` is the sum over its phases.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModuleFlops {
    pub name: String,
    pub flops: u64,
    pub forward_flops: u64,
    pub backward_flops: u64,
    pub optimizer_flops: u64,
    #[serde(default)]
    pub bytes: u64,
    /// Seconds per step; fused calls are shared out to their modules.
    #[serde(default)]
    pub seconds: f64,
    pub children: Vec<ModuleFlops>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatorFlops {
    pub name: String,
    pub flops: u64,
    pub percent: f64,
    pub bytes: u64,
    pub count: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PerformanceMetrics {
    pub avg_time_per_step: f64,
    pub throughput_samples_per_sec: f64,
    /// `None` where nothing was computed.
    pub avg_loss: Option<f64>,
    pub flops_per_sec: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EfficiencyMetrics {
    /// Needed FLOPs over the whole step, against the peak.
    pub mfu_percent: f64,
    /// Executed FLOPs over the whole step, against the peak.
    pub hfu_percent: f64,
    pub achieved_flops_per_sec: f64,
    pub device_peak_flops: f64,
    pub device_peak_source: String,
    /// The maker's figure for the part, or what its units could do by arithmetic, where that is known.
    pub datasheet_peak_flops: Option<f64>,
    pub datasheet_peak_source: Option<String>,
    pub mfu_of_datasheet_percent: Option<f64>,
    pub efficiency_ratio: f64,
    /// The workshop's word for this share: shown beside, not concluded from.
    pub workshop_class: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepFlops {
    pub step: u64,
    pub loss: Option<f64>,
    pub flops: u64,
    pub time: f64,
    pub flops_per_sec: f64,
}

impl FlopsRecord {
    /// `times` are measured on a real device and computed where they are replayed from predictions; the peak is measured by
    /// `headroom device`, or assumed.
    pub fn provenance(times: Origin, peak: Origin) -> Provenance {
        Provenance::of(&[
            ("model_info", Origin::Computed),
            ("model_info.config", Origin::Assumed),
            ("profiling_config", Origin::Assumed),
            ("flops_analysis", Origin::Computed),
            ("flops_analysis.by_module.seconds", times),
            ("performance_metrics", times),
            ("performance_metrics.avg_loss", Origin::Computed),
            // FLOPs that the plan counts over a measured time: computed, not measured.
            ("performance_metrics.flops_per_sec", Origin::Computed),
            ("efficiency_metrics", Origin::Computed),
            ("efficiency_metrics.device_peak_flops", peak),
            ("step_by_step_results", times),
            ("step_by_step_results.step", Origin::Computed),
            ("step_by_step_results.loss", Origin::Computed),
            ("step_by_step_results.flops", Origin::Computed),
            ("step_by_step_results.flops_per_sec", Origin::Computed),
        ])
    }
}

/// Can a device be used this much? More than all of it, less than nothing or no number at all means that the FLOPs, the times or
/// the peak are wrong, and nothing follows from such a figure.
pub fn is_possible_mfu(percent: f64) -> bool {
    (0.0..=100.0).contains(&percent)
}

/// The workshop's classes of MFU.
pub fn workshop_mfu_class(mfu_percent: f64) -> &'static str {
    match mfu_percent {
        share if share < 20.0 => "below 20%: severely underutilized",
        share if share < 40.0 => "20-40%: memory-bound",
        share if share < 60.0 => "40-60%: mixed",
        _ => "above 60%: well optimized",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_of_counted_work_is_computed_though_its_time_is_measured() {
        let provenance = FlopsRecord::provenance(Origin::Measured, Origin::Measured);
        let origin = |key: &str| provenance.origin_of(key);
        for key in [
            "efficiency_metrics.mfu_percent",
            "efficiency_metrics.achieved_flops_per_sec",
            "performance_metrics.flops_per_sec",
            "step_by_step_results.flops_per_sec",
        ] {
            assert_eq!(origin(key), Some(Origin::Computed), "{key}");
        }
        for key in ["efficiency_metrics.device_peak_flops", "performance_metrics.avg_time_per_step"] {
            assert_eq!(origin(key), Some(Origin::Measured), "{key}");
        }
    }

    #[test]
    fn classes_of_mfu_change_at_the_documented_limits() {
        let limits =
            [19.9, 20.0, 40.0, 60.0].map(|share| workshop_mfu_class(share).split(':').next().unwrap_or_default());
        assert_eq!(limits, ["below 20%", "20-40%", "40-60%", "above 60%"]);
    }
}
