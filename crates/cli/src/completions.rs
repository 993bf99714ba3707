//! `headroom completions`: scripts for the common shells.

use crate::output;
use clap::CommandFactory;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Arguments {
    shell: clap_complete::Shell,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut crate::Cli::command(), "headroom", &mut script);
    output::result(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
