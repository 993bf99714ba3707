//! `cargo xtask advisories`: looks the dependencies up in RustSec's data base of known weaknesses.
//!
//! The data base is a git repository that `cargo deny` fetches. Where the program or the repository cannot be had (a
//! machine without a network), the check is skipped: that is said and counted, and is not a pass.

use std::process::Stdio;

use anyhow::Result;

use crate::Outcome;
use crate::process::cargo;

/// Words of cargo-deny for a data base that it could not get.
const NOT_FETCHED: [&str; 4] =
    ["failed to fetch advisory database", "failed to clone", "failed to open advisory", "network"];

pub fn run() -> Result<Outcome> {
    let installed = cargo(&["deny", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !installed.is_ok_and(|status| status.success()) {
        println!("advisories: SKIPPED: cargo-deny is not installed (`cargo install cargo-deny`)");
        return Ok(Outcome::Skipped);
    }
    let checked = cargo(&["deny", "--color", "never", "check", "advisories"]).output()?;
    let told = String::from_utf8_lossy(&checked.stderr);
    let outcome = judged(checked.status.success(), &told);
    match outcome {
        Outcome::Passed => println!("advisories: no known weakness"),
        Outcome::Skipped => println!("advisories: SKIPPED: the data base cannot be had here\n{}", told.trim()),
        Outcome::Failed => println!("{}", told.trim()),
    }
    Ok(outcome)
}

fn judged(success: bool, told: &str) -> Outcome {
    match success {
        true => Outcome::Passed,
        // A weakness that was found counts, whatever else went wrong.
        false if !told.contains("RUSTSEC-") && NOT_FETCHED.iter().any(|words| told.contains(words)) => Outcome::Skipped,
        false => Outcome::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_base_that_cannot_be_had_is_neither_a_pass_nor_a_failure() {
        assert_eq!(judged(true, "advisories ok"), Outcome::Passed);
        assert_eq!(judged(false, "error[vulnerability]: RUSTSEC-2024-0001"), Outcome::Failed);
        assert_eq!(judged(false, "failed to fetch advisory database https://…"), Outcome::Skipped);
        assert_eq!(judged(false, "failed to fetch advisory database; RUSTSEC-2024-0001"), Outcome::Failed);
        assert_eq!(judged(false, "deny.toml: unknown key"), Outcome::Failed);
    }
}
