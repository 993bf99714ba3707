//! The CUDA backend: runs the same plan on a GPU. Products go through cuBLASLt, kernels are compiled at run time, and
//! the step is captured once and replayed. The driver and libraries are loaded on demand, so one binary runs with and
//! without them.

mod activity;
mod as_device;
mod attention_rates;
pub mod compile;
mod cudnn;
mod cupti;
mod driver;
mod either;
pub(crate) mod error;
mod facts;
pub mod health;
mod launch;
mod level;
pub(crate) mod library;
mod link;
mod load;
mod lower;
mod nccl;
mod nccl_error;
mod nvtx;
mod peaks;
mod pieces;
mod product;
mod queue;
mod replay_modes;
mod tracing;
mod watch;
mod wire;

pub use attention_rates::{AttentionRate, AttentionShape, attention_rates};
pub use error::CudaError;
pub use facts::{Facts, facts, listed};
pub use level::{Level, has};
pub use link::measure_link;
pub use nccl_error::NcclError;
pub use peaks::{Peaks, measure_peaks, product_rates};

use crate::device::{EngineError, Finished, Program, Walk, check_precision};
use crate::ranks::Ranks;
use crate::recorder::Recorder;
use compile::{EXCHANGE, Kernels, NO_CONTRACTION, RANDOM, Unit};
use cudarc::driver::sys::CUfunction;
use cudnn::Plans;
use driver::{Context, Memory, Stream, Urgency};
use headroom_graph::fp8::Format;
use headroom_graph::{DType, Node, Op, Precision, ValueId};
use launch::{Action, Arguments, Kernel};
use load::lower_all;
use lower::{Grid, Operand};
use nvtx::{Labels, Ranges};
use pieces::Pieces;
use product::Products;
use queue::Submitted;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tracing::Tracing;
use wire::{PreparedCollective, Wire};

/// Smallest scratch that is reserved.
const LEAST_SCRATCH: usize = 1 << 20;

/// Settings that a device is opened with.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub ordinal: usize,
    /// Folder for compiled kernels and measured choices; nothing is kept without it.
    pub cache: Option<PathBuf>,
    pub ranges: RangesChoice,
    pub order: SumOrder,
    /// The other processes that train the same model, if any.
    pub ranks: Option<Arc<Ranks>>,
}

/// Whether sums always run in the same order, so that the same input gives the same bytes. Our own kernels always do
/// so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SumOrder {
    #[default]
    Fixed,
    Any,
}

/// Whether calls are marked with NVTX ranges, for the vendors' profilers. A range covers what the host launches inside
/// it, so steps must be launched call by call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RangesChoice {
    #[default]
    Unmarked,
    Marked,
}

pub struct Cuda {
    // Dropped in this order: the last created goes first, the context last. If a wait for other ranks is stuck, it is
    // ended before memory is freed.
    wire: Option<Wire>,
    submitted: Vec<Submitted>,
    /// Results collected early, because a ring was full.
    finished: Vec<Finished>,
    programs: Vec<Loaded>,
    exchange: Exchange,
    products: Products,
    /// Keeps the modules loaded that the functions belong to.
    _kernels: Kernels,
    scratch: Memory,
    arena: Memory,
    side: Stream,
    stream: Stream,
    context: Context,
    /// Whether a step is launched call by call, or captured once and replayed.
    walk: Walk,
    started: Instant,
    recorder: Option<Recorder>,
    tracing: Tracing,
    /// Number of kernels in replays that could not be matched to a call.
    untied: usize,
    ranges: Option<Ranges>,
    /// The implementation that runs each attention, or why cuDNN does not.
    attention_notes: Vec<String>,
    /// The first failure; nothing is launched after it.
    failed: Option<CudaError>,
}

struct Loaded {
    calls: Vec<Prepared>,
    /// For each call: its phase and module, for ranges.
    labels: Vec<Labels>,
    /// For each value with a buffer: its address, type and pitch.
    values: Vec<Option<Operand>>,
    /// Tables that the calls' kernels read.
    tables: Vec<Memory>,
    /// The update, if it can run in pieces.
    pieces: Option<Pieces>,
}

/// The actions of a call, and the memory ranges that it touches.
struct Prepared {
    actions: Vec<Action>,
    reads: Vec<Range<u64>>,
    writes: Vec<Range<u64>>,
    /// Only the update reads its result, and it uses no scratch: it may run beside the calls that follow.
    beside: bool,
    /// The collective with the other ranks that runs before the actions.
    together: Option<PreparedCollective>,
}

