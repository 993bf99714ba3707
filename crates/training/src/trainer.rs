//! A model on a device: writes and reads its weights, and takes one step after the other.

use crate::checkpoint::Content;
use crate::choices::Choices;
use crate::data::Batch;
use crate::fault::OwnFault;
use crate::models::ModelConfig;
use crate::optimizer::{LOG_ROWS, OptimizerConfig, StateTensor, Trained};
use crate::program::{EvaluationProgram, TrainingProgram};
use crate::recording::{Part, Recording};
use crate::rng::Stream;
use crate::tree::Tree;
use crate::weights::write_weight;
use headroom_engine::ranks::{Ranks, RanksError};
use headroom_engine::{Device, Drawn, EngineError, Finished, Moments, Submission, Taken, Words};
use headroom_graph::storage::half_name;
use headroom_graph::{Graph, Phase, Role, TensorType, ValueId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thiserror::Error;

pub(crate) const TRAINING: usize = 0;
const EVALUATION: usize = 1;

/// Elements moved between host and device at a time, so that large tensors never pass through the host whole.
pub(crate) const PIECE: usize = 1 << 16;

/// Standard deviation of the initial weights.
const INITIAL_SPREAD: f32 = 0.02;

/// Where a non-finite loss came from.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum NotFinite {
    #[error("{op} in {module} produced {value}")]
    Operator { op: &'static str, module: String, value: f32 },
    #[error("the weights of {name} hold {value}, {since}")]
    Weights { name: String, value: f32, since: &'static str },
    /// Found on only some of the ranks.
    #[error("{told}")]
    OnRanks { told: String },
    #[error(
        "no operator reproduces it: the same calls on the same values gave finite results, so the machine itself erred"
    )]
    NotRepeated,
}

/// Why a step has no loss.
#[derive(Debug, Error)]
pub enum StepError {
    #[error(transparent)]
    NotFinite(#[from] NotFinite),
    #[error(transparent)]
    Device(#[from] EngineError),
}

/// Where the time of a step went.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepTimes {
    pub data: Duration,
    pub forward: Duration,
    pub backward: Duration,
    pub optimizer: Duration,
    pub total: Duration,
}

/// Whether the update follows a micro-step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndsStep {
    No,
    /// `last` is the step that the run ends at.
    Yes {
        last: u64,
    },
}

pub struct Trainer {
    pub device: Box<dyn Device>,
    pub(crate) training: TrainingProgram,
    evaluation: Option<EvaluationProgram>,
    optimizer: OptimizerConfig,
    /// Steps taken so far, and the index of the first sample that no rank has read for them.
    pub step: u64,
    pub next_sample: u64,
    /// Recording of chosen steps, if requested.
    pub recording: Option<Recording>,
    /// The node choices read from the device so far, if steps choose.
    pub choices: Option<Choices>,
    /// Whether phases are timed from time to time on a device that works ahead.
    pub watches_phases: bool,
    /// Once set, calls that change no weight are skipped and `gave_up` becomes true. Several ranks leave a step only
    /// between micro-batches, where they agree on it.
    pub give_up: Option<Arc<AtomicBool>>,
    /// The other processes that train the same model.
    pub ranks: Option<Arc<Ranks>>,
    /// Injected by a test.
    pub fault: OwnFault,
    /// Why a sharded state could not be read.
    pub(crate) parted: Option<RanksError>,
    gave_up: bool,
}

impl Trainer {
    /// The device must have the training program loaded first, then the evaluation's.
    pub fn new(
        device: Box<dyn Device>,
        config: &ModelConfig,
        training: TrainingProgram,
        evaluation: Option<EvaluationProgram>,
        optimizer: OptimizerConfig,
    ) -> Trainer {
        let mut trainer = Trainer {
            device,
            training,
            evaluation,
            optimizer,
            step: 0,
            next_sample: 0,
            recording: None,
            choices: None,
            watches_phases: false,
            give_up: None,
            ranks: None,
            fault: OwnFault::default(),
            parted: None,
            gave_up: false,
        };
        if let Some(choice) = trainer.training.choice {
            let tree = trainer.tree();
            trainer.device.write_i32(TRAINING, choice.tree, 0, &tree.places());
            trainer.choices = Some(Choices::of(&tree));
        }
        trainer.write_constants(config);
        trainer
    }

    /// Writes the constants of the family's graph.
    pub fn write_constants(&mut self, config: &ModelConfig) {
        for (name, data) in (config.family.constants)(config, self.training.shape.seq_len) {
            let constant = self.graph().named(name).expect("a constant of the family's graph");
            self.device.write_f32(TRAINING, constant, 0, &data);
        }
    }

    pub fn graph(&self) -> &Graph {
        &self.training.program.graph
    }

