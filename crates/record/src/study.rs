//! `study.json`: sizes and versions side by side, and what their figures say about scaling.

use crate::SCHEMA_VERSION;
use crate::intensity::Bound;
use crate::provenance::{Origin, Provenance};
use crate::race::RaceRecord;
use crate::statistics::{Interval, StepStatistics, ratio_of};
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
    /// How the step times were taken in turns, one entry per group that fits into memory together. Empty if each run
    /// timed itself: with too few steps, or where nothing is computed.
    #[serde(default)]
    pub race: Vec<RaceRecord>,
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
    /// Steps of the run by itself.
    pub num_steps: u64,
    /// Steps of each turn after the runs; zero if the run times itself.
    #[serde(default)]
    pub steps_per_turn: u64,
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
    /// 95% confidence interval, if the step was timed in turns.
    #[serde(default)]
    pub samples_per_sec_low: Option<f64>,
    #[serde(default)]
    pub samples_per_sec_high: Option<f64>,
    pub tokens_per_sec: Option<f64>,
    /// Mean over the rounds of the race, with its 95% confidence interval; the median of the run's own steps without
    /// warm-up, if there was no race.
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
    /// 95% confidence interval, if the step was timed in turns.
    #[serde(default)]
    pub mfu_percent_low: Option<f64>,
    #[serde(default)]
    pub mfu_percent_high: Option<f64>,
    pub bound: Option<Bound>,
    pub final_loss: Option<f64>,
}

impl MeasuredFigures {
    /// Takes the step's time from a race. A step has `samples` of `tokens` each, and `mfu_at_one_second` is the MFU if
    /// it took one second.
    pub fn set_step(&mut self, step: Interval, samples: f64, tokens: f64, mfu_at_one_second: f64) {
        let finite = |value: f64| value.is_finite().then_some(value);
        (self.step_seconds, self.step_seconds_low) = (Some(step.value), finite(step.low));
        self.step_seconds_high = finite(step.high).filter(|high| *high < f64::MAX);
        // The slowest step is the lowest speed.
        let at = |seconds: Option<f64>, of: f64| seconds.filter(|seconds| *seconds > 0.0).map(|seconds| of / seconds);
        let (low, value, high) = (self.step_seconds_high, self.step_seconds, self.step_seconds_low);
        self.samples_per_sec = at(value, samples);
        (self.samples_per_sec_low, self.samples_per_sec_high) = (at(low, samples), at(high, samples));
        self.tokens_per_sec = at(value, samples * tokens);
        self.mfu_percent = at(value, mfu_at_one_second);
        (self.mfu_percent_low, self.mfu_percent_high) = (at(low, mfu_at_one_second), at(high, mfu_at_one_second));
    }
}

/// Trends across the sizes of one version. Intervals are 95% confidence intervals. Those of speeds come from the race,
/// and are missing without one; that of memory comes from the scatter around the fit, from three sizes on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VersionAnalysis {
    pub version: String,
    /// `samples_per_sec` scales as parameters to this power; `None` with fewer than two sizes.
    pub throughput_exponent: Option<f64>,
    #[serde(default)]
    pub throughput_exponent_low: Option<f64>,
    #[serde(default)]
    pub throughput_exponent_high: Option<f64>,
    /// The same for tokens: sizes differ in tokens per sample.
    pub token_exponent: Option<f64>,
    #[serde(default)]
    pub token_exponent_low: Option<f64>,
    #[serde(default)]
    pub token_exponent_high: Option<f64>,
    /// The smallest size that reaches nine tenths of the best MFU.
    pub saturates_at: Option<String>,
    /// The smallest size that may do so, and the smallest that surely does, by the intervals of MFU.
    #[serde(default)]
    pub saturates_at_low: Option<String>,
    #[serde(default)]
    pub saturates_at_high: Option<String>,
    pub best_mfu_percent: Option<f64>,
    #[serde(default)]
    pub best_mfu_percent_low: Option<f64>,
    #[serde(default)]
    pub best_mfu_percent_high: Option<f64>,
    /// Planned memory scales as parameters to this power.
    pub memory_exponent: Option<f64>,
    #[serde(default)]
    pub memory_exponent_low: Option<f64>,
    #[serde(default)]
    pub memory_exponent_high: Option<f64>,
    pub sizes: Vec<SizeAnalysis>,
}

/// Step time of one version divided by that of the first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VersionComparison {
    pub size: String,
    pub version: String,
    pub against: String,
    pub step_ratio: f64,
    /// Paired over the rounds of the race, if both were in one. Otherwise from the spread of each one's steps, which
    /// does not cover drift between runs; `None` if a run has fewer than six counted steps.
    pub ci95_low: Option<f64>,
    pub ci95_high: Option<f64>,
    /// `faster`, `slower`, `within the noise` or `no interval`.
    pub verdict: String,
}

impl VersionComparison {
    /// `paired` is the ratio over the rounds that both were in. `None` if one of them has no step time.
    fn of(first: &StudyRow, other: &StudyRow, paired: Option<Interval>) -> Option<VersionComparison> {
        let statistics = |row: &StudyRow| StepStatistics {
            median: row.measured.step_seconds,
            ci95_low: row.measured.step_seconds_low,
            ci95_high: row.measured.step_seconds_high,
            ..StepStatistics::default()
        };
        let (before, after) = (statistics(first), statistics(other));
        let alone = after.median? / before.median?;
        let interval = paired.or_else(|| ratio_of(&after, &before));
        let step_ratio = paired.map_or(alone, |paired| paired.value);
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
            race: vec![],
            provenance: Provenance::default(),
        };
        record.provenance = record.origins();
        record
    }

    /// `paired` is the step time of a row relative to another's, by their places, where one race had both.
    pub fn conclude(&mut self, analysis: Vec<VersionAnalysis>, paired: impl Fn(usize, usize) -> Option<Interval>) {
        self.analysis = analysis;
        self.comparisons = self.compared(paired);
        self.provenance = self.origins();
    }

    fn compared(&self, paired: impl Fn(usize, usize) -> Option<Interval>) -> Vec<VersionComparison> {
        let Some((first, others)) = self.request.versions.split_first() else { return vec![] };
        let at = |version: &String, size: &String| {
            self.runs.iter().position(|row| row.version == *version && row.size == *size)
        };
        let pairs = others.iter().flat_map(|other| self.request.sizes.iter().map(move |size| (other, size)));
        let compare = |(version, size)| {
            let (one, other) = (at(first, size)?, at(version, size)?);
            VersionComparison::of(&self.runs[one], &self.runs[other], paired(other, one))
        };
        pairs.filter_map(compare).collect()
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
            for key in ["batch_size", "seq_len", "num_steps", "steps_per_turn", "process_id", "starts"] {
                provenance.set(&format!("runs.{key}"), Origin::Assumed);
            }
            let measured = [
                "wall_seconds",
                "samples_per_sec",
                "samples_per_sec_low",
                "samples_per_sec_high",
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
        if !self.race.is_empty() {
            provenance.set("race", Origin::Measured);
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
mod tests;
