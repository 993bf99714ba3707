//! The location of the workspace, and running other programs in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::Outcome;

/// The folder that holds the workspace's Cargo.toml.
pub fn workspace_root() -> PathBuf {
    // Cargo sets the variable when it runs us; the compiled-in folder is for a binary started by hand.
    let manifest_folder = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let manifest_folder = PathBuf::from(manifest_folder);
    manifest_folder.parent().map(Path::to_path_buf).unwrap_or(manifest_folder)
}

/// Returns the standard output of `program`; an error if it cannot be started or does not exit with 0.
pub fn capture(program: &str, arguments: &[&str]) -> Result<String> {
    let spelled = format!("{program} {}", arguments.join(" "));
    let output = Command::new(program)
        .args(arguments)
        .current_dir(workspace_root())
        .output()
        .with_context(|| format!("cannot start `{spelled}`"))?;
    if !output.status.success() {
        bail!("`{spelled}` ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{spelled}` wrote something other than UTF-8"))
}

/// Whether `command` exits with 0; its output goes straight to our streams.
pub fn succeeds(command: &mut Command) -> Result<bool> {
    let status = command.status().with_context(|| format!("cannot start `{}`", spell(command)))?;
    Ok(status.success())
}

/// A cargo command in the workspace, with the cargo that runs us.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(workspace_root());
    command
}

/// Runs a cargo command in the workspace.
pub fn run_cargo(arguments: &[&str]) -> Result<Outcome> {
    Ok(Outcome::from_success(succeeds(&mut cargo(arguments))?))
}

/// Builds the `headroom` binary under one of cargo's profiles and returns its path.
pub fn build_headroom(profile: &str) -> Result<PathBuf> {
    let arguments = ["build", "--quiet", "--package", "headroom-cli", "--profile", profile];
    if run_cargo(&arguments)? == Outcome::Failed {
        bail!("headroom does not build");
    }
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(target_folder().join(folder).join(format!("headroom{}", std::env::consts::EXE_SUFFIX)))
}

/// The folder that cargo builds into.
pub fn target_folder() -> PathBuf {
    let folder = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    workspace_root().join(folder)
}

/// The command as one would type it.
pub fn spell(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
