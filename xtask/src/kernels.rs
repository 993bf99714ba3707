//! `cargo xtask kernels`: compiles every CUDA kernel with the real compiler, without a GPU.

use std::path::PathBuf;
use std::thread;

use anyhow::{Context, Result};

use crate::{Outcome, process, python};

/// Device generations to compile kernels for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generations {
    /// The oldest, Hopper and the newest: kernels distinguish no others.
    Ends,
    All,
}

/// Processes that compile: the compiler works for one thread of each at a time.
const PARTS: usize = 2;

/// The Python environment that holds the compiler.
pub fn environment() -> Result<PathBuf> {
    python::environment("nvrtc-venv", &[python::NVRTC])
}

pub fn run(generations: Generations) -> Result<Outcome> {
    let python = environment()?;
    let environment =
        python.parent().and_then(|folder| folder.parent()).context("an environment's python is in bin/")?;
    let part = |number: usize| -> Result<bool> {
        // With the features of the whole workspace, as the test suite builds it: the engine alone would be compiled again.
        let mut command =
            process::cargo(&["test", "--quiet", "--workspace", "--test", "cuda_kernels", "--", "--ignored"]);
        // The backend looks for CUDA's libraries here.
        command.env("VIRTUAL_ENV", environment).env("HEADROOM_TEST_PART", format!("{number}/{PARTS}"));
        if generations == Generations::Ends {
            command.env("HEADROOM_TEST_GENERATIONS", "ends");
        }
        process::succeeds(&mut command)
    };
    let passed = thread::scope(|scope| {
        let parts: Vec<_> = (0..PARTS).map(|number| scope.spawn(move || part(number))).collect();
        parts.into_iter().map(|part| part.join().unwrap_or(Ok(false))).collect::<Result<Vec<bool>>>()
    })?;
    Ok(Outcome::from_success(passed.into_iter().all(|passed| passed)))
}
