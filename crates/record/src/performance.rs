//! `performance_summary.json`: how fast the run was, what it used, and on which machine.

use serde::{Deserialize, Serialize};

use crate::provenance::{Origin, Provenance};
use crate::statistics::StepStatistics;

pub const PERFORMANCE_FILE: &str = "performance_summary.json";

/// The device that predicts times and computes nothing.
pub const PREDICTS: &str = "null";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PerformanceRecord {
    pub schema_version: u32,
    pub version: String,
    pub timestamp: String,
    pub config: ModelConfig,
    pub profiler_config: ProfilerConfig,
    pub performance_summary: PerformanceSummary,
    /// Seconds per step, warm-up excluded.
    pub statistics: StepStatistics,
    pub training_params: TrainingParams,
    pub system_info: SystemInfo,
    /// State of the GPU during a recorded run; `None` without a GPU, or if NVML is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_state: Option<GpuState>,
    /// Statistics of rounding to eight bits; `None` in other precisions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp8: Option<Fp8Rounding>,
    /// Reasons to doubt the run or its times: a busy machine, noise, a loss spike.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    pub provenance: Provenance,
}

/// Counted on the device while rounding values to eight bits, over all steps since the run's first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fp8Rounding {
    pub scaled_tensors: u64,
    /// Values clamped to the largest representable number.
    pub saturated_values: f64,
    /// The tensor with most of them.
    pub most_saturated: Option<String>,
    /// Number of times that a tensor's largest value was not finite, or its scale was out of range.
    pub scales_out_of_range: f64,
}

/// Clocks, power, temperature and the reasons for throttling, sampled repeatedly from the driver's library.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuState {
    pub samples: u64,
    pub sm_clock_mhz_median: f64,
    pub sm_clock_mhz_least: f64,
    /// Highest clock that the part allows.
    pub sm_clock_mhz_most: f64,
    pub memory_clock_mhz_median: f64,
    pub power_watts_median: f64,
    pub power_watts_most: f64,
    pub power_watts_limit: f64,
    pub temperature_celsius_most: f64,
    /// The most frequent first; empty if the clocks were not throttled.
    pub held_back_by: Vec<HeldBack>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldBack {
    pub reason: String,
    pub percent_of_samples: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    pub vocab_size: u64,
    pub hidden_dim: u64,
    pub n_layers: u64,
    pub n_heads: u64,
    pub n_kv_heads: u64,
    pub intermediate_dim: u64,
    pub max_seq_len: u64,
    pub rope_theta: f64,
    pub norm_eps: f64,
    pub dropout: f64,
    /// Children of each node, level by level, if blocks form a tree.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branching: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProfilerConfig {
    /// `None` once redacted.
    pub profile_dir: Option<String>,
    pub warmup_steps: u64,
    pub profile_steps: u64,
    /// How recorded calls were timed, and what could not be recorded; empty if nothing was recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recording: Vec<String>,
}

/// Times in seconds, memory in MiB. `None` means that this run does not have the figure: a loss under the null backend,
/// or the time of a phase that was not measured separately.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PerformanceSummary {
    pub total_samples: u64,
    /// Samples per second over the whole run, warm-up excluded.
    pub avg_training_speed: Option<f64>,
    pub tokens_per_sec: Option<f64>,
    pub steps_per_sec: Option<f64>,
    /// Loss of the last step.
    pub final_loss: Option<f64>,
    pub avg_loss: Option<f64>,
    /// Lower bound of any model's loss in nats per token; known only for generated data.
    pub loss_floor: Option<f64>,
    pub avg_batch_time: Option<f64>,
    pub avg_forward_time: Option<f64>,
    pub avg_backward_time: Option<f64>,
    pub avg_optimizer_time: Option<f64>,
    /// Time that the step waited for its batch.
    pub avg_data_time: Option<f64>,
    /// Reserved memory: arena and kernel scratch, constant over the run. In `memory_analysis.json` the key of this name
    /// is the peak of live memory, and this figure is `reserved_memory_mb`.
    pub peak_memory_mb: Option<f64>,
    /// Peak resident memory of the whole process.
    pub process_peak_memory_mb: Option<f64>,
    /// Live memory averaged over the calls of a step, each counted once, and kernel scratch.
    pub avg_memory_mb: Option<f64>,
    /// Share of wall time during which at least one kernel or operator ran.
    pub device_utilization_percent: Option<f64>,
    /// Overhead that recording adds to the median step.
    pub profiling_overhead_percent: Option<f64>,
    /// 95% confidence interval of the overhead; `None` if nothing was recorded or too few steps were compared.
    #[serde(default)]
    pub profiling_overhead_ci95_low: Option<f64>,
    #[serde(default)]
    pub profiling_overhead_ci95_high: Option<f64>,
}

