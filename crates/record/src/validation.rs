//! validation.json: predicted and measured gain of each optimization, and the gates of the final list.

pub use crate::gate::GateRecord;
use crate::phase_3::{PhaseThreeRow, ReferencePoint, set_origins};
use crate::provenance::{Origin, Provenance};
use crate::race::RaceRecord;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub const VALIDATION_FILE: &str = "validation.json";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValidationRecord {
    pub schema_version: u32,
    pub timestamp: String,
    pub size: String,
    pub batch_size: u64,
    pub seq_len: u64,
    /// 0 if a GPU computed.
    pub threads: u64,
    pub device: String,
    /// Version 1: the median of its recorded steps. `baseline_by_op` and `findings` refer to that same step.
    pub baseline_step_seconds: f64,
    /// Number of steps behind the median.
    #[serde(default)]
    pub baseline_steps: u64,
    /// Its seconds by operator, longest first, then those between operators; they add up to the step.
    pub baseline_by_op: Vec<OpSeconds>,
    /// Bottlenecks of the baseline, by priority.
    pub findings: Vec<FindingRow>,
    /// Every pass, each on top of those before it. The kept ones come first; their speed-ups multiply to that of the
    /// kept list. All rows of this file come from one race: a few rounds of every list, then more of those that could
    /// be the best, whose earlier rounds do not count.
    pub passes: Vec<ValidationRow>,
    /// Passes that found nothing to do, and what they need; empty since every pass is measured.
    pub not_tried: Vec<NotTried>,
    /// Version 2, all passes and the kept ones, each against Version 1.
    pub versions: Vec<ValidationRow>,
    /// All passes against all but the named one, if requested.
    pub ablation: Vec<ValidationRow>,
    pub prediction: Option<PredictionAccuracy>,
    /// Half of the median interval, relative to its ratio.
    pub noise_percent: f64,
    /// Planned memory by sequence length.
    pub memory_by_length: Vec<LengthRow>,
    /// Exponent with which memory grows with the length, without weights and optimizer state: 1 is linear.
    pub memory_growth: Growth,
    pub targets: Targets,
    /// The list with the largest proven gain that passes every gate, which is the recommendation; empty if none is
    /// proved.
    pub kept: Vec<String>,
    /// The same as `--passes` takes it, as short as it can be: `all`, `v2`, `v1` (nothing is proved), a change of one
    /// of them such as `all,-fuse-norm`, or names.
    #[serde(default)]
    pub kept_flag: String,
    /// A list that looked faster and was not proved, if none was.
    #[serde(default)]
    pub unproved: Option<AsGood>,
    /// How undisturbed the race was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub race: Option<RaceRecord>,
    /// Other lists that are as fast within the noise, fastest first.
    #[serde(default)]
    pub as_good: Vec<AsGood>,
    pub gates: BTreeMap<String, GateRecord>,
    /// Forecast for the kept list on several ranks, if requested; not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub among_ranks: Vec<RankForecast>,
    /// Phase 3 of the workshop's roadmap, on top of the kept list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phase_3: Vec<PhaseThreeRow>,
    /// Throughput at the requested shape and at twice its batch and length.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reference_points: Vec<ReferencePoint>,
    pub provenance: Provenance,
}

