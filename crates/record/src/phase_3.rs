//! Phase 3 of the workshop's roadmap and its reference points, as validation.json holds them.

use crate::gate::GateRecord;
use crate::provenance::{Origin, Provenance};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Mixed precision, activation checkpointing or memory layout, on top of the list of passes that was kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseThreeRow {
    /// `mixed precision bf16`, `activation checkpointing` or `memory layout`.
    pub name: String,
    /// The `train` flag that turns it on.
    pub flag: Option<String>,
    /// The base of the comparison, in words.
    pub over: Option<String>,
    pub predicted_speedup: Option<f64>,
    /// `None` if nothing was measured; `note` then says why.
    pub measured_speedup: Option<f64>,
    pub measured_ci95_low: Option<f64>,
    pub measured_ci95_high: Option<f64>,
    /// Number of rounds behind the interval.
    pub rounds: u64,
    pub memory_before_mb: Option<f64>,
    pub memory_after_mb: Option<f64>,
    /// Relative differences of loss and gradients (in norm) from Version 1 with the same weights.
    pub loss_difference: Option<f64>,
    pub gradient_difference: Option<f64>,
    /// Whether it is part of the recommendation.
    pub kept: bool,
    pub verdict: String,
    pub gates: BTreeMap<String, GateRecord>,
    /// Why there was nothing to try, or else how to use it.
    pub note: Option<String>,
}

/// Throughput of one list of passes at one shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReferencePoint {
    pub batch_size: u64,
    pub seq_len: u64,
    /// `v1`, `v2` or `kept`.
    pub name: String,
    pub passes: Vec<String>,
    pub samples_per_sec: f64,
    pub ci95_low: f64,
    pub ci95_high: f64,
    /// Relative to Version 1 at the same shape.
    pub speedup: f64,
    pub speedup_ci95_low: f64,
    pub speedup_ci95_high: f64,
    /// Number of rounds behind the intervals.
    pub rounds: u64,
}

/// Adds the provenance of both lists, if they are not empty.
pub fn set_origins(provenance: &mut Provenance, rows: &[PhaseThreeRow], points: &[ReferencePoint]) {
    if !rows.is_empty() {
        provenance.set("phase_3", Origin::Measured);
        for planned in ["predicted_speedup", "memory_before_mb", "memory_after_mb", "rounds"] {
            provenance.set(&format!("phase_3.{planned}"), Origin::Computed);
        }
    }
    if !points.is_empty() {
        provenance.set("reference_points", Origin::Measured);
        for given in ["batch_size", "seq_len"] {
            provenance.set(&format!("reference_points.{given}"), Origin::Assumed);
        }
        provenance.set("reference_points.rounds", Origin::Computed);
    }
}