impl PerformanceSummary {
    /// The recorder's overhead with its interval, in words; `None` if it was not measured.
    pub fn overhead_words(&self) -> Option<String> {
        let percent = self.profiling_overhead_percent?;
        let interval = self.profiling_overhead_ci95_low.zip(self.profiling_overhead_ci95_high);
        Some(match interval {
            Some((low, high)) if low <= 0.0 && high >= 0.0 => {
                format!("{percent:+.1}%, within the noise (95% between {low:+.1}% and {high:+.1}%)")
            }
            Some((low, high)) => format!("{percent:+.1}% (95% between {low:+.1}% and {high:+.1}%)"),
            None => format!("{percent:+.1}% (too few steps for an interval)"),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainingParams {
    pub num_steps: u64,
    pub batch_size: u64,
    pub learning_rate: f64,
    pub use_amp: bool,
    pub gradient_accumulation_steps: u64,
    /// Maximum global norm of the gradients; 0 is off.
    pub clip: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SystemInfo {
    pub device: String,
    /// `None` without a GPU.
    pub gpu_name: Option<String>,
    pub cpu_name: String,
    pub threads: u64,
    pub memory_total_mb: f64,
    /// `None` without a GPU.
    pub driver_version: Option<String>,
    pub headroom_version: String,
    pub timestamp_iso: String,
}

impl PerformanceRecord {
    /// Whether its times come from the plan: nothing was computed.
    pub fn is_predicted(&self) -> bool {
        self.system_info.device == PREDICTS
    }

    /// Times are measured on a real device, and computed when they are replayed from predictions. Memory is measured if
    /// the device or process reported it, and computed if it comes from the plan.
    pub fn provenance(times: Origin, memory: Origin) -> Provenance {
        Provenance::of(&[
            ("config", Origin::Assumed),
            ("profiler_config", Origin::Assumed),
            // Rates, mean times and losses; the exceptions follow.
            ("performance_summary", times),
            ("performance_summary.total_samples", Origin::Computed),
            ("performance_summary.final_loss", Origin::Computed),
            ("performance_summary.avg_loss", Origin::Computed),
            ("performance_summary.loss_floor", Origin::Computed),
            ("performance_summary.peak_memory_mb", memory),
            ("performance_summary.process_peak_memory_mb", Origin::Measured),
            ("performance_summary.avg_memory_mb", memory),
            ("statistics", times),
            ("statistics.steps", Origin::Computed),
            ("training_params", Origin::Assumed),
            ("system_info.threads", Origin::Assumed),
            ("system_info.memory_total_mb", Origin::Measured),
        ])
    }

    pub fn with_gpu_state(mut self, state: GpuState) -> PerformanceRecord {
        self.gpu_state = Some(state);
        self.provenance.set("gpu_state", Origin::Measured);
        self
    }

    pub fn with_fp8(mut self, rounding: Fp8Rounding) -> PerformanceRecord {
        self.fp8 = Some(rounding);
        self.provenance.set("fp8", Origin::Measured);
        self
    }

    /// For a report that is shared: removes paths. Host names are never written.
    pub fn redact(mut self) -> PerformanceRecord {
        self.profiler_config.profile_dir = None;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SCHEMA_VERSION;
    use crate::provenance::check_provenance;
    use crate::registry::Headline;
    use crate::statistics::step_statistics;
    use serde_json::Value;

    fn example() -> PerformanceRecord {
        PerformanceRecord {
            schema_version: SCHEMA_VERSION,
            version: "v1_baseline".to_string(),
            timestamp: "2026-11-15T02:10:00Z".to_string(),
            config: ModelConfig {
                vocab_size: 1000,
                hidden_dim: 256,
                n_layers: 4,
                n_heads: 8,
                n_kv_heads: 4,
                intermediate_dim: 512,
                max_seq_len: 128,
                rope_theta: 10000.0,
                norm_eps: 1e-6,
                dropout: 0.0,
                branching: vec![],
            },
            profiler_config: ProfilerConfig {
                profile_dir: Some("/home/ada/runs/one".to_string()),
                warmup_steps: 3,
                profile_steps: 5,
                recording: vec![],
            },
            performance_summary: PerformanceSummary {
                total_samples: 400,
                avg_training_speed: Some(64.0),
                tokens_per_sec: Some(8192.0),
                steps_per_sec: Some(8.0),
                final_loss: None,
                avg_loss: None,
                loss_floor: None,
                avg_batch_time: Some(0.125),
                avg_forward_time: Some(0.04),
                avg_backward_time: Some(0.07),
                avg_optimizer_time: Some(0.01),
                avg_data_time: Some(0.0001),
                peak_memory_mb: Some(120.0),
                process_peak_memory_mb: Some(125.0),
                avg_memory_mb: Some(100.0),
                device_utilization_percent: Some(98.0),
                profiling_overhead_percent: Some(0.1),
                profiling_overhead_ci95_low: Some(-0.2),
                profiling_overhead_ci95_high: Some(0.4),
            },
            statistics: step_statistics(&[0.12, 0.13, 0.125, 0.12, 0.13, 0.124]),
            training_params: TrainingParams {
                num_steps: 50,
                batch_size: 8,
                learning_rate: 3e-4,
                use_amp: false,
                gradient_accumulation_steps: 1,
                clip: 0.0,
            },
            system_info: SystemInfo {
                device: "null".to_string(),
                gpu_name: None,
                cpu_name: "a CPU".to_string(),
                threads: 2,
                memory_total_mb: 16384.0,
                driver_version: None,
                headroom_version: "0.1.0".to_string(),
                timestamp_iso: "2026-11-15T02:10:00Z".to_string(),
            },
            gpu_state: None,
            fp8: None,
            warnings: vec![],
            provenance: PerformanceRecord::provenance(Origin::Measured, Origin::Computed),
        }
    }

    #[test]
    fn a_headline_repeats_the_summary_and_says_where_times_are_predicted() {
        let mut record = example();
        record.performance_summary.final_loss = Some(2.5);
        let predicted = Headline::of(&record, 7);
        let statistics = record.statistics;
        let wanted = Headline {
            parameters: Some(7),
            steps: Some(50),
            samples_per_sec: Some(64.0),
            tokens_per_sec: Some(8192.0),
            step_seconds: statistics.median,
            step_seconds_low: statistics.ci95_low,
            step_seconds_high: statistics.ci95_high,
            peak_memory_mb: Some(120.0),
            avg_memory_mb: Some(100.0),
            final_loss: Some(2.5),
            ..Headline::default()
        };
        assert_eq!(predicted, wanted);
        assert!(statistics.median.is_some() && statistics.ci95_low.is_some() && statistics.ci95_high.is_some());
        record.system_info.device = "cpu".into();
        assert_eq!(Headline::of(&record, 7), Headline { measured: true, ..wanted });
    }

    #[test]
    fn the_file_has_every_key_its_readers_open() {
        let value = serde_json::to_value(example()).unwrap();
        let keys = |path: &str, names: &str| {
            let section = if path.is_empty() { &value } else { &value[path] };
            for name in names.split_whitespace() {
                assert!(section.get(name).is_some(), "{path}.{name}");
            }
        };
        keys(
            "",
            "schema_version version timestamp config profiler_config performance_summary statistics training_params system_info provenance",
        );
        keys(
            "config",
            "vocab_size hidden_dim n_layers n_heads n_kv_heads intermediate_dim max_seq_len rope_theta norm_eps dropout",
        );
        keys("profiler_config", "profile_dir warmup_steps profile_steps");
        keys(
            "performance_summary",
            "total_samples avg_training_speed tokens_per_sec steps_per_sec final_loss avg_loss avg_batch_time avg_forward_time
             avg_backward_time avg_optimizer_time avg_data_time peak_memory_mb avg_memory_mb device_utilization_percent
             profiling_overhead_percent",
        );
        keys("statistics", "median p10 p90 ci95_low ci95_high");
        keys("training_params", "num_steps batch_size learning_rate use_amp gradient_accumulation_steps clip");
        keys(
            "system_info",
            "device gpu_name cpu_name threads memory_total_mb driver_version headroom_version timestamp_iso",
        );
    }

    #[test]
    fn every_figure_says_where_it_comes_from() {
        check_provenance(&serde_json::to_value(example()).unwrap()).unwrap();
        let state = GpuState {
            samples: 3,
            sm_clock_mhz_median: 1980.0,
            sm_clock_mhz_least: 1500.0,
            sm_clock_mhz_most: 1980.0,
            memory_clock_mhz_median: 3201.0,
            power_watts_median: 650.0,
            power_watts_most: 699.0,
            power_watts_limit: 700.0,
            temperature_celsius_most: 60.0,
            held_back_by: vec![HeldBack { reason: "power limit".into(), percent_of_samples: 33.0 }],
        };
        check_provenance(&serde_json::to_value(example().with_gpu_state(state)).unwrap()).unwrap();
        let rounding =
            Fp8Rounding { scaled_tensors: 24, saturated_values: 3.0, most_saturated: None, scales_out_of_range: 0.0 };
        check_provenance(&serde_json::to_value(example().with_fp8(rounding)).unwrap()).unwrap();
    }

    #[test]
    fn a_figure_that_does_not_exist_is_null() {
        let mut record = example();
        record.performance_summary.avg_loss = Some(f64::NAN);
        let text = serde_json::to_string(&record).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert!(value["performance_summary"]["final_loss"].is_null());
        assert!(value["performance_summary"]["avg_loss"].is_null(), "JSON has no NaN");
        assert!(value["system_info"]["gpu_name"].is_null());
    }

    #[test]
    fn replayed_times_are_not_called_measured() {
        let provenance = PerformanceRecord::provenance(Origin::Computed, Origin::Computed);
        for key in ["performance_summary.avg_batch_time", "statistics.median"] {
            assert_eq!(provenance.origin_of(key), Some(Origin::Computed), "{key}");
        }
    }

    #[test]
    fn redaction_leaves_no_path_behind() {
        let text = serde_json::to_string(&example().redact()).unwrap();
        assert!(!text.contains("/home"), "{text}");
    }

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let text = serde_json::to_string(&example()).unwrap();
        let again: PerformanceRecord = serde_json::from_str(&text).unwrap();
        assert_eq!(again, example());
    }
}