    pub fn program(&self) -> &TrainingProgram {
        &self.training
    }

    /// Initializes every weight: norms are one, biases zero, everything else normal, each element drawn by its name and
    /// index alone.
    pub fn draw_weights(&mut self, seed: u64) {
        for ((name, ty), role) in self.parameters().into_iter().zip(self.roles()) {
            let stream = Stream::new(seed, &name);
            // A shard of the weight lies elsewhere and is written with the whole.
            let alone = self.shard(&name).is_none();
            if initial(role) == Initial::Drawn && alone && self.draw_on_device(&name, &stream) {
                continue;
            }
            let mut piece = vec![0.0; ty.elements().min(PIECE)];
            for first in (0..ty.elements()).step_by(PIECE) {
                if self.ranks.is_none() && self.is_told_to_give_up() {
                    return;
                }
                piece.truncate(ty.elements() - first);
                fill_initial(&stream, role, first, &mut piece);
                self.write(&name, Content::Weight, first, &piece);
            }
        }
    }

    /// Whether calls were skipped because it was told to give up. Losses after that mean nothing; the weights are those
    /// of the last whole step.
    pub fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// Whether this is true on any rank. Ranks use this to decide together.
    pub fn any_rank(&self, says: bool) -> Result<bool, EngineError> {
        match &self.ranks {
            Some(ranks) => Ok(ranks.largest(says.into())? > 0),
            None => Ok(says),
        }
    }

    /// Abandons the current computation; all ranks do so together.
    pub(crate) fn leave(&mut self) {
        self.gave_up = true;
    }

    /// The request to give up, if this process may act on it by itself between any two calls.
    fn give_up_alone(&self) -> Option<Arc<AtomicBool>> {
        self.give_up.clone().filter(|_| self.ranks.is_none())
    }

    pub(crate) fn is_told_to_give_up(&self) -> bool {
        self.give_up.as_ref().is_some_and(|give_up| give_up.load(Ordering::Relaxed))
    }

    /// The parameters as the leaves of the model's tree.
    pub fn tree(&self) -> Tree {
        self.training.tree()
    }

    /// Draws the same bytes on the device if it can, so that large weights do not pass through the host.
    fn draw_on_device(&mut self, name: &str, stream: &Stream) -> bool {
        let (seed, name_hash) = stream.key();
        let mut values = vec![self.find(name, Content::Weight)];
        values.extend(self.graph().named(&half_name(name)));
        self.device.draw_normal(TRAINING, &values, Drawn { seed, name_hash, spread: INITIAL_SPREAD })
    }

    /// Names and types of the parameters, in the order of their first use.
    pub fn parameters(&self) -> Vec<(String, TensorType)> {
        let graph = self.graph();
        let named = |one: &Trained| (graph.get(one.parameter).name.to_string(), graph.ty(one.parameter).clone());
        self.training.trained.iter().map(named).collect()
    }

    /// Kinds of optimizer state of each parameter, in the same order.
    pub fn states(&self) -> Vec<Vec<StateTensor>> {
        self.training.trained.iter().map(Trained::kinds).collect()
    }

    /// Roles of the parameters, in the same order.
    pub fn roles(&self) -> Vec<Role> {
        self.training.trained.iter().map(|one| self.graph().get(one.parameter).part.role).collect()
    }

    /// Writes elements of one of a parameter's tensors, from index `first` on.
    pub fn write(&mut self, name: &str, content: Content, first: usize, data: &[f32]) {
        let (value, shard) = (self.find(name, content), self.shard(name));
        match (content, shard) {
            (Content::Weight, shard) => {
                let graph = &self.training.program.graph;
                write_weight(&mut *self.device, (TRAINING, graph), name, first, data);
                if let Some(shard) = shard {
                    shard.write(&mut *self.device, shard.weights, first, data);
                }
            }
            (Content::State(_), Some(shard)) => shard.write(&mut *self.device, value, first, data),
            (Content::State(_), None) => self.device.write_f32(TRAINING, value, first, data),
        }
    }

