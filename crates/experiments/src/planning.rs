//! Figures from a step's plan before anything runs: memory, FLOPs, predicted time, and how large batch and sequence may
//! get.

use crate::components::at_peak;
use headroom_graph::GraphError;
use headroom_graph::cost::{Rates, predicted_step_seconds};
use headroom_record::study::{Components, PlannedFigures};
use headroom_training::data::BatchShape;
use headroom_training::memory::MemoryNeed;
use headroom_training::program::{Keep, StepConfig, TrainingProgram, training_program};

pub const MIB: f64 = 1024.0 * 1024.0;

/// A step, planned.
pub struct PlannedStep {
    pub training: TrainingProgram,
    pub need: MemoryNeed,
}

impl PlannedStep {
    pub fn new(step: &StepConfig, threads: usize) -> Result<PlannedStep, GraphError> {
        let training = training_program(step, Keep::OnlyTheLoss)?;
        let need = MemoryNeed::of(std::slice::from_ref(&training.program), threads);
        Ok(PlannedStep { training, need })
    }

    pub fn components(&self) -> Components {
        at_peak(&self.training.program, &self.need)
    }

    pub fn predicted_seconds(&self, rates: &Rates) -> f64 {
        predicted_step_seconds(&self.training.program.plan, rates)
    }

    /// The caller fills in `num_steps` and the name of the passes.
    pub fn figures(&self, step: &StepConfig, rates: &Rates) -> PlannedFigures {
        let calls = &self.training.program.plan.calls;
        let bytes: u64 = calls.iter().map(|call| call.bytes).sum();
        let executed: u64 = calls.iter().map(|call| call.flops).sum();
        let parameters = step.model.parameters().total();
        let BatchShape { batch_size, seq_len } = step.shape;
        PlannedFigures {
            parameters,
            batch_size: batch_size as u64,
            seq_len: seq_len as u64,
            num_steps: 0,
            steps_per_turn: 0,
            kernels_per_step: self.training.program.kernels() as u64,
            recomputed_layers: step.recomputed_layers as u64,
            planned_memory_mb: self.need.total() as f64 / MIB,
            memory_by_component: self.components(),
            memory_over_parameters: self.need.total() as f64 / (4.0 * parameters as f64),
            // The backward pass needs two products for each one of the forward pass.
            flops_per_step: (3 * step.model.needed_forward_flops(batch_size, seq_len)) as f64,
            arithmetic_intensity: executed as f64 / (bytes as f64).max(1.0),
            predicted_step_seconds: self.predicted_seconds(rates),
        }
    }
}

/// The largest value up to `most` for which `fits` holds, assuming that it holds up to some value and not beyond;
/// `None` if it does not hold even for 1.
pub fn largest_where<E>(most: usize, mut fits: impl FnMut(usize) -> Result<bool, E>) -> Result<Option<usize>, E> {
    if !fits(1)? {
        return Ok(None);
    }
    // Doubles first: planning something far too large takes long.
    let (mut low, mut high) = (1, 2);
    while high <= most && fits(high)? {
        (low, high) = (high, 2 * high);
    }
    high = high.min(most + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(Some(low))
}

/// Whether a step of this shape fits into this many bytes.
pub fn fits(step: &StepConfig, shape: BatchShape, threads: usize, bytes: usize) -> Result<bool, GraphError> {
    let step = StepConfig { shape, ..step.clone() };
    if step.model.validate(shape.batch_size, shape.seq_len).is_err() {
        return Ok(false);
    }
    Ok(PlannedStep::new(&step, threads)?.need.total() <= bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_that_holds_is_found_at_both_ends_and_between() {
        for limit in [0, 1, 2, 3, 7, 8, 9, 99, 100, 101] {
            let found = largest_where::<()>(100, |size| Ok(size <= limit)).unwrap();
            let want = (limit > 0).then_some(limit.min(100));
            assert_eq!(found, want, "limit {limit}");
        }
    }
}
