//! The overview of a run or a trace: key figures, where a step's time went, findings, what to do first.

use headroom_record::provenance::Origin;
use serde::Serialize;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Overview {
    pub title: String,
    pub subtitle: String,
    /// Caveats to read before the figures.
    pub notes: Vec<String>,
    pub headline: Vec<Figure>,
    pub breakdown: Vec<Part>,
    pub breakdown_note: String,
    pub findings: Vec<Finding>,
    /// Shown instead of findings and roadmap if there are none: nothing was found, or nothing was checked.
    pub no_findings: &'static str,
    pub no_roadmap: &'static str,
    pub roadmap: Vec<RoadmapRow>,
    pub roadmap_note: String,
    /// Title of the roadmap's second column: effort or priority.
    pub roadmap_by: &'static str,
    /// Files of the run that a browser can show.
    pub files: Vec<String>,
    /// Present if the folder holds several ranks of one run.
    pub ranks: Option<RankTable>,
}

/// The ranks of a run, and one step of each on one clock.
#[derive(Clone, Debug, Serialize)]
pub struct RankTable {
    /// The rank that the page is about.
    pub shown: u32,
    pub notes: Vec<String>,
    pub head: Vec<&'static str>,
    pub rows: Vec<RankLine>,
    pub collective_head: Vec<&'static str>,
    pub collectives: Vec<Vec<String>>,
    pub step: String,
    pub seconds: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct RankLine {
    pub rank: u32,
    pub cells: Vec<String>,
    /// Spans in seconds from the plot's left edge.
    pub compute: Vec<[f64; 2]>,
    pub transfer: Vec<[f64; 2]>,
    pub wait: Vec<[f64; 2]>,
}

/// A figure, formatted for reading and as the number in its file.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    pub name: String,
    pub shown: String,
    pub number: Option<f64>,
    pub note: String,
    pub origin: Option<Origin>,
    pub file: String,
    /// Dotted path, as in the file's own `provenance`.
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
    /// Share of the step that this fix alone is expected to save, by a model of the fix; `None` if there is no model.
    pub expected_share: Option<f64>,
    /// Share of the step that this fix alone saves at most; `None` if no bound says anything.
    pub alone_share: Option<f64>,
    /// Saving beyond that of the rows above; `None` if savings do not add up.
    pub additional_share: Option<f64>,
}

pub const NOT_PROFILED: &str = "Not profiled: `headroom profile` records the operators that findings are based on.";
