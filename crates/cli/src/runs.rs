//! `headroom runs`: lists, shows, compares, names, deletes and exports the registry's runs.

mod delete;
mod prune;

use crate::output;
use crate::registry::{Filter, Registry};
use crate::shown::{Choice, Plain, Shown};
use anyhow::ensure;
use clap::{Subcommand, ValueEnum};
use headroom_record::atomic::write_atomically;
use headroom_record::registry::change::Change;
use headroom_record::registry::{RunRow, RunStatus};
use headroom_report::runs as text;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// List and manage this user's recorded runs: every train, profile, optimize, study and scale.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List runs, newest first
    List(List),
    /// Show everything about one run
    Show(Show),
    /// Compare two or more side by side; for two, also the change in step time with its interval
    Compare(Compare),
    /// Name a run, so that others can be compared with it
    Name(Name),
    /// Forget runs; their files stay unless --with-folder says otherwise, all but what a failing script printed
    Delete(delete::Arguments),
    /// Forget runs by age, number and size, oldest first, and remove the files they wrote; named runs stay
    Prune(prune::Arguments),
    /// Export every run as JSON or CSV
    Export(Export),
}

#[derive(clap::Args)]
struct FilterArguments {
    /// train, profile, optimize, study or scale
    #[arg(long)]
    command: Option<String>,
    #[arg(long, value_enum)]
    status: Option<Status>,
    #[arg(long)]
    size: Option<String>,
    /// Runs whose list of passes contains this
    #[arg(long)]
    passes: Option<String>,
    /// The runs that this one started
    #[arg(long, value_name = "RUN")]
    parent: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Status {
    Running,
    Finished,
    Failed,
    Interrupted,
}

#[derive(clap::Args)]
struct List {
    #[command(flatten)]
    filter: FilterArguments,
    /// Number of runs, newest first; 0 is all
    #[arg(long, default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    shown: Shown<Plain>,
}

#[derive(clap::Args)]
struct Show {
    /// A number, a name, or newest
    #[arg(default_value = "newest")]
    run: String,
    #[command(flatten)]
    shown: Shown<Plain>,
}

#[derive(clap::Args)]
struct Compare {
    /// Numbers, names, or newest
    #[arg(required = true, num_args = 2..)]
    runs: Vec<String>,
    #[command(flatten)]
    shown: Shown<Plain>,
}

#[derive(clap::Args)]
struct Name {
    /// A number, a name, or newest
    run: String,
    #[arg(required_unless_present = "clear")]
    name: Option<String>,
    /// Remove its name
    #[arg(long, conflicts_with = "name")]
    clear: bool,
    #[command(flatten)]
    shown: Shown<Plain>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    Json,
    Csv,
}

impl Choice for ExportFormat {
    const JSON: ExportFormat = ExportFormat::Json;
    const USUAL: &'static str = "json";
}

#[derive(clap::Args)]
struct Export {
    #[command(flatten)]
    filter: FilterArguments,
    #[command(flatten)]
    shown: Shown<ExportFormat>,
    /// [default: standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Leave folders and command lines out
    #[arg(long)]
    redact: bool,
}

impl FilterArguments {
    fn filter(self) -> Filter {
        let status = self.status.map(|status| match status {
            Status::Running => RunStatus::Running,
            Status::Finished => RunStatus::Finished,
            Status::Failed => RunStatus::Failed,
            Status::Interrupted => RunStatus::Interrupted,
        });
        Filter {
            command: self.command,
            status,
            size: self.size,
            version: self.passes,
            parent: self.parent,
            limit: None,
        }
    }
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let registry = Registry::open()?;
    match arguments.command {
        Command::List(flags) => {
            let limit = (flags.limit > 0).then_some(flags.limit);
            let runs = registry.list(&Filter { limit, ..flags.filter.filter() })?;
            if runs.is_empty() {
                output::note(&format!("the registry is {}", registry.path().display()));
            }
            flags.shown.print(&runs, |runs| text::list(runs))?;
        }
        Command::Show(flags) => {
            let run = registry.find(&flags.run)?;
            let mut value = serde_json::to_value(&run)?;
            value["step_times"] = json!(registry.step_seconds(run.id)?);
            flags.shown.print(&value, |_| text::show(&run))?;
        }
        Command::Compare(flags) => compare(&registry, &flags)?,
        Command::Name(flags) => {
            let run = registry.find(&flags.run)?;
            registry.name(run.id, flags.name.as_deref())?;
            output::note(&match &flags.name {
                Some(name) => format!("run {} is now `{name}`", run.id),
                None => format!("run {} now has no name", run.id),
            });
            if flags.shown.is_json() {
                output::result(&format!("{:#}\n", json!({ "id": run.id, "name": flags.name })))?;
            }
        }
        Command::Delete(flags) => delete::run(&registry, &flags)?,
        Command::Prune(flags) => prune::run(&registry, &flags)?,
        Command::Export(flags) => export(&registry, flags)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(runs: &[RunRow]) -> serde_json::Result<String> {
    serde_json::to_string_pretty(runs).map(|text| text + "\n")
}

fn compare(registry: &Registry, flags: &Compare) -> anyhow::Result<()> {
    let runs = flags.runs.iter().map(|which| registry.find(which)).collect::<Result<Vec<_>, _>>()?;
    let change = match &runs[..] {
        // A predicted step has no interval.
        [old, new] if !old.is_predicted() && !new.is_predicted() => {
            Change::of(&registry.step_seconds(old.id)?, &registry.step_seconds(new.id)?)
        }
        _ => None,
    };
    flags.shown.print(&json!({ "runs": runs, "step_change": change }), |_| {
        let change = change.map(|change| format!("step {}", text::change_text(&change)));
        text::compare(&runs, change.as_deref())
    })
}

fn export(registry: &Registry, flags: Export) -> anyhow::Result<()> {
    let mut runs = registry.list(&flags.filter.filter())?;
    if flags.redact {
        for run in &mut runs {
            (run.start.folder, run.start.directory, run.error) = (None, None, None);
            run.start.command_line.truncate(0);
        }
    }
    let text = match flags.shown.format() {
        ExportFormat::Json => as_json(&runs)?,
        ExportFormat::Csv => text::csv(&runs),
    };
    match flags.output {
        Some(path) => {
            ensure!(!path.is_dir(), "--output {} is a folder\n  help: name a file", path.display());
            write_atomically(&path, text.as_bytes())?;
            output::note(&format!("{} runs written to {}", runs.len(), path.display()));
        }
        None => output::result(&text)?,
    }
    Ok(())
}
