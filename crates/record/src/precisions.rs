//! precisions.json: predicted and measured speed-up of each precision, and the gates it passed. Also stored beside the
//! device's peaks, where `--precision auto` finds it.

use crate::gate::GateRecord;
use crate::provenance::{Origin, Provenance};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub const PRECISIONS_FILE: &str = "precisions.json";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrecisionsRecord {
    pub schema_version: u32,
    pub timestamp: String,
    pub device: String,
    /// Version of the kernels: if they change, the proof has to be repeated.
    pub kernels: String,
    pub size: String,
    /// The model's sizes in words; the same model has the same words.
    pub model: String,
    pub batch_size: u64,
    pub seq_len: u64,
    /// The list of passes that every precision ran with.
    pub passes: Vec<String>,
    /// The fastest precision that was proved.
    pub precision: String,
    /// In the order of the trials, each on top of the fastest one proved before it.
    pub precisions: Vec<PrecisionRow>,
    pub provenance: Provenance,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrecisionRow {
    pub precision: String,
    /// The precision it was compared with.
    pub over: String,
    pub predicted_speedup: f64,
    pub measured_speedup: f64,
    pub measured_ci95_low: f64,
    pub measured_ci95_high: f64,
    /// Number of rounds behind the interval.
    pub rounds: u64,
    pub memory_before_mb: f64,
    pub memory_after_mb: f64,
    /// Whether all gates passed.
    pub proved: bool,
    /// Relative differences of loss and gradients (in norm) from Version 1 in single precision with the same weights.
    #[serde(default)]
    pub loss_difference: Option<f64>,
    #[serde(default)]
    pub gradient_difference: Option<f64>,
    pub gates: BTreeMap<String, GateRecord>,
}

impl PrecisionsRecord {
    /// Adds the provenance of every figure.
    pub fn with_provenance(mut self) -> PrecisionsRecord {
        self.provenance = provenance(&self);
        self
    }

    /// Whether both records are for the same model, batch and sequence on the same device.
    pub fn is_of(&self, other: &PrecisionsRecord) -> bool {
        let key = |record: &PrecisionsRecord| {
            (record.device.clone(), record.model.clone(), record.batch_size, record.seq_len)
        };
        key(self) == key(other)
    }

    /// Speed-up of the proved precision over single precision: the product over the proved rows.
    pub fn speedup(&self) -> f64 {
        self.precisions.iter().filter(|row| row.proved).map(|row| row.measured_speedup).product()
    }
}

fn provenance(of: &PrecisionsRecord) -> Provenance {
    let mut provenance = Provenance::of(&[("batch_size", Origin::Assumed), ("seq_len", Origin::Assumed)]);
    if !of.precisions.is_empty() {
        provenance.set("precisions", Origin::Measured);
        for planned in ["predicted_speedup", "memory_before_mb", "memory_after_mb", "rounds"] {
            provenance.set(&format!("precisions.{planned}"), Origin::Computed);
        }
    }
    provenance
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SCHEMA_VERSION;
    use crate::provenance::check_provenance;

    fn row(precision: &str, speedup: f64, proved: bool) -> PrecisionRow {
        let gate = GateRecord {
            result: if proved { "pass" } else { "fail" }.into(),
            figure: 0.01,
            limit: 0.2,
            about: "gradients".into(),
            ci95_low: None,
            ci95_high: None,
        };
        PrecisionRow {
            precision: precision.into(),
            over: "fp32".into(),
            predicted_speedup: 2.0,
            measured_speedup: speedup,
            measured_ci95_low: 0.99 * speedup,
            measured_ci95_high: 1.01 * speedup,
            rounds: 8,
            memory_before_mb: 2.0,
            memory_after_mb: 1.0,
            proved,
            loss_difference: Some(1e-4),
            gradient_difference: None,
            gates: [("gradients".to_string(), gate)].into(),
        }
    }

    #[test]
    fn every_figure_says_where_it_comes_from_and_proved_rows_multiply() {
        let record = PrecisionsRecord {
            schema_version: SCHEMA_VERSION,
            timestamp: "2026-11-15T02:10:00Z".into(),
            device: "a GPU".into(),
            kernels: "cafe".into(),
            size: "medium".into(),
            model: "1024 wide".into(),
            batch_size: 16,
            seq_len: 512,
            passes: vec!["fuse-qkv".into()],
            precision: "fp8".into(),
            precisions: vec![row("tf32", 0.9, false), row("bf16", 3.0, true), row("fp8", 1.5, true)],
            provenance: Provenance::default(),
        }
        .with_provenance();
        check_provenance(&serde_json::to_value(&record).unwrap()).unwrap();
        assert_eq!(record.speedup(), 4.5);
        let other = PrecisionsRecord { seq_len: 1024, ..record.clone() };
        assert!(record.is_of(&record) && !record.is_of(&other));
    }
}
