//! `study.json`: sizes and versions side by side, and what their figures say about scaling.

use crate::SCHEMA_VERSION;
use crate::intensity::Bound;
use crate::provenance::{Origin, Provenance};
use crate::statistics::{StepStatistics, ratio_of};
use serde::{Deserialize, Serialize};

pub const STUDY_FILE: &str = "study.json";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StudyRecord {
    pub schema_version: u32,
    pub timestamp: String,
    /// The request, which `--resume` repeats.
    pub request: StudyRequest,
    pub machine: StudyMachine,
    /// In the order in which they run.
    pub runs: Vec<StudyRow>,
    /// One entry per version, once every run has ended.
    pub analysis: Vec<VersionAnalysis>,
    /// Every later version against the first, per size, once every run has ended.
    #[serde(default)]
    pub comparisons: Vec<VersionComparison>,
    pub provenance: Provenance,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StudyRequest {
    pub sizes: Vec<String>,
    /// As `--passes` takes them.
    pub versions: Vec<String>,
    pub enable_profilers: bool,
    /// `None`: a number that suits the size.
    pub num_steps: Option<u64>,
    pub device: String,
    /// `None`: the device's default.
    #[serde(default)]
    pub precision: Option<String>,
    pub threads: u64,
    pub memory_limit: Option<String>,
    pub batch_size: Option<u64>,
    pub seq_len: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StudyMachine {
    pub name: String,
    pub memory_total_mb: f64,
    pub peak_flops: f64,
    pub peak_bandwidth: f64,
    pub peak_source: String,
    /// False if the peaks are assumed.
    pub peak_measured: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StudyStatus {
    Pending,
    Running,
    Finished,
    /// Ended with an error.
    Failed,
    /// Ended by a signal: it was killed, or memory ran out.
    Killed,
    /// Never started: the plan needs more memory than there is.
    DoesNotFit,
}

impl StudyStatus {
    pub fn name(self) -> &'static str {
        match self {
            StudyStatus::Pending => "pending",
            StudyStatus::Running => "running",
            StudyStatus::Finished => "finished",
            StudyStatus::Failed => "failed",
            StudyStatus::Killed => "killed",
            StudyStatus::DoesNotFit => "does not fit",
        }
    }

    /// Whether nothing is left to do for it.
    pub fn has_ended(self) -> bool {
        !matches!(self, StudyStatus::Pending | StudyStatus::Running)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StudyRow {
    pub size: String,
    pub version: String,
    pub status: StudyStatus,
    /// Relative to the folder of study.json.
    pub folder: Option<String>,
    pub process_id: Option<u32>,
    /// Number of times its process was started.
    pub starts: u64,
    /// Seconds from its start to its end.
    pub wall_seconds: Option<f64>,
    /// Why it did not finish, or what is special about it.
    pub note: Option<String>,
    #[serde(flatten)]
    pub planned: PlannedFigures,
    #[serde(flatten)]
    pub measured: MeasuredFigures,
}

/// Known before the run, from the plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlannedFigures {
    pub parameters: u64,
    pub batch_size: u64,
    pub seq_len: u64,
    pub num_steps: u64,
    pub kernels_per_step: u64,
    pub recomputed_layers: u64,
    /// All memory reserved.
    pub planned_memory_mb: f64,
    /// Memory live at the step's peak.
    pub memory_by_component: Components,
    /// Relative to the bytes of the parameters.
    pub memory_over_parameters: f64,
    /// FLOPs that the model needs, whatever the passes.
    pub flops_per_step: f64,
    /// FLOPs divided by bytes, over all calls.
    pub arithmetic_intensity: f64,
    pub predicted_step_seconds: f64,
}

/// MiB at the peak of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Components {
    pub parameters: f64,
    pub gradients: f64,
    pub optimizer_state: f64,
    /// Without attention's quadratic tensors.
    pub activations: f64,
    /// Tensors of `[batch, heads, seq, seq]`: scores, probabilities and their gradients.
    pub attention: f64,
    pub temporaries: f64,
    /// Gaps between buffers, and the scratch that kernels pack and reduce in.
    pub overhead: f64,
}

impl Components {
    pub fn entries(&self) -> [(&'static str, f64); 7] {
        [
            ("parameters", self.parameters),
            ("gradients", self.gradients),
            ("optimizer_state", self.optimizer_state),
            ("activations", self.activations),
            ("attention", self.attention),
            ("temporaries", self.temporaries),
            ("overhead", self.overhead),
        ]
    }

    pub fn total(&self) -> f64 {
        self.entries().iter().map(|(_, size)| size).sum()
    }

    /// Memory that does not depend on batch and sequence.
    pub fn fixed(&self) -> f64 {
        self.parameters + self.gradients + self.optimizer_state
    }
}

/// From the run's own files; empty if the run did not finish.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredFigures {
    pub samples_per_sec: Option<f64>,
    pub tokens_per_sec: Option<f64>,
    /// Median without warm-up, with its 95% confidence interval.
    pub step_seconds: Option<f64>,
    pub step_seconds_low: Option<f64>,
    pub step_seconds_high: Option<f64>,
    pub peak_memory_mb: Option<f64>,
    pub avg_memory_mb: Option<f64>,
    /// Peak memory of the whole process, as the system reports it.
    pub process_peak_memory_mb: Option<f64>,
    /// Peak memory divided by the tokens of a batch.
    pub memory_per_token_kb: Option<f64>,
    /// Peak memory relative to the first size of the same version.
    pub scaling_factor: Option<f64>,
    pub mfu_percent: Option<f64>,
    pub bound: Option<Bound>,
    pub final_loss: Option<f64>,
}

/// Trends across the sizes of one version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VersionAnalysis {
    pub version: String,
    /// `samples_per_sec` scales as parameters to this power; `None` with fewer than two sizes.
    pub throughput_exponent: Option<f64>,
    /// The same for tokens: sizes differ in tokens per sample.
    pub token_exponent: Option<f64>,
    /// The smallest size that reaches nine tenths of the best MFU.
    pub saturates_at: Option<String>,
    pub best_mfu_percent: Option<f64>,
    /// Planned memory scales as parameters to this power.
    pub memory_exponent: Option<f64>,
    pub sizes: Vec<SizeAnalysis>,
}

/// Step time of one version divided by that of the first, each from one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VersionComparison {
    pub size: String,
    pub version: String,
    pub against: String,
    pub step_ratio: f64,
    /// From the spread of the steps within each run, so it does not cover drift between runs. `None` if a run has fewer
    /// than six counted steps.
    pub ci95_low: Option<f64>,
    pub ci95_high: Option<f64>,
    /// `faster`, `slower`, `within the noise` or `no interval`.
    pub verdict: String,
}

