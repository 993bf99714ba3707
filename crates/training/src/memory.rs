//! The memory that a run needs, computed before it starts, and what would fit if it does not.

use crate::data::BatchShape;
use crate::program::{Keep, StepConfig, training_program};
use headroom_engine::cpu::Cpu;
use headroom_engine::cuda::Cuda;
use headroom_engine::{Program, Target};
use headroom_graph::GraphError;
use headroom_graph::plan::Usage;

/// Memory of a run, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryNeed {
    /// The single block that holds all values.
    pub arena: usize,
    /// Memory in which kernels pack and reduce.
    pub scratch: usize,
    /// Live memory in the arena at the peak of a step.
    pub peak: Usage,
    /// Arena space lost to gaps between buffers at the peak.
    pub gaps: usize,
    /// Live memory averaged over the calls of a step, each counted once, and scratch, which is held throughout. Every
    /// file's `avg_memory_mb` is this.
    pub average: usize,
}

impl MemoryNeed {
    pub fn of(programs: &[Program], threads: usize) -> MemoryNeed {
        let arena = programs.iter().map(|program| program.plan.arena_bytes).max().unwrap_or(0);
        let fullest = programs.iter().map(|program| program.plan.peak).max_by_key(Usage::total).unwrap_or_default();
        let usage = programs.first().map(|program| program.plan.usage()).unwrap_or_default();
        let scratch = match programs.first().map(|program| program.target) {
            Some(Target::Cuda) => Cuda::scratch_bytes_for(programs),
            _ => Cpu::scratch_bytes_for(threads, programs),
        };
        MemoryNeed {
            arena,
            scratch,
            peak: fullest,
            gaps: arena - fullest.total(),
            average: usage.iter().map(Usage::total).sum::<usize>() / usage.len().max(1) + scratch,
        }
    }

    pub fn total(&self) -> usize {
        self.arena + self.scratch
    }
}

/// The largest batch, or else the longest sequence at batch 1, with which training needs at most `available` bytes.
pub fn largest_that_fits(
    config: &StepConfig,
    threads: usize,
    available: usize,
) -> Result<Option<BatchShape>, GraphError> {
    let fits = |shape: BatchShape| -> Result<bool, GraphError> {
        let training = training_program(&StepConfig { shape, ..config.clone() }, Keep::OnlyTheLoss)?;
        Ok(MemoryNeed::of(&[training.program], threads).total() <= available)
    };
    let shape = config.shape;
    let batch = |batch_size: usize| BatchShape { batch_size, ..shape };
    let sequence = |seq_len: usize| BatchShape { batch_size: 1, seq_len };
    if fits(batch(1))? {
        return largest(shape.batch_size, |size| fits(batch(size))).map(|size| Some(batch(size)));
    }
    if fits(sequence(1))? {
        return largest(shape.seq_len, |size| fits(sequence(size))).map(|size| Some(sequence(size)));
    }
    Ok(None)
}

/// The largest batch of sequences of the same length with which training needs at most `available` bytes.
pub fn largest_batch_that_fits(
    config: &StepConfig,
    threads: usize,
    available: usize,
) -> Result<Option<usize>, GraphError> {
    let need = |batch_size: usize| -> Result<usize, GraphError> {
        let shape = BatchShape { batch_size, ..config.shape };
        let training = training_program(&StepConfig { shape, ..config.clone() }, Keep::OnlyTheLoss)?;
        Ok(MemoryNeed::of(&[training.program], threads).total())
    };
    let (one, two) = (need(1)?, need(2)?);
    if one > available {
        return Ok(None);
    }
    // Each further sequence needs about what the second one added; twice the resulting count bounds the search.
    let most = 2 + 2 * (available - one) / two.saturating_sub(one).max(1);
    largest(most, |batch_size| Ok(need(batch_size)? <= available)).map(Some)
}

/// The largest size up to `most` that fits, given that 1 does.
fn largest(most: usize, fits: impl Fn(usize) -> Result<bool, GraphError>) -> Result<usize, GraphError> {
    let (mut low, mut high) = (1, most + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle)? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(low)
}
