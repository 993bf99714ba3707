//! `progress.jsonl`: the progress of a run, one line per log interval, for those who watch it.

use serde::{Deserialize, Serialize};

use crate::SCHEMA_VERSION;
use crate::provenance::{Origin, Provenance};

pub const PROGRESS_FILE: &str = "progress.jsonl";

/// The first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgressHeader {
    pub schema_version: u32,
    pub provenance: Provenance,
}

/// Every other line: the newest step, with means since the previous line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgressLine {
    pub step: u64,
    /// Loss of that step, before its update; missing if nothing is computed.
    pub loss: Option<f64>,
    /// Seconds per step.
    pub seconds: f64,
    pub samples_per_sec: f64,
    /// Resident memory of the process, if the system reports it.
    pub memory_mb: Option<f64>,
    /// Global gradient norm of that step; missing if the run does not compute it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gradient_norm: Option<f64>,
}

/// An evaluation, on a line of its own between the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationLine {
    /// Steps taken before it.
    pub step: u64,
    pub eval_loss: f64,
}

impl ProgressHeader {
    /// Times are measured, unless the device replays predicted ones.
    pub fn new(times: Origin) -> ProgressHeader {
        ProgressHeader {
            schema_version: SCHEMA_VERSION,
            provenance: Provenance::of(&[
                ("step", Origin::Computed),
                ("loss", Origin::Computed),
                ("seconds", times),
                ("samples_per_sec", times),
                ("memory_mb", Origin::Measured),
                ("gradient_norm", Origin::Computed),
                ("eval_loss", Origin::Computed),
            ]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provenance::check_provenance;

    #[test]
    fn every_figure_of_a_line_says_where_it_comes_from() {
        let line = ProgressLine {
            step: 10,
            loss: Some(6.9),
            seconds: 0.02,
            samples_per_sec: 400.0,
            memory_mb: Some(20.0),
            gradient_norm: Some(1.0),
        };
        let mut record = serde_json::to_value(line).unwrap();
        let evaluation = serde_json::to_value(EvaluationLine { step: 10, eval_loss: 6.8 }).unwrap();
        record["eval_loss"] = evaluation["eval_loss"].clone();
        let header = serde_json::to_value(ProgressHeader::new(Origin::Measured)).unwrap();
        for key in ["schema_version", "provenance"] {
            record[key] = header[key].clone();
        }
        check_provenance(&record).unwrap();
    }
}