/// Whether to run actions that only have an effect before the first step is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstUses {
    Run,
    LeftOut,
}

/// Kernels that the backend itself uses.
struct Exchange {
    take_inputs: CUfunction,
    give_results: CUfunction,
    draw: CUfunction,
}

impl Cuda {
    pub const PRECISIONS: &'static [Precision] = &Precision::ALL;

    /// Upper bound of the bytes that kernels and products need beside the arena.
    pub fn scratch_bytes_for(programs: &[Program]) -> usize {
        let scratch = programs.iter().map(|program| lower::scratch_bound(&program.graph)).max().unwrap_or(0);
        scratch.max(LEAST_SCRATCH) + 2 * product::WORKSPACE
    }

    pub fn new(options: &Options, programs: &[Program]) -> Result<Cuda, EngineError> {
        check_precision("cuda", Cuda::PRECISIONS, programs)?;
        let needed = wire::ranks_of_programs(programs);
        if needed > 1 && options.ranks.as_ref().is_none_or(|ranks| ranks.size() != needed) {
            return Err(EngineError::NoRanks);
        }
        Ok(Cuda::open(options, programs)?)
    }

    fn open(options: &Options, programs: &[Program]) -> Result<Cuda, CudaError> {
        library::open()?;
        let context = Context::new(options.ordinal)?;
        for program in programs {
            level::check(&context.name, context.capability, program.precision)?;
        }
        let ranks = options.ranks.as_ref().filter(|_| wire::ranks_of_programs(programs) > 1);
        let wire = ranks.map(|ranks| Wire::join(&context, ranks, options.order == SumOrder::Fixed)).transpose()?;
        let rank = ranks.map(|ranks| ranks.rank());
        let (stream, side) = (Stream::new()?, Stream::with(Urgency::Last)?);
        let mut kernels = Kernels::new(context.capability, options.cache.as_deref());
        let products = Products::new(&context, options.cache.as_deref())?;
        let exchange = Exchange {
            take_inputs: kernels.function(&exchange_unit(), "take_inputs", 0)?,
            give_results: kernels.function(&exchange_unit(), "give_results", 0)?,
            draw: kernels.function(&random_unit(), "draw_normal", 0)?,
        };
        let bytes = programs.iter().map(|program| program.plan.arena_bytes).max().unwrap_or(0);
        let arena = Memory::new(&context, bytes)?;
        // Lowered again if the first guess of the scratch was too small, because calls contain its address.
        let mut scratch = Memory::new(&context, LEAST_SCRATCH)?;
        let attends =
            programs.iter().any(|program| program.graph.nodes().iter().any(|node| is_half_attention(program, node)));
        let mut plans =
            if attends && context.level == Level::Hopper { Plans::open(options.order) } else { Plans::none() };
        let (mut loaded, needed) = lower_all(&context, (&mut kernels, &mut plans), &arena, &scratch, (programs, rank))?;
        if needed > scratch.bytes {
            scratch = Memory::new(&context, needed)?;
            (loaded, _) = lower_all(&context, (&mut kernels, &mut plans), &arena, &scratch, (programs, rank))?;
        }
        let mut cuda = Cuda {
            wire,
            submitted: vec![],
            finished: vec![],
            programs: loaded,
            exchange,
            products,
            _kernels: kernels,
            scratch,
            arena,
            side,
            stream,
            context,
            walk: match (options.ranges, programs.first()) {
                // A replay would contain NCCL's host nodes, which cannot be matched to a call.
                _ if rank.is_some() => Walk::CallByCall,
                (RangesChoice::Unmarked, Some(program)) => program.walk,
                _ => Walk::CallByCall,
            },
            started: Instant::now(),
            recorder: None,
            tracing: Tracing::NotAsked,
            untied: 0,
            ranges: (options.ranges == RangesChoice::Marked).then(Ranges::open),
            attention_notes: plans.notes,
            failed: None,
        };
        match ranks {
            Some(ranks) => cuda.prepare_with(ranks, programs)?,
            None => cuda.prepare_products(programs)?,
        }
        driver::zero(cuda.arena.at, cuda.arena.bytes, &cuda.stream)?;
        cuda.stream.wait()?;
        Ok(cuda)
    }

