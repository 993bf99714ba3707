//! A report on a run by headroom: a short form for the terminal, Markdown, and sections for the page of its trace.

mod markdown;
mod sections;
mod tables;
mod terminal;

pub use markdown::markdown;
pub(crate) use sections::{after, before};
pub(crate) use tables::{subtitle, title};
pub use terminal::terminal;

use headroom_diagnosis::Analysis;
use headroom_diagnosis::run::RunFigures;
use headroom_record::attribution::AttributionRecord;
use headroom_record::performance::PerformanceRecord;

pub struct Profile<'a> {
    pub analysis: &'a Analysis,
    pub run: &'a RunFigures,
    /// Facts that the run knows beyond its trace; `None` if only the trace is available.
    pub about: Option<AboutRun<'a>>,
}

#[derive(Clone, Copy)]
pub struct AboutRun<'a> {
    /// `LLaMA tiny`.
    pub name: &'a str,
    /// Passes and precision, as printed when the run starts.
    pub label: &'a str,
    pub performance: &'a PerformanceRecord,
    /// The nodes that each step updated, if the run was selective.
    pub attribution: Option<&'a AttributionRecord>,
    pub first_step_seconds: Option<f64>,
    /// Recorded steps that alternated with unrecorded ones, only to measure the cost of recording.
    pub turns: u64,
}

impl<'a> Profile<'a> {
    /// `None` if the trace is not from a headroom run.
    pub fn of(analysis: &'a Analysis, about: Option<AboutRun<'a>>) -> Option<Profile<'a>> {
        Some(Profile { analysis, run: analysis.run.as_ref()?, about })
    }

    /// First and last recorded step.
    fn steps(&self) -> (String, String) {
        let number = |name: &str| name.rsplit('#').next().unwrap_or(name).to_string();
        let list = &self.analysis.steps.list;
        let at = |step: Option<&headroom_diagnosis::measures::steps::Step>| {
            step.map_or_else(String::new, |step| number(&step.name))
        };
        (at(list.first()), at(list.last()))
    }
}

/// One page for a trace and for the run that left it.
pub fn html(profile: &Profile) -> String {
    crate::analyze::page(profile.analysis, Some(profile))
}
