//! `cargo xtask constants`: moves each number of the diagnosis by a third, and prints which labelled traces are then
//! read differently.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::{Outcome, process};

#[derive(clap::Args)]
pub struct Arguments {
    /// A folder of traces with a labels.tsv (a path and the accepted first findings per line); the stored traces if none
    folder: Option<PathBuf>,
    /// Move only the numbers whose names start so: TR103, norms.reached
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Build with optimizations first: for large folders
    #[arg(long)]
    release: bool,
}

pub fn run(arguments: &Arguments) -> Result<Outcome> {
    let report = process::target_folder().join("constants.tsv");
    let mut command = process::cargo(&["test", "--quiet", "-p", "headroom-diagnosis", "--test", "sensitivity"]);
    if arguments.release {
        command.arg("--release");
    }
    command.args(["--", "--ignored"]).env("HEADROOM_TEST_CONSTANTS_REPORT", &report);
    if let Some(only) = &arguments.only {
        command.env("HEADROOM_TEST_CONSTANTS", only);
    }
    if let Some(folder) = &arguments.folder {
        let folder = folder.canonicalize().with_context(|| format!("cannot read {}", folder.display()))?;
        command.env("HEADROOM_TEST_LABELLED_TRACES", folder);
    }
    if !process::succeeds(&mut command)? {
        return Ok(Outcome::Failed);
    }
    let text = std::fs::read_to_string(&report).with_context(|| format!("cannot read {}", report.display()))?;
    print!("{text}");
    Ok(Outcome::Passed)
}
