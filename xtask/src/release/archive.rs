//! Archives: the binary with its man pages for one platform, and the sources.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process;

/// Repository files that ship with the binary.
const BESIDE: &[&str] = &["README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md"];

/// `<name>.tar.gz` with one folder of that name: `bin/headroom`, `share/` and the texts.
pub fn binary(folder: &Path, name: &str, headroom: &Path) -> Result<()> {
    let root = folder.join(name);
    fs::create_dir_all(root.join("bin"))?;
    let placed = root.join("bin").join(headroom.file_name().context("a binary has a name")?);
    fs::copy(headroom, &placed).with_context(|| format!("cannot copy {}", headroom.display()))?;
    for file in BESIDE {
        fs::copy(process::workspace_root().join(file), root.join(file))
            .with_context(|| format!("cannot copy {file}"))?;
    }
    ensure!(process::succeeds(Command::new(&placed).arg("pages").arg(&root))?, "headroom wrote no man pages");
    // Sorted names, no owner and a fixed time: the same files give the same archive.
    let time = process::capture("git", &["-c", "safe.directory=*", "log", "-1", "--format=@%ct"])?;
    let archive = format!("{name}.tar.gz");
    let mut tar = Command::new("tar");
    tar.current_dir(folder).args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.arg(format!("--mtime={}", time.trim())).args(["--use-compress-program", "gzip -n", "-cf", &archive, name]);
    ensure!(process::succeeds(&mut tar)?, "tar could not write {archive}");
    fs::remove_dir_all(root)?;
    Ok(())
}

/// Committed files, as `<name>-source.tar.gz`; its `commit.txt` says which commit that is.
pub fn source(folder: &Path, name: &str) -> Result<()> {
    let archive = folder.join(format!("{name}-source.tar.gz"));
    let mut git = Command::new("git");
    git.current_dir(process::workspace_root()).args(["-c", "safe.directory=*", "archive", "--format=tar.gz"]);
    git.arg(format!("--prefix={name}/")).arg("--output").arg(&archive).arg("HEAD");
    ensure!(process::succeeds(&mut git)?, "git could not write {}", archive.display());
    Ok(())
}
