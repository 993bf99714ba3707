//! `flops_profile.json`: the FLOPs of a step, where in the model they are, and how close to the device's peak it ran.

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
    /// FLOPs executed per step: matrix products of forward and backward, and the optimizer's arithmetic.
    pub avg_flops_per_step: u64,
    pub flops_per_parameter: f64,
    /// Matrix products (GEMM and attention) of the forward pass, as executed.
    pub forward_flops: u64,
    /// Matrix products of the backward pass, including recomputation.
    pub backward_flops: u64,
    pub optimizer_flops: u64,
    /// Part of the backward pass that recomputes the forward pass.
    pub recomputed_flops: u64,
    /// FLOPs that the model itself needs, whatever the list of passes: causal attention as S(S+1)/2, nothing counted
    /// twice.
    pub needed_forward_flops: u64,
    pub needed_flops_per_step: u64,
    /// Forward and backward arithmetic outside matrix products: norms, softmax, activations.
    pub elementwise_flops: u64,
    /// All FLOPs executed: `by_op` and `by_module` add up to this.
    pub executed_flops_per_step: u64,
    pub by_module: ModuleFlops,
    pub by_op: Vec<OperatorFlops>,
}

/// A module including its children; `flops` is the sum over its phases.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModuleFlops {
    pub name: String,
    pub flops: u64,
    pub forward_flops: u64,
    pub backward_flops: u64,
    pub optimizer_flops: u64,
    #[serde(default)]
    pub bytes: u64,
    /// Seconds per step; the time of fused calls is divided among their modules.
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
    /// `None` if nothing was computed.
    pub avg_loss: Option<f64>,
    pub flops_per_sec: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EfficiencyMetrics {
    /// Needed FLOPs per second over the whole step, relative to the peak.
    pub mfu_percent: f64,
    /// Executed FLOPs per second over the whole step, relative to the peak.
    pub hfu_percent: f64,
    pub achieved_flops_per_sec: f64,
    pub device_peak_flops: f64,
    pub device_peak_source: String,
    /// The vendor's figure for the part, or the calculated peak of its units, if known.
    pub datasheet_peak_flops: Option<f64>,
    pub datasheet_peak_source: Option<String>,
    pub mfu_of_datasheet_percent: Option<f64>,
    pub efficiency_ratio: f64,
    /// The workshop's class for this MFU: shown for reference, no conclusion is drawn from it.
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
    /// `times` are measured on a real device, and computed when they are replayed from predictions. The peak is
    /// measured by `headroom device`, or assumed.
    pub fn provenance(times: Origin, peak: Origin) -> Provenance {
        Provenance::of(&[
            ("model_info", Origin::Computed),
            ("model_info.config", Origin::Assumed),
            ("profiling_config", Origin::Assumed),
            ("flops_analysis", Origin::Computed),
            ("flops_analysis.by_module.seconds", times),
            ("performance_metrics", times),
            ("performance_metrics.avg_loss", Origin::Computed),
            // FLOPs counted from the plan over a measured time: computed, not measured.
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

/// Whether an MFU is possible. Above 100%, below zero or NaN means that the FLOPs, the times or the peak are wrong, and
/// no conclusion can be drawn from it.
pub fn is_possible_mfu(percent: f64) -> bool {
    (0.0..=100.0).contains(&percent)
}

/// The original course's classes of MFU.
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
