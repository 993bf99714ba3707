//! Runs both sides of a regression again, alternating, so that a slow machine affects both alike.

use crate::failure::RunFailed;
use crate::output;
use crate::study::child::{ChildEnd, run_program};
use crate::train::config_file::RUN_FILE;
use anyhow::{Context, bail, ensure};
use headroom_record::registry::RunRow;
use headroom_report::numbers::seconds;
use headroom_report::runs::Turn;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

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

/// Alternates the two sides; the first one changes from round to round. `None` if asked to stop.
pub fn take_turns(
    baseline: &Side,
    run: &Side,
    rounds: u16,
    parent: i64,
    stop: &AtomicBool,
) -> anyhow::Result<Option<Vec<Turn>>> {
    let scratch = tempfile::tempdir().context("cannot make a temporary folder for the runs")?;
    let mut turns = vec![];
    for round in 1..=rounds {
        let mut medians = [0.0; 2];
        let order = if round % 2 == 1 { [0, 1] } else { [1, 0] };
        for side in order {
            let folder = scratch.path().join("run");
            let Some(median) = [baseline, run][side].run(&folder, parent, stop)? else { return Ok(None) };
            medians[side] = median;
        }
        let [baseline_seconds, run_seconds] = medians;
        let steps = format!("{} and {} per step", seconds(baseline_seconds), seconds(run_seconds));
        output::note(&format!("[{round}/{rounds}] baseline and run: {steps}"));
        turns.push(Turn { baseline_seconds, run_seconds });
    }
    Ok(Some(turns))
}
