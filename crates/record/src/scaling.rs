//! `scaling.json`: memory and speed over batch and sequence, their fitted growth, what fits, and what would save
//! memory.

use crate::provenance::{Origin, Provenance};
use crate::race::RaceRecord;
use crate::statistics::StepStatistics;
use crate::study::Components;
use serde::{Deserialize, Serialize};

pub const SCALING_FILE: &str = "scaling.json";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScalingRecord {
    pub schema_version: u32,
    pub timestamp: String,
    pub size: String,
    /// The list of passes.
    pub version: String,
    pub parameters: u64,
    pub device: String,
    pub machine: String,
    pub threads: u64,
    /// Batches at one sequence length, then sequences at one batch.
    pub batch_points: Vec<ScalingPoint>,
    pub sequence_points: Vec<ScalingPoint>,
    pub batch_scaling: Growth,
    pub sequence_scaling: Growth,
    pub limits: Limits,
    /// Largest saving first, according to the plan.
    pub optimizations: Vec<Optimization>,
    /// How the step times were taken in turns, one entry per group that fits into memory together. Empty if each run
    /// timed itself.
    #[serde(default)]
    pub race: Vec<RaceRecord>,
    pub provenance: Provenance,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScalingPoint {
    pub batch_size: u64,
    pub seq_len: u64,
    /// Memory that the run reserves, as in `performance_summary.json`.
    pub peak_memory_mb: f64,
    pub avg_memory_mb: f64,
    /// The one divided by the other, as in `memory_analysis.json`.
    pub peak_to_average: f64,
    /// Peak memory divided by the tokens of the batch.
    pub memory_per_token_kb: f64,
    /// Peak memory relative to the first point of its sweep.
    pub scaling_factor: f64,
    pub memory_by_component: Components,
    /// The maximum of each component by itself, whenever it occurs; the growth is fitted to these.
    #[serde(default)]
    pub largest_by_component: Components,
    pub predicted_step_seconds: f64,
    /// Measured if it fits; predicted under the null device.
    pub step_seconds: Option<f64>,
    /// 95% confidence interval of the step: of the mean over a race's rounds, or of the median of the run's own steps.
    #[serde(default)]
    pub step_seconds_low: Option<f64>,
    #[serde(default)]
    pub step_seconds_high: Option<f64>,
    pub samples_per_sec: Option<f64>,
    pub tokens_per_sec: Option<f64>,
    /// Peak memory of the whole process, as the system reports it.
    pub process_peak_memory_mb: Option<f64>,
    /// Why there is no speed figure.
    pub note: Option<String>,
}

/// How memory grows along one axis: as the axis to the power of the exponent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// Exponent of the memory other than parameters, gradients, optimizer state and kernel scratch.
    pub exponent: Option<f64>,
    /// `constant`, `linear`, `between`, `quadratic`, or `unknown` with fewer than two points.
    pub class: String,
    /// Exponent of the whole peak, including the fixed part.
    pub peak_exponent: Option<f64>,
    /// Exponent of samples per second, with its 95% confidence interval if all points were timed in turns.
    pub speed_exponent: Option<f64>,
    #[serde(default)]
    pub speed_exponent_low: Option<f64>,
    #[serde(default)]
    pub speed_exponent_high: Option<f64>,
    pub components: Vec<ComponentGrowth>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComponentGrowth {
    pub component: String,
    pub exponent: Option<f64>,
    pub class: String,
    /// MiB at the first and at the last point.
    pub first_mb: f64,
    pub last_mb: f64,
}

/// The largest sizes that fit into memory, found from the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    pub available_mb: f64,
    /// At the sequence length of the batch sweep; `None` if not even one fits.
    pub largest_batch: Option<u64>,
    pub at_seq_len: u64,
    /// At the batch of the sequence sweep.
    pub longest_sequence: Option<u64>,
    pub at_batch_size: u64,
    /// Upper limit of the search: if the result equals it, more would fit.
    pub batch_searched_to: u64,
    pub sequence_searched_to: u64,
}

/// One memory optimization at the largest point of the sweep, compared with the list of passes that was swept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Optimization {
    pub name: String,
    /// Command-line flags that enable it; `None` if this device has no kernels for it.
    pub flags: Option<String>,
    pub predicted_memory_mb: f64,
    pub saved_mb: f64,
    pub saved_percent: f64,
    /// Resident memory with and without it, as the system reports it; `None` if it was not run.
    pub measured_before_mb: Option<f64>,
    pub measured_after_mb: Option<f64>,
    pub measured_saved_mb: Option<f64>,
    /// Step time with it divided by step time without it, over the rounds that both were in.
    pub step_ratio: Option<f64>,
    /// 95% confidence interval of that ratio; `None` if either run has too few steps.
    #[serde(default)]
    pub step_ratio_low: Option<f64>,
    #[serde(default)]
    pub step_ratio_high: Option<f64>,
    pub note: Option<String>,
}

impl ScalingPoint {
    /// Statistics of its steps, as far as they are stored.
    pub fn statistics(&self) -> StepStatistics {
        StepStatistics {
            median: self.step_seconds,
            ci95_low: self.step_seconds_low,
            ci95_high: self.step_seconds_high,
            ..StepStatistics::default()
        }
    }
}

impl Optimization {
    /// The change of the step with its interval, in words; `None` if it was not run.
    pub fn step_words(&self) -> Option<String> {
        let ratio = self.step_ratio?;
        Some(match self.step_ratio_low.zip(self.step_ratio_high) {
            Some((low, high)) if low <= 1.0 && high >= 1.0 => {
                format!("{ratio:.2}×, within the noise ({low:.2} to {high:.2})")
            }
            Some((low, high)) => format!("{ratio:.2}× ({low:.2} to {high:.2})"),
            None => format!("{ratio:.2}×, no interval"),
        })
    }
}

