//! `cargo xtask ci`: exactly what CI runs, cheapest first, stopping at the first failure.

use std::thread;
use std::time::Instant;

use anyhow::Result;

use crate::{Outcome, advisories, fuzz, hooks, interop, isolation, kernels, process, ranks, test, tidy, torch, wheel};

type Stage = fn() -> Result<Outcome>;

const STAGES: &[(&str, Stage)] = &[
    ("fmt", || process::run_cargo(&["fmt", "--all", "--check"])),
    ("tidy", tidy::run),
    ("advisories", advisories::run),
    ("clippy", || process::run_cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])),
    ("doc", documentation_builds),
    ("test", test::unit_and_integration),
    ("doc tests", test::documentation),
    ("fuzz", || fuzz::run(&fuzz::Arguments::default())),
    ("isolation", || isolation::run(&isolation::Arguments::default())),
    ("kernels", || kernels::run(kernels::Generations::All)),
    ("ranks", || ranks::run(&ranks::Arguments::default())),
    ("interop", || interop::run(interop::Readers::Small)),
    ("wheel", || wheel::run(&wheel::Arguments::default())),
    ("hooks", hooks::run),
    ("torch", || torch::run(&torch::Arguments { wheel: true })),
];

/// The first stage that needs a Python package.
const FIRST_WITH_PACKAGES: &str = "kernels";

pub fn run() -> Result<Outcome> {
    let begin = Instant::now();
    let mut arriving = Some(thread::spawn(install_packages));
    let mut skipped: Vec<&str> = vec![];
    for (name, stage) in STAGES {
        if *name == FIRST_WITH_PACKAGES {
            arriving.take().map(thread::JoinHandle::join);
        }
        println!("== {name}");
        let stage_begin = Instant::now();
        let outcome = stage()?;
        let seconds = stage_begin.elapsed().as_secs_f64();
        if outcome == Outcome::Skipped {
            skipped.push(*name);
            println!("== {name} SKIPPED after {seconds:.1} s");
            continue;
        }
        if outcome == Outcome::Failed {
            println!("== {name} failed after {seconds:.1} s; ci ran {:.1} s", begin.elapsed().as_secs_f64());
            return Ok(Outcome::Failed);
        }
        println!("== {name} passed in {seconds:.1} s");
    }
    let passed = STAGES.len() - skipped.len();
    let skipped = if skipped.is_empty() { String::new() } else { format!(", SKIPPED: {}", skipped.join(", ")) };
    println!("== ci passed: {passed} stages in {:.1} s{skipped}", begin.elapsed().as_secs_f64());
    Ok(Outcome::Passed)
}

/// Installs Python packages while cargo compiles. What fails here is repeated by the stage that needs it, and reported there.
fn install_packages() {
    let _ = kernels::environment();
    let _ = ranks::environments();
    let _ = interop::make_ready(interop::Readers::Small);
    let _ = torch::python_with_torch();
}

fn documentation_builds() -> Result<Outcome> {
    let mut command = process::cargo(&["doc", "--workspace", "--no-deps", "--document-private-items", "--quiet"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    Ok(Outcome::from_success(process::succeeds(&mut command)?))
}
