//! Runs a rank other than 0: it takes the same steps, and leaves printing and writing to rank 0.

use super::arguments::Arguments;
use super::checkpoints::BEST;
use super::plan::Planned;
use super::settings::{Settings, Sources};
use super::{Input, ends_together, how_it_ended, schedule, start};
use crate::failure;
use crate::profile::Profiler;
use crate::ranks::RankGroup;
use crate::signals::Interrupt;
use headroom_engine::ranks::RanksError;
use headroom_training::checkpoint::{CheckpointError, SavedDtype};
use headroom_training::persist;
use headroom_training::run::{self as training, AfterEvaluation, CompletedStep, Evaluation, Observer};
use headroom_training::trainer::Trainer;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

pub fn run(
    arguments: &Arguments,
    settings: &Settings,
    sources: Sources,
    planned: Planned,
    interrupt: &Interrupt,
    company: &RankGroup,
) -> anyhow::Result<ExitCode> {
    // By then rank 0 has measured the machine, if needed.
    let folder = if Profiler::is_wanted(arguments) { Some(company.folder(None)?) } else { None };
    let profiler = Profiler::prepare(arguments, settings, &planned, Some(company))?;
    let mut trainer = start::trainer(arguments, settings, planned, interrupt, Some(company))?;
    if let Some(profiler) = &profiler {
        profiler.attach(&mut trainer, settings);
    }
    let mut input = Input::open(sources, settings, &trainer)?;
    let saves = arguments.output.save.as_deref();
    let mut follower =
        Follower { company, saves, keeps_best: saves.is_some() && settings.keep_best, dtype: settings.hf.dtype };
    let (evaluation, schedule) = (input.evaluation.as_ref(), schedule(arguments, settings));
    let outcome =
        training::run(&mut trainer, &mut input.training, evaluation, &schedule, &interrupt.stop, &mut follower);
    if let (Some(profiler), Some(folder)) = (&profiler, &folder) {
        profiler.write_trace_alone(folder, &outcome, &trainer, settings)?;
    }
    let (end, step) = (outcome.end, trainer.step);
    let agreed = ends_together(&end);
    if agreed {
        // Rank 0 prints the result.
        company.slowest(outcome.steps.len())?;
        company.ended_together();
    }
    match how_it_ended(end, step, None, interrupt) {
        // Rank 0 reports the same error.
        Err(error) if agreed => Ok(ExitCode::from(failure::code(&error))),
        ended => ended,
    }
}

struct Follower<'a> {
    company: &'a RankGroup,
    saves: Option<&'a Path>,
    keeps_best: bool,
    dtype: SavedDtype,
}

fn handover(error: RanksError) -> CheckpointError {
    CheckpointError::Handover(error.into())
}

impl Observer for Follower<'_> {
    fn stepped(&mut self, _: u64) {}

    fn logged(&mut self, _: &[CompletedStep]) {}

    fn evaluated(&mut self, _: Evaluation) {}

    /// Evaluations are the same on all ranks, and rank 0 judges them.
    fn judge(&mut self, trainer: &mut Trainer) -> Result<AfterEvaluation, CheckpointError> {
        if self.keeps_best
            && self.company.better(None).map_err(handover)?
            && let Some(folder) = self.saves
        {
            self.part(trainer, &folder.join(BEST))?;
        }
        Ok(AfterEvaluation::Continue)
    }

    /// Takes part in a save, which rank 0 commits.
    fn save(&mut self, trainer: &mut Trainer) -> Result<(), CheckpointError> {
        let Some(folder) = self.saves else { return Ok(()) };
        self.company.same_weights(trainer)?;
        self.part(trainer, folder)
    }
}

impl Follower<'_> {
    fn part(&self, trainer: &mut Trainer, folder: &Path) -> Result<(), CheckpointError> {
        let saved = persist::save_part(trainer, folder, self.dtype);
        if let Err(CheckpointError::OtherRank { .. }) = saved {
            // The rank that failed reports why.
            thread::sleep(FOR_THE_OTHER);
        }
        saved?;
        self.company.saved().map_err(handover)
    }
}

/// Time for the failed rank to report and to end all.
const FOR_THE_OTHER: Duration = Duration::from_secs(2);
