//! The `headroom` command: arguments in, results on stdout, progress on stderr, an exit code that means something.

mod completions;
mod device;
mod explain;
mod failure;
mod kept;
mod lint;
mod output;
mod profile;
mod race;
mod train;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// How far a training run is from what the hardware allows, why, and the fix proven.
#[derive(Parser)]
#[command(name = "headroom", version, propagate_version = true, max_term_width = 120)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train a LLaMA and say how fast it went
    Train(Box<train::Arguments>),
    /// Train with everything recorded: the whole run folder and a report
    Profile(Box<train::Arguments>),
    /// Measure what this machine can do, and keep it
    Device(device::Arguments),
    Lint(lint::Arguments),
    Explain(explain::Arguments),
    /// Print a completion script for a shell
    Completions(completions::Arguments),
    /// Answer timing requests on standard input (for benchmarks)
    #[command(hide = true)]
    Race(race::Arguments),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Train(arguments) => train::run(*arguments),
        Command::Profile(arguments) => profile::run(*arguments),
        Command::Device(arguments) => device::run(arguments),
        Command::Lint(arguments) => lint::run(arguments),
        Command::Explain(arguments) => explain::run(arguments),
        Command::Completions(arguments) => completions::run(arguments),
        Command::Race(arguments) => race::run(arguments),
    };
    done.unwrap_or_else(|error| failure::report(&error))
}
