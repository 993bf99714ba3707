//! `headroom lint PATH…`: training scripts and what in them costs time at every step.

mod configuration;
mod discovery;

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use headroom_diagnosis::finding::Severity;
use headroom_diagnosis::join::{join, measure};
use headroom_diagnosis::source::fix::Safety;
use headroom_diagnosis::source::{Input, Repaired, Selection, SourceReport, check_stack, lint, repair};
use headroom_record::replace::{recover, replace_file};
use headroom_report::lint as formats;

use crate::failure::RunFailed;
use crate::output::{self, note};
use discovery::Scripts;

pub use configuration::Configuration;

/// Find bottlenecks in PyTorch training scripts, and fix them.
#[derive(clap::Args)]
pub struct Arguments {
    /// Files and folders; `-` reads one script from standard input. The current folder if none is given.
    paths: Vec<PathBuf>,
    /// How findings are shown.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Apply fixes that keep the meaning.
    #[arg(long)]
    fix: bool,
    /// With --fix or --diff: also apply fixes that may change results; each rule's page says how.
    #[arg(long)]
    unsafe_fixes: bool,
    /// Show what the fixes would change, and change nothing.
    #[arg(long)]
    diff: bool,
    /// Exit with 1 if a finding is at least this severe.
    #[arg(long, value_enum)]
    fail_on: Option<FailOn>,
    /// Only these rules: codes (TP101), groups (TP1), names, or all; separated by commas.
    #[arg(long, value_delimiter = ',')]
    select: Vec<String>,
    /// Not these rules.
    #[arg(long, value_delimiter = ',')]
    ignore: Vec<String>,
    /// The name that findings show for standard input.
    #[arg(long, default_value = "stdin.py", value_name = "PATH")]
    stdin_filename: String,
    /// A trace of the scripts (.json, .json.gz or a folder of ranks): findings it measures say what they cost
    #[arg(long, value_name = "TRACE", conflicts_with_all = ["fix", "diff"])]
    trace: Vec<PathBuf>,
    /// A pyproject.toml or headroom.toml to use in place of the nearest one.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Read no configuration file.
    #[arg(long, conflicts_with = "config")]
    no_config: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
    Sarif,
    Github,
    Markdown,
}

#[derive(Clone, Copy, PartialEq, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailOn {
    Low,
    Medium,
    High,
    Critical,
    Never,
}

pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let paths = if arguments.paths.is_empty() { vec![PathBuf::from(".")] } else { arguments.paths.clone() };
    let from_stdin = paths.iter().any(|path| path == Path::new("-"));
    if from_stdin && paths.len() > 1 {
        bail!("`-` reads one script from standard input: give it alone");
    }
    check_threads()?;
    let configuration = configuration(&arguments, &paths)?;
    let selection = selection(&arguments, &configuration)?;
    let scripts = if from_stdin {
        Scripts { files: vec![], inputs: vec![standard_input(&arguments.stdin_filename)?] }
    } else {
        discovery::read(&paths, &configuration.exclude)?
    };
    let inputs = &scripts.inputs;
    let least = if arguments.unsafe_fixes { Safety::Unsafe } else { Safety::Safe };
    let report = if arguments.fix || arguments.diff {
        let repairs = repair(inputs, &selection, least);
        if arguments.diff {
            let shown = repairs.files.iter().map(|file| formats::difference(&file.path, &file.before, &file.after));
            output::exactly(&shown.collect::<String>())?;
            return Ok(ExitCode::SUCCESS);
        }
        write(&repairs.files, &scripts)?;
        let files = repairs.files.len();
        note(&format!("{} fixed in {files} {}", repairs.applied.len(), if files == 1 { "file" } else { "files" }));
        repairs.remaining
    } else {
        let mut report = lint(inputs, &selection);
        if !arguments.trace.is_empty() {
            measure_with(&mut report, &arguments.trace, inputs)?;
        }
        report
    };
    if from_stdin && arguments.fix {
        // Standard output carries the fixed script: findings go to stderr.
        note(formats::text(&report).trim_end());
    } else {
        output::result(&show(&report, arguments.format))?;
    }
    Ok(exit_code(&report, arguments.fail_on.or(configuration.fail_on)))
}

