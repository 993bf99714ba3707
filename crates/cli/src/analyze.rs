//! `headroom analyze TRACE…`: what a profiler's trace says, and what to do about it.

pub mod measuring;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::ValueEnum;
use headroom_diagnosis::Analysis;
use headroom_diagnosis::finding::Severity;
use headroom_diagnosis::join::join;
use headroom_diagnosis::trace_rules::Thresholds;
use headroom_report::analyze as formats;
use headroom_trace::{GzipRatio, Trace};

use crate::lint::lint_sources;
use crate::output;
pub use measuring::{About, read_traces, thresholds};

/// Find what holds a run back in a profiler's trace: findings ranked by measured cost, and a roadmap.
#[derive(clap::Args)]
pub struct Arguments {
    /// Traces of PyTorch's profiler or of headroom (.json, .json.gz), or folders with one file a rank
    #[arg(required = true)]
    traces: Vec<PathBuf>,
    /// The rank to report on, where there are several; else the one with the longest steps
    #[arg(long, value_name = "N")]
    rank: Option<u32>,
    /// Scripts the trace was recorded from, a folder or a file: findings get their lines
    #[arg(long, value_name = "PATH")]
    source: Vec<PathBuf>,
    /// How the result is shown
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Exit with 1 if a finding is at least this severe
    #[arg(long, value_enum)]
    fail_on: Option<FailOn>,
    /// When a rule fires: TR104=5%, TR113.roof-percent=20%; may be given again. Also `thresholds` in the configuration
    #[arg(long, value_name = "RULE=VALUE")]
    threshold: Vec<String>,
    /// Milliseconds a step takes without the profiler, if known
    #[arg(long, value_name = "MS")]
    step_without_profiler: Option<f64>,
    #[command(flatten)]
    packed: Packed,
}

/// How packed traces are read.
#[derive(clap::Args, Clone, Copy)]
pub struct Packed {
    /// Read a .json.gz even if it unpacks to more than 200 times its size
    #[arg(long)]
    allow_gz_ratio: bool,
}

impl Packed {
    pub fn ratio(self) -> GzipRatio {
        if self.allow_gz_ratio { GzipRatio::Any } else { GzipRatio::Usual }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
    Markdown,
    Html,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    Low,
    Medium,
    High,
    Critical,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let thresholds = thresholds(&arguments.threshold)?;
    let traces = read_traces(&arguments.traces, arguments.packed.ratio())?;
    let about = About { rank: arguments.rank, step_without_profiler: arguments.step_without_profiler };
    let analysis = measured(&traces, &arguments.source, about, thresholds)?;
    output::result(&show(&analysis, arguments.format))?;
    Ok(exit_code(&analysis, arguments.fail_on))
}

/// Reads, measures and joins with the source.
pub fn analysis_of(paths: &[PathBuf], source: &[PathBuf], thresholds: Thresholds) -> Result<Analysis> {
    measured(&read_traces(paths, GzipRatio::Usual)?, source, About::default(), thresholds)
}

/// Measures, and joins with the source.
pub fn measured(traces: &[Trace], source: &[PathBuf], about: About, thresholds: Thresholds) -> Result<Analysis> {
    let mut analysis = measuring::measured(traces, about, thresholds)?;
    if !source.is_empty() {
        join_with_source(&mut analysis, source)?;
    }
    Ok(analysis)
}

/// Ties findings to lines of the scripts.
pub fn join_with_source(analysis: &mut Analysis, source: &[PathBuf]) -> Result<()> {
    if let Some(missing) = source.iter().find(|path| !path.exists()) {
        bail!("--source {}: there is no such file or folder", Path::new(missing).display());
    }
    let (report, inputs) = lint_sources(source)?;
    join(&mut analysis.findings, &report, &inputs);
    Ok(())
}

pub fn show(analysis: &Analysis, format: Format) -> String {
    match format {
        Format::Text => formats::text(analysis),
        Format::Json => formats::json(analysis),
        Format::Markdown => formats::markdown(analysis),
        Format::Html => formats::html(analysis),
    }
}

fn exit_code(analysis: &Analysis, fail_on: Option<FailOn>) -> ExitCode {
    let least = match fail_on {
        None => return ExitCode::SUCCESS,
        Some(FailOn::Low) => Severity::Low,
        Some(FailOn::Medium) => Severity::Medium,
        Some(FailOn::High) => Severity::High,
        Some(FailOn::Critical) => Severity::Critical,
    };
    ExitCode::from(u8::from(analysis.findings.iter().any(|finding| finding.severity >= least)))
}
