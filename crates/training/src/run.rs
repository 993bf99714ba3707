//! The training loop: steps, evaluations and checkpoints, until the last step or until told to stop.

use crate::checkpoint::CheckpointError;
use crate::choices::Choices;
use crate::data::{Batch, DataError, Prefetcher, Source};
use crate::guard::{Guard, OnSpike, Spike};
use crate::recording::Part;
use crate::together::{self, Agreed};
use crate::trainer::{EndsStep, NotFinite, StepTimes, Trainer};
use headroom_engine::{EngineError, Finished};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thiserror::Error;

pub struct Schedule {
    /// The step the run ends at.
    pub last_step: u64,
    pub log_interval: u64,
    pub accumulation: usize,
    /// 0 is off.
    pub evaluate_every: u64,
    pub save_every: u64,
    pub on_spike: OnSpike,
}

/// The record of one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompletedStep {
    pub step: u64,
    /// Before the update; `None` if nothing is computed.
    pub loss: Option<f32>,
    pub learning_rate: f64,
    /// Norm of all gradients together, if the program computes it.
    pub gradient_norm: Option<f32>,
    pub times: StepTimes,
    /// Whether its calls were recorded.
    pub recorded: bool,
    /// Whether the host waited for this step alone, on a device that otherwise queues steps.
    pub alone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Steps taken before it.
    pub step: u64,
    pub loss: f32,
}

/// Fixed batches, the same at every evaluation.
pub struct EvaluationSet {
    pub batches: Vec<Batch>,
}

