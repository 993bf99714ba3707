//! The CPU backend: an arena, a team of threads and a kernel for every op.

mod arena;
mod attention;
mod cached_attention;
mod causal_softmax;
mod choose;
mod collective;
mod cross_entropy;
mod elementwise;
mod embedding;
mod flash_attention;
mod fp8;
mod frame;
pub mod gemm;
pub mod isa;
mod lanes;
mod layer_norm;
mod linear_cross_entropy;
mod linears;
mod load;
mod math;
mod matmul;
mod muon;
mod optimizer;
pub mod pool;
mod rms_norm;
mod rope;
mod rows;
mod sgd;
mod shared;
mod together;

use crate::at_once;
use crate::by_isa;
use crate::device::{Device, EngineError, Finished, Program, Submission, Taken, Walk, check_precision};
use crate::ranks::{Ranks, RanksError, staging_elements};
use crate::recorder::{CallSpan, Recorder};
use arena::{Arena, Room};
use frame::{Frame, Slot};
use gemm::{Accumulate, Arithmetic, Bf16Unit, Columns, Joined, MatRef, Product, Rows, Scratch, gemm_bf16, gemm_joined};
use headroom_graph::{Op, Precision, TensorType, ValueId};
use isa::Isa;
use load::{Loaded, load, reduction_elements, tile_elements};
use pool::Pool;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Number of partial sums that a long reduction is split into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reductions {
    /// A fixed number: the same bytes for any number of threads.
    Fixed,
    /// One per thread: fewer to add up at the end, but the last bits depend on the number of threads.
    OneAThread,
}

impl Reductions {
    const FIXED: usize = 32;

    fn parts(self, threads: usize) -> usize {
        match self {
            Reductions::Fixed => Reductions::FIXED,
            Reductions::OneAThread => threads,
        }
    }
}

/// The compute resources: threads, instruction set and the memory that products pack into.
pub struct Team {
    pub pool: Pool,
    pub isa: Isa,
    pub arithmetic: Arithmetic,
    pub packing: Scratch,
    /// Number of partial sums of a long reduction.
    pub parts: usize,
    /// One per thread, for kernels that work on tiles.
    pub tiles: Vec<Mutex<Room>>,
}

impl Team {
    /// Each thread gets room for `tile_elements` elements of tiles.
    pub fn new(
        threads: usize,
        isa: Isa,
        arithmetic: Arithmetic,
        reductions: Reductions,
        tile_elements: usize,
    ) -> Result<Team, EngineError> {
        let pool = Pool::new(threads).map_err(|error| EngineError::Threads { threads, error })?;
        let tiles = (0..threads).map(|_| room(tile_elements).map(Mutex::new)).collect::<Result<_, _>>()?;
        let (packing, parts) = (Scratch::new(threads), reductions.parts(threads));
        Ok(Team { pool, isa, arithmetic, packing, parts, tiles })
    }

    /// One product on all threads.
    pub fn product(&self, product: Product) {
        let Product { alpha, a, b, accumulate, c } = product;
        self.products(alpha, a, accumulate, &mut [Columns { b, c }]);
    }

    /// Several products that share their left operand.
    pub fn products(&self, alpha: f32, a: MatRef, accumulate: Accumulate, columns: &mut [Columns]) {
        self.joined(Joined::columns_of(alpha, accumulate, a, columns));
    }

    /// Several products that share their right operand.
    pub fn products_of_right(&self, rows: &mut [Rows], b: MatRef, accumulate: Accumulate) {
        self.joined(Joined::rows_of(1.0, accumulate, rows, b));
    }

    fn joined(&self, joined: Joined) {
        match self.arithmetic {
            Arithmetic::Single => gemm_joined(&self.pool, self.isa, &self.packing, joined),
            Arithmetic::Bf16(unit) => gemm_bf16(&self.pool, self.isa, unit, &self.packing, joined),
        }
    }
}

pub struct Cpu {
    team: Team,
    arena: Arena,
    programs: Vec<Loaded>,
    /// Scratch for kernels that reduce in parts; sized for the largest of them.
    reduction: Room,
    started: Instant,
    recorder: Option<Recorder>,
    finished: Vec<Finished>,
    ranks: Option<Arc<Ranks>>,
    /// Why an exchange with other ranks failed; all later results are meaningless.
    parted: Option<RanksError>,
}

