//! The developer's commands: `cargo xtask ci`, `test`, `advisories`, `constants`, `fuzz`, `hooks`, `interop`, `isolation`, `kernels`, `kills`,
//! `miri`, `mutants`, `ranks`, `release`, `screenshots`, `targets`, `tidy`, `torch`, `wheel`, `workshop` and `bench`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks on its streams")]

mod advisories;
mod bench;
mod browser;
mod ci;
mod constants;
mod fuzz;
mod hooks;
mod interop;
mod isolation;
mod kernels;
mod kills;
mod marked;
mod miri;
mod mutants;
mod process;
mod python;
mod ranks;
mod release;
mod targets;
mod test;
mod tidy;
mod torch;
mod wheel;
mod workshop;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Whether the answer is yes. A command that could not find out returns an error instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Failed,
    /// It needs something that cannot be had here; said aloud, and counted.
    Skipped,
}

impl Outcome {
    pub fn from_success(success: bool) -> Outcome {
        if success { Outcome::Passed } else { Outcome::Failed }
    }
}

#[derive(Parser)]
#[command(name = "xtask", bin_name = "cargo xtask", about = "The developer's commands")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Exactly what CI runs, cheapest first
    Ci,
    /// All tests, with what they need set up on the way
    Test,
    /// The dependencies are looked up in RustSec's data base of known weaknesses
    Advisories,
    /// Each number of the diagnosis is moved by a third, and the labelled traces that are then read differently are listed
    Constants(constants::Arguments),
    /// Damaged messages, scripts, traces and checkpoints go through every reader to the last output
    Fuzz(fuzz::Arguments),
    /// Hooks, action and examples for other people's CI, run by the programs that read them
    Hooks,
    /// Real readers from Python packages open what headroom writes
    Interop {
        /// Also install torch and transformers (gigabytes) and load models both ways
        #[arg(long)]
        transformers: bool,
    },
    /// Scripts that write, detach and try to get out run under each way of isolation, and the user's tree is compared
    Isolation(isolation::Arguments),
    /// Every CUDA kernel compiles, by the real compiler and without a GPU
    Kernels,
    /// Commands that write files are killed at random moments, and nothing may be lost
    Kills(kills::Arguments),
    /// Undefined behaviour in the engine's small modules (Miri, a nightly), and the pool in every order of its threads (loom)
    Miri,
    /// Faults planted in a crate, and how many of them its own tests notice
    Mutants(mutants::Arguments),
    /// Several ranks on loopback, under Open MPI and MPICH from the Python index
    Ranks(ranks::Arguments),
    /// All that a tag would publish: archives, wheel, bill of materials, checksums; nothing is published
    Release(release::Arguments),
    /// The README's pictures of the dashboard, taken anew
    Screenshots,
    /// The command compiles for the other platforms (installs their standard libraries and a C compiler)
    Targets(targets::Arguments),
    /// Fast checks of the tree: layering, file shape, forbidden words, links
    Tidy,
    /// Real PyTorch on the CPU: scripts are measured and optimised from outside (installs gigabytes)
    Torch(torch::Arguments),
    /// The Python wheel, built, installed into a fresh environment and used there
    Wheel(wheel::Arguments),
    /// The answers on the workshop's pages, filled from stored outputs; --run stores those of this machine
    Workshop(workshop::Arguments),
    /// Headroom against its peers, taking turns in one run
    #[command(subcommand)]
    Bench(bench::Bench),
}

/// Exit codes of the `headroom` command: 1 if the answer is no, 2 for usage (clap's), 3 if the run itself failed.
fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Ci => ci::run(),
        Command::Test => test::run(),
        Command::Advisories => advisories::run(),
        Command::Constants(arguments) => constants::run(&arguments),
        Command::Fuzz(arguments) => fuzz::run(&arguments),
        Command::Hooks => hooks::run(),
        Command::Interop { transformers: false } => interop::run(interop::Readers::Small),
        Command::Interop { transformers: true } => interop::run(interop::Readers::WithTransformers),
        Command::Isolation(arguments) => isolation::run(&arguments),
        Command::Screenshots => browser::screenshots(),
        Command::Kernels => kernels::run(kernels::Generations::All),
        Command::Kills(arguments) => kills::run(&arguments),
        Command::Miri => miri::run(),
        Command::Mutants(arguments) => mutants::run(&arguments),
        Command::Ranks(arguments) => ranks::run(&arguments),
        Command::Release(arguments) => release::run(&arguments),
        Command::Targets(arguments) => targets::run(&arguments),
        Command::Tidy => tidy::run(),
        Command::Torch(arguments) => torch::run(&arguments),
        Command::Wheel(arguments) => wheel::run(&arguments),
        Command::Workshop(arguments) => workshop::run(&arguments),
        Command::Bench(bench) => bench::run(&bench),
    };
    match outcome {
        Ok(Outcome::Passed | Outcome::Skipped) => ExitCode::SUCCESS,
        Ok(Outcome::Failed) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(3)
        }
    }
}
