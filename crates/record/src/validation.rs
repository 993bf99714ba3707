//! validation.json: what each optimisation was predicted to bring, what it brought, and the gates of the final list.

use crate::SCHEMA_VERSION;
use crate::provenance::{Origin, Provenance};
use serde::{Deserialize, Serialize};

pub const VALIDATION_FILE: &str = "validation.json";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValidationRecord {
    pub schema_version: u32,
    pub timestamp: String,
    pub size: String,
    pub batch_size: u64,
    pub seq_len: u64,
    pub threads: u64,
    pub device: String,
    pub baseline_step_seconds: f64,
    /// Seconds of a baseline step by operator, the longest first.
    pub baseline_by_op: Vec<OpSeconds>,
    /// Passes in the order in which they were tried, each against the list before it.
    pub passes: Vec<ValidationRow>,
    /// Version 2, all passes and the kept ones, each against Version 1.
    pub versions: Vec<ValidationRow>,
    pub kept: Vec<String>,
    pub gates: std::collections::BTreeMap<String, GateRecord>,
    pub provenance: Provenance,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpSeconds {
    pub op: String,
    pub seconds: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValidationRow {
    pub name: String,
    pub passes: Vec<String>,
    pub predicted_speedup: Option<f64>,
    pub measured_speedup: f64,
    pub measured_ci95_low: f64,
    pub measured_ci95_high: f64,
    pub memory_before_mb: f64,
    pub memory_after_mb: f64,
    pub kernels_before: u64,
    pub kernels_after: u64,
    pub loss_difference: Option<f64>,
    pub gradient_difference: Option<f64>,
    pub kept: bool,
    pub effort: String,
    /// Where the prediction was off, in words.
    pub note: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateRecord {
    /// `pass` or `fail`.
    pub result: String,
    pub figure: f64,
    pub limit: f64,
    pub about: String,
}

/// Everything but what follows from it.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidationFacts {
    pub timestamp: String,
    pub size: String,
    pub batch_size: u64,
    pub seq_len: u64,
    pub threads: u64,
    pub device: String,
    pub baseline_step_seconds: f64,
    pub baseline_by_op: Vec<OpSeconds>,
    pub passes: Vec<ValidationRow>,
    pub versions: Vec<ValidationRow>,
    pub kept: Vec<String>,
    pub gates: Vec<(String, GateRecord)>,
}

impl ValidationRecord {
    pub fn new(facts: ValidationFacts) -> ValidationRecord {
        ValidationRecord {
            schema_version: SCHEMA_VERSION,
            timestamp: facts.timestamp,
            size: facts.size,
            batch_size: facts.batch_size,
            seq_len: facts.seq_len,
            threads: facts.threads,
            device: facts.device,
            baseline_step_seconds: facts.baseline_step_seconds,
            baseline_by_op: facts.baseline_by_op,
            provenance: provenance(&facts.passes),
            passes: facts.passes,
            versions: facts.versions,
            kept: facts.kept,
            gates: facts.gates.into_iter().collect(),
        }
    }

    pub fn all_gates_pass(&self) -> bool {
        self.gates.values().all(|gate| gate.result == "pass")
    }
}

fn provenance(passes: &[ValidationRow]) -> Provenance {
    let mut provenance = Provenance::of(&[
        ("batch_size", Origin::Assumed),
        ("seq_len", Origin::Assumed),
        ("threads", Origin::Assumed),
        ("baseline_step_seconds", Origin::Measured),
        ("baseline_by_op", Origin::Measured),
        ("versions", Origin::Measured),
        ("gates", Origin::Measured),
    ]);
    if !passes.is_empty() {
        // Speed-ups and differences are measured; predictions, memory and kernels come from the plan.
        provenance.set("passes", Origin::Measured);
    }
    provenance
}