impl Drop for Cpu {
    fn drop(&mut self) {
        if let Some(ranks) = &self.ranks {
            // An exchange that was started may still read and write the arena.
            ranks.leave();
        }
    }
}

impl Cpu {
    /// Precisions that its kernels compute in.
    pub const PRECISIONS: &[Precision] = &[Precision::Fp32, Precision::Bf16, Precision::Fp8];

    pub fn new(threads: usize, isa: Isa, reductions: Reductions, programs: &[Program]) -> Result<Cpu, EngineError> {
        let bytes = programs.iter().map(|program| program.plan.arena_bytes).max().unwrap_or(0);
        let arena = Arena::new(bytes).map_err(|error| EngineError::Arena { bytes, error })?;
        let tiles = programs.iter().map(|program| tile_elements(&program.graph)).max().unwrap_or(0);
        let arithmetic = match precision_of(programs)? {
            // bf16 represents every eight-bit float exactly.
            Precision::Bf16 | Precision::Fp8 => Arithmetic::Bf16(Bf16Unit::with(isa)),
            _ => Arithmetic::Single,
        };
        let team = Team::new(threads, isa, arithmetic, reductions, tiles)?;
        let loaded = programs.iter().map(|program| load(program, &arena)).collect::<Result<_, _>>()?;
        let need = |program: &Program| reduction_elements(&program.graph, team.parts);
        let reduction = programs.iter().map(need).max().unwrap_or(0);
        Ok(Cpu {
            team,
            arena,
            programs: loaded,
            reduction: room(reduction)?,
            started: Instant::now(),
            recorder: None,
            finished: vec![],
            ranks: None,
            parted: None,
        })
    }

    /// Attaches the other ranks. Programs built for several ranks need them.
    pub fn among(mut self, ranks: Option<Arc<Ranks>>) -> Result<Cpu, EngineError> {
        let mut calls = self.programs.iter().flat_map(|program| &program.calls);
        if ranks.is_none() && calls.any(|call| call.together.is_some()) {
            return Err(EngineError::NoRanks);
        }
        self.ranks = ranks;
        Ok(self)
    }

    /// Bytes of scratch that the kernels need beside the arena.
    pub fn scratch_bytes_for(threads: usize, programs: &[Program]) -> usize {
        let parts = Reductions::FIXED.max(threads);
        let need = |program: &Program| reduction_elements(&program.graph, parts);
        let reduction = programs.iter().map(need).max().unwrap_or(0);
        let tiles = programs.iter().map(|program| tile_elements(&program.graph)).max().unwrap_or(0);
        let staging = programs.iter().map(|program| staging_elements(&program.graph)).max().unwrap_or(0);
        Scratch::bytes(threads) + (reduction + threads * tiles + staging) * size_of::<f32>()
    }

    fn slot(&self, program: usize, value: ValueId) -> &Slot {
        self.programs[program].values[value.0].as_ref().expect("only values with a buffer are read and written")
    }
}

