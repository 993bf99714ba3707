//! Embeds the commit and the platform that the command was built from.

use std::path::Path;
use std::process::Command;

/// `git archive` writes the commit into this file; in a checkout it holds a placeholder.
const ARCHIVED: &str = "commit.txt";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={ARCHIVED}");
    println!("cargo::rerun-if-env-changed=HEADROOM_COMMIT");
    let commit = given().or_else(archived).or_else(checked_out).unwrap_or_else(|| "unknown".to_string());
    println!("cargo::rustc-env=HEADROOM_COMMIT={commit}");
    println!("cargo::rustc-env=HEADROOM_TARGET={}", std::env::var("TARGET").unwrap_or_default());
}

/// The commit given by whoever builds a package outside a checkout.
fn given() -> Option<String> {
    shortened(&std::env::var("HEADROOM_COMMIT").ok()?)
}

fn archived() -> Option<String> {
    shortened(&std::fs::read_to_string(ARCHIVED).ok()?)
}

/// The commit of the checkout that contains this package. A folder inside another repository does not count.
fn checked_out() -> Option<String> {
    if !Path::new("../../.git").exists() {
        return None;
    }
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file])?;
        // A path that does not exist would rerun this script at every build.
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    shortened(&git(&["rev-parse", "HEAD"])?)
}

/// The first twelve digits, if it is a commit.
fn shortened(commit: &str) -> Option<String> {
    let commit = commit.trim();
    let is_commit = commit.len() >= 12 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_commit.then(|| commit[..12].to_string())
}

fn git(arguments: &[&str]) -> Option<String> {
    // A checkout that belongs to another user, as in a container, may still be read.
    let output = Command::new("git").args(["-c", "safe.directory=*"]).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}
