//! Phase 3 of the workshop's roadmap and its reference points, as validation.json holds them.

use crate::gate::GateRecord;
use crate::provenance::{Origin, Provenance};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Mixed precision, activation checkpointing or memory layout, on top of the kept list of passes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseThreeRow {
    /// `mixed precision bf16`, `activation checkpointing` or `memory layout`.
    pub name: String,
    /// The flag that turns it on in `train`.
    pub flag: Option<String>,
    /// Base of the comparison, in words.
    pub over: Option<String>,
    pub predicted_speedup: Option<f64>,
    /// `None` where nothing was measured; `note` then says why.
    pub measured_speedup: Option<f64>,
    pub measured_ci95_low: Option<f64>,
    pub measured_ci95_high: Option<f64>,
    /// Rounds that the interval rests on.
    pub rounds: u64,
    pub memory_before_mb: Option<f64>,
    pub memory_after_mb: Option<f64>,
    /// Relative differences of loss and gradients (in norm) from Version 1, same weights.
    pub loss_difference: Option<f64>,
    pub gradient_difference: Option<f64>,
    /// Part of the recommendation.
    pub kept: bool,
    pub verdict: String,
    pub gates: BTreeMap<String, GateRecord>,
    /// The reason where there was nothing to try, else how to use it.
    pub note: Option<String>,
}

/// Throughput of one list at one shape.
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
    /// Over Version 1 at the same shape.
    pub speedup: f64,
    pub speedup_ci95_low: f64,
    pub speedup_ci95_high: f64,
    /// Rounds that the intervals rest on.
    pub rounds: u64,
}

/// Adds the origins of both, as far as they are there.
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
