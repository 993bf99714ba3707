//! A rank beside rank 0: it takes the same steps, and leaves printing and writing to that one.

use super::arguments::Arguments;
use super::plan::Planned;
use super::settings::{Settings, Sources};
use super::{Input, ends_together, how_it_ended, schedule, start};
use crate::failure;
use crate::profile::Profiler;
use crate::ranks::Company;
use crate::signals::Interrupt;
use headroom_engine::ranks::RanksError;
use headroom_training::checkpoint::CheckpointError;
use headroom_training::run::{self as training, Evaluation, Go, Observer, StepRecord};
use headroom_training::trainer::Trainer;
use std::process::ExitCode;

pub fn run(
    arguments: &Arguments,
    settings: &Settings,
    sources: Sources,
    planned: Planned,
    interrupt: &Interrupt,
    company: &Company,
) -> anyhow::Result<ExitCode> {
    // Rank 0 has measured the machine by then, where that was needed.
    let folder = if Profiler::is_wanted(arguments) { Some(company.folder(None)?) } else { None };
    let profiler = Profiler::prepare(arguments, settings, &planned, Some(company))?;
    let mut trainer = start::trainer(arguments, settings, planned, interrupt, Some(company))?;
    if let Some(profiler) = &profiler {
        profiler.attach(&mut trainer, settings);
    }
    let mut input = Input::open(sources, settings, &trainer)?;
    let saves = arguments.output.save.is_some();
    let mut follower = Follower { company, saves, keeps_best: saves && settings.keep_best };
    let (evaluation, schedule) = (input.evaluation.as_ref(), schedule(arguments, settings));
    let outcome =
        training::run(&mut trainer, &mut input.training, evaluation, &schedule, &interrupt.stop, &mut follower);
    if let (Some(profiler), Some(folder)) = (&profiler, &folder) {
        profiler.write_trace_alone(folder, &outcome, &trainer, settings)?;
    }
    let (end, step) = (outcome.end, trainer.step);
    let agreed = ends_together(&end);
    if agreed {
        // Rank 0 says it.
        company.slowest(outcome.steps.len())?;
        company.ended_together();
    }
    match how_it_ended(end, step, None, interrupt) {
        // Rank 0 has the same to tell, and does.
        Err(error) if agreed => Ok(ExitCode::from(failure::code(&error))),
        ended => ended,
    }
}

struct Follower<'a> {
    company: &'a Company,
    saves: bool,
    keeps_best: bool,
}

fn handover(error: RanksError) -> CheckpointError {
    CheckpointError::Handover(error.into())
}

impl Observer for Follower<'_> {
    fn stepped(&mut self, _: u64) {}

    fn logged(&mut self, _: &[StepRecord]) {}

    fn evaluated(&mut self, _: Evaluation) {}

    /// Evaluations are the same on all ranks, and rank 0 says what they are worth.
    fn judge(&mut self, trainer: &mut Trainer) -> Result<Go, CheckpointError> {
        if self.keeps_best && self.company.better(None).map_err(handover)? {
            trainer.hand_over().and_then(|()| self.company.saved()).map_err(handover)?;
        }
        Ok(Go::On)
    }

    /// Rank 0 saves; this one hands over what it has alone, and waits.
    fn save(&mut self, trainer: &mut Trainer) -> Result<(), CheckpointError> {
        if !self.saves {
            return Ok(());
        }
        trainer.hand_over().and_then(|()| self.company.saved()).map_err(handover)
    }
}
