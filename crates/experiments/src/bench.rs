//! One model, warm on the CPU or a GPU, that takes timed steps in alternation with others.

use headroom_engine::{DeviceSpec, EngineError, Opening, Program, Target};
use headroom_graph::GraphError;
use headroom_graph::pass::Pass;
use headroom_graph::passes::PassList;
use headroom_trace::ReadError;
use headroom_training::checkpoint::Content;
use headroom_training::data::{Batch, DataError, DataSpec, Source, SourceSettings};
use headroom_training::memory::MemoryNeed;
use headroom_training::program::{Keep, StepConfig, TrainingProgram, training_program_and};
use headroom_training::recording::Recording;
use headroom_training::trainer::{EndsStep, NotFinite, StepError, Trainer};
use std::collections::BTreeMap;
use std::time::Instant;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum ExperimentError {
    #[error(transparent)]
    Graph(#[from] GraphError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Trace(#[from] ReadError),
    #[error("the loss is not finite under {label}: {cause}")]
    NotFinite { label: String, cause: NotFinite },
}

/// Settings that all benches of an experiment share.
#[derive(Clone, Debug)]
pub struct Setting {
    pub seed: u64,
    pub device: DeviceSpec,
    pub opening: Opening,
}

/// A change to the model: a list of passes.
#[derive(Clone)]
pub struct Variant {
    pub passes: PassList,
    /// A fault that a test plants, so that a gate has something to catch.
    pub plant: Option<PlantedFault>,
}

impl Variant {
    pub fn of(passes: &PassList) -> Variant {
        Variant { passes: passes.clone(), plant: None }
    }

    /// The naive graph.
    pub fn baseline() -> Variant {
        Variant::of(&PassList::none())
    }
}

/// A fault: an incorrect rewrite, and an action before every step.
#[derive(Clone, Copy)]
pub struct PlantedFault {
    pub rewrite: Pass,
    pub before_step: fn(&mut Trainer),
}

/// Far beyond any step of a bench, so that learning rates stay constant.
const LAST_STEP: u64 = u64::MAX;

/// Number of batches, which are used cyclically.
const BATCHES: u64 = 32;

pub struct Bench {
    trainer: Trainer,
    batches: Vec<Batch>,
    label: String,
    before_step: Option<fn(&mut Trainer)>,
    curve: Vec<f32>,
    pub program: Program,
    pub memory: MemoryNeed,
}

impl Bench {
    /// Fresh weights from the seed, batches from the Markov source. The list of passes in `step` is ignored.
    pub fn new(step: &StepConfig, variant: &Variant, keep: Keep, setting: &Setting) -> Result<Bench, ExperimentError> {
        let training = program(step, variant, keep)?;
        let program = training.program.clone();
        let programs = std::slice::from_ref(&program);
        let device = setting.device.open(&setting.opening, programs)?;
        let mut trainer = Trainer::new(device, &step.model, training, None, step.optimizer);
        trainer.draw_weights(setting.seed);
        let vocab_size = step.model.vocab_size;
        let settings = SourceSettings::new(step.shape, vocab_size, setting.seed);
        let source = Source::open(&DataSpec::Markov, &settings)?;
        let fill = |position: u64| {
            let mut batch = Batch::new(step.shape);
            source.fill(position, &mut batch).map(|()| batch)
        };
        let batches = (0..BATCHES).map(fill).collect::<Result<_, DataError>>()?;
        let memory = MemoryNeed::of(std::slice::from_ref(&program), setting.opening.threads);
        let before_step = variant.plant.map(|plant| plant.before_step);
        let label = variant.passes.label();
        Ok(Bench { trainer, batches, label, before_step, curve: vec![], program, memory })
    }

    /// Kernels per step.
    pub fn kernels(&self) -> usize {
        self.program.kernels()
    }

    pub fn calls(&self) -> usize {
        self.program.plan.calls.len()
    }

    pub fn training(&self) -> &TrainingProgram {
        self.trainer.program()
    }

    /// Steps before the first that counts: a GPU captures the step and tries ways to replay it.
    pub fn warm_up_steps(&self) -> usize {
        match self.program.target {
            Target::Cpu => 2,
            Target::Cuda => 24,
        }
    }

    /// Takes a step; returns its loss and the seconds until it is done, by the host's clock.
    pub fn step(&mut self) -> Result<(f32, f64), ExperimentError> {
        let start = Instant::now();
        if let Some(act) = self.before_step {
            act(&mut self.trainer);
        }
        let loss = self.micro_step(EndsStep::Yes { last: LAST_STEP })?;
        let seconds = start.elapsed().as_secs_f64();
        self.curve.push(loss);
        Ok((loss, seconds))
    }

    /// Seconds of one step.
    pub fn seconds(&mut self) -> Result<f64, ExperimentError> {
        Ok(self.step()?.1)
    }

    /// Losses of all steps since the weights were drawn, whatever they were taken for.
    pub fn curve(&self) -> &[f32] {
        &self.curve
    }

    /// Losses of this many steps.
    pub fn losses(&mut self, steps: usize) -> Result<Vec<f32>, ExperimentError> {
        (0..steps).map(|_| Ok(self.step()?.0)).collect()
    }

    /// Records every call of this many steps.
    pub fn record_steps(&mut self, steps: usize) -> Result<Recording, ExperimentError> {
        let first = self.trainer.step + 1;
        let wanted = first..=first + steps as u64 - 1;
        self.trainer.recording = Some(Recording::of_steps(wanted.clone(), &self.program, 1));
        for step in wanted {
            if let Some(recording) = &mut self.trainer.recording {
                recording.begin(step, &mut *self.trainer.device);
            }
            self.step()?;
            if let Some(recording) = &mut self.trainer.recording {
                recording.end(step, true, &mut *self.trainer.device);
            }
        }
        Ok(self.trainer.recording.take().unwrap_or_else(|| Recording::of_steps(1..=1, &self.program, 1)))
    }

    /// Seconds of each call, the fastest over some recorded steps: what the machine does when left alone.
    pub fn call_seconds(&mut self, steps: usize) -> Result<Vec<f64>, ExperimentError> {
        let recording = self.record_steps(steps)?;
        Ok(fastest_calls(&recording, self.calls()))
    }

    /// Loss and every gradient of the first batch with the current weights; updates nothing.
    pub fn gradients(&mut self) -> Result<(f32, BTreeMap<String, Vec<f32>>), ExperimentError> {
        let loss = self.micro_step(EndsStep::No)?;
        let names: Vec<String> = self.trainer.parameters().into_iter().map(|(name, _)| name).collect();
        let gradients = names.into_iter().filter_map(|name| {
            let gradient = self.trainer.read_output(&format!("grad.{name}"))?;
            Some((name, gradient))
        });
        Ok((loss, gradients.collect()))
    }

    /// All weights as bits, for a bitwise comparison.
    pub fn weight_bits(&mut self) -> Vec<u32> {
        let mut bits = vec![];
        for (name, _) in self.trainer.parameters() {
            let read: Result<(), std::convert::Infallible> = self.trainer.read(&name, Content::Weight, |piece| {
                bits.extend(piece.iter().map(|x| x.to_bits()));
                Ok(())
            });
            let Ok(()) = read;
        }
        bits
    }

    fn micro_step(&mut self, ends_step: EndsStep) -> Result<f32, ExperimentError> {
        let batch = &self.batches[(self.trainer.step % BATCHES) as usize];
        self.trainer.loss_of(batch, ends_step).map_err(|error| match error {
            StepError::NotFinite(cause) => ExperimentError::NotFinite { label: self.label.clone(), cause },
            StepError::Device(error) => error.into(),
        })
    }
}

/// The step under a variant, not yet on a device.
pub fn program(step: &StepConfig, variant: &Variant, keep: Keep) -> Result<TrainingProgram, GraphError> {
    let own: Vec<Pass> = variant.plant.iter().map(|plant| plant.rewrite).collect();
    training_program_and(&StepConfig { passes: variant.passes.clone(), ..step.clone() }, keep, &own)
}

/// Seconds of each call, the fastest over the recorded steps.
pub fn fastest_calls(recording: &Recording, calls: usize) -> Vec<f64> {
    let mut fastest = vec![f64::INFINITY; calls];
    for span in recording.steps().iter().flat_map(|step| recording.calls(step)) {
        let call = span.call as usize;
        fastest[call] = fastest[call].min(span.duration().as_secs_f64());
    }
    // A call that has nothing to do on a GPU is not recorded there.
    fastest.iter_mut().filter(|seconds| seconds.is_infinite()).for_each(|seconds| *seconds = 0.0);
    fastest
}