/// A step on several ranks, each with the whole batch, predicted by the plan from the measured step of one rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankForecast {
    pub ranks: u64,
    /// Entries of `--passes` in addition to the kept list.
    pub way: String,
    pub step_seconds: f64,
    /// The part of it during which a rank only waits for others.
    pub exposed_seconds: f64,
    /// Speed of each rank relative to one rank alone.
    pub efficiency_percent: f64,
    pub memory_per_rank_mb: f64,
    /// Source of the message costs, in words.
    pub messages: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpSeconds {
    pub op: String,
    pub seconds: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FindingRow {
    pub rank: u64,
    pub finding: String,
    pub percent_of_step: Option<f64>,
    pub speedup_at_most: Option<f64>,
    pub evidence: String,
    pub asks_for: Vec<String>,
}

/// A list that the race cannot distinguish from the kept one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AsGood {
    pub passes: Vec<String>,
    /// Its speed relative to the kept list.
    pub relative_speed: f64,
    pub ci95_low: f64,
    pub ci95_high: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotTried {
    pub name: String,
    pub needs: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValidationRow {
    pub name: String,
    pub passes: Vec<String>,
    pub predicted_speedup: Option<f64>,
    pub measured_speedup: f64,
    pub measured_ci95_low: f64,
    pub measured_ci95_high: f64,
    /// Number of rounds behind the interval; a round is the better of two steps of each list.
    pub rounds: u64,
    pub memory_before_mb: f64,
    pub memory_after_mb: f64,
    pub kernels_before: u64,
    pub kernels_after: u64,
    pub loss_difference: f64,
    pub gradient_difference: f64,
    /// Difference in loss over the first steps.
    pub curve_difference: f64,
    pub kept: bool,
    /// `kept: faster`, `kept: less memory`, `kept: part of the best list`, `not kept: the rows before cost more`,
    /// `within noise`, `undecided`, `slower`, `not exact` or `measured`.
    pub verdict: String,
    /// Effort of doing the same by hand: `low`, `medium` or `high`.
    pub effort: String,
    /// Phase of the workshop's roadmap, if the row is a pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<u8>,
    /// How the prediction was off and what the profile shows, in words.
    pub note: Option<String>,
}

impl ValidationRow {
    /// Predicted saving in percent of the step.
    pub fn predicted_saving_percent(&self) -> Option<f64> {
        self.predicted_speedup.map(saving_percent)
    }

    /// Measured saving in percent of the step, and its interval.
    pub fn saving_percent(&self) -> (f64, f64, f64) {
        let of = saving_percent;
        (of(self.measured_speedup), of(self.measured_ci95_low), of(self.measured_ci95_high))
    }
}

fn saving_percent(speedup: f64) -> f64 {
    100.0 * (1.0 - 1.0 / speedup)
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictionAccuracy {
    pub passes: u64,
    /// Median difference between predicted and measured saving.
    pub median_error_percent_of_step: f64,
    /// Predictions off by at most 3% of the step or 35% of the saving, whichever is larger.
    pub within_limit: u64,
    /// Savings of more than 5% of the step, and how many of them were predicted with the right sign.
    pub large_savings: u64,
    pub right_sign: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LengthRow {
    pub seq_len: u64,
    pub baseline_mb: f64,
    pub kept_mb: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    pub baseline_exponent: Option<f64>,
    pub kept_exponent: Option<f64>,
}

/// The workshop's success metrics: before, and with the kept list.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Targets {
    pub samples_per_sec_before: f64,
    pub samples_per_sec_after: f64,
    pub mfu_percent_before: f64,
    pub mfu_percent_after: f64,
    pub memory_mb_before: f64,
    pub memory_mb_after: f64,
    pub kernels_before: u64,
    pub kernels_after: u64,
}

impl ValidationRecord {
    /// Adds the provenance of every figure.
    pub fn with_provenance(mut self) -> ValidationRecord {
        self.provenance = provenance(&self);
        self
    }

    /// The row of the kept list, which is the last of the versions.
    pub fn kept_row(&self) -> Option<&ValidationRow> {
        self.versions.last()
    }
}

fn provenance(of: &ValidationRecord) -> Provenance {
    let mut provenance = Provenance::of(&[
        ("batch_size", Origin::Assumed),
        ("seq_len", Origin::Assumed),
        ("threads", Origin::Assumed),
        ("baseline_step_seconds", Origin::Measured),
        ("baseline_steps", Origin::Computed),
        ("baseline_by_op", Origin::Measured),
        ("noise_percent", Origin::Measured),
        ("memory_growth", Origin::Computed),
        ("targets", Origin::Measured),
        // FLOPs counted from the plan over a measured time.
        ("targets.mfu_percent_before", Origin::Computed),
        ("targets.mfu_percent_after", Origin::Computed),
        ("targets.memory_mb_before", Origin::Computed),
        ("targets.memory_mb_after", Origin::Computed),
        ("targets.kernels_before", Origin::Computed),
        ("targets.kernels_after", Origin::Computed),
        ("gates", Origin::Measured),
        ("gates.memory", Origin::Computed),
    ]);
    for (key, rows) in [("passes", &of.passes), ("versions", &of.versions), ("ablation", &of.ablation)] {
        if !rows.is_empty() {
            // Speed-ups and differences are measured; predictions, memory and kernels come from the plan.
            provenance.set(key, Origin::Measured);
            for planned in [
                "predicted_speedup",
                "memory_before_mb",
                "memory_after_mb",
                "kernels_before",
                "kernels_after",
                "rounds",
            ] {
                provenance.set(&format!("{key}.{planned}"), Origin::Computed);
            }
            if rows.iter().any(|row| row.phase.is_some()) {
                provenance.set(&format!("{key}.phase"), Origin::Assumed);
            }
        }
    }
    if !of.findings.is_empty() {
        provenance.set("findings", Origin::Computed);
        provenance.set("findings.percent_of_step", Origin::Measured);
    }
    if !of.as_good.is_empty() {
        provenance.set("as_good", Origin::Measured);
    }
    if of.unproved.is_some() {
        provenance.set("unproved", Origin::Measured);
    }
    if of.race.is_some() {
        provenance.set("race", Origin::Measured);
    }
    if !of.memory_by_length.is_empty() {
        provenance.set("memory_by_length", Origin::Computed);
    }
    if !of.among_ranks.is_empty() {
        provenance.set("among_ranks", Origin::Computed);
    }
    provenance.set("prediction", Origin::Measured);
    set_origins(&mut provenance, &of.phase_3, &of.reference_points);
    provenance
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SCHEMA_VERSION;
    use crate::provenance::check_provenance;

    fn row() -> ValidationRow {
        ValidationRow {
            name: "fuse-qkv".into(),
            passes: vec!["fuse-qkv".into()],
            predicted_speedup: Some(1.25),
            measured_speedup: 2.0,
            measured_ci95_low: 1.0,
            measured_ci95_high: 4.0,
            rounds: 8,
            memory_before_mb: 2.0,
            memory_after_mb: 1.0,
            kernels_before: 3,
            kernels_after: 1,
            loss_difference: 0.0,
            gradient_difference: 1e-7,
            curve_difference: 1e-7,
            kept: true,
            verdict: "kept: faster".into(),
            effort: "low".into(),
            phase: Some(1),
            note: None,
        }
    }

    #[test]
    fn a_speed_up_saves_what_it_leaves_out() {
        assert_eq!(row().predicted_saving_percent().map(f64::round), Some(20.0));
        assert_eq!(row().saving_percent(), (50.0, 0.0, 75.0));
    }

    #[test]
    fn every_figure_says_where_it_comes_from() {
        let gate = GateRecord {
            result: "pass".into(),
            figure: 0.5,
            limit: 1.0,
            about: "memory".into(),
            ci95_low: None,
            ci95_high: None,
        };
        let record = ValidationRecord {
            schema_version: SCHEMA_VERSION,
            timestamp: "2026-11-15T02:10:00Z".into(),
            size: "nano".into(),
            batch_size: 8,
            seq_len: 64,
            threads: 2,
            device: "a CPU".into(),
            baseline_step_seconds: 0.1,
            baseline_steps: 9,
            baseline_by_op: vec![OpSeconds { op: "matmul".into(), seconds: 0.05 }],
            findings: vec![FindingRow {
                rank: 1,
                finding: "QKV Projections".into(),
                percent_of_step: Some(12.0),
                speedup_at_most: Some(1.1),
                evidence: "12 ms".into(),
                asks_for: vec!["fuse-qkv".into()],
            }],
            passes: vec![row()],
            not_tried: vec![NotTried { name: "fuse-rope".into(), needs: vec!["flash-attention".into()] }],
            versions: vec![row()],
            ablation: vec![],
            prediction: Some(PredictionAccuracy {
                passes: 1,
                median_error_percent_of_step: 1.0,
                within_limit: 1,
                large_savings: 0,
                right_sign: 0,
            }),
            noise_percent: 1.0,
            memory_by_length: vec![LengthRow { seq_len: 64, baseline_mb: 2.0, kept_mb: 1.0 }],
            memory_growth: Growth { baseline_exponent: Some(1.5), kept_exponent: None },
            targets: Targets {
                samples_per_sec_before: 1.0,
                samples_per_sec_after: 2.0,
                mfu_percent_before: 20.0,
                mfu_percent_after: 40.0,
                memory_mb_before: 2.0,
                memory_mb_after: 1.0,
                kernels_before: 3,
                kernels_after: 1,
            },
            kept: vec!["fuse-qkv".into()],
            kept_flag: "fuse-qkv".into(),
            unproved: Some(AsGood { passes: vec![], relative_speed: 1.2, ci95_low: 0.9, ci95_high: 1.4 }),
            race: Some(RaceRecord { rounds: 9, dropped_rounds: vec![3], ..RaceRecord::default() }),
            as_good: vec![AsGood { passes: vec![], relative_speed: 0.99, ci95_low: 0.97, ci95_high: 1.01 }],
            gates: [("memory".to_string(), gate)].into(),
            among_ranks: vec![RankForecast {
                ranks: 4,
                way: "+zero1".into(),
                step_seconds: 0.2,
                exposed_seconds: 0.05,
                efficiency_percent: 75.0,
                memory_per_rank_mb: 10.0,
                messages: "assumed messages".into(),
            }],
            phase_3: vec![PhaseThreeRow { name: "memory layout".into(), ..PhaseThreeRow::default() }],
            reference_points: vec![ReferencePoint {
                batch_size: 8,
                seq_len: 128,
                name: "v1".into(),
                passes: vec![],
                samples_per_sec: 60.0,
                ci95_low: 58.0,
                ci95_high: 62.0,
                speedup: 1.0,
                speedup_ci95_low: 1.0,
                speedup_ci95_high: 1.0,
                rounds: 8,
            }],
            provenance: Provenance::default(),
        }
        .with_provenance();
        check_provenance(&serde_json::to_value(&record).unwrap()).unwrap();
        assert_eq!(record.kept_row().map(|row| &row.passes), Some(&record.kept));
    }
}