impl EvaluationSet {
    pub fn read(source: &Source, batches: usize) -> Result<EvaluationSet, DataError> {
        let read = |position: usize| {
            let mut batch = Batch::new(source.shape());
            source.fill(position as u64, &mut batch)?;
            Ok(batch)
        };
        Ok(EvaluationSet { batches: (0..batches).map(read).collect::<Result<_, DataError>>()? })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterEvaluation {
    Continue,
    Stop,
}

/// Receives the events of a run as it goes, and saves when asked.
pub trait Observer {
    /// Called after every step, before anything is read back: only a sign of life.
    fn stepped(&mut self, step: u64);
    /// The choices of the steps so far, if steps choose; called before those steps are logged.
    fn chose(&mut self, _choices: &Choices) {}
    /// The steps since the last call: at every log interval, and once more at the end.
    fn logged(&mut self, steps: &[CompletedStep]);
    fn evaluated(&mut self, evaluation: Evaluation);
    /// Called after an evaluation was reported: whether the run goes on.
    fn judge(&mut self, _trainer: &mut Trainer) -> Result<AfterEvaluation, CheckpointError> {
        Ok(AfterEvaluation::Continue)
    }
    /// The loss has spiked.
    fn diverged(&mut self, _spike: &Spike) {}
    fn save(&mut self, trainer: &mut Trainer) -> Result<(), CheckpointError>;
}

#[derive(Debug, Error)]
pub enum RunError {
    #[error("the loss is not finite at step {step}: {cause}")]
    NotFinite { step: u64, cause: NotFinite },
    #[error("the device failed after step {step}: {error}")]
    Device { step: u64, error: EngineError },
    /// Told to stop immediately; the weights are from the previous step.
    #[error("step {step} was abandoned unfinished")]
    GivenUp { step: u64 },
    /// A rank was told to stop; the step was not begun.
    #[error("step {step} was not started")]
    Stopped { step: u64 },
    #[error("rank {rank}: {why}")]
    OtherRank { rank: usize, why: String },
    #[error("{0}")]
    Diverged(Spike),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
}

impl RunError {
    /// Whether all ranks reach this error at the same point.
    pub fn is_agreed(&self) -> bool {
        !matches!(self, RunError::Device { .. } | RunError::Checkpoint(_))
    }
}

#[derive(Debug)]
pub enum End {
    Finished,
    /// Evaluations stopped improving.
    StoppedEarly,
    /// Told to stop; the current step was finished and saved.
    Interrupted,
    /// Told to stop at once: the current step was abandoned and the one before it saved, if there was one.
    GivenUp,
    Failed(RunError),
}

#[derive(Debug)]
pub struct Outcome {
    pub steps: Vec<CompletedStep>,
    pub evaluations: Vec<Evaluation>,
    pub end: End,
}

/// Steps for which space is reserved in advance, so that the loop does not allocate; longer runs grow the buffer.
const RECORDED_WITHOUT_GROWING: u64 = 1 << 20;

pub fn run(
    trainer: &mut Trainer,
    data: &mut Prefetcher,
    evaluation: Option<&EvaluationSet>,
    schedule: &Schedule,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Outcome {
    let capacity = schedule.last_step.saturating_sub(trainer.step).min(RECORDED_WITHOUT_GROWING);
    let mut outcome = Outcome { steps: Vec::with_capacity(capacity as usize), evaluations: vec![], end: End::Finished };
    if let Err(error) = run_until_done(trainer, data, evaluation, schedule, stop, observer, &mut outcome) {
        outcome.end = End::Failed(error);
    }
    outcome
}

fn run_until_done(
    trainer: &mut Trainer,
    data: &mut Prefetcher,
    evaluation: Option<&EvaluationSet>,
    schedule: &Schedule,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
    outcome: &mut Outcome,
) -> Result<(), RunError> {
    let mut logged = 0;
    trainer.watches_phases = true;
    let mut saved_at = None;
    let mut guard = Guard::new(trainer);
    let mut finished = vec![];
    while trainer.step < schedule.last_step {
        // Several ranks agree on this before each micro-batch instead.
        let taken = match trainer.ranks.is_none() && trainer.is_told_to_give_up() {
            true => Err(RunError::GivenUp { step: trainer.step + 1 }),
            false => recorded_step(trainer, data, schedule, stop, &mut finished),
        };
        if let Ok(record) = &taken {
            outcome.steps.push(*record);
        }
        let step = trainer.step;
        observer.stepped(step);
        let stopping = match trainer.ranks.is_some() {
            true => matches!(taken, Err(RunError::Stopped { .. })),
            false => stop.load(Ordering::Relaxed),
        };
        let ending = taken.is_err() || stopping || step == schedule.last_step;
        // Recorded steps are reported one by one, never together with unrecorded ones.
        let works_ahead = trainer.device.works_ahead();
        let told_alone = trainer.recording.as_ref().is_some_and(|recording| match works_ahead {
            true => recording.waits_for(step),
            false => recording.keeps(step) || recording.keeps(step + 1),
        });
        // If a spike ends the run, look at the losses before every save, so that the run never goes back to an
        // unchecked checkpoint.
        let saves = schedule.save_every > 0 && step.is_multiple_of(schedule.save_every);
        let looks = schedule.on_spike == OnSpike::End && saves;
        let logs = ending || told_alone || looks || step.is_multiple_of(schedule.log_interval.max(1));
        if logs {
            let settled = match works_ahead {
                true => settle(trainer, &mut outcome.steps[logged..], schedule.accumulation, &mut finished),
                false => Ok(()),
            };
            if let Err(error) = settled {
                // Logs what is known of the steps before the failed one.
                let whole = outcome.steps[logged..].iter().take_while(|record| record.loss.is_some()).count();
                outcome.steps.truncate(logged + whole);
                observer.logged(&outcome.steps[logged..]);
                return Err(error);
            }
        }
        if logs || trainer.choices_are_full() {
            trainer.read_choices();
        }
        if logs {
            if let Some(choices) = &trainer.choices {
                observer.chose(choices);
            }
            observer.logged(&outcome.steps[logged..]);
            let newest = logged..outcome.steps.len();
            logged = outcome.steps.len();
            watch(trainer, &mut guard, &outcome.steps[newest], schedule.on_spike, observer)?;
        }
        if let Err(RunError::Data(_) | RunError::OtherRank { .. }) = &taken
            && step > 0
            && saved_at != Some(step)
        {
            // The weights are those of the last whole step: keep what was learned before the bad data.
            observer.save(trainer)?;
        }
        if let Err(RunError::GivenUp { .. }) = &taken {
            outcome.end = End::GivenUp;
            break;
        }
        if let Err(RunError::Stopped { .. }) = &taken {
            outcome.end = End::Interrupted;
            break;
        }
        taken?;
        let mut go = AfterEvaluation::Continue;
        if let Some(set) = evaluation
            && schedule.evaluate_every > 0
            && (step.is_multiple_of(schedule.evaluate_every) || step == schedule.last_step)
        {
            let evaluated = evaluate_together(trainer, set);
            let done = Evaluation { step, loss: evaluated.map_err(|error| RunError::Device { step, error })? };
            if trainer.gave_up() {
                outcome.end = End::Interrupted;
                break;
            }
            outcome.evaluations.push(done);
            observer.evaluated(done);
            let stops = observer.judge(trainer)? == AfterEvaluation::Stop;
            let stops = trainer.any_rank(stops).map_err(|error| RunError::Device { step, error })?;
            go = if stops { AfterEvaluation::Stop } else { AfterEvaluation::Continue };
        }
        if saves {
            observer.save(trainer)?;
            saved_at = Some(step);
        }
        if stopping {
            outcome.end = End::Interrupted;
            break;
        }
        if go == AfterEvaluation::Stop && step < schedule.last_step {
            outcome.end = End::StoppedEarly;
            break;
        }
    }
    // A run that gave up its first step has nothing to save.
    if saved_at != Some(trainer.step) && !outcome.steps.is_empty() {
        observer.save(trainer)?;
    }
    Ok(())
}

/// Reports a loss spike, and ends the run if that was requested.
fn watch(
    trainer: &mut Trainer,
    guard: &mut Guard,
    steps: &[CompletedStep],
    on_spike: OnSpike,
    observer: &mut dyn Observer,
) -> Result<(), RunError> {
    for record in steps {
        let Some(loss) = record.loss.map(f64::from) else { continue };
        let Some(least) = guard.watch(loss) else { continue };
        let spike = guard.spike(trainer, record.step, loss, least);
        observer.diverged(&spike);
        if on_spike == OnSpike::End {
            return Err(RunError::Diverged(spike));
        }
    }
    Ok(())
}

/// Takes one step, and records it if the trainer's recording wants it.
fn recorded_step(
    trainer: &mut Trainer,
    data: &mut Prefetcher,
    schedule: &Schedule,
    stop: &AtomicBool,
    finished: &mut Vec<Finished>,
) -> Result<CompletedStep, RunError> {
    let step = trainer.step + 1;
    let _stepping = trainer.ranks.as_ref().map(|ranks| ranks.stepping());
    if let Some(recording) = &mut trainer.recording {
        recording.begin(step, &mut *trainer.device);
    }
    let mut taken = one_step(trainer, data, schedule, stop);
    if !trainer.device.works_ahead() {
        taken = taken.and_then(|mut record| {
            settle(trainer, std::slice::from_mut(&mut record), schedule.accumulation, finished).map(|()| record)
        });
    }
    if let Some(recording) = &mut trainer.recording {
        recording.end(step, taken.is_ok(), &mut *trainer.device);
    }
    taken
}

/// Submits a step; its loss and times are known once it is settled.
fn one_step(
    trainer: &mut Trainer,
    data: &mut Prefetcher,
    schedule: &Schedule,
    stop: &AtomicBool,
) -> Result<CompletedStep, RunError> {
    let step = trainer.step + 1;
    let mut waited = Duration::ZERO;
    for micro in 1..=schedule.accumulation {
        let asked = trainer.device.clock();
        let fetched = trainer.fault.tried(step, data.fetch());
        let arrived = trainer.device.clock();
        trainer.mark(Part::DataWait, asked, arrived);
        waited += arrived - asked;
        match together::agree(trainer, stop, fetched.as_ref().err()) {
            Ok(Agreed::GoOn) => {}
            Ok(Agreed::Stop | Agreed::GiveUp) if micro == 1 => return Err(RunError::Stopped { step }),
            Ok(Agreed::Stop) => {}
            Ok(Agreed::GiveUp) => return Err(RunError::GivenUp { step }),
            Ok(Agreed::Failed { rank, why }) => {
                return Err(fetched.err().map_or(RunError::OtherRank { rank, why }, RunError::Data));
            }
            Err(error) => return Err(RunError::Device { step: step - 1, error: error.into() }),
        }
        let fetched = fetched?;
        let next_sample = fetched.next_sample;
        let ends_step = match micro == schedule.accumulation {
            true => EndsStep::Yes { last: schedule.last_step },
            false => EndsStep::No,
        };
        let submitted = trainer.submit(fetched.batch, ends_step);
        if trainer.ranks.is_some()
            && let Some(error) = trainer.device.failure()
        {
            return Err(RunError::Device { step: step - 1, error });
        }
        submitted.map_err(|cause| RunError::NotFinite { step, cause })?;
        if trainer.gave_up() {
            return Err(RunError::GivenUp { step });
        }
        if ends_step != EndsStep::No {
            trainer.next_sample = next_sample;
        }
    }
    let recording = trainer.recording.as_ref();
    Ok(CompletedStep {
        step,
        loss: None,
        learning_rate: trainer.learning_rate(schedule.last_step),
        gradient_norm: None,
        times: StepTimes { data: waited, ..StepTimes::default() },
        recorded: recording.is_some_and(|recording| recording.keeps(step)),
        alone: trainer.device.works_ahead() && recording.is_some_and(|recording| recording.waits_for(step)),
    })
}

/// Fills in losses, norms and times of the steps that the device has finished.
fn settle(
    trainer: &mut Trainer,
    records: &mut [CompletedStep],
    accumulation: usize,
    finished: &mut Vec<Finished>,
) -> Result<(), RunError> {
    let step = trainer.step;
    finished.clear();
    trainer.collect(finished).map_err(|error| RunError::Device { step, error })?;
    if let Some(error) = trainer.device.failure() {
        return Err(RunError::Device { step, error });
    }
    let (computes, with_norm) = (trainer.device.computes(), trainer.has_gradient_norm());
    let works_ahead = trainer.device.works_ahead();
    // If phases are measured at one step of an interval, assume the same proportions for the others.
    let measured = finished.iter().find_map(|one| one.phases).filter(|phases| phases.iter().sum::<f64>() > 0.0);
    for (record, micros) in records.iter_mut().zip(finished.chunks_exact(accumulation)) {
        let mean = micros.iter().map(|one| f64::from(one.results[0])).sum::<f64>() / accumulation as f64;
        if computes && !mean.is_finite() {
            let cause = trainer.first_not_finite();
            return Err(RunError::NotFinite { step: record.step, cause });
        }
        record.loss = computes.then_some(mean as f32);
        record.gradient_norm = micros.last().filter(|_| computes && with_norm).map(|one| one.results[1]);
        let worked: f64 = micros.iter().map(|one| one.seconds).sum();
        // The wait for a batch adds to the step's time, unless the device works ahead.
        let total = if works_ahead { worked } else { worked + record.times.data.as_secs_f64() };
        let times = &mut record.times;
        times.total = Duration::from_secs_f64(total);
        times.data += Duration::from_secs_f64(micros.iter().map(|one| one.inputs).sum());
        if let Some(recording) = &mut trainer.recording {
            recording.took(record.step, total);
        }
        let own = micros.iter().map(|one| one.phases).try_fold([0.0; 3], |sum, phases| Some(added(sum, phases?)));
        let phases = match (works_ahead, measured) {
            (true, Some(phases)) => phases.map(|seconds| total * seconds / phases.iter().sum::<f64>()),
            (true, None) => continue,
            (false, _) => own.unwrap_or_default(),
        };
        let [forward, backward, optimizer] = phases.map(Duration::from_secs_f64);
        *times = StepTimes { forward, backward, optimizer, ..*times };
    }
    Ok(())
}

fn added(left: [f64; 3], right: [f64; 3]) -> [f64; 3] {
    std::array::from_fn(|at| left[at] + right[at])
}

/// Like `evaluate`; if one of several ranks is told to give up, all leave after the same batch.
fn evaluate_together(trainer: &mut Trainer, set: &EvaluationSet) -> Result<f32, EngineError> {
    let Some(ranks) = trainer.ranks.clone() else { return Ok(evaluate(trainer, set)) };
    let _stepping = ranks.stepping();
    let mut sum = 0.0;
    for batch in &set.batches {
        if trainer.any_rank(trainer.is_told_to_give_up())? {
            trainer.leave();
            break;
        }
        sum += f64::from(trainer.evaluate(batch));
    }
    Ok((sum / set.batches.len() as f64) as f32)
}

/// Mean over the batches of the set.
pub fn evaluate(trainer: &mut Trainer, set: &EvaluationSet) -> f32 {
    let sum: f64 = set.batches.iter().map(|batch| f64::from(trainer.evaluate(batch))).sum();
    (sum / set.batches.len().max(1) as f64) as f32
}