    /// Rank 0 measures and the other ranks take over its choices, so that all compute the same way.
    fn prepare_with(&mut self, ranks: &Ranks, programs: &[Program]) -> Result<(), CudaError> {
        if ranks.rank() == 0 {
            self.prepare_products(programs)?;
        }
        let mine = if ranks.rank() == 0 { self.products.kept_text() } else { String::new() };
        let said = ranks.gather(mine.as_bytes()).map_err(NcclError::from)?;
        if ranks.rank() > 0 {
            self.products.take_kept(&String::from_utf8_lossy(&said[0]));
            self.prepare_products(programs)?;
        }
        Ok(())
    }

    /// Runs work that may take as long as another rank takes.
    fn patiently<T>(&self, work: impl FnOnce() -> Result<T, CudaError>) -> Result<T, CudaError> {
        match &self.wire {
            Some(wire) => wire.patiently(work),
            None => work(),
        }
    }

    fn wait_patiently(&self) -> Result<(), CudaError> {
        self.patiently(|| self.stream.wait())
    }

    /// Products without a kept choice are timed on realistic numbers, because zeros are faster.
    fn prepare_products(&mut self, programs: &[Program]) -> Result<(), CudaError> {
        let half =
            programs.iter().any(|program| program.graph.values().iter().any(|value| value.ty.dtype == DType::Bf16));
        for memory in [&self.arena, &self.scratch] {
            let (single, half) = if half { (0, memory.at) } else { (memory.at, 0) };
            let elements = memory.bytes / if half == 0 { 4 } else { 2 };
            self.draw(single, half, elements, 1, 1, 1.0)?;
        }
        for action in self.programs.iter().flat_map(|program| program.calls.iter().flat_map(|call| &call.actions)) {
            match action {
                Action::Product(shape, at) => self.products.prepare(&self.stream, *shape, *at, None)?,
                Action::Scaled(shape, at, scales) => {
                    self.products.prepare(&self.stream, *shape, *at, Some(*scales))?;
                }
                _ => {}
            }
        }
        let actions =
            self.programs.iter_mut().flat_map(|program| &mut program.calls).flat_map(|call| &mut call.actions);
        for action in actions {
            if let Action::Either(either) = action {
                either.choose(&self.stream, &mut self.products)?;
                let note = format!("{}: {:?}", either.key, either.side);
                if !self.attention_notes.contains(&note) {
                    self.attention_notes.push(note);
                }
            }
        }
        self.products.keep();
        Ok(())
    }

    fn draw(
        &self,
        single: u64,
        half: u64,
        elements: usize,
        seed: u64,
        name_hash: u64,
        spread: f32,
    ) -> Result<(), CudaError> {
        let halves = |x: u64| (x as u32 as usize, (x >> 32) as usize);
        let ((seed_low, seed_high), (name_low, name_high)) = (halves(seed), halves(name_hash));
        let arguments = Arguments::default()
            .pointer(single)
            .pointer(half)
            .u64(elements)
            .u32(seed_low)
            .u32(seed_high)
            .u32(name_low)
            .u32(name_high)
            .f32(f64::from(spread));
        let blocks = elements.div_ceil(4 * 256).min(32 * self.context.multiprocessors as usize);
        self.own_kernel(self.exchange.draw, "draw_normal", Grid::new(blocks, 256), arguments)
    }

    fn own_kernel(&self, function: CUfunction, name: &str, grid: Grid, arguments: Arguments) -> Result<(), CudaError> {
        let Grid { grid, block, shared } = grid;
        let kernel = Kernel { function, name: name.into(), grid, block, shared, arguments };
        Action::Kernel(kernel).run(&self.stream, 0, &self.products)
    }

    fn operand(&self, program: usize, value: ValueId) -> &Operand {
        self.programs[program].values[value.0].as_ref().expect("only values with a buffer are read and written")
    }

    /// Remembers the first failure; nothing runs after it.
    fn note(&mut self, result: Result<(), CudaError>) {
        if let Err(error) = result {
            self.failed.get_or_insert(error);
        }
    }

