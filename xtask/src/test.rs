//! `cargo xtask test`: all tests, setting up what they need.

use std::thread;

use anyhow::Result;

use crate::{Outcome, browser, interop, kernels, process};

/// Names the program that cargo and nextest start tests with.
const RUNNER: &str = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER";

/// Runs every stage even after a failure, so that one run shows everything there is to fix.
pub fn run() -> Result<Outcome> {
    // Packages are installed while cargo compiles. A failed installation is repeated where the package is needed, and
    // reported there.
    let arriving = thread::spawn(|| {
        let _ = kernels::environment();
        let _ = interop::make_ready(interop::Readers::Small);
    });
    let tests = [unit_and_integration()?, documentation()?];
    let _ = arriving.join();
    let readers = [kernels::run(kernels::Generations::Ends)?, interop::run(interop::Readers::Small)?];
    let outcomes = [tests, readers].concat();
    Ok(Outcome::from_success(outcomes.iter().all(|outcome| *outcome == Outcome::Passed)))
}

/// Uses nextest if it is installed: it runs the tests of all crates at once and ends with one summary.
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
    let has_nextest = arguments[0] == "nextest";
    // A changed text is a failure here: snapshots are only accepted by hand, after reading the difference.
    let mut command = process::cargo(arguments);
    command.env("INSTA_UPDATE", "no");
    if has_nextest {
        // One more than there are processors, since some tests wait.
        let threads = thread::available_parallelism().map_or(2, usize::from) + 1;
        command.arg("--test-threads").arg(threads.to_string());
        command.env(RUNNER, process::workspace_root().join("xtask/one_core.sh"));
    }
    Ok(Outcome::from_success(process::succeeds(&mut command)?))
}

/// Examples in the documentation, which nextest does not run.
pub fn documentation() -> Result<Outcome> {
    process::run_cargo(&["test", "--workspace", "--doc", "--quiet"])
}
