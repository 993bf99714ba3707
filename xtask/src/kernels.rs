//! `cargo xtask kernels`: every CUDA kernel compiles, by the real compiler and without a GPU.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::{Outcome, process, python};

/// Generations of devices that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generations {
    /// The oldest, Hopper and the newest: all that kernels tell apart.
    Ends,
    All,
}

/// The Python environment that holds the compiler.
pub fn environment() -> Result<PathBuf> {
    python::environment("nvrtc-venv", &[python::NVRTC])
}

pub fn run(generations: Generations) -> Result<Outcome> {
    let python = environment()?;
    let environment =
        python.parent().and_then(|folder| folder.parent()).context("an environment's python is in bin/")?;
    let mut command =
        process::cargo(&["test", "--quiet", "-p", "headroom-engine", "--test", "cuda_kernels", "--", "--ignored"]);
    // Where the backend looks for CUDA's libraries.
    command.env("VIRTUAL_ENV", environment);
    if generations == Generations::Ends {
        command.env("HEADROOM_TEST_GENERATIONS", "ends");
    }
    Ok(Outcome::from_success(process::succeeds(&mut command)?))
}
