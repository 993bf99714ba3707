//! `cargo xtask bench`: Headroom against its peers, alternating in one run, with ratios and gates.

mod contestant;
pub mod cpu;
pub mod dashboard;
pub mod lint;
mod machine;
mod race;
mod report;
mod statistics;
pub mod trace;

use anyhow::Result;
use clap::Subcommand;

use crate::Outcome;

/// One variant a bench and what it asks for.
#[derive(Subcommand)]
pub enum Bench {
    /// Training on the CPU, against PyTorch
    Cpu(cpu::Options),
    /// The dashboard's timeline with half a million events, in Chromium
    Dashboard(dashboard::Options),
    /// Linting a tree of scripts, against TorchFix
    Lint(lint::Options),
    /// Reading and measuring a large trace, against the Python tools
    Trace(trace::Options),
}

pub fn run(bench: &Bench) -> Result<Outcome> {
    match bench {
        Bench::Cpu(options) => cpu::run(options),
        Bench::Dashboard(options) => dashboard::run(options),
        Bench::Lint(options) => lint::run(options),
        Bench::Trace(options) => trace::run(options),
    }
}