impl Device for Cpu {
    fn kind(&self) -> &'static str {
        "cpu"
    }

    fn arena_bytes(&self) -> usize {
        self.arena.bytes()
    }

    fn scratch_bytes(&self) -> usize {
        let tiles: usize = self.team.tiles.iter().map(|tile| tile.lock().map_or(0, |tile| tile.len())).sum();
        Scratch::bytes(self.team.pool.threads()) + (self.reduction.len() + tiles) * size_of::<f32>()
    }

    fn computes(&self) -> bool {
        true
    }

    fn write_f32(&mut self, program: usize, value: ValueId, first: usize, data: &[f32]) {
        // SAFETY: the slot lies in our arena, which lives as long as `self`, and `&mut self` keeps kernels away.
        unsafe { self.slot(program, value).write(first, data) }
    }

    fn write_i32(&mut self, program: usize, value: ValueId, first: usize, data: &[i32]) {
        // SAFETY: the slot lies in our arena, which lives as long as `self`, and `&mut self` keeps kernels away.
        unsafe { self.slot(program, value).write(first, data) }
    }

    fn read_f32(&mut self, program: usize, value: ValueId, first: usize, data: &mut [f32]) {
        // SAFETY: the slot lies in our arena, which lives as long as `self`, and `&mut self` keeps kernels away.
        unsafe { self.slot(program, value).read(first, data) }
    }

    fn run(&mut self, program: usize, calls: Range<usize>) {
        self.run_unless(program, calls, &AtomicBool::new(false));
    }

    fn run_unless(&mut self, program: usize, calls: Range<usize>, give_up: &AtomicBool) -> bool {
        let _held = (self.programs[program].walk == Walk::Replayed).then(|| self.team.pool.hold());
        for index in calls {
            if give_up.load(Ordering::Relaxed) {
                return false;
            }
            let start = self.recorder.is_some().then(|| self.started.elapsed());
            match together::run(self.ranks.as_deref(), &mut self.programs[program], index) {
                Ok(true) => {}
                Ok(false) => {
                    let call = &self.programs[program].calls[index];
                    // SAFETY: the plan gives values that are alive at the same time separate places, so a call's
                    // outputs overlap none of its inputs.
                    let frame = unsafe { Frame::new(&call.inputs, &call.outputs) };
                    execute(&self.team, &call.op, &call.types, &frame, &mut self.reduction);
                    if let Some(ranks) = &self.ranks {
                        ranks.called();
                    }
                }
                Err(error) => {
                    self.parted.get_or_insert(error);
                    return false;
                }
            }
            if let (Some(recorder), Some(start)) = (&mut self.recorder, start) {
                let end = self.started.elapsed();
                recorder.push(CallSpan { program: program as u32, call: index as u32, start, end });
            }
        }
        true
    }

    fn submit(&mut self, submission: &Submission) -> Taken {
        at_once::submit(self, submission, |device| &mut device.finished)
    }

    fn collect(&mut self, finished: &mut Vec<Finished>) -> Result<(), EngineError> {
        finished.append(&mut self.finished);
        Ok(())
    }

    fn failure(&mut self) -> Option<EngineError> {
        self.parted.clone().map(EngineError::from)
    }

    fn set_recorder(&mut self, recorder: Option<Recorder>) -> Option<Recorder> {
        std::mem::replace(&mut self.recorder, recorder)
    }

    fn clock(&self) -> Duration {
        self.started.elapsed()
    }
}

fn room(floats: usize) -> Result<Room, EngineError> {
    Room::new(floats).map_err(|error| EngineError::Arena { bytes: floats * size_of::<f32>(), error })
}

/// The common precision of all programs, which the CPU must support.
fn precision_of(programs: &[Program]) -> Result<Precision, EngineError> {
    check_precision("cpu", Cpu::PRECISIONS, programs)?;
    let precision = programs.first().map_or(Precision::Fp32, |program| program.precision);
    match programs.iter().map(|program| program.precision).find(|other| *other != precision) {
        Some(other) => Err(EngineError::MixedPrecisions { one: precision, other }),
        None => Ok(precision),
    }
}

