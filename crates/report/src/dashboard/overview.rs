//! The overview of a run or a trace: headline figures, where a step's time went, findings, what to do first.

use headroom_diagnosis::Analysis;
use headroom_record::provenance::Origin;
use serde::Serialize;

use super::{RunRecords, overview_of_run, overview_of_trace};

#[derive(Clone, Debug, Default, Serialize)]
pub struct Overview {
    pub title: String,
    pub subtitle: String,
    /// What must be known before the figures are read.
    pub notes: Vec<String>,
    pub headline: Vec<Figure>,
    pub breakdown: Vec<Part>,
    pub breakdown_note: String,
    pub findings: Vec<Finding>,
    pub roadmap: Vec<RoadmapRow>,
    pub roadmap_note: String,
    /// What its second column is: effort or priority.
    pub roadmap_by: &'static str,
    /// Files of the run that a browser can show.
    pub files: Vec<String>,
}

/// A figure, as a person reads it and as it stands in its file.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    pub name: String,
    pub shown: String,
    pub number: Option<f64>,
    pub note: String,
    pub origin: Option<Origin>,
    pub file: String,
    /// Dotted, as in the file's own `provenance`.
    pub key: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Part {
    pub name: String,
    pub seconds: f64,
    pub share: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    pub code: String,
    pub name: String,
    pub severity: String,
    pub share: Option<f64>,
    pub message: String,
    pub place: Option<String>,
    pub evidence: Vec<String>,
    pub advice: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct RoadmapRow {
    pub name: String,
    pub advice: String,
    pub effort: String,
    /// Of the step, at most, by itself.
    pub alone_share: Option<f64>,
    /// Beyond what the rows above it save; where savings do not add up this is missing.
    pub additional_share: Option<f64>,
}

/// Of a run folder. Its trace, where it has one, adds findings of the trace rules.
pub fn of_run(name: &str, records: &RunRecords, analysis: Option<&Analysis>) -> Overview {
    overview_of_run::overview(name, records, analysis)
}

pub fn of_trace(analysis: &Analysis) -> Overview {
    overview_of_trace::overview(analysis)
}