    fn write(&mut self, program: usize, value: ValueId, first: usize, data: &[u32]) {
        let operand = self.operand(program, value);
        let (at, width) = (operand.at, operand.ty.dtype.bytes());
        let bytes: Vec<u8> = match operand.ty.dtype {
            DType::Bf16 => data.iter().flat_map(|bits| rounded(f32::from_bits(*bits)).to_le_bytes()).collect(),
            dtype @ (DType::E4m3 | DType::E5m2) => {
                let format = if dtype == DType::E4m3 { Format::E4m3 } else { Format::E5m2 };
                data.iter().map(|bits| format.encode(f32::from_bits(*bits))).collect()
            }
            _ => data.iter().flat_map(|bits| bits.to_le_bytes()).collect(),
        };
        let written = self.wait_patiently().and_then(|()| driver::write(at + (first * width) as u64, &bytes));
        self.note(written);
    }

    fn read(&mut self, program: usize, value: ValueId, first: usize, data: &mut [f32]) -> Result<(), CudaError> {
        self.wait_patiently()?;
        let operand = self.operand(program, value);
        let (width, columns, pitch) = (operand.ty.dtype.bytes(), operand.columns().max(1), operand.pitch);
        let eight_bits = Format::of(operand.ty.dtype);
        let decode = |bytes: &[u8]| match bytes {
            [a, b, c, d] => f32::from_le_bytes([*a, *b, *c, *d]),
            [a, b] => f32::from_bits(u32::from(u16::from_le_bytes([*a, *b])) << 16),
            [code] => eight_bits.map_or(f32::NAN, |format| format.decode(*code)),
            _ => f32::NAN,
        };
        let mut done = 0;
        // Copies as many elements at a time as are contiguous.
        while done < data.len() {
            let (row, column) = ((first + done) / columns, (first + done) % columns);
            let count = if operand.is_dense() { data.len() - done } else { (columns - column).min(data.len() - done) };
            let mut bytes = vec![0; count * width];
            driver::read(operand.at + ((row * pitch + column) * width) as u64, &mut bytes)?;
            for (x, bytes) in data[done..done + count].iter_mut().zip(bytes.chunks_exact(width)) {
                *x = decode(bytes);
            }
            done += count;
        }
        Ok(())
    }

    /// Queues one call, within its ranges if those are enabled; its products use the workspace with index `workspace`.
    fn run_call(
        &self,
        program: usize,
        call: usize,
        (stream, workspace): (&Stream, usize),
        first_uses: FirstUses,
    ) -> Result<(), CudaError> {
        let program = &self.programs[program];
        if let Some(wire) = &self.wire {
            wire.called();
        }
        if let Some(ranges) = &self.ranges {
            ranges.enter(&program.labels[call]);
        }
        let exchanged = match &self.wire {
            Some(wire) if program.calls[call].together.is_some() => {
                wire.patiently(|| wire.run(&program.calls, call, stream))
            }
            _ => Ok(()),
        };
        let runs = |action: &&Action| first_uses == FirstUses::Run || !action.is_for_first_use();
        let mut actions = program.calls[call].actions.iter().filter(runs);
        let ran = exchanged.and_then(|()| {
            self.patiently(|| actions.try_for_each(|action| action.run(stream, workspace, &self.products)))
        });
        if let Some(ranges) = &self.ranges {
            ranges.leave(&program.labels[call], program.labels.get(call + 1));
        }
        ran
    }
}

fn is_half_attention(program: &Program, node: &Node) -> bool {
    matches!(node.op, Op::FlashAttention(_)) && program.graph.ty(node.inputs[0]).dtype == DType::Bf16
}

/// Rounds to bf16, to nearest, ties to even; NaN stays NaN.
fn rounded(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

fn exchange_unit() -> Unit {
    Unit { source: EXCHANGE, options: vec![] }
}

fn random_unit() -> Unit {
    Unit { source: RANDOM, options: NO_CONTRACTION.iter().map(|option| option.to_string()).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_to_the_nearest_half_and_ties_to_even() {
        let value = |bits: u16| f32::from_bits(u32::from(bits) << 16);
        // 1 + 2^-8 lies halfway and rounds to the even neighbour, as does 1 + 3 · 2^-8.
        let unit = 2.0f32.powi(-8);
        for (x, want) in [
            (1.0, 1.0),
            (1.0 + unit, 1.0),
            (1.0 + 3.0 * unit, 1.0 + 4.0 * unit),
            (-1.0 - 1.5 * unit, -1.0 - 2.0 * unit),
        ] {
            assert_eq!(value(rounded(x)), want, "{x}");
        }
        assert!(value(rounded(f32::NAN)).is_nan() && value(rounded(f32::INFINITY)).is_infinite());
    }
}
