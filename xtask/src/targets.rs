//! `cargo xtask targets`: checks that the command compiles for the other platforms, without their machines.
//!
//! The Rust code goes through `cargo check`. The C parts (SQLite, and the stack switching of the Python parser) are
//! really compiled, with zig's C compiler from the Python index, which includes the headers of every platform.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::{Outcome, process, python};

/// Rust's and zig's name of a platform.
const TARGETS: &[(&str, &str)] = &[
    ("aarch64-unknown-linux-gnu", "aarch64-linux-gnu"),
    ("aarch64-apple-darwin", "aarch64-macos"),
    ("x86_64-pc-windows-gnu", "x86_64-windows-gnu"),
];

#[derive(Args, Default)]
pub struct Arguments {
    /// Platforms by Rust's names; all without
    names: Vec<String>,
}

pub fn run(arguments: &Arguments) -> Result<Outcome> {
    for name in &arguments.names {
        let known = TARGETS.iter().map(|(rust, _)| *rust).collect::<Vec<_>>().join(", ");
        ensure!(TARGETS.iter().any(|(rust, _)| rust == name), "{name} is not among {known}");
    }
    let python = python::environment("zig-venv", &[python::MATURIN, python::ZIG])?;
    let chosen = |rust: &str| arguments.names.is_empty() || arguments.names.iter().any(|name| name == rust);
    let mut outcome = Outcome::Passed;
    for (rust, zig) in TARGETS.iter().filter(|(rust, _)| chosen(rust)) {
        let begin = Instant::now();
        process::capture("rustup", &["target", "add", rust])
            .with_context(|| format!("the standard library of {rust} cannot be had"))?;
        let wrapper = compiler(&python, rust, zig)?;
        let mut command = process::cargo(&["check", "--quiet", "--package", "headroom-cli", "--target", rust]);
        let name = rust.replace('-', "_");
        command.env(format!("CC_{name}"), &wrapper).env(format!("AR_{name}"), archiver(&python, &wrapper)?);
        let passed = process::succeeds(&mut command)?;
        println!("{rust}: {} in {:.1} s", if passed { "compiles" } else { "FAILED" }, begin.elapsed().as_secs_f64());
        if !passed {
            outcome = Outcome::Failed;
        }
    }
    Ok(outcome)
}

/// Writes a script that acts as the platform's `cc`.
fn compiler(python: &Path, rust: &str, zig: &str) -> Result<PathBuf> {
    // Drops Rust's platform name, which the `cc` crate adds and zig does not know.
    let text = format!(
        "#!/bin/bash\nwords=()\nfor word in \"$@\"; do case $word in --target=*|-mcpu=*|-march=*) ;; *) words+=(\"$word\") ;; esac; done\n\
         exec {} -m ziglang cc -target {zig} \"${{words[@]}}\"\n",
        python.display()
    );
    script(&format!("cc-{rust}"), &text)
}

fn archiver(python: &Path, beside: &Path) -> Result<PathBuf> {
    debug_assert!(beside.is_absolute());
    script("ar", &format!("#!/bin/bash\nexec {} -m ziglang ar \"$@\"\n", python.display()))
}

fn script(name: &str, text: &str) -> Result<PathBuf> {
    let folder = process::target_folder().join("zig-scripts");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    ensure!(
        process::succeeds(Command::new("chmod").arg("+x").arg(&path))?,
        "{} cannot be made a program",
        path.display()
    );
    Ok(path)
}
