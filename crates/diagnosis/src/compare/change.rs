//! Changes between two analyses, and the results of limits on them.

use serde::Serialize;

use super::alignment::SiteChange;

#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub before: String,
    pub after: String,
    pub step: StepChange,
    /// Overall figures: busy share, kernels and launches per step, memory.
    pub figures: Vec<Change>,
    /// Self time per step (device, otherwise host) by operator, and kernel time; the largest change first.
    pub operators: Vec<Change>,
    pub kernels: Vec<Change>,
    /// Operators at their sizes and places, functions and kernels: what grew, the largest growth first, then what
    /// shrank.
    pub changes: Vec<SiteChange>,
    pub findings_gone: Vec<String>,
    pub findings_new: Vec<String>,
    /// Findings whose time per step grew, the largest growth first; also those that are no longer reported.
    pub findings_grown: Vec<String>,
    /// Figures that a trace distorts, so that they are not compared.
    pub withheld: Vec<&'static str>,
    /// Caveats about the traces.
    pub notes: Vec<String>,
    /// The result of each limit of `--fail-if`.
    pub gates: Vec<Judged>,
    /// Changes of all operators, including those too small to show.
    #[serde(skip)]
    pub(super) every_operator: Vec<Change>,
    /// Figures that only one of the traces records.
    #[serde(skip)]
    pub(super) one_sided: Vec<&'static str>,
}

#[derive(Clone, Debug, Serialize)]
pub struct StepChange {
    pub before_seconds: f64,
    pub after_seconds: f64,
    /// After divided by before, minus one.
    pub relative: f64,
    /// 95% interval of `relative` over steps; `None` if a side has too few steps.
    pub interval: Option<[f64; 2]>,
    /// True if both recordings timed steps before a profiler was attached: the times are medians of those steps. False:
    /// means of the recorded (or replayed) steps.
    pub timed_without_profiler: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct Change {
    pub name: String,
    pub unit: Unit,
    pub before: f64,
    pub after: f64,
    pub relative: Option<f64>,
    /// 95% interval of `relative` over steps, if the figure is known for each step.
    pub interval: Option<[f64; 2]>,
}

/// The unit of a figure, for readable output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    Seconds,
    Bytes,
    Share,
    Count,
}

/// The result of a limit on a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    pub limit: String,
    pub result: Answer,
    /// The relative change; `None` if the figure is new, or in neither trace.
    pub relative: Option<f64>,
    /// Its 95% interval over steps; `None` for counts, which are not timed.
    pub interval: Option<[f64; 2]>,
    /// Why the limit cannot be decided, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// The whole interval is within the limit.
    Pass,
    /// The whole interval is beyond the limit.
    Fail,
    /// The interval contains the limit, or there is no interval.
    Undecided,
}
