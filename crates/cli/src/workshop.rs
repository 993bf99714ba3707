//! `headroom workshop`: record sheets for the course of `docs/workshop`, and marks for a student's folder.

mod check;
mod course;
mod folders;
mod sheet;

use crate::output;
use crate::shown::{Plain, Shown};
use anyhow::ensure;
use clap::Subcommand;
use headroom_record::atomic::write_atomically;
use headroom_report::workshop as text;
use std::path::PathBuf;
use std::process::ExitCode;

/// The course of docs/workshop: record sheets to fill in, and marks for what a folder of runs holds.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Sheet(Sheet),
    Check(Check),
}

/// Print the record sheet of a part in Markdown: a table per step, with an empty column for your figures.
#[derive(clap::Args)]
struct Sheet {
    /// The part: 0 the model by hand, 1 baseline, 2 memory, 3 bottlenecks, 4 optimised versions, 5 K-1, 6 PyTorch
    #[arg(value_name = "PART", value_parser = clap::value_parser!(u64).range(0..=6))]
    part: u64,
    /// Fill in the figures that the runs in this folder hold
    #[arg(long, value_name = "FOLDER")]
    from: Option<PathBuf>,
    /// [default: standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    shown: Shown<Plain>,
}

/// Look at a folder of runs: for each part which runs are there, complete, as the pages ask, and whether their figures agree.
///
/// Every check that passes is a point. Runs are known by their records: one under another name is found too. Exit 1 where a
/// check fails; runs that are not there yet fail nothing.
#[derive(clap::Args)]
struct Check {
    /// The folder in which the commands were typed, its `runs` folder, or the folder of one run
    folder: PathBuf,
    #[command(flatten)]
    shown: Shown<Plain>,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.command {
        Command::Sheet(flags) => print_sheet(&flags),
        Command::Check(flags) => {
            let marks = check::marks(&flags.folder)?;
            flags.shown.print(&marks, text::marks)?;
            Ok(ExitCode::from(u8::from(marks.wrong > 0)))
        }
    }
}

fn print_sheet(flags: &Sheet) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &flags.from {
        ensure!(folder.is_dir(), "--from {} is not a folder", folder.display());
    }
    let sheet = sheet::of_part(flags.part, flags.from.as_deref())?;
    let Some(path) = &flags.output else {
        flags.shown.print(&sheet, text::sheet)?;
        return Ok(ExitCode::SUCCESS);
    };
    ensure!(!path.is_dir(), "--output {} is a folder\n  help: name a file", path.display());
    let written = match flags.shown.is_json() {
        true => serde_json::to_string_pretty(&sheet)? + "\n",
        false => text::sheet(&sheet),
    };
    write_atomically(path, written.as_bytes())?;
    output::note(&format!("the sheet of part {} is {}", flags.part, path.display()));
    Ok(ExitCode::SUCCESS)
}
