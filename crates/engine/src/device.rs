//! Interface of every backend: it holds programs in one arena, is written to and read from, and runs their calls.

use crate::ranks::RanksError;
use crate::recorder::Recorder;
use headroom_graph::passes::PassList;
use headroom_graph::plan::Call;
use headroom_graph::{Graph, Kept, Layout, Plan, Precision, Source, Value, ValueId};
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use thiserror::Error;

/// A graph, where its values lie, and how exactly its products are computed.
#[derive(Clone, Debug)]
pub struct Program {
    pub graph: Graph,
    pub plan: Plan,
    pub precision: Precision,
    pub target: Target,
    pub walk: Walk,
}

/// How a device goes through a program's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Walk {
    /// Each call is started by the host, and could be followed by any other.
    #[default]
    CallByCall,
    /// A range of calls is one thing that was prepared whole: `graph-replay`.
    Replayed,
}

impl Walk {
    pub fn of(passes: &PassList) -> Walk {
        if passes.replays() { Walk::Replayed } else { Walk::CallByCall }
    }
}

impl Program {
    /// In single precision.
    pub fn new(graph: Graph) -> Program {
        Program::at(Precision::Fp32, graph)
    }

    pub fn at(precision: Precision, graph: Graph) -> Program {
        Program::made_for(Target::Cpu, precision, graph)
    }

    pub fn made_for(target: Target, precision: Precision, graph: Graph) -> Program {
        let plan = Plan::laid_out(&graph, target.layout(), 0);
        Program { graph, plan, precision, target, walk: Walk::CallByCall }
    }

    /// Calls that the step needs: what kernel counts of lists of passes are about.
    pub fn kernels(&self) -> usize {
        self.plan.calls.len() - self.instrumentation_kernels()
    }

    /// Calls that are there to be looked at alone.
    pub fn instrumentation_kernels(&self) -> usize {
        self.plan.calls.iter().filter(|call| self.is_instrumentation(call)).count()
    }

    pub fn is_instrumentation(&self, call: &Call) -> bool {
        self.graph.node(call.node).op.is_instrumentation()
    }
}

/// The kind of device that a program is made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// Values stay in single precision, each by itself; products round their operands as they read them.
    #[default]
    Cpu,
    /// Half precision is half the memory; operands of fused products lie side by side.
    Cuda,
}

impl Target {
    /// How a parameter is kept: on a GPU, matrices of a step that multiplies in less than single precision are in half.
    pub fn kept(self, precision: Precision, value: &Value) -> Kept {
        let is_matrix = value.source == Source::Parameter && value.ty.sizes().len() > 1;
        match (self, precision) {
            _ if !is_matrix => Kept::Single,
            (Target::Cpu, _) | (_, Precision::Fp32 | Precision::Tf32) => Kept::Single,
            (Target::Cuda, Precision::Bf16 | Precision::Fp8) => Kept::HalfWithMaster,
            (Target::Cuda, Precision::Bf16Pure | Precision::Fp8Pure) => Kept::Half,
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
    #[error(
        "cannot get {bytes} bytes of memory for the plan's values: {error}\n  help: --memory-limit plans with less; end other \
         programs, or raise this process's limit (ulimit -v)"
    )]
    Arena { bytes: usize, error: std::io::Error },
    #[error("cannot start {threads} threads: {error}")]
    Threads { threads: usize, error: std::io::Error },
    #[error("{op} in {module} has no kernel for {dtype} on {device}")]
    NoKernel { op: &'static str, module: String, dtype: String, device: &'static str },
    #[error("{precision} has no kernels on {device}, which has {}", names(has))]
    NoPrecision { precision: Precision, device: &'static str, has: &'static [Precision] },
    #[error(transparent)]
    Cuda(#[from] crate::cuda::error::CudaError),
    #[error("the programs are made for several ranks, and the device was opened for one")]
    NoRanks,
    #[error(transparent)]
    Ranks(Box<RanksError>),
    #[error("programs of one device compute in {one} and in {other}; they must agree")]
    MixedPrecisions { one: Precision, other: Precision },
}

impl From<RanksError> for EngineError {
    fn from(error: RanksError) -> EngineError {
        EngineError::Ranks(Box::new(error))
    }
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

