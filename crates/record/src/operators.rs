//! `operator_analysis.json`: where the time of a step went, operator by operator, and what could be done about it.

use crate::intensity::Bound;
use crate::provenance::{Origin, Provenance};
use serde::{Deserialize, Serialize};

pub const OPERATORS_FILE: &str = "operator_analysis.json";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatorRecord {
    pub schema_version: u32,
    /// Over all recorded steps, one row per operator name.
    pub operator_stats: Vec<OperatorStats>,
    /// A mean step, one row per operator and kind of place in the model.
    pub by_place: Vec<PlaceStats>,
    pub step_breakdown: StepBreakdown,
    pub bottlenecks: Bottlenecks,
    pub patterns: Patterns,
    pub timestamp: String,
    pub provenance: Provenance,
}

/// Seconds, FLOPs and bytes over all recorded steps. On a CPU the device columns are zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperatorStats {
    pub name: String,
    /// Self time; operators do not nest here, so it is also the total.
    pub cpu_time_total: f64,
    pub cpu_time_avg: f64,
    /// Share of the total operator time: the column adds up to 100.
    pub cpu_time_percent: f64,
    pub cuda_time_total: f64,
    pub cuda_time_avg: f64,
    pub cuda_time_percent: f64,
    pub count: u64,
    /// The distinct lists of input shapes.
    pub input_shapes: Vec<Vec<Vec<u64>>>,
    pub flops: u64,
    pub bytes: u64,
    pub cuda_memory_usage: u64,
}

/// One operator at one kind of place (`layers.*.mlp.up_proj`), in a mean recorded step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlaceStats {
    pub name: String,
    pub module: String,
    /// The part of the model: `query`, `norm`, or `query+key+value` if one call covers all three.
    #[serde(default)]
    pub role: String,
    pub phase: String,
    /// Calls per step.
    pub count: u64,
    /// Seconds per step on the device, which may be the CPU.
    pub time: f64,
    /// Seconds per step that the host spent in the calls: launching them or, on a CPU, computing them.
    #[serde(default)]
    pub host_time: f64,
    /// Share of the step's wall time.
    pub percent_of_step: f64,
    pub flops: u64,
    pub bytes: u64,
    pub intensity: f64,
    pub bound: Bound,
    /// Seconds per step at the limiting roof.
    pub floor: f64,
    pub percent_of_roof: f64,
    /// Seconds per step that would remain with the passes of `target_passes`, or else at the limiting roof: a bound,
    /// not a promise.
    #[serde(default)]
    pub target_time: f64,
    /// Passes that would change these calls and are not applied yet.
    #[serde(default)]
    pub target_passes: Vec<String>,
}

impl PlaceStats {
    pub fn label(&self) -> String {
        format!("{} · {} · {}", self.name, self.module, self.phase)
    }
}

/// Seconds of a mean recorded step; the parts add up to `wall`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepBreakdown {
    pub steps: u64,
    pub wall: f64,
    pub forward_operators: f64,
    pub backward_operators: f64,
    pub optimizer_operators: f64,
    /// Gaps between the calls of a phase, during which nothing ran.
    pub between_calls: f64,
    pub data_wait: f64,
    /// Copying the batch to the device and the loss back.
    pub host_copies: f64,
    /// The rest of the training loop, and the recorder.
    pub other: f64,
}

impl StepBreakdown {
    pub fn operators(&self) -> f64 {
        self.forward_operators + self.backward_operators + self.optimizer_operators
    }

    /// Everything that was timed individually: all but `other`.
    pub fn accounted(&self) -> f64 {
        self.operators() + self.between_calls + self.data_wait + self.host_copies
    }

