//! Text generation from a trained model: one sequence with a KV cache, token by token.

mod sampling;
mod vocabulary;

pub use sampling::Sampling;
pub use vocabulary::{Vocabulary, VocabularyError};

use crate::checkpoint::{Checkpoint, CheckpointError, Content};
use crate::models::{self, ModelConfig};
use crate::weights::write_weight;
use headroom_engine::{Device, DeviceSpec, EngineError, Opening, Program, Target, Walk};
use headroom_graph::pass::apply;
use headroom_graph::passes::PassList;
use headroom_graph::passes::decode::{FIRST, LOGITS, PLACES, decode};
use headroom_graph::storage::stored;
use headroom_graph::{Graph, GraphError, Plan, Precision, ValueId};
use thiserror::Error;

/// Prompt tokens processed per call.
const READ_AT_A_TIME: usize = 32;

/// Programs on the device: the first reads a prompt, the second a single token.
const READS: usize = 0;
const ONE: usize = 1;

#[derive(Debug, Error)]
pub enum GenerateError {
    #[error(transparent)]
    Graph(#[from] GraphError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error("token {token} is not in the model's vocabulary of {vocabulary}")]
    OutsideVocabulary { token: i64, vocabulary: usize },
    #[error("{tokens} tokens are more than the {longest} that there is room for")]
    TooLong { tokens: usize, longest: usize },
    #[error("the model's logits are not finite after {tokens} tokens")]
    NotFinite { tokens: usize },
}

/// Settings for running a model.
pub struct Settings<'a> {
    pub device: DeviceSpec,
    pub opening: &'a Opening,
    pub precision: Precision,
    pub passes: PassList,
    /// Longest sequence there is room for, prompt included.
    pub longest: usize,
}

/// A model on a device, and the sequence so far.
pub struct Generator {
    device: Box<dyn Device>,
    programs: [Values; 2],
    /// Name of a table, its rows, and the elements per row.
    tables: Vec<(&'static str, Vec<f32>, usize)>,
    vocabulary: usize,
    longest: usize,
    tokens: usize,
    logits: Vec<f32>,
}

/// The values of a program that the host uses.
struct Values {
    graph: Graph,
    calls: usize,
    /// Tokens per run.
    rows: usize,
}

impl Generator {
    pub fn open(checkpoint: &Checkpoint, settings: &Settings) -> Result<Generator, GenerateError> {
        let (model, longest) = (&checkpoint.config().model, settings.longest);
        let reads = program(model, READ_AT_A_TIME.min(longest), settings, 0)?;
        let one = program(model, 1, settings, reads.plan.kept_bytes)?;
        let programs = [reads, one];
        let device = settings.device.open(settings.opening, &programs)?;
        let constants = (model.family.constants)(model, longest);
        let values = programs.map(|Program { graph, plan, .. }| {
            let rows = graph.named("input_ids").map_or(1, |ids| graph.ty(ids).elements());
            Values { graph, calls: plan.calls.len(), rows }
        });
        let tables = constants.into_iter().map(|(name, rows)| {
            let each = rows.len() / longest;
            (name, rows, each)
        });
        let mut generator = Generator {
            device,
            programs: values,
            tables: tables.collect(),
            vocabulary: model.vocab_size,
            longest,
            tokens: 0,
            logits: vec![0.0; model.vocab_size],
        };
        checkpoint.read_weights(&checkpoint.config().tensors(), &mut |content, name, first, piece| {
            debug_assert_eq!(content, Content::Weight);
            // Both programs have it at the same address.
            write_weight(&mut *generator.device, (READS, &generator.programs[READS].graph), name, first, piece);
            Ok(())
        })?;
        Ok(generator)
    }

    /// Tokens of the sequence so far.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Reads the next tokens of the sequence and returns the logits for the token after them.
    pub fn read(&mut self, tokens: &[i32]) -> Result<&[f32], GenerateError> {
        let is_known = |token: i32| usize::try_from(token).is_ok_and(|token| token < self.vocabulary);
        if let Some(&token) = tokens.iter().find(|token| !is_known(**token)) {
            return Err(GenerateError::OutsideVocabulary { token: token.into(), vocabulary: self.vocabulary });
        }
        if self.tokens + tokens.len() > self.longest {
            return Err(GenerateError::TooLong { tokens: self.tokens + tokens.len(), longest: self.longest });
        }
        for some in tokens.chunks(self.programs[READS].rows) {
            self.step(if some.len() == 1 { ONE } else { READS }, some);
        }
        if let Some(error) = self.device.failure() {
            return Err(error.into());
        }
        match self.device.computes() && self.logits.iter().any(|x| !x.is_finite()) {
            true => Err(GenerateError::NotFinite { tokens: self.tokens }),
            false => Ok(&self.logits),
        }
    }

    /// Pads with token 0 beyond those given: their cache entries are overwritten before anything reads them.
    fn step(&mut self, program: usize, tokens: &[i32]) {
        let Values { graph, calls, rows } = &self.programs[program];
        let value = |name: &str| graph.named(name);
        let mut ids = vec![0; *rows];
        ids[..tokens.len()].copy_from_slice(tokens);
        let first = self.tokens;
        let last = self.longest - 1;
        let write = |device: &mut Box<dyn Device>, to: Option<ValueId>, data: &[i32]| {
            if let Some(to) = to {
                device.write_i32(program, to, 0, data);
            }
        };
        write(&mut self.device, value("input_ids"), &ids);
        write(&mut self.device, value(FIRST), &[first as i32]);
        let places: Vec<i32> = (first..first + rows).map(|place| place.min(last) as i32).collect();
        write(&mut self.device, value(PLACES), &places);
        for (name, table, each) in &self.tables {
            let Some(to) = value(name) else { continue };
            for (row, place) in places.iter().enumerate() {
                let data = &table[*place as usize * each..][..*each];
                self.device.write_f32(program, to, row * each, data);
            }
        }
        self.device.run(program, 0..*calls);
        if let Some(logits) = graph.output_named(LOGITS) {
            self.device.read_f32(program, logits, (tokens.len() - 1) * self.vocabulary, &mut self.logits);
        }
        self.tokens += tokens.len();
    }
}

/// Reserves at least `kept` bytes for the values that are kept.
fn program(model: &ModelConfig, rows: usize, settings: &Settings, kept: usize) -> Result<Program, GraphError> {
    let mut graph = Graph::new();
    let logits = models::forward(&mut graph, model, 1, rows)?.logits;
    let graph = decode(&graph, logits, settings.longest)?;
    graph.validate("decode")?;
    let (graph, _) = apply(graph, &settings.passes.on_forward())?;
    let target: Target = settings.device.target();
    let graph = stored(&graph, |value| target.kept(settings.precision, value))?;
    graph.validate("storage")?;
    let plan = Plan::laid_out(&graph, target.layout(), kept);
    let walk = Walk::of(&settings.passes);
    Ok(Program { graph, plan, precision: settings.precision, target, walk })
}