    /// Hands over one of a parameter's tensors in pieces, in order. All ranks must read a sharded state together. If
    /// that fails, the data is NaN and `parted` holds the reason.
    pub fn read<E>(
        &mut self,
        name: &str,
        content: Content,
        mut take: impl FnMut(&[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let value = self.find(name, content);
        if let (Content::State(_), Some(shard)) = (content, self.shard(name)) {
            let mut taken = Ok(());
            let read = self.read_together(&shard, value, |piece| {
                if taken.is_ok() {
                    taken = take(piece);
                }
            });
            taken?;
            return match read {
                Ok(()) => Ok(()),
                Err(error) => {
                    self.parted = Some(error);
                    take(&[f32::NAN])
                }
            };
        }
        let elements = self.graph().ty(value).elements();
        let mut piece = vec![0.0; elements.min(PIECE)];
        for first in (0..elements).step_by(PIECE) {
            piece.truncate(elements - first);
            self.device.read_f32(TRAINING, value, first, &mut piece);
            take(&piece)?;
        }
        Ok(())
    }

    pub(crate) fn find(&self, name: &str, content: Content) -> ValueId {
        let graph = self.graph();
        let trained = &self.training.trained;
        let one = trained.iter().find(|one| &*graph.get(one.parameter).name == name).expect("a parameter of the model");
        match content {
            Content::Weight => one.parameter,
            Content::State(kind) => one.state(kind).expect("a tensor that the optimizer keeps"),
        }
    }

    /// An output of the graph by name: `loss`, `gradient_norm`, and whatever else the program keeps.
    pub fn read_output(&mut self, name: &str) -> Option<Vec<f32>> {
        let value = self.graph().output_named(name)?;
        let mut data = vec![0.0; self.graph().ty(value).elements()];
        self.device.read_f32(TRAINING, value, 0, &mut data);
        Some(data)
    }

    /// Submits a micro-step, followed by the update if `ends_step`. If the device finishes before this returns, a
    /// non-finite loss is an error and `gave_up` says whether calls were skipped; neither case counts as a step.
    pub fn submit(&mut self, batch: &Batch, ends_step: EndsStep) -> Result<(), NotFinite> {
        if self.fault.spoils(self.step + 1) {
            // The parameter used last: every loss reads all of it.
            let last = self.parameters().pop().map(|(name, _)| name).unwrap_or_default();
            self.write(&last, Content::Weight, 0, &[f32::NAN]);
        }
        let give_up = self.give_up_alone();
        let (training, forward) = (&self.training, self.training.forward);
        let plan = &training.program.plan;
        let marks = [plan.phase(Phase::Backward).start, plan.phase(Phase::Optimizer).start];
        let (end, rates) = match ends_step {
            EndsStep::No => (marks[1], [0.0; 3]),
            EndsStep::Yes { last } => (plan.calls.len(), self.optimizer.rates_at(self.step + 1, last)),
        };
        let share = [1.0 / (self.optimizer.accumulation * training.ranks) as f32];
        let (at, choice) = (log_place(self.step + 1), training.choice);
        let inputs = [
            (forward.input_ids, Words::Ids(&batch.input_ids)),
            (forward.targets, Words::Ids(&batch.targets)),
            // Its memory is reused later in the step.
            (training.loss_gradient, Words::Floats(&share)),
            (training.rates, Words::Floats(&rates)),
            (choice.map_or(training.rates, |choice| choice.at), Words::Ids(&at)),
        ];
        let norm = training.gradient_norm.filter(|_| ends_step != EndsStep::No);
        let results = [forward.loss, norm.unwrap_or(forward.loss)];
        let taken = self.device.submit(&Submission {
            program: TRAINING,
            inputs: &inputs[..4 + usize::from(choice.is_some())],
            calls: 0..end,
            results: &results[..1 + usize::from(norm.is_some())],
            marks,
            timed: self.watches_phases,
            give_up: give_up.as_deref(),
        });
        match taken {
            Taken::NotFinite => return Err(self.first_not_finite()),
            Taken::GivenUp => self.gave_up = true,
            Taken::Queued | Taken::Whole(_) if ends_step != EndsStep::No => self.step += 1,
            Taken::Queued | Taken::Whole(_) => {}
        }
        if let Taken::Whole(moments) = taken {
            self.mark_parts(moments, ends_step);
        }
        Ok(())
    }

    fn mark_parts(&mut self, moments: Moments, ends_step: EndsStep) {
        let Moments { began, written, forward, read, backward, end } = moments;
        self.mark(Part::Inputs, began, written);
        self.mark(Part::Forward, written, forward);
        self.mark(Part::LossRead, forward, read);
        self.mark(Part::Backward, read, backward);
        if ends_step != EndsStep::No {
            self.mark(Part::Optimizer, backward, end);
        }
    }

    /// Waits for the submitted micro-steps; each gives one result.
    pub fn collect(&mut self, finished: &mut Vec<Finished>) -> Result<(), EngineError> {
        self.device.collect(finished)
    }

    /// Runs one micro-step and waits for its loss, which is meaningless after `gave_up` or if nothing is computed.
    pub fn loss_of(&mut self, batch: &Batch, ends_step: EndsStep) -> Result<f32, StepError> {
        let submitted = self.submit(batch, ends_step);
        if let Some(error) = self.device.failure() {
            return Err(error.into());
        }
        submitted?;
        let mut finished = vec![];
        self.collect(&mut finished)?;
        let loss = finished.last().map_or(f32::NAN, |one| one.results[0]);
        match self.device.computes() && !self.gave_up && !loss.is_finite() {
            true => Err(self.first_not_finite().into()),
            false => Ok(loss),
        }
    }

    /// Reads what steps chose since the last call; waits for queued work.
    pub fn read_choices(&mut self) {
        let (Some(choice), Some(choices)) = (self.training.choice, &mut self.choices) else { return };
        if !self.device.computes() {
            return;
        }
        for step in choices.unread(self.step) {
            let row = choices.row();
            self.device.read_f32(TRAINING, choice.log, log_row(step) * row.len(), row);
            choices.add(step);
        }
    }

    /// Whether the next step would overwrite a choice that has not been read.
    pub fn choices_are_full(&self) -> bool {
        self.choices.as_ref().is_some_and(|choices| choices.unread(self.step).count() >= LOG_ROWS)
    }

    /// Number of updates of each parameter, if steps choose.
    pub fn node_steps(&mut self) -> Option<Vec<(String, u64)>> {
        let choice = self.training.choice?;
        let names: Vec<String> = self.parameters().into_iter().map(|(name, _)| name).collect();
        let mut counts = vec![0.0; names.len()];
        self.device.read_f32(TRAINING, choice.counts, 0, &mut counts);
        Some(names.into_iter().zip(counts.into_iter().map(|count| count as u64)).collect())
    }

    /// Restores these counts, in parameter order, after `step`.
    pub(crate) fn resume_choices(&mut self, counts: &[u64], step: u64) {
        let (Some(choice), Some(choices)) = (self.training.choice, &mut self.choices) else { return };
        let counts: Vec<f32> = counts.iter().map(|count| *count as f32).collect();
        self.device.write_f32(TRAINING, choice.counts, 0, &counts);
        choices.start_after(step);
    }

    /// Reads elements of a parameter from index `first` on.
    pub(crate) fn read_weights_at(&mut self, name: &str, first: usize, piece: &mut [f32]) {
        let value = self.find(name, Content::Weight);
        self.device.read_f32(TRAINING, value, first, piece);
    }

    /// Whether the gradient norm is among the results of a step.
    pub fn has_gradient_norm(&self) -> bool {
        self.training.gradient_norm.is_some()
    }

    /// Marks a part of the step if it is being recorded.
    pub(crate) fn mark(&mut self, part: Part, start: Duration, end: Duration) {
        if let Some(recording) = &mut self.recording {
            recording.mark(part, start, end);
        }
    }

    /// Multiplies the learning rate by a factor from now on.
    pub fn scale_rate(&mut self, factor: f64) {
        self.optimizer.learning_rate *= factor;
    }

    pub fn learning_rate(&self, last: u64) -> f64 {
        self.optimizer.learning_rate_at(self.step.max(1), last)
    }

    /// The loss of a batch without training on it.
    pub fn evaluate(&mut self, batch: &Batch) -> f32 {
        let evaluation = self.evaluation.as_ref().expect("asked for only where an evaluation was built");
        let (forward, calls) = (evaluation.forward, evaluation.program.plan.phase(Phase::Forward));
        self.device.write_i32(EVALUATION, forward.input_ids, 0, &batch.input_ids);
        self.device.write_i32(EVALUATION, forward.targets, 0, &batch.targets);
        match self.give_up_alone() {
            Some(give_up) => self.gave_up |= !self.device.run_unless(EVALUATION, calls, &give_up),
            None => self.device.run(EVALUATION, calls),
        }
        let mut loss = [0.0];
        self.device.read_f32(EVALUATION, forward.loss, 0, &mut loss);
        loss[0]
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Initial {
    Value(f32),
    Drawn,
}

fn initial(role: Role) -> Initial {
    match role {
        Role::Norm | Role::HeadNorm => Initial::Value(1.0),
        Role::Bias => Initial::Value(0.0),
        _ => Initial::Drawn,
    }
}

/// Initial weights from element `first` on: norms are one, biases zero, everything else normal.
pub(crate) fn fill_initial(stream: &Stream, role: Role, first: usize, piece: &mut [f32]) {
    match initial(role) {
        Initial::Value(value) => piece.fill(value),
        Initial::Drawn => {
            stream.fill_normal(first as u64, piece);
            piece.iter_mut().for_each(|x| *x *= INITIAL_SPREAD);
        }
    }
}

/// The row of the log that a step writes.
pub(crate) fn log_row(step: u64) -> usize {
    (step % LOG_ROWS as u64) as usize
}

/// Input to the node choice: the log's row and the step.
fn log_place(step: u64) -> [i32; 2] {
    [log_row(step) as i32, step as i32]
}
