//! `cargo xtask mutants [CRATE]`: plants small faults one at a time and counts those that the crate's own tests notice.
//!
//! Not part of `ci`: every fault needs a build and a test run. The work is divided into shards. A finished shard leaves
//! its outcome in `target/mutants/CRATE/shard-N`, and an interrupted run continues with the next one. `--sample N`
//! draws N faults instead and reports the interval of their share. With `--rows` a fault is a row that is missing from one
//! of the crate's tables: a row that no test misses has no evidence.

mod sample;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::Outcome;
use crate::process::{cargo, succeeds, target_folder};

/// The sample that is asked for.
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
    /// Draw this many faults at random instead of planting all of them
    #[arg(long, conflicts_with = "shards", value_parser = clap::value_parser!(u32).range(1..))]
    sample: Option<u32>,
    /// Take rows out of the crate's tables instead of planting faults in its code
    #[arg(long, requires = "sample")]
    rows: bool,
    /// Decides which faults are drawn
    #[arg(long, default_value_t = 1, requires = "sample")]
    seed: u64,
    /// The least share of faults to be noticed, in percent
    #[arg(long, default_value_t = 85.0)]
    least: f64,
}

impl Arguments {
    fn package_name(&self) -> String {
        format!("headroom-{}", self.package)
    }
}

#[derive(Default)]
struct Counts {
    noticed: u64,
    missed: Vec<String>,
    /// Every planted fault, including those that do not compile.
    names: Vec<String>,
}

pub fn run(arguments: &Arguments) -> Result<Outcome> {
    if !arguments.rows
        && !Command::new("cargo").args(["mutants", "--version"]).output().is_ok_and(|output| output.status.success())
    {
        bail!("cargo-mutants is not installed here\n  help: cargo install cargo-mutants --locked");
    }
    let folder = target_folder().join("mutants").join(&arguments.package);
    if arguments.again && folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    if let Some(count) = arguments.sample {
        let counts = sample::run(arguments, &folder, count as usize)?;
        return Ok(Outcome::from_success(counts.report(arguments.least)));
    }
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

/// Suffix of the result folder: a selection of files has its own.
fn suffix(files: &[String]) -> String {
    files.iter().map(|file| format!("-{}", file.replace(|letter: char| !letter.is_alphanumeric(), "_"))).collect()
}

fn run_shard(arguments: &Arguments, shard: u32, place: &Path) -> Result<()> {
    fs::create_dir_all(place).with_context(|| format!("cannot make {}", place.display()))?;
    let mut command =
        cargo(&["mutants", "--package", &arguments.package_name(), "--test-tool", "nextest", "--no-shuffle"]);
    command.args(["--shard", &format!("{shard}/{}", arguments.shards), "--output"]).arg(place);
    command.args(arguments.file.iter().flat_map(|file| ["--file".to_string(), format!("**/*{file}*")]));
    // Surviving faults are the answer, not a failure of the run: it only has to write its outcomes.
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
            self.count(outcome);
        }
        Ok(())
    }

    fn count(&mut self, outcome: &Value) {
        let Some(name) = outcome["scenario"]["Mutant"]["name"].as_str() else { return };
        match outcome["summary"].as_str() {
            Some("CaughtMutant" | "Timeout") => self.noticed += 1,
            Some("MissedMutant") => self.missed.push(name.to_string()),
            Some("Unviable") => {}
            // Interrupted before it was decided.
            _ => return,
        }
        self.names.push(name.to_string());
    }

    /// Prints the missed faults; returns whether enough were noticed. Faults that do not compile do not count.
    fn report(&self, least: f64) -> bool {
        let all = self.noticed + self.missed.len() as u64;
        self.missed.iter().for_each(|name| println!("missed: {name}"));
        let share = 100.0 * self.noticed as f64 / all.max(1) as f64;
        let (low, high) = interval(self.noticed, all);
        let unviable = self.names.len() as u64 - all;
        println!(
            "{} of {all} faults were noticed: {share:.0}% (95% interval {:.0} to {:.0}%), at least {least:.0}% are wanted; \
             {unviable} more do not compile",
            self.noticed,
            100.0 * low,
            100.0 * high
        );
        all > 0 && share >= least
    }
}

/// Wilson's 95% interval of a proportion: valid for small counts and for proportions near 0 and 1.
fn interval(noticed: u64, all: u64) -> (f64, f64) {
    const Z: f64 = 1.96;
    if all == 0 {
        return (0.0, 1.0);
    }
    let (n, share) = (all as f64, noticed as f64 / all as f64);
    let middle = share + Z * Z / (2.0 * n);
    let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    (((middle - half) / scale).max(0.0), ((middle + half) / scale).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn timeouts_are_noticed_and_faults_that_do_not_compile_or_were_cut_short_are_not_counted() {
        let outcome = |name: &str, summary: &str| json!({"scenario": {"Mutant": {"name": name}}, "summary": summary});
        let mut counts = Counts::default();
        counts.count(&json!({"scenario": "Baseline", "summary": "Success"}));
        for (name, summary) in
            [("a", "CaughtMutant"), ("b", "Timeout"), ("c", "MissedMutant"), ("d", "Unviable"), ("e", "Failure")]
        {
            counts.count(&outcome(name, summary));
        }
        assert_eq!((counts.noticed, counts.missed.clone()), (2, vec!["c".to_string()]));
        assert_eq!(counts.names, ["a", "b", "c", "d"]);
        assert!(counts.report(66.0) && !counts.report(67.0));
        assert!(!Counts::default().report(0.0));
    }

    #[test]
    fn an_interval_is_wilsons() {
        let near = |(low, high): (f64, f64), wanted: (f64, f64)| {
            assert!((low - wanted.0).abs() < 5e-4 && (high - wanted.1).abs() < 5e-4, "{low} to {high}");
        };
        // 8 of 10: centre 0.7168, half width 0.2266.
        near(interval(8, 10), (0.4902, 0.9433));
        near(interval(0, 10), (0.0, 0.2775));
        near(interval(10, 10), (0.7225, 1.0));
        near(interval(0, 0), (0.0, 1.0));
    }
}
