//! Ways of ending that all ranks share, whichever of them has the reason: requests to stop, bad data, non-finite
//! losses, slow and hung ranks.

use super::launch::{self, Ended, Place};
use super::{SHORT, refs};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The step of a checkpoint.
fn step_of(folder: &Path) -> Result<u64> {
    let path = folder.join("training_state.json");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let state: Value = serde_json::from_str(&text)?;
    state["step"].as_u64().with_context(|| format!("{text} has no step"))
}

fn words(flags: &[&str]) -> Vec<String> {
    flags.iter().map(|flag| flag.to_string()).collect()
}

/// One of two ranks is asked to stop in a step of several seconds.
pub fn told_to_stop(place: &Place) -> Result<()> {
    for (rank, passes) in [(0, "v2"), (1, "v2,+zero1")] {
        let folder = place.folder.join(format!("stopped-{rank}-saved"));
        let save = folder.display().to_string();
        let mut flags = words(&["--size", "nano", "--batch-size", "4", "--passes", passes]);
        flags.extend(words(&["--rank-timeout", "5", "--save", &save]));
        let slow = [flags.clone(), words(&["--num-steps", "50", "--inject-fault", "1:0:slow=30"])].concat();
        let mut run = place.open_mpi.start(place, 2, &format!("stopped-{rank}"), &refs(&slow))?;
        let pids = run.ranks(2, Duration::from_secs(30))?;
        run.wait_for_step(Duration::from_secs(60))?;
        let begin = Instant::now();
        launch::signal(pids[rank], "TERM")?;
        let ended = run.end(Duration::from_secs(40))?;
        ensure!(begin.elapsed() < Duration::from_secs(25), "it took {:?} to end", begin.elapsed());
        ensure!(!ended.stderr.contains("sign of life"), "{}", ended.stderr);
        ended.failed_with("interrupted: step ")?;
        let step = step_of(&folder)?;
        ensure!(ended.stderr.contains(&format!("step {step} was finished and saved")), "{}", ended.stderr);
        let again = [flags.clone(), words(&["--num-steps", &(step + 1).to_string(), "--resume", &save])].concat();
        place.open_mpi.train(place, 2, "stopped-resumed", &refs(&again))?.succeeded()?;
        ensure!(step_of(&folder)? == step + 1, "it does not go on");
    }
    Ok(())
}

pub fn told_to_stop_in_an_evaluation(place: &Place) -> Result<()> {
    let folder = place.folder.join("evaluated-saved");
    let save = folder.display().to_string();
    let mut flags = words(&["--size", "nano", "--num-steps", "9", "--batch-size", "4", "--rank-timeout", "5"]);
    flags.extend(words(&["--eval-every", "1", "--eval-batches", "40", "--eval-data", "synthetic", "--save", &save]));
    flags.extend(words(&["--inject-fault", "1:0:slow=20"]));
    let mut run = place.open_mpi.start(place, 2, "evaluated", &refs(&flags))?;
    let pids = run.ranks(2, Duration::from_secs(30))?;
    run.wait_for_step(Duration::from_secs(60))?;
    launch::signal(pids[1], "TERM")?;
    let ended = run.end(Duration::from_secs(40))?;
    ensure!(!ended.stderr.contains("sign of life"), "{}", ended.stderr);
    ended.failed_with("step 1 was finished and saved")?;
    ensure!(step_of(&folder)? == 1, "another step was saved");
    Ok(())
}

/// Runs two ranks with a fault on one of them at step 4, and checks that the run ends quickly.
fn faulty(place: &Place, fault: &str, name: &str, flags: &[&str]) -> Result<Ended> {
    let begin = Instant::now();
    let ended = place.open_mpi.train(place, 2, name, &[&SHORT[..], &["--inject-fault", fault], flags].concat())?;
    ensure!(begin.elapsed() < Duration::from_secs(30), "it took {:?} to end", begin.elapsed());
    Ok(ended)
}

pub fn bad_data(place: &Place) -> Result<()> {
    for (fault, passes) in [("1:4:data", "v2"), ("0:4:data", "v2,+zero1"), ("1:4:data", "v2,+zero1")] {
        let folder = place.folder.join(format!("data-{}-{passes}-saved", &fault[..1]));
        let save = folder.display().to_string();
        let ended = faulty(place, fault, "data", &["--save", &save, "--passes", passes])?;
        ended.failed_with("there is no batch for step 4")?;
        let told = ended.stderr.matches("there is no batch").count();
        ensure!(told == 1, "it is told {told} times: {}", ended.stderr);
        ensure!(fault.starts_with('0') || ended.stderr.contains("rank 1: there is no batch"), "{}", ended.stderr);
        ensure!(step_of(&folder)? == 3, "the checkpoint is not of the last whole step");
    }
    Ok(())
}

pub fn not_finite(place: &Place) -> Result<()> {
    let ended = faulty(place, "1:4:nan", "nan", &[])?;
    ended.failed_with("the loss is not finite at step 4: on rank 1: the weights of")?;
    ensure!(ended.stdout.contains("\"summary\""), "rank 0 was ended before it wrote the summary: {}", ended.stderr);
    let told = ended.stderr.matches("error: the loss is not finite").count();
    ensure!(told == 1, "it is told {told} times: {}", ended.stderr);
    Ok(())
}

pub fn slow_save(place: &Place) -> Result<()> {
    let folder = place.folder.join("best-saved").display().to_string();
    let flags =
        ["--eval-every", "6", "--eval-data", "synthetic", "--keep-best", "--save", &folder, "--rank-timeout", "2"];
    faulty(place, "0:0:save=3000", "best", &flags)?.succeeded()
}

/// A rank whose steps take longer than the timeout, but which makes progress.
pub fn slow_rank(place: &Place) -> Result<()> {
    let flags = ["--size", "nano", "--num-steps", "3", "--batch-size", "4", "--rank-timeout", "2"];
    let fault = ["--inject-fault", "1:0:slow=25"];
    let ended = place.open_mpi.train(place, 2, "slow", &[&flags[..], &fault].concat())?;
    ended.succeeded()?;
    let said =
        ended.stderr.lines().any(|line| line.contains("rank 1 is ") && line.contains("% slower than the others"));
    ensure!(said, "the slow rank is not told: {}", ended.stderr);
    Ok(())
}

pub fn late_rank(place: &Place) -> Result<()> {
    let ended = faulty(place, "1:3:late=20000", "late", &["--rank-timeout", "2"])?;
    ended.failed_with("rank 1 made no progress for 2 s")
}
