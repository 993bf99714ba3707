//! The developer's commands: `cargo xtask tidy` and what is to come beside it.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool talks on its streams"
)]

mod process;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Whether the answer is yes. A command that could not find out returns an error instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Failed,
}

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The developer's commands")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Fast checks of the tree: layering, file shape, forbidden words, links
    Tidy,
}

/// Exit codes as the `headroom` command has them: 1 the answer is no, 2 usage (clap's), 3 the run itself failed.
fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Tidy => tidy::run(),
    };
    match outcome {
        Ok(Outcome::Passed) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(3)
        }
    }
}
