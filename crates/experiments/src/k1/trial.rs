//! One rule with one seed: a phase per source, and the losses on all sources after each phase.

use super::Design;
use crate::bench::ExperimentError;
use headroom_engine::{DeviceSpec, Opening, Program};
use headroom_record::k1::{Budget, K1Run};
use headroom_training::data::{Batch, DataError, DataSpec, Source, SourceSettings, Split};
use headroom_training::optimizer::{OptimizerConfig, Update};
use headroom_training::program::{Keep, StepConfig, evaluation_program, training_program};
use headroom_training::run::{EvaluationSet, evaluate};
use headroom_training::trainer::{EndsStep, StepError, Trainer};
use std::time::{Duration, Instant};

/// The sources of one seed, and the data that losses are measured on.
pub struct Sources {
    training: Vec<Source>,
    held_out: Vec<EvaluationSet>,
    floors: Vec<f64>,
}

impl Sources {
    pub fn open(design: &Design, seed: u64) -> Result<Sources, DataError> {
        let settings = |number: usize, split: Split| {
            let (shape, vocab_size) = (design.step.shape, design.step.model.vocab_size);
            SourceSettings { split, ..SourceSettings::new(shape, vocab_size, source_seed(seed, number)) }
        };
        let open = |number: usize, split: Split| Source::open(&DataSpec::Markov, &settings(number, split));
        let training =
            (0..design.sources).map(|number| open(number, Split::Train)).collect::<Result<Vec<_>, DataError>>()?;
        let floors = training.iter().filter_map(Source::floor_nats).collect();
        let held_out = (0..design.sources)
            .map(|number| EvaluationSet::read(&open(number, Split::Evaluation)?, design.eval_batches))
            .collect::<Result<_, DataError>>()?;
        Ok(Sources { training, held_out, floors })
    }

    pub fn floors(&self) -> &[f64] {
        &self.floors
    }
}

/// Each source of each seed is a separate chain.
fn source_seed(seed: u64, number: usize) -> u64 {
    seed.wrapping_mul(1_000_003).wrapping_add(number as u64)
}

/// A phase ends after this many times the steps of an equal-steps phase, even if its budget is not used up.
const MOST_TIMES: u64 = 20;

pub fn run(
    design: &Design,
    update: Update,
    budget: Budget,
    seed: u64,
    sources: &Sources,
) -> Result<K1Run, ExperimentError> {
    let mut trainer = trainer(design, update, seed)?;
    let all = design.step.model.parameters().total();
    let (mut updated, mut busy, mut complete) = (0u64, Duration::ZERO, true);
    let mut losses = vec![];
    let mut batch = Batch::new(design.step.shape);
    for (phase, source) in (1..).zip(&sources.training) {
        let first = trainer.step;
        loop {
            let taken = trainer.step - first;
            let done = match budget {
                Budget::EqualSteps => taken >= design.steps,
                Budget::EqualUpdates => updated >= phase * design.updates,
            };
            if done || taken >= MOST_TIMES * design.steps {
                complete &= done;
                break;
            }
            source.fill(taken, &mut batch)?;
            let start = Instant::now();
            take_step(&mut trainer, &batch, update)?;
            busy += start.elapsed();
            trainer.read_choices();
            // A dense rule updates every parameter in every step, any other rule only the chosen ones.
            updated = trainer.choices.as_ref().map_or(trainer.step * all, |choices| choices.updated_parameters());
        }
        losses.push(sources.held_out.iter().map(|set| f64::from(evaluate(&mut trainer, set))).collect::<Vec<f64>>());
    }
    let steps = trainer.step;
    let seconds = busy.as_secs_f64();
    let tokens = (steps as usize * design.step.shape.batch_size * design.step.shape.seq_len) as f64;
    let count = losses.len() as f64;
    let own: Vec<f64> = (0..losses.len()).map(|phase| losses[phase][phase]).collect();
    let last = losses.last().cloned().unwrap_or_default();
    let risen = own.iter().zip(&last).take(losses.len().saturating_sub(1)).map(|(own, last)| last - own);
    Ok(K1Run {
        update: update.to_string(),
        budget,
        seed,
        steps,
        seconds,
        steps_per_sec: steps as f64 / seconds.max(1e-9),
        tokens_per_sec: tokens / seconds.max(1e-9),
        updated_parameters: updated,
        updated_share: updated as f64 / (steps.max(1) * all) as f64,
        loss: own.iter().sum::<f64>() / count,
        forgetting: risen.sum::<f64>() / (count - 1.0).max(1.0),
        final_loss: last.iter().sum::<f64>() / count,
        losses,
        complete,
    })
}

/// Fresh weights from the seed, the same for every rule.
fn trainer(design: &Design, update: Update, seed: u64) -> Result<Trainer, ExperimentError> {
    let update = match update {
        Update::Dense => Update::Dense,
        Update::Chosen { rule, .. } => Update::Chosen { rule, seed },
    };
    let optimizer = OptimizerConfig { update, ..design.step.optimizer };
    let step = StepConfig { optimizer, ..design.step.clone() };
    trainer_of(&step, design.device, &design.opening, seed)
}

/// A trainer that also evaluates, with weights drawn from the seed.
pub fn trainer_of(
    step: &StepConfig,
    device: DeviceSpec,
    opening: &Opening,
    seed: u64,
) -> Result<Trainer, ExperimentError> {
    let training = training_program(step, Keep::OnlyTheLoss)?;
    let evaluation = evaluation_program(step, step.shape, &training.program)?;
    let programs: [Program; 2] = [training.program.clone(), evaluation.program.clone()];
    let device = device.open(opening, &programs)?;
    let mut trainer = Trainer::new(device, &step.model, training, Some(evaluation), step.optimizer);
    trainer.draw_weights(seed);
    Ok(trainer)
}

/// Far beyond any step of a run, so that the learning rate stays constant.
pub const LAST_STEP: u64 = u64::MAX;

pub fn take_step(trainer: &mut Trainer, batch: &Batch, update: Update) -> Result<(), ExperimentError> {
    match trainer.loss_of(batch, EndsStep::Yes { last: LAST_STEP }) {
        Ok(_) => Ok(()),
        Err(StepError::NotFinite(cause)) => {
            Err(ExperimentError::NotFinite { label: format!("--update {update}"), cause })
        }
        Err(StepError::Device(error)) => Err(error.into()),
    }
}
