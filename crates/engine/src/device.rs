//! The interface of every backend: it loads programs into one arena, transfers values in and out, and runs calls.

use crate::ranks::RanksError;
use crate::recorder::Recorder;
use headroom_graph::passes::PassList;
use headroom_graph::plan::Call;
use headroom_graph::{Graph, Kept, Layout, Plan, Precision, Source, Value, ValueId};
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use thiserror::Error;

/// A graph, the placement of its values, and the precision of its products.
#[derive(Clone, Debug)]
pub struct Program {
    pub graph: Graph,
    pub plan: Plan,
    pub precision: Precision,
    pub target: Target,
    pub walk: Walk,
}

/// How a device executes a program's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Walk {
    /// The host launches each call separately, in any order.
    #[default]
    CallByCall,
    /// A range of calls is prepared as a whole and replayed: `graph-replay`.
    Replayed,
}

impl Walk {
    pub fn of(passes: &PassList) -> Walk {
        if passes.replays() { Walk::Replayed } else { Walk::CallByCall }
    }
}

impl Program {
    /// A program in single precision.
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

    /// Number of calls that the step needs: the kernel count reported for lists of passes.
    pub fn kernels(&self) -> usize {
        self.plan.calls.len() - self.instrumentation_kernels()
    }

    /// Number of calls that only serve observation.
    pub fn instrumentation_kernels(&self) -> usize {
        self.plan.calls.iter().filter(|call| self.is_instrumentation(call)).count()
    }

    pub fn is_instrumentation(&self, call: &Call) -> bool {
        self.graph.node(call.node).op.is_instrumentation()
    }
}

/// The kind of device that a program is built for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// Values stay in single precision, each placed by itself; products round their operands as they read them.
    #[default]
    Cpu,
    /// Half-precision values take half the memory; operands of fused products lie side by side.
    Cuda,
}

impl Target {
    /// How a parameter is kept: on a GPU, a step that multiplies in less than single precision keeps its matrices in
    /// half.
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

/// Rejects programs of a precision that a device has no kernels for.
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

/// A backend with its programs loaded. Programs share one arena and their kept values: the first program's list of kept
/// values is the longest, and the others keep a prefix of it.
pub trait Device {
    /// `cpu`, `null`.
    fn kind(&self) -> &'static str;

    /// Bytes of the arena, and of the kernels' own scratch beside it.
    fn arena_bytes(&self) -> usize;
    fn scratch_bytes(&self) -> usize;

    /// Whether it computes anything. Values read from a device that does not are meaningless.
    fn computes(&self) -> bool;

    /// Writes or reads a value's elements, starting at index `first`.
    fn write_f32(&mut self, program: usize, value: ValueId, first: usize, data: &[f32]);
    fn write_i32(&mut self, program: usize, value: ValueId, first: usize, data: &[i32]);
    fn read_f32(&mut self, program: usize, value: ValueId, first: usize, data: &mut [f32]);

    /// Runs some of a program's calls and returns when they are done.
    fn run(&mut self, program: usize, calls: Range<usize>);

    /// As `run`, but stops between two calls once `give_up` is set; returns false if calls were skipped. A device that
    /// cannot check between calls runs them all.
    fn run_unless(&mut self, program: usize, calls: Range<usize>, give_up: &AtomicBool) -> bool {
        let _ = give_up;
        self.run(program, calls);
        true
    }

    /// Records every later call in `recorder`, or stops recording; returns the previous recorder.
    fn set_recorder(&mut self, recorder: Option<Recorder>) -> Option<Recorder>;

    /// The time of this device: the wall clock if it computes, else the sum of predicted times.
    fn clock(&self) -> Duration;

    /// Submits some calls of a program. Blocks only if the device runs calls synchronously, or if too many are already
    /// in flight.
    fn submit(&mut self, submission: &Submission) -> Taken;

    /// Waits for everything submitted, and appends one entry for each submission since the last call that was not given
    /// up.
    fn collect(&mut self, finished: &mut Vec<Finished>) -> Result<(), EngineError>;

    /// Whether it works asynchronously on submitted calls while the host goes on.
    fn works_ahead(&self) -> bool {
        false
    }

    /// Returns when all queued work is done.
    fn wait(&mut self) {}

    /// Notes for the reader on how calls were recorded: missing data and things that could not be determined.
    fn recording_notes(&self) -> Vec<String> {
        vec![]
    }

    /// Returns the failure since the last query, if any; values read after it are meaningless.
    fn failure(&mut self) -> Option<EngineError> {
        None
    }

    /// Fills values that hold the same numbers (a weight and its copy) on the device itself; false if only the host can
    /// do it.
    fn draw_normal(&mut self, _program: usize, _values: &[ValueId], _drawn: Drawn) -> bool {
        false
    }

    /// Choices made by measurement, for a run's notes.
    fn notes(&self) -> Vec<String> {
        vec![]
    }
}

/// Normal numbers to draw: those of one stream of the counter-based generator, times `spread`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drawn {
    pub seed: u64,
    pub name_hash: u64,
    pub spread: f32,
}

/// Data written to an input.
#[derive(Clone, Copy, Debug)]
pub enum Words<'a> {
    Ids(&'a [i32]),
    Floats(&'a [f32]),
}

/// Some calls of a program, with their inputs and results.
#[derive(Clone, Debug)]
pub struct Submission<'a> {
    pub program: usize,
    /// All inputs of the program; they are staged and written before the calls.
    pub inputs: &'a [(ValueId, Words<'a>)],
    pub calls: Range<usize>,
    /// Values whose first element is kept for [`Device::collect`]; at most two.
    pub results: &'a [ValueId],
    /// The two calls at which a phase begins: the backward pass and the update.
    pub marks: [usize; 2],
    /// Whether to take times at the marks on devices where that has a cost.
    pub timed: bool,
    /// Once set, a device that can check between calls skips those before the second mark.
    pub give_up: Option<&'a AtomicBool>,
}

/// How far a submission got, as known when `submit` returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The device is working on it.
    Queued,
    /// It ran to its end.
    Whole(Moments),
    /// It was given up between two calls.
    GivenUp,
    /// The first result is not finite: nothing after the first mark ran.
    NotFinite,
}

/// When the phases of a submission ended, on the device's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moments {
    pub began: Duration,
    pub written: Duration,
    pub forward: Duration,
    pub read: Duration,
    pub backward: Duration,
    pub end: Duration,
}

/// A finished submission.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finished {
    pub results: [f32; 2],
    /// Time on the device from the end of the previous submission (from its own start for the first) to its end.
    pub seconds: f64,
    /// Seconds until the inputs were written, included in `seconds`; zero on an asynchronous device.
    pub inputs: f64,
    /// Seconds before the first mark, between both and after the second, if the submission was timed.
    pub phases: Option<[f64; 3]>,
}
