//! One model, warm on the CPU, that takes timed steps in turn with others.

use headroom_engine::cpu::isa::Isa;
use headroom_engine::cpu::{Cpu, Reductions};
use headroom_engine::recorder::Recorder;
use headroom_engine::{EngineError, Program};
use headroom_graph::GraphError;
use headroom_training::checkpoint::Content;
use headroom_training::data::{Batch, DataError, DataSpec, Source, SourceSettings, Split};
use headroom_training::memory::MemoryNeed;
use headroom_training::program::{Keep, StepConfig, training_program};
use headroom_training::trainer::{NotFinite, StepTimes, Trainer};
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
    #[error("the loss is not finite under {label}: {cause}")]
    NotFinite { label: String, cause: NotFinite },
}

/// What all benches of an experiment share.
#[derive(Clone, Debug)]
pub struct Setting {
    pub threads: usize,
    pub seed: u64,
}

/// Learning rates stay constant: no bench reaches this step.
const LAST_STEP: u64 = u64::MAX;

/// Batches that are gone through again and again.
const BATCHES: u64 = 32;

pub struct Bench {
    trainer: Trainer,
    batches: Vec<Batch>,
    label: String,
    pub program: Program,
    pub memory: MemoryNeed,
}

impl Bench {
    /// Fresh weights by the seed, batches of the Markov source.
    pub fn new(step: &StepConfig, keep: Keep, setting: &Setting) -> Result<Bench, ExperimentError> {
        let training = training_program(step, keep)?;
        let program = training.program.clone();
        let cpu = Cpu::new(setting.threads, Isa::detect(), Reductions::Fixed, std::slice::from_ref(&program))?;
        let mut trainer = Trainer::new(Box::new(cpu), &step.model, training, None, step.optimizer);
        trainer.draw_weights(setting.seed);
        let vocab_size = step.model.vocab_size;
        let settings =
            SourceSettings { shape: step.shape, vocab_size, seed: setting.seed, split: Split::Train, tokenizer: None };
        let source = Source::open(&DataSpec::Markov, &settings)?;
        let fill = |position: u64| {
            let mut batch = Batch::new(step.shape);
            source.fill(position, &mut batch).map(|()| batch)
        };
        let batches = (0..BATCHES).map(fill).collect::<Result<_, DataError>>()?;
        let memory = MemoryNeed::of(std::slice::from_ref(&program), setting.threads);
        Ok(Bench { trainer, batches, label: step.passes.label(), program, memory })
    }

    pub fn kernels(&self) -> usize {
        self.program.plan.calls.len()
    }

    /// Takes a step; its loss and its seconds.
    pub fn step(&mut self) -> Result<(f32, f64), ExperimentError> {
        let start = Instant::now();
        let loss = self.micro_step()?;
        self.trainer.update(LAST_STEP, &mut StepTimes::default());
        Ok((loss, start.elapsed().as_secs_f64()))
    }

    /// Seconds of the fastest of some steps: what the machine does when left alone.
    pub fn fastest(&mut self, steps: usize) -> Result<f64, ExperimentError> {
        (0..steps).try_fold(f64::INFINITY, |best, _| Ok(self.step()?.1.min(best)))
    }

    /// Losses of so many steps.
    pub fn losses(&mut self, steps: usize) -> Result<Vec<f32>, ExperimentError> {
        (0..steps).map(|_| Ok(self.step()?.0)).collect()
    }

    /// Seconds of each call, the fastest of some recorded steps.
    pub fn call_seconds(&mut self, steps: usize) -> Result<Vec<f64>, ExperimentError> {
        let calls = self.kernels();
        let mut fastest = vec![f64::INFINITY; calls];
        for _ in 0..steps {
            self.trainer.device.record(Some(Recorder::with_room_for(calls)));
            self.step()?;
            let recorded = self.trainer.device.record(None);
            let spans = recorded.as_ref().map(|recorder| recorder.spans(0..recorder.len())).unwrap_or_default();
            for span in spans {
                let call = span.call as usize;
                fastest[call] = fastest[call].min(span.duration().as_secs_f64());
            }
        }
        Ok(fastest)
    }

    /// Loss and every gradient of the first batch, from the weights as they are; nothing is updated.
    pub fn gradients(&mut self) -> Result<(f32, BTreeMap<String, Vec<f32>>), ExperimentError> {
        let loss = self.micro_step()?;
        let names: Vec<String> = self.trainer.parameters().into_iter().map(|(name, _)| name).collect();
        let gradients = names.into_iter().filter_map(|name| {
            let gradient = self.trainer.read_output(&format!("grad.{name}"))?;
            Some((name, gradient))
        });
        Ok((loss, gradients.collect()))
    }

    /// All weights as bits, for a comparison of bytes.
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

    fn micro_step(&mut self) -> Result<f32, ExperimentError> {
        let batch = &self.batches[(self.trainer.step % BATCHES) as usize];
        self.trainer
            .micro_step(batch, &mut StepTimes::default())
            .map_err(|cause| ExperimentError::NotFinite { label: self.label.clone(), cause })
    }
}
