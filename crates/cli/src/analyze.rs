//! `headroom analyze TRACE…`: analyses a profiler's trace and recommends changes.

pub mod existing;
pub mod measuring;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use clap::ValueEnum;
use headroom_diagnosis::Analysis;
use headroom_diagnosis::finding::Severity;
use headroom_diagnosis::join::join;
use headroom_diagnosis::trace_rules::Thresholds;
use headroom_report::analyze::{self as formats, Invocation};
use headroom_trace::{GzipRatio, Trace};
use serde_json::json;

use crate::lint::lint_sources;
use crate::output;
use crate::shown::{Choice, Shown};
pub use measuring::{About, SeveralRuns, of_one_run, read_traces, thresholds};

/// Find what holds a run back in a profiler's trace: what sets the pace, and findings ranked by measured cost.
///
/// The text is one screen: a verdict, at most five findings with share, expected saving, line and remedy, and what to type
/// next. `--verbose` adds all findings with their evidence, the roadmap, the parts of the step and tables.
///
/// Traces of the ranks of one run (matched by recording, rank, number of ranks and time) are analyzed together, other traces one
/// by one. For several runs, `--json` prints {"runs": […]}, with each entry as for a single run.
#[derive(clap::Args)]
pub struct Arguments {
    /// Traces from PyTorch's profiler or from headroom (.json, .json.gz), or folders with one file per rank
    #[arg(required = true)]
    traces: Vec<PathBuf>,
    /// The rank to report on if there are several [default: the rank with the longest steps]
    #[arg(long, value_name = "N")]
    rank: Option<u32>,
    /// Scripts that the trace was recorded from (a folder or a file): findings then name source lines
    #[arg(long, value_name = "PATH")]
    source: Vec<PathBuf>,
    #[command(flatten)]
    shown: Shown<Format>,
    /// All findings with their evidence, the roadmap, the parts of the step, operators and kernels
    #[arg(long)]
    verbose: bool,
    /// Exit with 1 if a finding is at least this severe
    #[arg(long, value_enum)]
    fail_on: Option<FailOn>,
    /// Threshold at which a rule fires: TR104=5%, TR113.roof-percent=20%; repeatable. Also `thresholds` in the configuration
    #[arg(long, value_name = "RULE=VALUE")]
    threshold: Vec<String>,
    /// Milliseconds per step without the profiler, if known
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

impl Choice for Format {
    const JSON: Format = Format::Json;
    const USUAL: &'static str = "text";
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
    let about =
        About { rank: arguments.rank, step_without_profiler: arguments.step_without_profiler, ..About::default() };
    let runs = SeveralRuns::of(traces)?;
    ensure!(
        runs.traces.len() == 1 || about.step_without_profiler.is_none(),
        "--step-without-profiler applies to one run, and these traces come from {} runs ({})\n  help: analyze each on its own",
        runs.traces.len(),
        runs.why.join("; ")
    );
    let analyses = runs.measured(&arguments.source, about, &thresholds)?;
    let asked = Invocation {
        traces: as_typed(&arguments.traces),
        has_source: !arguments.source.is_empty(),
        is_verbose: arguments.verbose,
    };
    print(&analyses, &runs.why, arguments.shown.format(), &asked)?;
    Ok(exit_code(&analyses, arguments.fail_on))
}

/// Prints one analysis as it is, or several in turn with the differences between their runs.
pub fn print(analyses: &[Analysis], why: &[String], format: Format, asked: &Invocation) -> Result<()> {
    let text = |analysis: &Analysis| match asked.is_verbose {
        true => formats::everything(analysis),
        false => formats::answer(analysis),
    };
    if let [analysis] = analyses {
        return Ok(match format {
            Format::Text => output::text(&(text(analysis) + &formats::next_steps(analysis, asked))),
            _ => output::result(&show(analysis, format)),
        }?);
    }
    let count = analyses.len();
    let why = why.join("; ");
    match format {
        Format::Text => {
            output::text(&format!("{count} runs, each analyzed on its own: {why}\n"))?;
            analyses.iter().try_for_each(|analysis| output::text(&format!("\n{}", text(analysis))))?;
        }
        Format::Markdown => {
            output::result(&format!("{count} runs, each analyzed on its own: {why}\n"))?;
            analyses.iter().try_for_each(|one| output::result(&format!("\n{}", formats::markdown(one))))?;
        }
        Format::Json => {
            let runs: Vec<_> = analyses.iter().map(formats::value).collect();
            output::result(&format!("{:#}\n", json!({ "schema_version": 1, "apart": why, "runs": runs })))?;
        }
        Format::Html => bail!(
            "--format html makes a page of one run, and these traces come from {count} runs ({why})\n  help: analyze each on its \
             own"
        ),
    }
    Ok(())
}

/// Paths as a shell takes them.
pub fn as_typed(paths: &[PathBuf]) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+=,@%:".contains(letter);
    let quoted = |path: &PathBuf| match path.to_string_lossy() {
        plain if !plain.is_empty() && plain.chars().all(is_plain) => plain.into_owned(),
        other => format!("'{}'", other.replace('\'', "'\\''")),
    };
    paths.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Reads and measures the traces, and joins the findings with the source.
pub fn analysis_of(paths: &[PathBuf], source: &[PathBuf], thresholds: Thresholds) -> Result<Analysis> {
    measured(&read_traces(paths, GzipRatio::Usual)?, source, About::default(), thresholds)
}

/// Measures the traces and joins the findings with the source.
pub fn measured(traces: &[Trace], source: &[PathBuf], about: About, thresholds: Thresholds) -> Result<Analysis> {
    let mut analysis = measuring::measured(traces, about, thresholds)?;
    if !source.is_empty() {
        join_with_source(&mut analysis, source)?;
    }
    Ok(analysis)
}

impl SeveralRuns {
    /// Each run's own analysis, joined with the source.
    pub fn measured(&self, source: &[PathBuf], about: About, thresholds: &Thresholds) -> Result<Vec<Analysis>> {
        self.traces.iter().map(|traces| measured(traces, source, about, thresholds.clone())).collect()
    }
}

/// Attaches findings to source lines.
pub fn join_with_source(analysis: &mut Analysis, source: &[PathBuf]) -> Result<()> {
    if let Some(missing) = source.iter().find(|path| !path.exists()) {
        bail!("--source {}: there is no such file or folder", Path::new(missing).display());
    }
    let (report, scripts) = lint_sources(source)?;
    join(&mut analysis.findings, &report, &scripts.inputs, &scripts.projects);
    Ok(())
}

pub fn show(analysis: &Analysis, format: Format) -> String {
    match format {
        Format::Text => formats::answer(analysis),
        Format::Json => formats::json(analysis),
        Format::Markdown => formats::markdown(analysis),
        Format::Html => formats::html(analysis),
    }
}

fn exit_code(analyses: &[Analysis], fail_on: Option<FailOn>) -> ExitCode {
    let least = match fail_on {
        None => return ExitCode::SUCCESS,
        Some(FailOn::Low) => Severity::Low,
        Some(FailOn::Medium) => Severity::Medium,
        Some(FailOn::High) => Severity::High,
        Some(FailOn::Critical) => Severity::Critical,
    };
    let mut findings = analyses.iter().flat_map(|analysis| &analysis.findings);
    ExitCode::from(u8::from(findings.any(|finding| finding.severity >= least)))
}