impl ScalingRecord {
    /// Adds the provenance of every figure.
    pub fn with_provenance(mut self) -> ScalingRecord {
        let times = if self.device == "null" { Origin::Computed } else { Origin::Measured };
        let mut provenance = Provenance::of(&[
            ("parameters", Origin::Computed),
            ("threads", Origin::Assumed),
            ("limits", Origin::Computed),
            ("limits.available_mb", Origin::Measured),
        ]);
        for (sweep, empty) in [("batch", self.batch_points.is_empty()), ("sequence", self.sequence_points.is_empty())] {
            provenance.set(&format!("{sweep}_scaling"), Origin::Computed);
            if !empty {
                let points = format!("{sweep}_points");
                provenance.set(&points, Origin::Computed);
                for key in [
                    "step_seconds",
                    "step_seconds_low",
                    "step_seconds_high",
                    "samples_per_sec",
                    "tokens_per_sec",
                    "process_peak_memory_mb",
                ] {
                    provenance.set(&format!("{points}.{key}"), times);
                }
            }
        }
        if !self.race.is_empty() {
            provenance.set("race", Origin::Measured);
        }
        if !self.optimizations.is_empty() {
            provenance.set("optimizations", Origin::Computed);
            for key in [
                "measured_before_mb",
                "measured_after_mb",
                "measured_saved_mb",
                "step_ratio",
                "step_ratio_low",
                "step_ratio_high",
            ] {
                provenance.set(&format!("optimizations.{key}"), times);
            }
        }
        self.provenance = provenance;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SCHEMA_VERSION;
    use crate::provenance::check_provenance;

    #[test]
    fn a_steps_change_is_said_with_its_interval_and_noise_is_called_so() {
        let words = |ratio: Option<f64>, low: Option<f64>, high: Option<f64>| {
            let changed =
                Optimization { step_ratio: ratio, step_ratio_low: low, step_ratio_high: high, ..optimization() };
            changed.step_words()
        };
        let said = |ratio, low, high| words(Some(ratio), Some(low), Some(high)).unwrap();
        assert_eq!(said(1.1, 0.95, 1.25), "1.10×, within the noise (0.95 to 1.25)");
        assert_eq!(said(1.1, 1.0, 1.25), "1.10×, within the noise (1.00 to 1.25)");
        assert_eq!(said(0.9, 0.8, 1.0), "0.90×, within the noise (0.80 to 1.00)");
        assert_eq!(said(1.3, 1.2, 1.4), "1.30× (1.20 to 1.40)");
        assert_eq!(said(0.8, 0.7, 0.9), "0.80× (0.70 to 0.90)");
        assert_eq!(words(Some(1.3), None, Some(1.4)).unwrap(), "1.30×, no interval");
        assert_eq!(words(None, Some(1.2), Some(1.4)), None);
    }

    fn optimization() -> Optimization {
        Optimization {
            name: "flash attention".into(),
            flags: Some("--passes +flash-attention".into()),
            predicted_memory_mb: 1.0,
            saved_mb: 2.0,
            saved_percent: 66.0,
            measured_before_mb: None,
            measured_after_mb: None,
            measured_saved_mb: None,
            step_ratio: None,
            step_ratio_low: None,
            step_ratio_high: None,
            note: None,
        }
    }

    #[test]
    fn every_figure_has_its_origin() {
        let point = ScalingPoint {
            batch_size: 1,
            seq_len: 2,
            peak_memory_mb: 3.0,
            avg_memory_mb: 2.0,
            peak_to_average: 1.5,
            memory_per_token_kb: 1.0,
            scaling_factor: 1.0,
            memory_by_component: Components::default(),
            largest_by_component: Components::default(),
            predicted_step_seconds: 0.1,
            step_seconds: Some(0.1),
            samples_per_sec: Some(10.0),
            tokens_per_sec: None,
            process_peak_memory_mb: None,
            step_seconds_low: None,
            step_seconds_high: None,
            note: None,
        };
        let growth = Growth {
            exponent: Some(1.0),
            class: "linear".into(),
            peak_exponent: Some(0.5),
            speed_exponent: None,
            speed_exponent_low: None,
            speed_exponent_high: None,
            components: vec![],
        };
        assert_eq!((point.statistics().median, point.statistics().ci95_low), (Some(0.1), None));
        let wide =
            ScalingPoint { step_seconds_low: Some(0.05), step_seconds_high: Some(0.2), ..point.clone() }.statistics();
        assert_eq!((wide.median, wide.ci95_low, wide.ci95_high), (Some(0.1), Some(0.05), Some(0.2)));
        for (points, optimizations) in [(vec![], vec![]), (vec![point], vec![optimization()])] {
            let record = ScalingRecord {
                schema_version: SCHEMA_VERSION,
                timestamp: "2026-11-15T00:00:00Z".into(),
                size: "tiny".into(),
                version: "v1".into(),
                parameters: 1,
                device: "cpu".into(),
                machine: "m".into(),
                threads: 2,
                batch_points: points.clone(),
                sequence_points: points,
                batch_scaling: growth.clone(),
                sequence_scaling: growth.clone(),
                limits: Limits {
                    available_mb: 1.0,
                    largest_batch: Some(1),
                    at_seq_len: 1,
                    longest_sequence: None,
                    at_batch_size: 1,
                    batch_searched_to: 1,
                    sequence_searched_to: 1,
                },
                optimizations,
                race: vec![RaceRecord { members: vec!["batch 1 × seq 2".into()], rounds: 5, ..RaceRecord::default() }],
                provenance: Provenance::default(),
            }
            .with_provenance();
            check_provenance(&serde_json::to_value(&record).unwrap()).unwrap();
        }
    }
}
