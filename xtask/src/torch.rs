//! `cargo xtask torch`: real PyTorch on the CPU. The hook measures scripts unmodified and under remedies, and `headroom
//! optimize` takes a script from its first run to a patch.
//!
//! The checks are Python scripts in `xtask/torch/`: `run.py` runs them, two at a time. They take some minutes and
//! gigabytes of packages, so this is a separate stage and not part of `cargo xtask test`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::{Outcome, process, python, wheel};

/// Beside the scripts.
#[derive(Default, clap::Args)]
pub struct Arguments {
    /// Also build the wheel, install it into a fresh environment and use it there
    #[arg(long)]
    pub wheel: bool,
}

pub fn run(arguments: &Arguments) -> Result<Outcome> {
    let headroom = process::build_headroom("dev")?;
    let python = python_with_torch()?;
    let mut command = Command::new(&python);
    command.arg("xtask/torch/run.py").arg("--python").arg(&python).arg("--headroom").arg(headroom);
    if arguments.wheel {
        command.arg("--wheel").arg(wheel::built()?);
    }
    Ok(Outcome::from_success(process::succeeds(&mut command)?))
}

/// The Python of the environment in which these checks run.
pub fn python_with_torch() -> Result<PathBuf> {
    let packages = [python::NUMPY, python::TORCH, python::TRANSFORMERS, python::LIGHTNING, python::ACCELERATE];
    python::environment("torch-venv", &packages)
}
