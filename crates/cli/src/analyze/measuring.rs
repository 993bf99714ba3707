//! Reads traces and measures them with the configured thresholds, without their source.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use headroom_diagnosis::measures::ranks::{Runs, group_by_run};
use headroom_diagnosis::measures::trust::Unprofiled;
use headroom_diagnosis::trace_rules::Thresholds;
use headroom_diagnosis::{Analysis, Options, analyze_rank};
use headroom_sources::configuration::Configuration;
use headroom_trace::{GzipRatio, Trace};

/// Options from the command line for reading the traces.
#[derive(Clone, Copy, Debug, Default)]
pub struct About {
    pub rank: Option<u32>,
    /// Milliseconds.
    pub step_without_profiler: Option<f64>,
    /// Whether the analysis is one side of a comparison.
    pub is_compared: bool,
}

pub fn read_traces(paths: &[PathBuf], ratio: GzipRatio) -> Result<Vec<Trace>> {
    let mut traces = Vec::new();
    for path in paths {
        traces.extend(headroom_trace::read_packed(folder_of_traces(path), ratio)?);
    }
    Ok(traces)
}

/// Folders in which the course stores traces. Ours are in the run's folder itself; only a study adds the first one.
const OF_THE_COURSE: [&str; 2] = ["pytorch_profiles", "pytorch_profiling"];

fn folder_of_traces(path: &Path) -> &Path {
    let is_of_course = path.file_name().is_some_and(|name| OF_THE_COURSE.iter().any(|folder| name == *folder));
    match path.parent().filter(|parent| is_of_course && !path.exists() && parent.is_dir()) {
        Some(parent) => {
            crate::output::note(&format!("the traces of a run are in its own folder: reading {}", parent.display()));
            parent
        }
        None => path,
    }
}

/// Traces grouped by run.
pub struct SeveralRuns {
    /// Traces of one run are its ranks.
    pub traces: Vec<Vec<Trace>>,
    /// The differences between each later run and the first.
    pub why: Vec<String>,
}

impl SeveralRuns {
    pub fn of(traces: Vec<Trace>) -> Result<SeveralRuns> {
        let Runs { members, why } = group_by_run(&traces);
        let mut traces: Vec<Option<Trace>> = traces.into_iter().map(Some).collect();
        let runs: Vec<Vec<Trace>> =
            members.iter().map(|run| run.iter().filter_map(|&at| traces[at].take()).collect()).collect();
        ensure!(!runs.is_empty(), "no trace to analyze");
        Ok(SeveralRuns { traces: runs, why })
    }
}

/// Requires the traces to come from one run; `of` names their origin for the error.
pub fn one_run(traces: Vec<Trace>, of: &str) -> Result<Vec<Trace>> {
    let runs = SeveralRuns::of(traces)?;
    ensure!(
        runs.traces.len() == 1,
        "{of} holds traces of {} runs: {}\n  help: name one trace, or a folder with the ranks of one run",
        runs.traces.len(),
        runs.why.join("; ")
    );
    Ok(runs.traces.into_iter().flatten().collect())
}

/// The analysis of a trace or a folder whose traces all come from one run.
pub fn of_one_run(path: &Path, ratio: GzipRatio) -> Result<Analysis> {
    let traces = one_run(read_traces(&[path.to_path_buf()], ratio)?, &path.display().to_string())?;
    measured(&traces, About { is_compared: true, ..About::default() }, thresholds(&[])?)
}

pub fn measured(traces: &[Trace], about: About, thresholds: Thresholds) -> Result<Analysis> {
    let step_seconds = about.step_without_profiler.map(|milliseconds| milliseconds / 1e3);
    let unprofiled = Unprofiled { step_seconds, ..Unprofiled::default() };
    let options = Options { unprofiled, thresholds, sites: about.is_compared };
    let Some(analysis) = analyze_rank(traces, about.rank, &options) else {
        bail!("no trace to analyze");
    };
    if let Some(rank) = about.rank.filter(|rank| *rank != analysis.trace.rank) {
        bail!("--rank {rank}: no trace comes from that rank");
    }
    Ok(analysis)
}

/// The configured thresholds, overridden by the command line's.
pub fn thresholds(given: &[String]) -> Result<Thresholds> {
    let mut thresholds = Thresholds::default();
    let configured = Configuration::nearest(Path::new("."))?;
    for (key, value) in configured.thresholds() {
        thresholds.set_key(key, &value).context("thresholds in the configuration")?;
    }
    for text in given {
        thresholds.set(text).context("--threshold")?;
    }
    Ok(thresholds)
}
