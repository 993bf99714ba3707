//! `cargo xtask wheel`: the Python wheel with the binary, and a fresh environment that uses it.
//!
//! maturin packs what cargo builds for `pyproject.toml`; the binary itself writes the man pages and
//! completions that are packed beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::{Outcome, process, python};

/// maturin packs this folder, as `pyproject.toml` says.
const DATA: &str = "crates/cli/wheel-data/data";

#[derive(Args)]
pub struct Arguments {
    /// Cargo's profile: `dev` for the binary that tests use, `dist` for one that is given away
    #[arg(long, default_value = "dev")]
    profile: String,
    /// Link against glibc 2.17 by zig's linker, so that the wheel runs on every Linux of the last ten years
    #[arg(long)]
    zig: bool,
}

impl Default for Arguments {
    fn default() -> Arguments {
        Arguments { profile: "dev".into(), zig: false }
    }
}

/// Builds the wheel, installs it and uses it from there.
pub fn run(arguments: &Arguments) -> Result<Outcome> {
    let linking = if arguments.zig { Linking::Zig } else { Linking::Machine };
    let wheel = match (arguments.profile.as_str(), linking) {
        ("dev", Linking::Machine) => built()?,
        (profile, linking) => build(profile, linking)?,
    };
    println!(
        "wheel: {} ({:.1} MB)",
        wheel.file_name().unwrap_or_default().display(),
        fs::metadata(&wheel)?.len() as f64 / 1e6
    );
    let begin = Instant::now();
    let fresh = Fresh::with(&wheel)?;
    fresh.check()?;
    println!("wheel: installed and used in {:.1} s", begin.elapsed().as_secs_f64());
    let begin = Instant::now();
    Fresh::from_sources()?.check()?;
    println!("wheel: `pip install .` and used in {:.1} s", begin.elapsed().as_secs_f64());
    Ok(Outcome::Passed)
}

/// The C library that the binary is linked against.
#[derive(Clone, Copy, PartialEq)]
pub enum Linking {
    /// This machine's C library: the tag says which glibc it needs.
    Machine,
    /// An old C library, through zig.
    Zig,
}

/// Builds the wheel as the only file under `target/wheels`.
pub fn build(profile: &str, linking: Linking) -> Result<PathBuf> {
    write_data(&process::build_headroom(profile)?)?;
    let folder = process::target_folder().join("wheels");
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    let mut packages = vec![python::MATURIN];
    if linking == Linking::Zig {
        packages.push(python::ZIG);
    }
    let python = python::environment(if linking == Linking::Zig { "zig-venv" } else { "wheel-venv" }, &packages)?;
    let mut command = Command::new(&python);
    command.current_dir(process::workspace_root());
    command.args(["-m", "maturin", "build", "--quiet", "--locked"]);
    command.args(["--profile", profile, "--out"]).arg(&folder);
    match linking {
        Linking::Machine => {}
        Linking::Zig => {
            command.args(["--zig", "--compatibility", "manylinux2014"]);
        }
    }
    ensure!(process::succeeds(&mut command)?, "maturin could not build the wheel");
    only_wheel()
}

/// The wheel with the binary that tests use; rebuilt only if the binary is newer.
pub fn built() -> Result<PathBuf> {
    let binary = process::build_headroom("dev")?;
    let made = |path: &Path| fs::metadata(path).and_then(|about| about.modified()).ok();
    match only_wheel() {
        Ok(wheel) if made(&wheel) > made(&binary) => Ok(wheel),
        _ => build("dev", Linking::Machine),
    }
}

fn only_wheel() -> Result<PathBuf> {
    let folder = process::target_folder().join("wheels");
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let is_wheel = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "whl");
    let mut wheels: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_wheel).collect();
    match (wheels.pop(), wheels.pop()) {
        (Some(wheel), None) => Ok(wheel),
        _ => bail!("{} does not hold one wheel", folder.display()),
    }
}

/// Man pages and completions, written by the binary.
fn write_data(headroom: &Path) -> Result<()> {
    let data = process::workspace_root().join(DATA);
    let mut command = Command::new(headroom);
    command.arg("pages").arg(&data);
    ensure!(process::succeeds(&mut command)?, "headroom wrote no man pages");
    Ok(())
}

/// A new environment that holds headroom and nothing else.
pub struct Fresh {
    folder: PathBuf,
}

impl Fresh {
    pub fn with(wheel: &Path) -> Result<Fresh> {
        // No index is used: the wheel needs no other package.
        Fresh::by(|pip| pip.arg("--no-index").arg(wheel))
    }

    /// The result of `pip install .`, compiled as tests are, so that this takes seconds.
    fn from_sources() -> Result<Fresh> {
        Fresh::by(|pip| {
            pip.env("MATURIN_PEP517_ARGS", "--profile dev --locked");
            pip.env("CARGO_TARGET_DIR", process::target_folder()).arg(process::workspace_root())
        })
    }

    fn by(what: impl FnOnce(&mut Command) -> &mut Command) -> Result<Fresh> {
        let folder = process::target_folder().join("fresh-venv");
        python::quietly(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
        let fresh = Fresh { folder };
        let mut pip = Command::new(fresh.program("python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        python::quietly(what(&mut pip))?;
        Ok(fresh)
    }

    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(if cfg!(windows) { "Scripts" } else { "bin" }).join(name)
    }

    /// Runs commands as a user with nothing but this environment, each with its expected exit code and output.
    fn check(&self) -> Result<()> {
        let version = format!("headroom {}", env!("CARGO_PKG_VERSION"));
        let checks: [(&[&str], i32, &str); 4] = [
            (&["--version"], 0, &version),
            (&["lint", "crates/cli/tests/data/slow_train/train.py", "--pedantic"], 1, "TP107"),
            (&["analyze", "crates/trace/tests/data/slow.pt.trace.json.gz"], 0, "TR103"),
            (&["explain", "TP107"], 0, "sync-per-parameter"),
        ];
        for (arguments, code, words) in checks {
            let begin = Instant::now();
            let mut command = Command::new(self.program("headroom"));
            let output = command.args(arguments).current_dir(process::workspace_root()).output()?;
            let said = String::from_utf8_lossy(&output.stdout);
            ensure!(
                output.status.code() == Some(code) && said.contains(words),
                "`{}` from the wheel ended with {} and did not say `{words}`:\n{said}{}",
                process::spell(&command),
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
            println!("wheel: headroom {} {:.2} s", arguments.join(" "), begin.elapsed().as_secs_f64());
        }
        for file in
            ["share/man/man1/headroom.1", "share/man/man1/headroom-lint.1", "share/zsh/site-functions/_headroom"]
        {
            ensure!(self.folder.join(file).is_file(), "the wheel holds no {file}");
        }
        Ok(())
    }
}
