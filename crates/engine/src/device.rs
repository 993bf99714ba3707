//! What every backend can do: hold programs in one arena, be written to and read from, and run their calls.

use crate::recorder::Recorder;
use headroom_graph::{Graph, Layout, Plan, Precision, Storage, ValueId};
use std::ops::Range;
use std::time::Duration;
use thiserror::Error;

/// A graph, where its values lie, and how exactly its products are computed.
#[derive(Clone, Debug)]
pub struct Program {
    pub graph: Graph,
    pub plan: Plan,
    pub precision: Precision,
}

impl Program {
    /// In single precision.
    pub fn new(graph: Graph) -> Program {
        Program::at(Precision::Fp32, graph)
    }

    pub fn at(precision: Precision, graph: Graph) -> Program {
        Program::laid_out(precision, Layout::Apart, graph)
    }

    pub fn laid_out(precision: Precision, layout: Layout, graph: Graph) -> Program {
        let plan = Plan::laid_out(&graph, layout, 0);
        Program { graph, plan, precision }
    }
}

/// What kind of device a program is made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// Values stay in single precision, each by itself; products round their operands as they read them.
    #[default]
    Cpu,
    /// Half precision is half the memory; operands of fused products lie side by side.
    Cuda,
}

impl Target {
    pub fn storage(self, precision: Precision) -> Storage {
        match (self, precision) {
            (Target::Cpu, _) | (_, Precision::Fp32 | Precision::Tf32) => Storage::Single,
            (Target::Cuda, Precision::Bf16) => Storage::HalfWithMasters,
            (Target::Cuda, Precision::Bf16Pure) => Storage::Half,
        }
    }

    pub fn layout(self) -> Layout {
        match self {
            Target::Cpu => Layout::Apart,
            Target::Cuda => Layout::Together,
        }
    }
}

#[derive(Debug, Error)]
pub enum EngineError {
    #[error("cannot get {bytes} bytes of memory for the arena: {error}")]
    Arena { bytes: usize, error: std::io::Error },
    #[error("cannot start {threads} threads: {error}")]
    Threads { threads: usize, error: std::io::Error },
    #[error("{op} in {module} has no kernel for {dtype} on {device}")]
    NoKernel { op: &'static str, module: String, dtype: String, device: &'static str },
    #[error("{precision} has no kernels on {device}, which has {}", names(has))]
    NoPrecision { precision: Precision, device: &'static str, has: &'static [Precision] },
}

/// Refuses programs of a precision that a device has no kernels for.
pub fn check_precision(
    device: &'static str,
    has: &'static [Precision],
    programs: &[Program],
) -> Result<(), EngineError> {
    match programs.iter().map(|program| program.precision).find(|precision| !has.contains(precision)) {
        Some(precision) => Err(EngineError::NoPrecision { precision, device, has }),
        None => Ok(()),
    }
}

fn names(precisions: &[Precision]) -> String {
    precisions.iter().map(|precision| precision.name()).collect::<Vec<_>>().join(", ")
}

/// A backend with its programs loaded. Programs share one arena and the values that they keep: the first program's kept
/// values are the longest list, and the others keep a prefix of it.
pub trait Device {
    /// `cpu`, `null`.
    fn kind(&self) -> &'static str;

    /// Bytes of the arena, and of the kernels' own scratch beside it.
    fn arena_bytes(&self) -> usize;
    fn scratch_bytes(&self) -> usize;

    /// Does it compute anything? What is read from one that does not means nothing.
    fn computes(&self) -> bool;

    /// Writes or reads a value's elements from number `first` on.
    fn write_f32(&mut self, program: usize, value: ValueId, first: usize, data: &[f32]);
    fn write_i32(&mut self, program: usize, value: ValueId, first: usize, data: &[i32]);
    fn read_f32(&mut self, program: usize, value: ValueId, first: usize, data: &mut [f32]);

    /// Runs some of a program's calls and returns when they are done.
    fn run(&mut self, program: usize, calls: Range<usize>);

    /// From now on every call is written down in `recorder`, or none is; gives back the recorder that was at work before.
    fn record(&mut self, recorder: Option<Recorder>) -> Option<Recorder>;

    /// The time of this device: the wall clock where it computes, the sum of predicted times where it does not.
    fn clock(&self) -> Duration;
}
