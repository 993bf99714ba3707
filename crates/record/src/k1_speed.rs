//! `k1-speed.json`: the habits named in the bottleneck report, each against its remedy, on K-1's own tree.

use crate::provenance::{Origin, Provenance};
use serde::{Deserialize, Serialize};

pub const K1_SPEED_FILE: &str = "k1-speed.json";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct K1SpeedRecord {
    pub schema_version: u32,
    pub timestamp: String,
    /// The list of passes.
    pub version: String,
    pub device: String,
    pub machine: String,
    pub threads: u64,
    pub parameters: u64,
    pub nodes: u64,
    pub batch_size: u64,
    pub seq_len: u64,
    pub rows: Vec<K1SpeedRow>,
    pub shown: K1ShownSpeed,
    pub total_seconds: f64,
    pub provenance: Provenance,
}

/// A habit and its remedy, measured alternately.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct K1SpeedRow {
    pub habit: String,
    pub remedy: String,
    /// The speed-up that the report expects.
    pub hoped: String,
    /// Speed-up of the remedy, with its 95% confidence interval.
    pub speedup: f64,
    pub ci95_low: f64,
    pub ci95_high: f64,
    pub rounds: u64,
}

/// The speed of one run as it would be displayed: since the start, and over the last steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct K1ShownSpeed {
    pub first_step_seconds: f64,
    /// Steps so far, and the steps per second by each method.
    pub after: Vec<u64>,
    pub cumulative_steps_per_sec: Vec<f64>,
    pub window: u64,
    pub window_steps_per_sec: Vec<f64>,
}

impl K1SpeedRecord {
    /// Adds the provenance of every figure.
    pub fn with_provenance(mut self) -> K1SpeedRecord {
        let mut provenance = Provenance::of(&[
            ("threads", Origin::Assumed),
            ("parameters", Origin::Computed),
            ("nodes", Origin::Computed),
            ("batch_size", Origin::Assumed),
            ("seq_len", Origin::Assumed),
            ("shown", Origin::Measured),
            ("shown.after", Origin::Assumed),
            ("shown.window", Origin::Assumed),
            ("total_seconds", Origin::Measured),
        ]);
        if !self.rows.is_empty() {
            provenance.set("rows", Origin::Measured);
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
    fn every_figure_has_its_origin() {
        let row = K1SpeedRow {
            habit: "a".into(),
            remedy: "b".into(),
            hoped: "2-3x".into(),
            speedup: 1.5,
            ci95_low: 1.4,
            ci95_high: 1.6,
            rounds: 4,
        };
        let record = K1SpeedRecord {
            schema_version: SCHEMA_VERSION,
            timestamp: "2026-11-17T00:00:00Z".into(),
            version: "all".into(),
            device: "cpu".into(),
            machine: "m".into(),
            threads: 2,
            parameters: 1,
            nodes: 41,
            batch_size: 4,
            seq_len: 32,
            rows: vec![row],
            shown: K1ShownSpeed {
                first_step_seconds: 0.5,
                after: vec![10],
                cumulative_steps_per_sec: vec![5.0],
                window: 10,
                window_steps_per_sec: vec![9.0],
            },
            total_seconds: 1.0,
            provenance: Provenance::default(),
        };
        check_provenance(&serde_json::to_value(record.with_provenance()).unwrap()).unwrap();
    }
}
