//! Where the workspace is, and running other programs in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The folder that holds the workspace's Cargo.toml.
pub fn workspace_root() -> PathBuf {
    // Cargo sets the variable when it runs us; the compiled-in folder serves a binary started by hand.
    let manifest_folder =
        std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let manifest_folder = PathBuf::from(manifest_folder);
    manifest_folder
        .parent()
        .map(Path::to_path_buf)
        .unwrap_or(manifest_folder)
}

/// What `program` writes to standard output; an error when it cannot be started or does not exit with 0.
pub fn capture(program: &str, arguments: &[&str]) -> Result<String> {
    let spelled = format!("{program} {}", arguments.join(" "));
    let output = Command::new(program)
        .args(arguments)
        .current_dir(workspace_root())
        .output()
        .with_context(|| format!("cannot start `{spelled}`"))?;
    if !output.status.success() {
        bail!(
            "`{spelled}` ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("`{spelled}` wrote something other than UTF-8"))
}