    /// As `run`, but gives up between two calls once `give_up` is set; false where calls were left out. A device that
    /// cannot look in between runs them all.
    fn run_unless(&mut self, program: usize, calls: Range<usize>, give_up: &AtomicBool) -> bool {
        let _ = give_up;
        self.run(program, calls);
        true
    }

    /// From now on every call is written down in `recorder`, or none is; gives back the recorder that was at work before.
    fn set_recorder(&mut self, recorder: Option<Recorder>) -> Option<Recorder>;

    /// The time of this device: the wall clock where it computes, the sum of predicted times where it does not.
    fn clock(&self) -> Duration;

    /// Hands over some calls of a program. Waits only where the device is done when a call returns, or where too many are
    /// under way already.
    fn submit(&mut self, submission: &Submission) -> Taken;

    /// Waits for all that was handed over, and adds one for each submission since the last time that was not left.
    fn collect(&mut self, finished: &mut Vec<Finished>) -> Result<(), EngineError>;

    /// Does it work by itself on what was handed over while the host goes on?
    fn works_ahead(&self) -> bool {
        false
    }

    /// Returns when everything that was queued is done.
    fn wait(&mut self) {}

    /// Notes for the reader on how calls were recorded: what was missing, what could not be told.
    fn recording_notes(&self) -> Vec<String> {
        vec![]
    }

    /// Returns the failure since this was last asked, if any; values read after it mean nothing.
    fn failure(&mut self) -> Option<EngineError> {
        None
    }

    /// Fills values that hold the same numbers (a weight and its copy) on the device itself; false where only the host can.
    fn draw_normal(&mut self, _program: usize, _values: &[ValueId], _drawn: Drawn) -> bool {
        false
    }

    /// Choices made by measurement, for the notes of a run.
    fn notes(&self) -> Vec<String> {
        vec![]
    }
}

/// Normal numbers to draw: those of a stream of the counter-based generator, times `spread`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drawn {
    pub seed: u64,
    pub name_hash: u64,
    pub spread: f32,
}

/// Data that an input is given.
#[derive(Clone, Copy, Debug)]
pub enum Words<'a> {
    Ids(&'a [i32]),
    Floats(&'a [f32]),
}

/// Some calls of a program, and what goes in and comes out of them.
#[derive(Clone, Debug)]
pub struct Submission<'a> {
    pub program: usize,
    /// All inputs that the program has; they are copied aside and written before the calls.
    pub inputs: &'a [(ValueId, Words<'a>)],
    pub calls: Range<usize>,
    /// Values whose first element is kept for [`Device::collect`]; two at most.
    pub results: &'a [ValueId],
    /// Two calls before which a phase ends: where the backward pass and the update begin.
    pub marks: [usize; 2],
    /// Is the time taken at the marks, where that costs something?
    pub timed: bool,
    /// Once set, calls before the second mark are left out by a device that can look in between.
    pub give_up: Option<&'a AtomicBool>,
}

/// How far a submission got, as far as is known when it was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The device works on it.
    Queued,
    /// To its end.
    Whole(Moments),
    /// Told to give up, between two calls.
    GivenUp,
    /// The first result is not finite: nothing after the first mark was run.
    NotFinite,
}

/// When the parts of a submission ended, on the device's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moments {
    pub began: Duration,
    pub written: Duration,
    pub forward: Duration,
    pub read: Duration,
    pub backward: Duration,
    pub end: Duration,
}

/// A submission that is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finished {
    pub results: [f32; 2],
    /// From the end of the one before it (from its own start for the first) to its end, on the device.
    pub seconds: f64,
    /// Seconds until the inputs were written, a part of those above; zero on a device that works ahead.
    pub inputs: f64,
    /// Seconds before the first mark, between both and after the second, of those submissions that were looked at closely.
    pub phases: Option<[f64; 3]>,
}
