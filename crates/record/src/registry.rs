//! A row of the run registry: what the run was, how it ended and its headline figures.

pub mod change;

use crate::intensity::Bound;
use crate::performance::{PREDICTS, PerformanceRecord};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    Running,
    Finished,
    Failed,
    /// Ended early: by Ctrl-C, or because the process disappeared.
    Interrupted,
}

impl RunStatus {
    pub const ALL: [RunStatus; 4] =
        [RunStatus::Running, RunStatus::Finished, RunStatus::Failed, RunStatus::Interrupted];

    pub fn name(self) -> &'static str {
        match self {
            RunStatus::Running => "running",
            RunStatus::Finished => "finished",
            RunStatus::Failed => "failed",
            RunStatus::Interrupted => "interrupted",
        }
    }

    pub fn named(name: &str) -> Option<RunStatus> {
        RunStatus::ALL.into_iter().find(|status| status.name() == name)
    }
}

/// Facts about a run that are known when it begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunStart {
    /// `train`, `profile`, `optimize`, `study`, `scale` or `analyze`.
    pub command: String,
    pub command_line: Vec<String>,
    /// The working directory, which relative paths of the command line are based on.
    pub directory: Option<String>,
    /// Absolute path; `None` for a run that writes no folder.
    pub folder: Option<String>,
    pub size: Option<String>,
    /// Name of the list of passes: `v1`, `v2`, `all`, or the passes themselves.
    pub version: Option<String>,
    /// The `configuration` of `config.json`, or the command's equivalent.
    pub configuration: Value,
    pub device: String,
    /// The processor, or the accelerator.
    pub machine: String,
    pub threads: u64,
    pub headroom_version: String,
    /// UTC, ISO 8601.
    pub started: String,
    /// The run that started this one, such as a study.
    pub parent: Option<i64>,
}

/// A run as the registry has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRow {
    /// Increasing, never reused.
    pub id: i64,
    /// Given by the user; unique.
    pub name: Option<String>,
    pub status: RunStatus,
    pub ended: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    #[serde(flatten)]
    pub start: RunStart,
    pub figures: Headline,
}

impl RunRow {
    /// Whether its times come from the plan: nothing was computed.
    pub fn is_predicted(&self) -> bool {
        self.start.device == PREDICTS
    }
}

/// The figures that lists and comparisons show. `None` means that this kind of run does not have the figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Headline {
    pub parameters: Option<u64>,
    pub steps: Option<u64>,
    pub samples_per_sec: Option<f64>,
    pub tokens_per_sec: Option<f64>,
    /// Median seconds per step, with its 95% confidence interval.
    pub step_seconds: Option<f64>,
    pub step_seconds_low: Option<f64>,
    pub step_seconds_high: Option<f64>,
    pub peak_memory_mb: Option<f64>,
    pub avg_memory_mb: Option<f64>,
    pub final_loss: Option<f64>,
    /// Model FLOPs relative to the machine's measured peak; only profiles have it.
    pub mfu_percent: Option<f64>,
    /// Only profiles have it.
    pub bound: Option<Bound>,
    /// Speed-up of the kept list over Version 1; only `optimize` has it.
    pub speedup: Option<f64>,
    /// Number of findings in an analysed trace.
    pub findings: Option<u64>,
    /// False if times are predicted.
    pub measured: bool,
}

impl Headline {
    pub fn of(record: &PerformanceRecord, parameters: u64) -> Headline {
        let (summary, statistics) = (&record.performance_summary, &record.statistics);
        Headline {
            parameters: Some(parameters),
            steps: Some(record.training_params.num_steps),
            samples_per_sec: summary.avg_training_speed,
            tokens_per_sec: summary.tokens_per_sec,
            step_seconds: statistics.median,
            step_seconds_low: statistics.ci95_low,
            step_seconds_high: statistics.ci95_high,
            peak_memory_mb: summary.peak_memory_mb,
            avg_memory_mb: summary.avg_memory_mb,
            final_loss: summary.final_loss,
            measured: !record.is_predicted(),
            ..Headline::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_found_by_its_name() {
        for status in RunStatus::ALL {
            assert_eq!(RunStatus::named(status.name()), Some(status));
            assert_eq!(serde_json::to_value(status).unwrap(), status.name());
        }
        assert_eq!(RunStatus::named("done"), None);
    }

    #[test]
    fn figures_of_an_older_version_are_read_without_those_that_came_later() {
        let older: Headline = serde_json::from_str(r#"{"steps": 3, "gone": 1}"#).unwrap();
        assert_eq!(older, Headline { steps: Some(3), ..Headline::default() });
    }
}