/// What the traces say of the findings.
fn measure_with(report: &mut SourceReport, traces: &[PathBuf], inputs: &[Input]) -> Result<()> {
    let mut analysis = crate::analyze::analysis_of(traces, &[], None, crate::analyze::thresholds(&[])?)?;
    join(&mut analysis.findings, report, inputs);
    measure(report, &analysis.findings);
    for note_of_trace in &analysis.trust.notes {
        note(&format!("reserve: {note_of_trace}"));
    }
    Ok(())
}

/// The scripts at `paths`, as the settings of the first choose them.
pub fn read_sources(paths: &[PathBuf]) -> Result<Vec<Input>> {
    check_threads()?;
    let configuration = Configuration::nearest(&paths[0])?;
    Ok(discovery::read(paths, &configuration.exclude)?.inputs)
}

/// Deep trees need deep stacks, and a process may have too little memory for one.
fn check_threads() -> Result<()> {
    check_stack().map_err(|error| {
        let help = "free memory, or raise this process's limit (ulimit -v)";
        RunFailed(format!("cannot start a thread to read scripts with: {error}\n  help: {help}")).into()
    })
}

fn configuration(arguments: &Arguments, paths: &[PathBuf]) -> Result<Configuration> {
    match &arguments.config {
        Some(file) => Configuration::read(file),
        None if arguments.no_config => Ok(Configuration::default()),
        None => Configuration::nearest(&paths[0]),
    }
}

/// The command line's choice of rules; where it makes none, the configuration's.
fn selection(arguments: &Arguments, configuration: &Configuration) -> Result<Selection> {
    let select = if arguments.select.is_empty() { &configuration.select } else { &arguments.select };
    let ignore: Vec<String> = arguments.ignore.iter().chain(&configuration.ignore).cloned().collect();
    let per_path: Vec<(String, Vec<String>)> = configuration.per_path().collect();
    Ok(Selection::new(select, &ignore, &per_path)?)
}

fn standard_input(name: &str) -> Result<Input> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes).context("cannot read standard input")?;
    Ok(Input { path: name.to_string(), bytes })
}

/// Each file to the place it was read from, whatever its name; a script from standard input goes to standard output.
fn write(repaired: &[Repaired], scripts: &Scripts) -> Result<()> {
    let Scripts { files, inputs } = scripts;
    if files.is_empty() {
        for script in repaired {
            output::exactly(&script.after)?;
        }
        return Ok(());
    }
    let folders: BTreeSet<&Path> = repaired.iter().map(|script| folder_of(&files[script.input])).collect();
    for copy in folders.into_iter().flat_map(recover) {
        note(&format!(
            "warning: an earlier fix was cut short; {} holds the text before it\n  help: compare it with the file of that \
             name, and remove it",
            copy.display()
        ));
    }
    for script in repaired {
        let path = &files[script.input];
        let now = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        if now != inputs[script.input].bytes {
            bail!(
                "{} was changed while it was being fixed: it is left as it is\n  help: run the command again",
                path.display()
            );
        }
        replace_file(path, script.after.as_bytes())?;
    }
    Ok(())
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn show(report: &SourceReport, format: Format) -> String {
    match format {
        Format::Text => formats::text(report),
        Format::Json => formats::json(report),
        Format::Sarif => formats::sarif(report),
        Format::Github => formats::github(report),
        Format::Markdown => formats::markdown(report),
    }
}

fn exit_code(report: &SourceReport, fail_on: Option<FailOn>) -> ExitCode {
    let least = match fail_on {
        None | Some(FailOn::Never) => return ExitCode::SUCCESS,
        Some(FailOn::Low) => Severity::Low,
        Some(FailOn::Medium) => Severity::Medium,
        Some(FailOn::High) => Severity::High,
        Some(FailOn::Critical) => Severity::Critical,
    };
    ExitCode::from(u8::from(report.findings.iter().any(|finding| finding.severity >= least)))
}