    /// (part, seconds), in display order.
    pub fn parts(&self) -> [(&'static str, f64); 7] {
        [
            ("forward operators", self.forward_operators),
            ("backward operators", self.backward_operators),
            ("optimizer operators", self.optimizer_operators),
            ("between calls", self.between_calls),
            ("data wait", self.data_wait),
            ("host copies", self.host_copies),
            ("other", self.other),
        ]
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bottlenecks {
    /// Operator names, the costliest first.
    pub top_cpu_time: Vec<String>,
    /// Empty if nothing ran on a GPU.
    pub top_cuda_time: Vec<String>,
    /// Memory-bound operators, by time.
    pub memory_intensive: Vec<String>,
    /// Matrix products far below the compute roof, by time.
    pub low_flops_utilization: Vec<String>,
    pub optimization_targets: Vec<OptimizationTarget>,
    /// The workshop's bottleneck table, filled in.
    pub categories: Vec<BottleneckCategory>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptimizationTarget {
    pub operation: String,
    pub optimization: String,
    /// An upper bound, in words and numbers.
    pub potential_benefit: String,
    /// Upper bound on the share of the step that would be saved.
    pub saves_at_most_percent: f64,
    /// `high`, `medium` or `low`, according to that share.
    pub priority: String,
}

/// A row of the workshop's bottleneck table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BottleneckCategory {
    pub category: String,
    /// Share of the step's wall time; `None` if the category is not about time.
    pub percent_of_time: Option<f64>,
    /// Difficulty of writing the change by hand, in the workshop's words.
    pub difficulty: String,
    /// Effort of the remedy: low if it is one flag.
    pub effort: Level,
    /// Speed-up of the step if the category ran at its floor; `None` if no flag changes it: then it is not a priority.
    pub speedup_at_most: Option<f64>,
    pub impact: Level,
    /// 1 is the one to do first; rows that no flag changes come last.
    pub priority_rank: u64,
    /// The flag that changes it, or why there is none.
    pub remedy: String,
    /// The passes that it needs, applied or not.
    #[serde(default)]
    pub passes: Vec<String>,
    /// Evidence for the figures.
    pub evidence: String,
}

impl BottleneckCategory {
    /// Whether there is something to do about it.
    pub fn has_remedy(&self) -> bool {
        self.speedup_at_most.is_some()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Low,
    High,
}

/// Percent of the step's wall time, and counts per step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Patterns {
    pub gemm_percent: f64,
    pub qkv_projection_percent: f64,
    pub gate_up_percent: f64,
    pub softmax_percent: f64,
    /// Everything inside the attention modules, projections included.
    pub attention_percent: f64,
    /// Scores, softmax and the weighted sum of values: attention without its projections.
    pub attention_core_percent: f64,
    pub ffn_percent: f64,
    pub norm_percent: f64,
    pub optimizer_percent: f64,
    /// Time between calls, plus the cost of launching every call.
    pub launch_overhead_percent: f64,
    pub idle_percent: f64,
    /// Kernels that the step needs.
    pub kernels_per_step: u64,
    /// Kernels that exist only for observation, such as the gradient norm: not counted in any ratio.
    #[serde(default)]
    pub instrumentation_kernels: u64,
    pub distinct_kernels: u64,
    /// Weight products per forward pass.
    pub linear_projections: u64,
}

impl OperatorRecord {
    pub fn provenance(times: Origin) -> Provenance {
        Provenance::of(&[
            ("operator_stats", times),
            ("operator_stats.count", Origin::Computed),
            ("operator_stats.input_shapes", Origin::Computed),
            ("operator_stats.flops", Origin::Computed),
            ("operator_stats.bytes", Origin::Computed),
            ("operator_stats.cuda_memory_usage", Origin::Computed),
            ("by_place", Origin::Computed),
            ("by_place.time", times),
            ("by_place.host_time", times),
            ("by_place.percent_of_step", times),
            ("step_breakdown", times),
            ("step_breakdown.steps", Origin::Computed),
            ("bottlenecks", Origin::Computed),
            ("bottlenecks.categories.percent_of_time", times),
            ("patterns", times),
            ("patterns.kernels_per_step", Origin::Computed),
            ("patterns.instrumentation_kernels", Origin::Computed),
            ("patterns.distinct_kernels", Origin::Computed),
            ("patterns.linear_projections", Origin::Computed),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_step_add_up_to_what_was_timed_and_the_rest() {
        let step = StepBreakdown {
            steps: 3,
            wall: 127.0,
            forward_operators: 1.0,
            backward_operators: 2.0,
            optimizer_operators: 4.0,
            between_calls: 8.0,
            data_wait: 16.0,
            host_copies: 32.0,
            other: 64.0,
        };
        assert_eq!((step.operators(), step.accounted()), (7.0, 63.0));
        assert_eq!(step.parts().iter().map(|(_, seconds)| seconds).sum::<f64>(), step.wall);
        let written = serde_json::to_value(step).unwrap();
        for (name, seconds) in step.parts() {
            assert_eq!(written[name.replace(' ', "_")], seconds, "{name}");
        }
    }

    #[test]
    fn a_place_is_called_by_operator_module_and_phase() {
        let place = PlaceStats {
            name: "matmul".into(),
            module: "layers.*.mlp.up_proj".into(),
            role: String::new(),
            phase: "forward".into(),
            count: 1,
            time: 1.0,
            host_time: 1.0,
            percent_of_step: 1.0,
            flops: 1,
            bytes: 1,
            intensity: 1.0,
            bound: Bound::MemoryBound,
            floor: 1.0,
            percent_of_roof: 1.0,
            target_time: 1.0,
            target_passes: vec![],
        };
        assert_eq!(place.label(), "matmul · layers.*.mlp.up_proj · forward");
    }

    #[test]
    fn times_have_the_origin_they_came_from_and_counts_are_computed() {
        for times in [Origin::Measured, Origin::Assumed] {
            let provenance = OperatorRecord::provenance(times);
            for key in ["operator_stats", "by_place.time", "by_place.host_time", "step_breakdown", "patterns"] {
                assert_eq!(provenance.origin_of(key), Some(times), "{key}");
            }
            for key in ["operator_stats.count", "by_place", "step_breakdown.steps", "patterns.distinct_kernels"] {
                assert_eq!(provenance.origin_of(key), Some(Origin::Computed), "{key}");
            }
        }
    }
}
