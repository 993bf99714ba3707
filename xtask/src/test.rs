//! `cargo xtask test`: all tests, with what they need set up on the way.

use anyhow::Result;

use crate::{Outcome, browser, interop, kernels, process};

/// Runs every stage even after a failure, so that one run shows all there is to mend.
pub fn run() -> Result<Outcome> {
    let outcomes = [unit_and_integration()?, documentation()?, kernels::run()?, interop::run(interop::Readers::Small)?];
    Ok(Outcome::from_success(outcomes.iter().all(|outcome| *outcome == Outcome::Passed)))
}

/// With nextest where it is installed: it runs tests of all crates at once and ends with one summary.
pub fn unit_and_integration() -> Result<Outcome> {
    browser::make_ready()?;
    let arguments: &[&str] = match process::capture("cargo", &["nextest", "--version"]) {
        Ok(_) => &[
            "nextest",
            "run",
            "--workspace",
            "--no-fail-fast",
            "--status-level",
            "fail",
            "--final-status-level",
            "fail",
        ],
        Err(_) => &["test", "--workspace", "--all-targets", "--no-fail-fast"],
    };
    // A text that changed is a failure here: snapshots are written by hand alone, and their difference read.
    let mut command = process::cargo(arguments);
    command.env("INSTA_UPDATE", "no");
    Ok(Outcome::from_success(process::succeeds(&mut command)?))
}

/// Examples in the documentation, which nextest does not run.
pub fn documentation() -> Result<Outcome> {
    process::run_cargo(&["test", "--workspace", "--doc", "--quiet"])
}
