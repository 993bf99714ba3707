//! Runs both sides of a regression again, alternating, so that a slow machine affects both alike.

use crate::failure::RunFailed;
use crate::output;
use crate::study::child::{ChildEnd, run_program};
use crate::train::config_file::RUN_FILE;
use anyhow::{Context, bail, ensure};
use headroom_experiments::turns::{Contestant, Patience, Rounds, Work, race, watched};
use headroom_record::registry::RunRow;
use headroom_report::numbers::seconds;
use headroom_report::runs::Turn;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// A saved run that can be run again.
pub struct Side {
    /// `train` or `profile`.
    command: String,
    run_file: PathBuf,
    /// Relative paths of its data start here.
    directory: Option<PathBuf>,
    program: PathBuf,
    id: i64,
}

impl Side {
    /// `program` is another build of headroom, if one was given.
    pub fn of(run: &RunRow, program: Option<&Path>) -> anyhow::Result<Side> {
        let command = run.start.command.clone();
        ensure!(
            matches!(command.as_str(), "train" | "profile"),
            "run {} was made by `{command}`, and --rerun runs train and profile again\n  help: choose another run",
            run.id
        );
        let folder = run.start.folder.as_ref().map(PathBuf::from);
        let run_file = folder.map(|folder| folder.join(RUN_FILE)).filter(|file| file.is_file());
        let run_file = run_file.with_context(|| {
            format!("run {} has no {RUN_FILE} any more, so it cannot be run again\n  help: choose another run", run.id)
        })?;
        let program = match program {
            Some(program) => std::path::absolute(program)?,
            None => std::env::current_exe().context("cannot find the program itself")?,
        };
        ensure!(program.is_file(), "{}: there is no such program", program.display());
        let directory = run.start.directory.as_ref().map(PathBuf::from).filter(|folder| folder.is_dir());
        Ok(Side { command, run_file, directory, program, id: run.id })
    }

    /// Seconds of its median step; `None` if asked to stop.
    fn run(&self, folder: &Path, parent: i64, stop: &AtomicBool) -> anyhow::Result<Option<f64>> {
        let mut command = Command::new(&self.program);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let words = [self.command.clone(), "--config".into(), self.run_file.display().to_string()];
        match run_program(&mut command, &words, folder, Some(parent), stop, |_| Ok(()))? {
            ChildEnd::Finished(record) => match record.statistics.median {
                Some(median) => Ok(Some(median)),
                None => {
                    bail!("run {} has no step after its warm-up\n  help: a longer run, such as --num-steps 50", self.id)
                }
            },
            ChildEnd::Stopped => Ok(None),
            ChildEnd::Failed(why) | ChildEnd::Killed(why) => {
                Err(RunFailed(format!("run {}, run again, did not finish: {why}", self.id)).into())
            }
        }
    }
}

/// One side in the race, as a process per turn.
struct Runner<'a> {
    name: &'static str,
    side: &'a Side,
    folder: &'a Path,
    parent: i64,
    stop: &'a AtomicBool,
}

/// Why a race ended before its last round.
enum Ended {
    Stopped,
    Failed(anyhow::Error),
}

impl Contestant for Runner<'_> {
    type Error = Ended;

    fn turn(&mut self) -> Result<headroom_experiments::turns::Turn, Ended> {
        let turn = watched(Work::Elsewhere, || {
            let median = self.side.run(self.folder, self.parent, self.stop).map_err(Ended::Failed)?;
            median.ok_or(Ended::Stopped)
        })?;
        let busy = if turn.is_disturbed { ", and other programs were running" } else { "" };
        output::note(&format!("{}: {} per step{busy}", self.name, seconds(turn.seconds)));
        Ok(turn)
    }
}

/// The rounds that count; `None` if asked to stop.
pub fn take_turns(
    baseline: &Side,
    run: &Side,
    rounds: u16,
    parent: i64,
    stop: &AtomicBool,
) -> anyhow::Result<Option<Vec<Turn>>> {
    let scratch = tempfile::tempdir().context("cannot make a temporary folder for the runs")?;
    let folder = scratch.path().join("run");
    let mut kept = Rounds::new(1);
    let mut sides: Vec<(usize, Runner)> = [("baseline", baseline), ("run", run)]
        .map(|(name, side)| (kept.join(), Runner { name, side, folder: &folder, parent, stop }))
        .into();
    let rounds = usize::from(rounds);
    let patience = Patience { rounds, most_rounds: rounds, time: Duration::MAX };
    let far = Instant::now() + A_YEAR;
    match race(&mut kept, &mut sides, &patience, far, &mut |_| false) {
        Err(Ended::Stopped) => return Ok(None),
        Err(Ended::Failed(error)) => return Err(error),
        Ok(()) => {}
    }
    let dropped = kept.dropped().len();
    if dropped > 0 {
        output::note(&format!("{dropped} of {rounds} rounds do not count: other programs were running"));
    }
    let turn = |(baseline_seconds, run_seconds)| Turn { baseline_seconds, run_seconds };
    Ok(Some(kept.pairs(0, 1).into_iter().map(turn).collect()))
}

/// The number of rounds ends the race, and no clock.
const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