fn execute(team: &Team, op: &Op, types: &[TensorType], at: &Frame, reduction: &mut [f32]) {
    match op {
        Op::Embedding(_) => embedding::forward(team, at.ids(0), at.input(1), at.output(0)),
        Op::EmbeddingGrad(_) => embedding::gradient(team, at.ids(0), at.input(1), at.output(0)),
        Op::RmsNorm(op) => rms_norm::forward(team, op.eps, at.input(0), at.input(1), at.output(0)),
        Op::RmsNormGrad(op) => {
            let (x, weight, dy) = (at.input(0), at.input(1), at.input(2));
            let (dx, dweight) = (at.output(0), at.output(1));
            let operands = rms_norm::Gradient { eps: op.eps, x, weight, dy, also: None, dx, dweight };
            rms_norm::gradient(team, operands, reduction);
        }
        Op::MatMul(op) => matmul::run(team, op, types, at),
        Op::Rope(op) => {
            let half = types[1].shape.row();
            rope::run(team, op, half, at.input(0), (at.input(1), at.input(2)), at.output(0));
        }
        Op::AttentionScores(op) => attention::scores(team, op, types, at),
        Op::AttentionMix(op) => attention::mix(team, op, types, at),
        Op::AttentionMixBack(op) => attention::mix_back(team, op, types, at),
        Op::CausalSoftmax(_) => causal_softmax::forward(team, types[0].shape.row(), at.input(0), at.output(0)),
        Op::CausalSoftmaxGrad(_) => {
            causal_softmax::gradient(team, types[0].shape.row(), at.input(0), at.input(1), at.output(0))
        }
        Op::RmsScales(op) if types.len() == 1 => {
            rms_norm::scales(team, op.eps, types[0].shape.row(), at.input(0), at.output(0));
        }
        Op::RmsScales(op) => {
            let (read, write) = ((at.input(0), at.input(1)), (at.output(0), at.output(1)));
            rms_norm::add_scales(team, op.eps, types[0].shape.row(), read, write);
        }
        Op::AddRmsNorm(op) => {
            let (read, write) = ((at.input(0), at.input(1)), (at.output(0), at.output(1)));
            rms_norm::add_forward(team, op.eps, read, at.input(2), write);
        }
        Op::AddRmsNormGrad(op) => {
            let (x, weight, dy, also) = (at.input(0), at.input(1), at.input(2), Some(at.input(3)));
            let (dx, dweight) = (at.output(0), at.output(1));
            let operands = rms_norm::Gradient { eps: op.eps, x, weight, dy, also, dx, dweight };
            rms_norm::gradient(team, operands, reduction);
        }
        Op::Linears(_) => linears::forward(team, types, at),
        Op::LinearsGradInput(_) => linears::gradient_input(team, types, at),
        Op::LinearsGradWeights(_) => linears::gradient_weights(team, types, at),
        Op::LayerNorm(op) => {
            layer_norm::forward(team, op.eps, at.input(0), (at.input(1), at.input(2)), at.output(0));
        }
        Op::LayerNormGrad(op) => {
            let (x, weight, dy) = (at.input(0), at.input(1), at.input(2));
            let (dx, dweight, dbias) = (at.output(0), at.output(1), at.output(2));
            layer_norm::gradient(
                team,
                layer_norm::Gradient { eps: op.eps, x, weight, dy, dx, dweight, dbias },
                reduction,
            );
        }
        Op::Gelu(_) => elementwise::gelu(team, at.input(0), at.output(0)),
        Op::GeluGrad(_) => elementwise::gelu_gradient(team, at.input(0), at.input(1), at.output(0)),
        Op::AddRows(op) => {
            rows::add(team, op.period, types[0].shape.row(), at.input(0), at.input(1), at.output(0));
        }
        Op::SumRows(op) => rows::sum(team, op.period, types[0].shape.row(), at.input(0), at.output(0), reduction),
        Op::Split(op) => rows::split(team, op.parts, types[0].shape.row() / op.parts, at),
        Op::Join(_) => rows::join(team, types.len(), types[0].shape.row(), at),
        Op::Quantize(op) => fp8::quantize(op, types, at),
        Op::Fp8Product(op) => fp8::product(team, op, types, at),
        Op::UpdateScales(op) => fp8::update_scales(op, at),
        Op::SwiGlu(_) => elementwise::swiglu(team, at.input(0), at.input(1), at.output(0)),
        Op::SwiGluGrad(_) => {
            let (gate, up, dy) = (at.input(0), at.input(1), at.input(2));
            let (dgate, dup) = (at.output(0), at.output(1));
            elementwise::swiglu_gradient(team, elementwise::SwiGluGradient { gate, up, dy, dgate, dup });
        }
        Op::FlashAttention(op) => flash_attention::forward(team, op, types, at),
        Op::FlashAttentionGrad(op) => flash_attention::gradient(team, &op.forward(), types, at),
        Op::LinearCrossEntropy(op) => {
            let (x, weight, targets) = (at.input(0), at.input(1), at.ids(2));
            let head = linear_cross_entropy::Head { rows: op.rows, x, weight, targets, gradients: None };
            at.output(0)[0] = linear_cross_entropy::run(team, head, reduction);
        }
        Op::LinearCrossEntropyTrain(op) => {
            let (x, weight, targets) = (at.input(0), at.input(1), at.ids(2));
            let (arrived, dx, dweight) = (at.input(3)[0], at.output(1), at.output(2));
            let gradients = Some(linear_cross_entropy::Gradients { arrived, dx, dweight });
            let head = linear_cross_entropy::Head { rows: op.rows, x, weight, targets, gradients };
            at.output(0)[0] = linear_cross_entropy::run(team, head, reduction);
        }
        Op::AdamWAll(op) => {
            if let Some(norm) = optimizer::adamw_all(team, op, types, at, reduction) {
                at.output(0)[0] = norm;
            }
        }
        Op::Choose(op) => {
            let squares = (choose::SHARED..at.inputs()).map(|index| at.input(index)[0]);
            let operands = choose::Operands::of(at);
            choose::choose(op, operands, squares, |leaf, rates| {
                at.output(leaf).copy_from_slice(&rates);
            });
        }
        Op::AdamWChosen(op) => {
            if let Some(norm) = optimizer::adamw_chosen(team, op, types, at, reduction) {
                at.output(1)[0] = norm;
            }
        }
        Op::Add(_) => elementwise::add(team, at.input(0), at.input(1), at.output(0)),
        Op::Mul(_) => elementwise::mul(team, at.input(0), at.input(1), at.output(0)),
        Op::Scale(op) => elementwise::scale(team, op.factor, at.input(0), at.output(0)),
        Op::Silu(_) => elementwise::silu(team, at.input(0), at.output(0)),
        Op::SiluGrad(_) => elementwise::silu_gradient(team, at.input(0), at.input(1), at.output(0)),
        Op::CrossEntropy(_) => {
            at.output(0)[0] = cross_entropy::forward(team, at.input(0), at.ids(1), reduction);
        }
        Op::CrossEntropyGrad(_) => {
            cross_entropy::gradient(team, at.input(0), at.ids(1), at.input(2)[0], at.output(0));
        }
        Op::AllReduce(_) | Op::ReduceScatter(_) | Op::AllGather(_) | Op::Arrive(_) => collective::alone(op, at),
        Op::Accumulate(_) => elementwise::accumulate(team, at.updated(0), at.input(1)),
        Op::Zero(_) => elementwise::zero(team, at.updated(0)),
        Op::SquaredNorm(_) => at.output(0)[0] = optimizer::squared_norm(team, at.input(0), reduction),
        Op::GradientNorm(_) => at.output(0)[0] = optimizer::gradient_norm(team, at, reduction),
        Op::ClipScale(op) => {
            let (scale, norm) = optimizer::clip_scale(op.max_norm, (0..at.inputs()).map(|index| at.input(index)[0]));
            (at.output(0)[0], at.output(1)[0]) = (scale, norm);
        }
        Op::Sgd(op) => {
            let before_clip = 3 + op.buffers();
            let clip = if at.inputs() > before_clip { at.input(before_clip)[0] } else { 1.0 };
            let momentum = (op.buffers() == 1).then(|| at.updated(3));
            let (weight, gradient, rates) = (at.updated(0), at.input(1), at.input(2));
            sgd::sgd(
                team,
                op.momentum,
                op.decay_of(&types[0]),
                sgd::Update { weight, gradient, momentum, rates, clip },
            );
        }
        Op::MuonMomentum(op) => {
            let clip = if at.inputs() > 3 { at.input(3)[0] } else { 1.0 };
            muon::momentum(team, op, (at.updated(0), at.input(1)), (at.input(2), clip), at.output(0));
        }
        Op::CachedAttention(op) => {
            let widths = (types[0].shape.row(), types[1].shape.row());
            let (q, k, v) = (at.input(0), at.input(1), at.input(2));
            let (keys, values, first) = (at.updated(3), at.updated(4), at.ids(5)[0].max(0) as usize);
            let operands = cached_attention::Cached { q, k, v, keys, values, first, out: at.output(0) };
            cached_attention::run(team, op, widths, operands);
        }
        Op::UnitNorm(op) => muon::unit_norm(team, op, at.input(0), at.input(1)[0], at.output(0)),
        Op::Blend(op) => muon::blend(team, op, at.input(0), at.input(1), at.output(0)),
        Op::MuonUpdate(op) => muon::update(team, op, at.updated(0), at.input(1), at.input(2)),
        Op::AdamW(op) => {
            let clip = if at.inputs() == 6 { at.input(5)[0] } else { 1.0 };
            let (weight, first, second) = (at.updated(0), at.updated(1), at.updated(2));
            let (gradient, rates) = (at.input(3), at.input(4));
            optimizer::adamw(
                team,
                op,
                op.decay_of(&types[0]),
                optimizer::Update { weight, first, second, gradient, rates, clip },
            );
        }
    }
}
