//! Chromium and its driver for the dashboard's tests, from the system's packages.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{Outcome, process};

/// Debian package names; without a font, text on a page has no width.
const PACKAGES: [&str; 3] = ["chromium", "chromium-driver", "fonts-dejavu-core"];
const PROGRAMS: [&str; 2] = ["chromium", "chromedriver"];

/// Installs what is missing. Failing to get a browser is an error: no dashboard test is skipped.
pub fn make_ready() -> Result<()> {
    let missing = || PROGRAMS.iter().any(|program| !answers(program));
    if !missing() {
        return Ok(());
    }
    install(&PACKAGES).with_context(|| format!("put {} on the path by hand", PROGRAMS.join(" and ")))?;
    if missing() {
        bail!("{} were installed and do not start", PACKAGES.join(" "));
    }
    Ok(())
}

/// Installs system packages by their Debian names.
pub fn install(packages: &[&str]) -> Result<()> {
    println!("installing {}", packages.join(" "));
    for arguments in [
        vec!["update", "--quiet"],
        [&["install", "--yes", "--quiet", "--no-install-recommends"][..], packages].concat(),
    ] {
        let mut command = as_administrator("apt-get");
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        if !process::succeeds(&mut command).unwrap_or(false) {
            bail!("apt-get could not install {}", packages.join(" "));
        }
    }
    Ok(())
}

/// Takes the README's pictures again.
pub fn screenshots() -> Result<Outcome> {
    make_ready()?;
    for (test, filter) in [("dashboard", "screenshots"), ("command_line", "the_picture_of_analyze")] {
        let mut command = process::cargo(&["test", "--package", "headroom-cli", "--test", test, filter]);
        command.env("HEADROOM_SCREENSHOTS", process::workspace_root().join("docs/pictures"));
        if !process::succeeds(&mut command)? {
            return Ok(Outcome::Failed);
        }
    }
    Ok(Outcome::Passed)
}

/// The browser's own version string.
pub fn version() -> String {
    process::capture(PROGRAMS[0], &["--version"]).map_or_else(|_| "unknown".into(), |text| text.trim().to_string())
}

fn answers(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn as_administrator(program: &str) -> Command {
    // Containers run as root and have no sudo.
    if process::capture("id", &["-u"]).is_ok_and(|user| user.trim() == "0") {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    command.arg(program);
    command
}
