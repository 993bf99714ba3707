//! `rank-scaling.json`: step time on one rank and on several, where the additional time goes, and how well it was
//! predicted.

use crate::provenance::{Origin, Provenance};
use crate::race::RaceRecord;
use crate::statistics::Interval;
use serde::{Deserialize, Serialize};

pub const RANK_SCALING_FILE: &str = "rank-scaling.json";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankScalingRecord {
    pub schema_version: u32,
    pub timestamp: String,
    pub size: String,
    /// The list of passes.
    pub version: String,
    pub parameters: u64,
    pub device: String,
    pub machine: String,
    /// Threads per rank.
    pub threads: u64,
    /// The launch command as given, with `{ranks}` in place of the number of ranks.
    pub launcher: String,
    pub rounds: u64,
    /// Timed steps per run.
    pub steps: u64,
    /// Sequences per step: per rank under weak scaling, over all ranks under strong scaling.
    pub batch_size: u64,
    pub seq_len: u64,
    pub points: Vec<RankPoint>,
    /// How the runs took turns.
    #[serde(default)]
    pub race: Option<RaceRecord>,
    pub provenance: Provenance,
}

/// One number of ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankPoint {
    pub ranks: u64,
    /// Step time when every rank keeps its batch (weak scaling).
    pub weak_seconds: Option<Figure>,
    /// Step time on one rank divided by this one.
    pub efficiency_percent: Option<Figure>,
    /// Predicted only from the steps on one and two ranks.
    pub predicted_seconds: Option<f64>,
    pub predicted_off_percent: Option<f64>,
    /// Additional compute time compared with one rank alone, because ranks share cores, caches and memory.
    pub shared_seconds: Option<Figure>,
    /// Exposed communication: exchanges that the step waits for.
    pub exposed_seconds: Option<Figure>,
    pub exposed_without_overlap_seconds: Option<Figure>,
    /// Step time when the batch is divided among the ranks (strong scaling); `None` if it cannot be divided.
    pub strong_seconds: Option<Figure>,
    pub strong_batch_size: Option<u64>,
    /// Step time of one rank with the whole batch divided by this one.
    pub speedup: Option<Figure>,
    /// Step time of one rank alone with the batch that each rank has under strong scaling.
    pub divided_alone_seconds: Option<Figure>,
    /// The limiting factor, as a sentence.
    pub limited_by: Option<String>,
    /// Why there are no figures, or why they mean little.
    pub note: Option<String>,
}

/// A mean over rounds, with its 95% confidence interval if there are at least two.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    pub value: f64,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

impl From<Interval> for Figure {
    fn from(found: Interval) -> Figure {
        let end = |end: f64| end.is_finite().then_some(end);
        Figure { value: found.value, low: end(found.low), high: end(found.high) }
    }
}

impl Figure {
    /// Whether the interval lies on one side of this value.
    pub fn is_apart_from(&self, value: f64) -> bool {
        self.low.is_some_and(|low| low > value) || self.high.is_some_and(|high| high < value)
    }
}

impl RankScalingRecord {
    /// Adds the provenance of every figure.
    pub fn with_provenance(mut self) -> RankScalingRecord {
        let mut provenance = Provenance::of(&[
            ("parameters", Origin::Computed),
            ("threads", Origin::Assumed),
            ("rounds", Origin::Assumed),
            ("steps", Origin::Assumed),
            ("batch_size", Origin::Assumed),
            ("seq_len", Origin::Assumed),
        ]);
        if !self.points.is_empty() {
            provenance.set("points", Origin::Measured);
            for key in ["ranks", "strong_batch_size"] {
                provenance.set(&format!("points.{key}"), Origin::Assumed);
            }
            for key in ["predicted_seconds", "predicted_off_percent"] {
                provenance.set(&format!("points.{key}"), Origin::Computed);
            }
        }
        if self.race.is_some() {
            provenance.set("race", Origin::Measured);
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
    fn an_interval_is_apart_from_a_value_that_it_does_not_hold() {
        let figure = Figure::from(Interval { value: 2.0, low: 1.0, high: 3.0 });
        assert_eq!(figure, Figure { value: 2.0, low: Some(1.0), high: Some(3.0) });
        assert!(figure.is_apart_from(0.9) && figure.is_apart_from(3.1));
        assert!([1.0, 2.0, 3.0].iter().all(|value| !figure.is_apart_from(*value)));
        let unknown = Figure::from(Interval { value: 2.0, low: f64::NEG_INFINITY, high: f64::INFINITY });
        assert_eq!(unknown, Figure { value: 2.0, low: None, high: None });
        assert!(!unknown.is_apart_from(9.0));
    }

    #[test]
    fn every_figure_has_its_origin() {
        let figure = Some(Figure { value: 1.0, low: Some(0.5), high: Some(1.5) });
        let point = RankPoint {
            ranks: 4,
            weak_seconds: figure,
            efficiency_percent: figure,
            predicted_seconds: Some(1.0),
            predicted_off_percent: Some(-3.0),
            shared_seconds: figure,
            exposed_seconds: figure,
            exposed_without_overlap_seconds: figure,
            strong_seconds: figure,
            strong_batch_size: Some(2),
            speedup: figure,
            divided_alone_seconds: figure,
            limited_by: Some("nothing".into()),
            note: None,
        };
        for points in [vec![], vec![point]] {
            let record = RankScalingRecord {
                schema_version: SCHEMA_VERSION,
                timestamp: "2026-11-17T00:00:00Z".into(),
                size: "tiny".into(),
                version: "v2".into(),
                parameters: 1,
                device: "cpu".into(),
                machine: "m".into(),
                threads: 2,
                launcher: "mpirun -n {ranks}".into(),
                rounds: 3,
                steps: 8,
                batch_size: 8,
                seq_len: 64,
                points,
                race: Some(RaceRecord { rounds: 3, ..RaceRecord::default() }),
                provenance: Provenance::default(),
            }
            .with_provenance();
            check_provenance(&serde_json::to_value(&record).unwrap()).unwrap();
        }
    }
}
