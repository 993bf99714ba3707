//! `cargo xtask miri`: looks for undefined behaviour in the engine's small modules, and runs the pool under every order
//! of its threads.
//!
//! Not part of `ci`, since it needs a nightly toolchain with Miri and takes minutes. It covers
//!
//! - by Miri, which interprets the unit tests and reports accesses that Rust does not allow (out of bounds, misaligned,
//!   to freed memory, through an invalidated reference) and data races: `cpu::frame` (a kernel's view of the arena),
//!   `cpu::shared` (an output that several threads write), `cpu::arena` (slots and rooms), `cpu::gemm::matrix` (views),
//!   `cpu::pool` with its waiting and chunks, and the pool's own tests (`tests/pool.rs`);
//! - by loom, which runs the tests in `cpu/pool/loom_tests.rs` under every order of the threads' atomic steps (up to
//!   three preemptions of a running thread): sleeping and waking workers see a job, items are claimed once, a panic is
//!   propagated, callers take turns, a held team is released, barriers and trails order the writes.
//!
//! It does not cover kernels: Miri does not interpret their vector intrinsics, tiles and assembly. Under `cfg(miri)`
//! the arena comes from the allocator instead of `mmap`, and nothing is pinned to a CPU.

use std::process::Command;

use anyhow::{Result, bail};

use crate::Outcome;
use crate::process::{cargo, succeeds, target_folder, workspace_root};

/// The nightly whose Miri last passed. A later one may find more; this one is the same for everybody.
const NIGHTLY: &str = "nightly-2026-05-20";

/// Unit tests, by module.
const MODULES: [&str; 5] = ["cpu::frame::", "cpu::shared::", "cpu::arena::", "cpu::gemm::matrix::", "cpu::pool::"];

/// Tests of the pool that Miri cannot run: one sleeps by the clock, one counts the process's threads in `/proc`.
const SKIPPED: [&str; 2] = ["work_is_found_after_the_workers_have_gone_to_sleep", "dropping_a_pool_ends_its_threads"];

pub fn run() -> Result<Outcome> {
    let loom = loom()?;
    require_miri()?;
    let mut units = miri(&["--lib"]);
    units.args(MODULES);
    let mut pool = miri(&["--test", "pool"]);
    pool.args(SKIPPED.iter().flat_map(|test| ["--skip", test]));
    let passed = succeeds(&mut units)? && succeeds(&mut pool)?;
    Ok(Outcome::from_success(loom && passed))
}

/// Builds into a separate folder: another `--cfg` rebuilds everything.
fn loom() -> Result<bool> {
    let mut command = cargo(&["test", "--package", "headroom-engine", "--lib", "loom_tests"]);
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target_folder().join("loom"));
    succeeds(&mut command)
}

/// `cargo miri test` for the engine; the caller appends the test names.
fn miri(what: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.arg(format!("+{NIGHTLY}")).args(["miri", "test", "--package", "headroom-engine"]).args(what).arg("--");
    // The cargo that runs us must not choose the toolchain for this one.
    for variable in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN", "RUSTFLAGS"] {
        command.env_remove(variable);
    }
    // Threads may be preempted at every step, so that orders differ; time is the interpreter's own.
    command.env("MIRIFLAGS", "-Zmiri-strict-provenance -Zmiri-preemption-rate=0.05");
    command.env("CARGO_TARGET_DIR", target_folder().join("miri")).current_dir(workspace_root());
    command
}

/// Reports what is missing instead of failing somewhere later.
fn require_miri() -> Result<()> {
    let mut command = Command::new("cargo");
    command.arg(format!("+{NIGHTLY}")).args(["miri", "--version"]).env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN");
    let found = command.output();
    if found.as_ref().is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    let said =
        found.map_or_else(|error| error.to_string(), |output| String::from_utf8_lossy(&output.stderr).into_owned());
    bail!(
        "loom is done, but Miri did not run: {NIGHTLY} with the components miri and rust-src is not installed here\n  \
         {}\n  help: rustup toolchain install {NIGHTLY} --profile minimal --component miri --component rust-src",
        said.lines().next().unwrap_or_default()
    )
}
