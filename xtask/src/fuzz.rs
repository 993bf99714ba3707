//! `cargo xtask fuzz`: sends damaged messages, scripts, traces and checkpoints through every reader to the last output.
//!
//! The targets are the tests named `any_bytes` in five crates: an editor's frames → messages; an agent's session →
//! answers; script → findings → fixes → parsed again; trace → analysis → text, Markdown, HTML and JSON; checkpoint →
//! weights → step. The test suite runs each for three seconds and CI for half a minute, both with fixed draws; by hand it
//! runs as long as wanted, with new draws each time. A finding is a failed test that prints its input.

use anyhow::{Context, Result};
use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::Outcome;
use crate::process::cargo;

/// Words in the test names.
const TARGETS: [&str; 5] = ["lsp", "mcp", "scripts", "traces", "checkpoints"];

#[derive(clap::Args)]
pub struct Arguments {
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Build with optimisation: many times the executions, without checks of overflow
    #[arg(long)]
    release: bool,
    /// Where the draws begin [default: by the clock]
    #[arg(long)]
    seed: Option<u64>,
    /// One of lsp, mcp, scripts, traces, checkpoints [default: all]
    #[arg(long)]
    target: Option<String>,
}

/// The settings of CI: fixed draws, so that the result depends on the change and not on luck.
impl Default for Arguments {
    fn default() -> Arguments {
        Arguments { seconds: 30, release: false, seed: Some(1), target: None }
    }
}

pub fn run(arguments: &Arguments) -> Result<Outcome> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("a clock that is before 1970")?;
    let seed = arguments.seed.unwrap_or(now.as_secs());
    let chosen = |name: &&str| arguments.target.as_deref().is_none_or(|target| target == *name);
    let targets: Vec<&str> = TARGETS.into_iter().filter(chosen).collect();
    anyhow::ensure!(!targets.is_empty(), "no such target; there are {}", TARGETS.join(", "));
    println!("{} s each, seed {seed} (again by --seed {seed})", arguments.seconds);
    let mut passed = true;
    // A target has one thread: two at a time keep two cores busy.
    for pair in targets.chunks(2) {
        let outcomes: Vec<Result<bool>> = std::thread::scope(|scope| {
            let started: Vec<_> = pair.iter().map(|target| scope.spawn(|| find(target, arguments, seed))).collect();
            started.into_iter().map(|found| found.join().unwrap_or(Ok(false))).collect()
        });
        for outcome in outcomes {
            passed &= outcome?;
        }
    }
    Ok(Outcome::from_success(passed))
}

/// Runs one target, and says whether it found nothing.
fn find(target: &str, arguments: &Arguments, seed: u64) -> Result<bool> {
    // Builds the whole workspace, as the test suite does: a single crate would be compiled again.
    let mut command = cargo(&["test", "--quiet", "--workspace", "--test", "any_bytes"]);
    command.args(arguments.release.then_some("--release")).args(["--", "--nocapture", target]);
    command.env("HEADROOM_FUZZ_SECONDS", arguments.seconds.to_string()).env("HEADROOM_FUZZ_SEED", seed.to_string());
    let output = command.stderr(Stdio::inherit()).output().context("cargo test did not start")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let counts: Vec<&str> = text.lines().filter_map(|line| line.split("executions: ").nth(1)).collect();
    let passed = output.status.success() && !counts.is_empty();
    match passed {
        true => println!("{target:<12} nothing found; executions: {}", counts.join("; ")),
        false => println!("{target:<12} FAILED\n{text}"),
    }
    Ok(passed)
}