impl VersionComparison {
    /// `None` if one of them has no step time.
    fn of(first: &StudyRow, other: &StudyRow) -> Option<VersionComparison> {
        let statistics = |row: &StudyRow| StepStatistics {
            median: row.measured.step_seconds,
            ci95_low: row.measured.step_seconds_low,
            ci95_high: row.measured.step_seconds_high,
            ..StepStatistics::default()
        };
        let (before, after) = (statistics(first), statistics(other));
        let step_ratio = after.median? / before.median?;
        let interval = ratio_of(&after, &before);
        let verdict = match interval {
            None => "no interval",
            Some(found) if found.holds(1.0) => "within the noise",
            Some(found) if found.high < 1.0 => "faster",
            Some(_) => "slower",
        };
        Some(VersionComparison {
            size: other.size.clone(),
            version: other.version.clone(),
            against: first.version.clone(),
            step_ratio,
            ci95_low: interval.map(|found| found.low),
            ci95_high: interval.map(|found| found.high),
            verdict: verdict.into(),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeAnalysis {
    pub size: String,
    pub memory_over_parameters: f64,
    /// Attention's share of the peak.
    pub attention_share_percent: f64,
    /// The shortest sequence at which attention's quadratic tensors are half of the peak; `None` if there are none.
    pub attention_takes_over_at: Option<u64>,
    /// The smallest batch that fits whose predicted speed is within 5% of the best.
    pub best_batch: Option<u64>,
    pub largest_batch_that_fits: Option<u64>,
}

impl StudyRecord {
    /// A study before its first run.
    pub fn new(timestamp: String, request: StudyRequest, machine: StudyMachine, runs: Vec<StudyRow>) -> StudyRecord {
        let mut record = StudyRecord {
            schema_version: SCHEMA_VERSION,
            timestamp,
            request,
            machine,
            runs,
            analysis: vec![],
            comparisons: vec![],
            provenance: Provenance::default(),
        };
        record.provenance = record.origins();
        record
    }

    pub fn conclude(&mut self, analysis: Vec<VersionAnalysis>) {
        self.analysis = analysis;
        self.comparisons = self.compared();
        self.provenance = self.origins();
    }

    fn compared(&self) -> Vec<VersionComparison> {
        let Some((first, others)) = self.request.versions.split_first() else { return vec![] };
        let row =
            |version: &String, size: &String| self.runs.iter().find(|row| row.version == *version && row.size == *size);
        let pairs = others.iter().flat_map(|other| self.request.sizes.iter().map(move |size| (other, size)));
        pairs.filter_map(|(other, size)| VersionComparison::of(row(first, size)?, row(other, size)?)).collect()
    }

    fn origins(&self) -> Provenance {
        let peak = if self.machine.peak_measured { Origin::Measured } else { Origin::Assumed };
        // The null device's times are predicted.
        let times = if self.request.device == "null" { Origin::Computed } else { Origin::Measured };
        let mut provenance = Provenance::of(&[
            ("request", Origin::Assumed),
            ("machine", peak),
            ("machine.memory_total_mb", Origin::Measured),
        ]);
        if !self.runs.is_empty() {
            provenance.set("runs", Origin::Computed);
            for key in ["batch_size", "seq_len", "num_steps", "process_id", "starts"] {
                provenance.set(&format!("runs.{key}"), Origin::Assumed);
            }
            let measured = [
                "wall_seconds",
                "samples_per_sec",
                "tokens_per_sec",
                "step_seconds",
                "step_seconds_low",
                "step_seconds_high",
                "process_peak_memory_mb",
            ];
            for key in measured {
                provenance.set(&format!("runs.{key}"), times);
            }
        }
        if !self.comparisons.is_empty() {
            provenance.set("comparisons", times);
        }
        if !self.analysis.is_empty() {
            provenance.set("analysis", Origin::Computed);
        }
        provenance
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provenance::check_provenance;

    fn timed(version: &str, (median, low, high): (f64, Option<f64>, Option<f64>)) -> StudyRow {
        StudyRow {
            size: "tiny".into(),
            version: version.into(),
            status: StudyStatus::Finished,
            folder: None,
            process_id: None,
            starts: 1,
            wall_seconds: None,
            note: None,
            planned: PlannedFigures::default(),
            measured: MeasuredFigures {
                step_seconds: Some(median),
                step_seconds_low: low,
                step_seconds_high: high,
                ..MeasuredFigures::default()
            },
        }
    }

    #[test]
    fn components_add_up_and_three_of_them_are_fixed() {
        let components = Components {
            parameters: 1.0,
            gradients: 2.0,
            optimizer_state: 4.0,
            activations: 8.0,
            attention: 16.0,
            temporaries: 32.0,
            overhead: 64.0,
        };
        assert_eq!((components.total(), components.fixed()), (127.0, 7.0));
        // The names are those in the file.
        let written = serde_json::to_value(components).unwrap();
        for (name, size) in components.entries() {
            assert_eq!(written[name], size, "{name}");
        }
    }

    #[test]
    fn versions_are_compared_with_an_interval_that_says_when_it_is_noise() {
        let compare = |first, other| VersionComparison::of(&timed("v1", first), &timed("v2", other)).unwrap();
        // Eight steps between 1 and 2 seconds: 1.51 times as long is noise.
        let noise = compare((1.0, Some(0.8), Some(1.9)), (1.51, Some(0.9), Some(2.0)));
        assert_eq!((noise.step_ratio, noise.verdict.as_str()), (1.51, "within the noise"));
        assert!(noise.ci95_low.unwrap() < 1.0 && noise.ci95_high.unwrap() > 1.51);
        let faster = compare((1.0, Some(0.99), Some(1.01)), (0.8, Some(0.79), Some(0.82)));
        assert_eq!(faster.verdict, "faster");
        assert!(faster.ci95_low.unwrap() > 0.78 && faster.ci95_high.unwrap() < 0.83);
        assert_eq!(compare((1.0, None, None), (2.0, Some(1.9), Some(2.1))).verdict, "no interval");
    }

    #[test]
    fn every_figure_has_its_origin_before_and_after_the_analysis() {
        let row = StudyRow {
            size: "tiny".into(),
            version: "v1".into(),
            status: StudyStatus::Finished,
            folder: Some("performance_results_tiny".into()),
            process_id: Some(1),
            starts: 1,
            wall_seconds: Some(1.0),
            note: None,
            planned: PlannedFigures::default(),
            measured: MeasuredFigures {
                mfu_percent: Some(50.0),
                step_seconds: Some(1.0),
                ..MeasuredFigures::default()
            },
        };
        let mut record = StudyRecord::new(
            "2026-11-15T00:00:00Z".into(),
            StudyRequest {
                sizes: vec!["tiny".into()],
                versions: vec!["v1".into(), "v2".into()],
                enable_profilers: false,
                num_steps: Some(5),
                device: "cpu".into(),
                precision: None,
                threads: 2,
                memory_limit: None,
                batch_size: None,
                seq_len: None,
            },
            StudyMachine {
                name: "m".into(),
                memory_total_mb: 1.0,
                peak_flops: 1.0,
                peak_bandwidth: 1.0,
                peak_source: "s".into(),
                peak_measured: true,
            },
            vec![row, timed("v1", (1.0, Some(0.9), Some(1.1))), timed("v2", (1.5, Some(1.4), Some(1.6)))],
        );
        check_provenance(&serde_json::to_value(&record).unwrap()).unwrap();
        record.conclude(vec![VersionAnalysis {
            version: "v1".into(),
            throughput_exponent: Some(-1.0),
            token_exponent: None,
            saturates_at: None,
            best_mfu_percent: None,
            memory_exponent: None,
            sizes: vec![],
        }]);
        let value = serde_json::to_value(&record).unwrap();
        check_provenance(&value).unwrap();
        assert_eq!(record.comparisons.len(), 1);
        assert_eq!(record.provenance.origin_of("runs.mfu_percent"), Some(Origin::Computed));
        assert_eq!(record.provenance.origin_of("runs.step_seconds"), Some(Origin::Measured));
        assert_eq!(serde_json::from_value::<StudyRecord>(value).unwrap(), record);
    }
}
