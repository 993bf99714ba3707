//! `cargo xtask mutants [CRATE]`: plants small faults, one at a time, and counts those that the crate's own tests notice.
//!
//! Outside of `ci`: every fault is a build and a run of the tests. The work is cut into shards; a shard that is done leaves its
//! outcome in `target/mutants/CRATE/shard-N`, and a run that was ended goes on with the next one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::Outcome;
use crate::process::{cargo, succeeds, target_folder};

/// What is asked for.
#[derive(clap::Args)]
pub struct Arguments {
    /// The crate, by its folder: trace, diagnosis, graph
    #[arg(default_value = "trace")]
    package: String,
    /// Only files whose path holds this; may be given again
    #[arg(long)]
    file: Vec<String>,
    /// Pieces that the work is cut into: a run that is ended loses one of them at most
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    shards: u32,
    /// Forget earlier shards and begin anew
    #[arg(long)]
    again: bool,
    /// The least share of faults to be noticed, in percent
    #[arg(long, default_value_t = 85.0)]
    least: f64,
}

#[derive(Default)]
struct Counts {
    noticed: u64,
    missed: Vec<String>,
}

pub fn run(arguments: &Arguments) -> Result<Outcome> {
    if !Command::new("cargo").args(["mutants", "--version"]).output().is_ok_and(|output| output.status.success()) {
        bail!("cargo-mutants is not installed here\n  help: cargo install cargo-mutants --locked");
    }
    let folder = target_folder().join("mutants").join(&arguments.package);
    if arguments.again && folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut counts = Counts::default();
    for shard in 0..arguments.shards {
        let place = folder.join(format!("shard-{shard}-of-{}{}", arguments.shards, suffix(&arguments.file)));
        let outcomes = place.join("mutants.out/outcomes.json");
        if outcomes.is_file() && place.join("done").is_file() {
            println!("shard {shard} of {}: done before", arguments.shards);
        } else {
            run_shard(arguments, shard, &place)?;
            fs::write(place.join("done"), "").with_context(|| format!("cannot write to {}", place.display()))?;
        }
        counts.add(&outcomes)?;
    }
    Ok(Outcome::from_success(counts.report(arguments.least)))
}

/// Other files are other work.
fn suffix(files: &[String]) -> String {
    files.iter().map(|file| format!("-{}", file.replace(|letter: char| !letter.is_alphanumeric(), "_"))).collect()
}

fn run_shard(arguments: &Arguments, shard: u32, place: &Path) -> Result<()> {
    fs::create_dir_all(place).with_context(|| format!("cannot make {}", place.display()))?;
    let package = format!("headroom-{}", arguments.package);
    let mut command = cargo(&["mutants", "--package", &package, "--test-tool", "nextest", "--no-shuffle"]);
    command.args(["--shard", &format!("{shard}/{}", arguments.shards), "--output"]).arg(place);
    command.args(arguments.file.iter().flat_map(|file| ["--file".to_string(), format!("**/*{file}*")]));
    // Faults that survive are the answer and no failure of the run: what counts is that it wrote its outcomes.
    succeeds(&mut command)?;
    if !place.join("mutants.out/outcomes.json").is_file() {
        bail!("cargo mutants left no outcomes in {}", place.display());
    }
    Ok(())
}

impl Counts {
    fn add(&mut self, outcomes: &PathBuf) -> Result<()> {
        let text = fs::read(outcomes).with_context(|| format!("cannot read {}", outcomes.display()))?;
        let value: Value = serde_json::from_slice(&text).with_context(|| format!("{}", outcomes.display()))?;
        for outcome in value["outcomes"].as_array().into_iter().flatten() {
            match outcome["summary"].as_str() {
                Some("CaughtMutant" | "Timeout") => self.noticed += 1,
                Some("MissedMutant") => {
                    let name = outcome["scenario"]["Mutant"]["name"].as_str().unwrap_or("a fault without a name");
                    self.missed.push(name.to_string());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Prints what was missed, and whether enough was noticed. Faults that do not compile count for nothing.
    fn report(&self, least: f64) -> bool {
        let all = self.noticed + self.missed.len() as u64;
        self.missed.iter().for_each(|name| println!("missed: {name}"));
        let share = 100.0 * self.noticed as f64 / all.max(1) as f64;
        println!("{} of {all} faults were noticed: {share:.0}%, at least {least:.0}% are wanted", self.noticed);
        share >= least
    }
}
