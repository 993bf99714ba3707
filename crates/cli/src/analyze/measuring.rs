//! Reads traces and measures them by the configured thresholds, without their source.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use headroom_diagnosis::measures::trust::Unprofiled;
use headroom_diagnosis::trace_rules::Thresholds;
use headroom_diagnosis::{Analysis, Options, analyze_rank};
use headroom_trace::{GzipRatio, Trace};

use crate::lint::configuration::Configuration;

/// How the traces are to be read, by the command line.
#[derive(Clone, Copy, Debug, Default)]
pub struct About {
    pub rank: Option<u32>,
    /// Milliseconds.
    pub step_without_profiler: Option<f64>,
}

pub fn read_traces(paths: &[PathBuf], ratio: GzipRatio) -> Result<Vec<Trace>> {
    let mut traces = Vec::new();
    for path in paths {
        traces.extend(headroom_trace::read_packed(path, ratio)?);
    }
    Ok(traces)
}

pub fn measured(traces: &[Trace], about: About, thresholds: Thresholds) -> Result<Analysis> {
    let step_seconds = about.step_without_profiler.map(|milliseconds| milliseconds / 1e3);
    let unprofiled = Unprofiled { step_seconds, ..Unprofiled::default() };
    let options = Options { unprofiled, thresholds };
    let Some(analysis) = analyze_rank(traces, about.rank, &options) else {
        bail!("no trace to analyze");
    };
    if let Some(rank) = about.rank.filter(|rank| *rank != analysis.trace.rank) {
        bail!("--rank {rank}: none of the traces is of that rank");
    }
    Ok(analysis)
}

/// The configuration's, then the command line's.
pub fn thresholds(given: &[String]) -> Result<Thresholds> {
    let mut thresholds = Thresholds::default();
    let configured = Configuration::nearest(Path::new("."))?;
    for (key, value) in &configured.thresholds {
        let value = match value {
            toml::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        thresholds.set_key(key, &value).context("thresholds in the configuration")?;
    }
    for text in given {
        thresholds.set(text).context("--threshold")?;
    }
    Ok(thresholds)
}
