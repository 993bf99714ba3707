//! `cargo xtask kernels`: compiles every CUDA kernel with the real compiler, without a GPU.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::{Outcome, process, python};

/// Device generations to compile kernels for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generations {
    /// The oldest, Hopper and the newest: kernels distinguish no others.
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
    // The backend looks for CUDA's libraries here.
    command.env("VIRTUAL_ENV", environment);
    if generations == Generations::Ends {
        command.env("HEADROOM_TEST_GENERATIONS", "ends");
    }
    Ok(Outcome::from_success(process::succeeds(&mut command)?))
}
