//! `headroom completions`: scripts for the common shells.

use clap::CommandFactory;
use std::io;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Arguments {
    shell: clap_complete::Shell,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    clap_complete::generate(arguments.shell, &mut crate::Cli::command(), "headroom", &mut io::stdout());
    Ok(ExitCode::SUCCESS)
}
