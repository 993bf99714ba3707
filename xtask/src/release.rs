//! `cargo xtask release --dry-run`: everything that a tag would publish, under `target/release-files`. Nothing leaves
//! the machine.

mod archive;
mod bill;
mod changelog;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::wheel::{self, Linking};
use crate::{Outcome, process};

#[derive(Args)]
pub struct Arguments {
    /// Make the files and publish nothing; there is no other way yet
    #[arg(long)]
    dry_run: bool,
    /// Cargo's profile of the binary
    #[arg(long, default_value = "dist")]
    profile: String,
    /// Link the wheel against this machine's C library instead of glibc 2.17
    #[arg(long)]
    without_zig: bool,
}

pub fn run(arguments: &Arguments) -> Result<Outcome> {
    anyhow::ensure!(arguments.dry_run, "nothing is published: add --dry-run");
    let version = env!("CARGO_PKG_VERSION");
    let commit = git(&["rev-parse", "HEAD"])?;
    let time = git(&["log", "-1", "--format=%cd", "--date=format-local:%Y-%m-%dT%H:%M:%SZ"])?;
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    let folder = empty_folder("release-files")?;

    let changes = changelog::section(&read("CHANGELOG.md")?, version)?;
    write(&folder.join(format!("headroom-{version}-changes.md")), &format!("# headroom {version}\n\n{changes}\n"))?;

    let target = host()?;
    let binary = process::build_headroom(&arguments.profile)?;
    archive::binary(&folder, &format!("headroom-{version}-{target}"), &binary)?;
    archive::source(&folder, &format!("headroom-{version}"))?;

    let metadata = cargo_metadata(&target)?;
    let subject = bill::Subject { version, commit: &commit, time: &time };
    let bill = bill::bill(&metadata, &read("Cargo.lock")?, &subject)?;
    write(&folder.join(format!("headroom-{version}-bill.cdx.json")), &format!("{bill:#}\n"))?;

    let linking = if arguments.without_zig { Linking::Machine } else { Linking::Zig };
    let wheel = wheel::build(&arguments.profile, linking)?;
    fs::copy(&wheel, folder.join(wheel.file_name().context("a wheel has a name")?))?;

    let sums = checksums(&folder)?;
    write(&folder.join("SHA256SUMS"), &sums)?;
    println!("release {version} of commit {}{}, not published:", &commit[..12], if changed { ", changed" } else { "" });
    for line in sums.lines() {
        let name = line.split_whitespace().last().unwrap_or_default();
        let bytes = fs::metadata(folder.join(name))?.len();
        println!("  {:9.2} MB  {name}", bytes as f64 / 1e6);
    }
    println!("  and SHA256SUMS, in {}", folder.display());
    Ok(Outcome::Passed)
}

/// The format that `sha256sum -c` reads, sorted by name.
fn checksums(folder: &Path) -> Result<String> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let mut text = String::new();
    for file in files {
        let name = file.file_name().context("a listed file has a name")?.to_string_lossy().into_owned();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}  {name}", digest(&fs::read(&file)?));
    }
    Ok(text)
}

/// SHA-256 in hexadecimal digits.
fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn cargo_metadata(target: &str) -> Result<Value> {
    let text = process::capture(
        "cargo",
        &[
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--filter-platform",
            target,
            "--manifest-path",
            "crates/cli/Cargo.toml",
        ],
    )?;
    serde_json::from_str(&text).context("cargo metadata wrote something other than JSON")
}

/// The platform that this machine builds for.
fn host() -> Result<String> {
    let text = process::capture("rustc", &["-vV"])?;
    let line = text.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    Ok(line.to_string())
}

fn git(arguments: &[&str]) -> Result<String> {
    let text = process::capture("git", &[&["-c", "safe.directory=*"], arguments].concat())?;
    Ok(text.trim().to_string())
}

fn empty_folder(name: &str) -> Result<PathBuf> {
    let folder = process::target_folder().join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

fn read(name: &str) -> Result<String> {
    fs::read_to_string(process::workspace_root().join(name)).with_context(|| format!("cannot read {name}"))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
