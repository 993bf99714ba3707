//! `cargo xtask workshop`: fills the answers on the workshop's pages from stored outputs; `--run` stores this machine's
//! outputs first.
//!
//! `xtask/workshop/run.py` runs the commands and needs only Python, so it also works where Rust is not installed.

pub mod pages;
#[cfg(all(test, unix))]
mod runner_tests;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{Outcome, process, python};

#[derive(clap::Args)]
pub struct Arguments {
    /// Run the pages' commands on this machine and store what they print
    #[arg(long)]
    run: bool,
    /// The result file to write: `h200` also adds `--device cuda` to the commands
    #[arg(long, requires = "run", default_value = "cpu", value_parser = pages::MACHINES)]
    machine: String,
    /// The binary to run [default: built with the profile release]
    #[arg(long, requires = "run", value_name = "BIN")]
    headroom: Option<PathBuf>,
    /// Also run the blocks that need PyTorch, with this Python
    #[arg(long, requires = "run", value_name = "PYTHON")]
    torch: Option<PathBuf>,
    /// Run this page alone (6-pytorch); the result file keeps the outputs of the others
    #[arg(long, requires = "run", value_name = "PAGE")]
    only: Vec<String>,
    /// Seconds that one command may take
    #[arg(long, requires = "run", default_value_t = 600, value_name = "SECONDS")]
    timeout: u32,
    /// Work in this folder and leave the runs there [default: a temporary folder, removed]
    #[arg(long, requires = "run", value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<Outcome> {
    let ran = if arguments.run { store(arguments)? } else { Outcome::Passed };
    let written = write_answers()?;
    Ok(Outcome::from_success(ran == Outcome::Passed && written == Outcome::Passed))
}

/// Runs the commands; outputs are stored even if a command fails.
fn store(arguments: &Arguments) -> Result<Outcome> {
    let headroom = match &arguments.headroom {
        Some(binary) => binary.clone(),
        None => process::build_headroom("release")?,
    };
    let out = format!("{}{}.json", pages::RESULTS, arguments.machine);
    let mut command = Command::new(python::plain()?);
    command.current_dir(process::workspace_root()).arg("xtask/workshop/run.py");
    command.arg("--headroom").arg(headroom).args(["--machine", &arguments.machine, "--out", &out]);
    command.args(["--timeout", &arguments.timeout.to_string()]);
    command.args(arguments.only.iter().flat_map(|page| ["--only", page]));
    for (flag, path) in [("--torch", &arguments.torch), ("--folder", &arguments.folder)] {
        if let Some(path) = path {
            command.arg(flag).arg(path);
        }
    }
    Ok(Outcome::from_success(process::succeeds(&mut command)?))
}

/// Rewrites every page with stale answers, and names the answers that cannot be filled.
fn write_answers() -> Result<Outcome> {
    let root = process::workspace_root();
    let mut results = pages::Results::default();
    for machine in pages::MACHINES {
        let path = root.join(format!("{}{machine}.json", pages::RESULTS));
        if let Ok(text) = std::fs::read_to_string(&path) {
            results.add(machine, &text).with_context(|| format!("cannot use {}", path.display()))?;
        }
    }
    let mut read = vec![];
    for entry in std::fs::read_dir(root.join(pages::FOLDER)).context("cannot list the pages")? {
        let path = entry.context("cannot list the pages")?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            read.push((path, text));
        }
    }
    read.sort();
    let commands: BTreeSet<&str> = read.iter().flat_map(|(_, text)| pages::commands(text)).collect();
    let (mut rewritten, mut problems) = (0, 0);
    for (path, text) in &read {
        let filled = pages::fill(text, &results, &commands);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        for (line, message) in &filled.problems {
            println!("{}{name}:{line}: {message}", pages::FOLDER);
        }
        problems += filled.problems.len();
        if filled.text != *text {
            std::fs::write(path, &filled.text).with_context(|| format!("cannot write {}", path.display()))?;
            rewritten += 1;
        }
    }
    println!("workshop: {rewritten} of {} pages rewritten, {problems} answers to mend", read.len());
    Ok(Outcome::from_success(problems == 0))
}
