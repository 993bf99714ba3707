//! A model that is only evaluated: the forward pass, without gradients or optimizer state.

use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::data::{Batch, DataError, Source};
use crate::models::ModelConfig;
use crate::program::EvaluationProgram;
use crate::weights::write_weight;
use headroom_engine::Device;
use headroom_graph::Phase;

const PROGRAM: usize = 0;

pub struct Evaluator {
    device: Box<dyn Device>,
    evaluation: EvaluationProgram,
}

/// Loss over windows, each of which is a mean over its tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluated {
    /// Nats per token.
    pub loss: f64,
    pub windows: u64,
}

impl Evaluator {
    /// The device must have exactly this program loaded.
    pub fn new(
        device: Box<dyn Device>,
        model: &ModelConfig,
        evaluation: EvaluationProgram,
        checkpoint: &Checkpoint,
    ) -> Result<Evaluator, CheckpointError> {
        let mut evaluator = Evaluator { device, evaluation };
        for (name, data) in (model.family.constants)(model, evaluator.evaluation.shape.seq_len) {
            evaluator.write(name, 0, &data);
        }
        checkpoint.read_weights(&checkpoint.config().tensors(), &mut |_, name, first, piece| {
            let graph = &evaluator.evaluation.program.graph;
            write_weight(&mut *evaluator.device, (PROGRAM, graph), name, first, piece);
            Ok(())
        })?;
        Ok(evaluator)
    }

    /// Ignores values that the program does not use.
    fn write(&mut self, name: &str, first: usize, data: &[f32]) {
        if let Some(value) = self.evaluation.program.graph.named(name) {
            self.device.write_f32(PROGRAM, value, first, data);
        }
    }

    /// Mean loss of a batch, in nats per token.
    pub fn loss(&mut self, batch: &Batch) -> f64 {
        let forward = self.evaluation.forward;
        self.device.write_i32(PROGRAM, forward.input_ids, 0, &batch.input_ids);
        self.device.write_i32(PROGRAM, forward.targets, 0, &batch.targets);
        self.device.run(PROGRAM, self.evaluation.program.plan.phase(Phase::Forward));
        let mut loss = [0.0];
        self.device.read_f32(PROGRAM, forward.loss, 0, &mut loss);
        f64::from(loss[0])
    }

    /// Evaluates this many batches of a source, or all its windows once each; `told` receives the number of windows
    /// done. An endless source gives one batch unless a number is given.
    pub fn evaluate(
        &mut self,
        source: &Source,
        batches: Option<u64>,
        mut told: impl FnMut(u64),
    ) -> Result<Evaluated, DataError> {
        let shape = source.shape();
        let rows = shape.batch_size as u64;
        let windows = match (source.windows_per_epoch(), batches) {
            (Some(windows), Some(batches)) => windows.min(batches.saturating_mul(rows)),
            (Some(windows), None) => windows,
            (None, batches) => batches.unwrap_or(1).saturating_mul(rows),
        };
        let mut batch = Batch::new(shape);
        let mut sum = 0.0;
        for position in 0..windows / rows {
            source.fill(position, &mut batch)?;
            sum += self.loss(&batch) * rows as f64;
            told((position + 1) * rows);
        }
        let rest = (windows % rows) as usize;
        if rest > 0 {
            // The program takes whole batches only. Surplus rows repeat the first row, whose loss is then subtracted.
            source.fill(windows / rows, &mut batch)?;
            repeat_first_row(&mut batch, rest, shape.seq_len);
            let together = self.loss(&batch) * rows as f64;
            repeat_first_row(&mut batch, 1, shape.seq_len);
            sum += together - self.loss(&batch) * (rows as usize - rest) as f64;
            told(windows);
        }
        Ok(Evaluated { loss: sum / windows.max(1) as f64, windows })
    }
}

/// Copies the first row into every row from `from` on.
fn repeat_first_row(batch: &mut Batch, from: usize, seq_len: usize) {
    for ids in [&mut batch.input_ids, &mut batch.targets] {
        let (first, others) = ids.split_at_mut(from * seq_len);
        others.chunks_exact_mut(seq_len).for_each(|row| row.copy_from_slice(&first[..seq_len]));
    }
}
