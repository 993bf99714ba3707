//! `cargo xtask kernels`: every CUDA kernel compiles, by the real compiler and without a GPU.

use anyhow::{Context, Result};

use crate::{Outcome, process, python};

pub fn run() -> Result<Outcome> {
    let python = python::environment("nvrtc-venv", &[python::NVRTC])?;
    let environment =
        python.parent().and_then(|folder| folder.parent()).context("an environment's python is in bin/")?;
    let mut command =
        process::cargo(&["test", "--quiet", "-p", "headroom-engine", "--test", "cuda_kernels", "--", "--ignored"]);
    // Where the backend looks for CUDA's libraries.
    command.env("VIRTUAL_ENV", environment);
    Ok(Outcome::from_success(process::succeeds(&mut command)?))
}
