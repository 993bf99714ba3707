//! Kernels over rows: elementwise ops, the rotation, norms.

use super::{Call, Grid, Lowering, Operand};
use crate::cuda::compile::{ELEMENTWISE, EXCHANGE, NORM, Unit};
use crate::cuda::error::CudaError;
use crate::cuda::launch::{Action, Arguments};
use headroom_graph::ops::collective::{AllGather, copied_tensors};
use headroom_graph::ops::rope::{Rope, RotationDirection};
use headroom_graph::{Op, TensorType};
use std::ops::Range;

const THREADS: usize = 256;

/// Blocks per multiprocessor for kernels that stream through memory.
const BLOCKS: usize = 16;

/// Blocks per multiprocessor for the gradient of a norm: each adds a line to the weight's sum.
pub const NORM_BLOCKS: usize = 2;

/// Bytes of shared memory in which a norm's gradient reduces over a row.
const NORM_ROOM: usize = 4096;

/// Most bytes of partial sums that a norm may keep until the end of the backward pass. Saving a launch only matters in
/// short steps.
pub const MOST_LATER: usize = 1 << 20;

/// Partial sums for a norm's weight or a bias, to be added up at the end of the backward pass.
pub struct Lines {
    pub partial: u64,
    pub dweight: Range<u64>,
    pub lines: usize,
    pub columns: usize,
}

/// Elements in 16 bytes.
pub fn wide(operand: &Operand) -> usize {
    16 / operand.ty.dtype.bytes()
}

/// Whether it can be accessed 16 bytes at a time.
pub fn is_wide(operand: &Operand, columns: usize) -> bool {
    let width = wide(operand);
    columns.is_multiple_of(width) && operand.pitch.is_multiple_of(width) && operand.at.is_multiple_of(16)
}

impl Lowering<'_> {
    pub fn elementwise(&mut self, call: &Call) -> Result<Vec<Action>, CudaError> {
        let name = match call.op {
            Op::Add(_) => "add",
            Op::Mul(_) => "mul",
            Op::Scale(_) => "scale",
            Op::Silu(_) => "silu",
            Op::SiluGrad(_) => "silu_grad",
            Op::SwiGlu(_) => "swiglu",
            Op::Gelu(_) => "gelu",
            Op::GeluGrad(_) => "gelu_grad",
            _ => "swiglu_grad",
        };
        let all: Vec<&Operand> = call.inputs.iter().chain(call.outputs).collect();
        // Without gaps, all rows count as one.
        let dense = all.iter().all(|operand| operand.is_dense());
        let (rows, columns) = match dense {
            true => (1, all[0].ty.elements()),
            false => (all[0].rows(), all[0].columns()),
        };
        let vector = all.iter().all(|operand| is_wide(operand, columns));
        let mut arguments = all.iter().fold(Arguments::default(), |list, operand| list.pointer(operand.at));
        arguments = arguments.u32(rows).u32(columns);
        arguments = all.iter().fold(arguments, |list, operand| list.u64(operand.pitch));
        if let Op::Scale(op) = call.op {
            arguments = arguments.f32(op.factor);
        }
        let packs = rows * columns / if vector { wide(all[0]) } else { 1 };
        let name = format!("{name}_{}", if vector { "v" } else { "s" });
        Ok(vec![self.kernel(call, ELEMENTWISE, &name, self.through(packs), arguments)?])
    }

    /// Enough blocks for this many items, one per thread, but no more than fill the device.
    pub fn through(&self, items: usize) -> Grid {
        Grid::new(items.div_ceil(THREADS).min(BLOCKS * self.context.multiprocessors as usize), THREADS)
    }

    pub fn rope(&mut self, call: &Call, op: &Rope) -> Result<Vec<Action>, CudaError> {
        let [x, cosine, sine] = call.inputs else { return Err(call.unsupported("takes x, cos and sin")) };
        let out = &call.outputs[0];
        let (half, seq, rows) = (cosine.columns(), cosine.rows(), x.rows());
        let vector = is_wide(x, half) && is_wide(out, half);
        let arguments = Arguments::default()
            .pointer(x.at)
            .pointer(cosine.at)
            .pointer(sine.at)
            .pointer(out.at)
            .u32(rows)
            .u32(op.heads)
            .u32(half)
            .u32(seq)
            .u64(x.pitch)
            .u64(out.pitch)
            .f32(if op.turn == RotationDirection::Back { -1.0 } else { 1.0 });
        let packs = rows * op.heads * half / if vector { wide(x) } else { 1 };
        let name = if vector { "rope_v" } else { "rope_s" };
        Ok(vec![self.kernel(call, ELEMENTWISE, name, self.through(packs), arguments)?])
    }

    pub fn norm(&mut self, call: &Call) -> Result<Vec<Action>, CudaError> {
        // Branch, weight, sum, normed rows, scales.
        let (eps, places) = match (call.op, call.inputs, call.outputs) {
            (Op::RmsNorm(op), [_, weight], [out]) => (op.eps, [0, weight.at, 0, out.at, 0]),
            (Op::AddRmsNorm(op), [_, branch, weight], [sum, out]) => {
                (op.eps, [branch.at, weight.at, sum.at, out.at, 0])
            }
            (Op::RmsScales(op), [_], [scales]) => (op.eps, [0, 0, 0, 0, scales.at]),
            (Op::RmsScales(op), [_, branch], [sum, scales]) => (op.eps, [branch.at, 0, sum.at, 0, scales.at]),
            _ => return Err(call.unsupported("takes a row, perhaps a second, and a weight")),
        };
        let x = &call.inputs[0];
        // Norms a whole row, or each head of it.
        let columns = match (call.op, call.inputs.get(1)) {
            (Op::RmsNorm(_), Some(weight)) => weight.columns(),
            _ => x.columns(),
        };
        let rows = x.ty.elements() / columns;
        let fit = Fit::of(call, x, columns)?;
        let rows_per_block = fit.rows_per_block();
        let grid = Grid::of([rows.div_ceil(rows_per_block), 1, 1], [fit.threads, rows_per_block, 1]);
        let arguments = places.into_iter().fold(Arguments::default().pointer(x.at), Arguments::pointer);
        let arguments = arguments.u32(rows).u32(columns).f32(eps);
        Ok(vec![self.kernel(call, NORM, &format!("rms_norm_{}", fit.suffix), grid, arguments)?])
    }

    pub fn norm_gradient(&mut self, call: &Call) -> Result<Vec<Action>, CudaError> {
        let (eps, also) = match (call.op, call.inputs.get(3)) {
            (Op::AddRmsNormGrad(op), Some(also)) => (op.eps, also.at),
            (Op::RmsNormGrad(op), None) => (op.eps, 0),
            _ => return Err(call.unsupported("takes x, a weight, the gradient and perhaps another")),
        };
        let (x, weight, dy) = (&call.inputs[0], &call.inputs[1], &call.inputs[2]);
        let (dx, dweight) = (&call.outputs[0], &call.outputs[1]);
        let columns = weight.columns();
        let rows = x.ty.elements() / columns;
        let fit = Fit::of(call, x, columns)?;
        let rows_per_block = fit.rows_per_block();
        let blocks =
            blocks_in_equal_turns(rows.div_ceil(rows_per_block), NORM_BLOCKS * self.context.multiprocessors as usize);
        let partial_bytes = blocks * columns * 4;
        let later = self.sums_later && partial_bytes <= MOST_LATER;
        let partial = if later { self.own_memory(partial_bytes)? } else { self.scratch(0, partial_bytes) };
        let arguments = Arguments::default()
            .pointer(x.at)
            .pointer(weight.at)
            .pointer(dy.at)
            .pointer(also)
            .pointer(dx.at)
            .pointer(partial)
            .u32(rows)
            .u32(columns)
            .f32(eps)
            .u32(fit.stages(self.context.shared_memory));
        let shared = fit.gradient_shared(fit.stages(self.context.shared_memory), columns);
        let grid = Grid::of([blocks, 1, 1], [fit.threads, rows_per_block, 1]).with_shared(shared);
        let name = format!("rms_norm_grad_{}", fit.suffix);
        let gradient = self.kernel(call, NORM, &name, grid, arguments)?;
        if later {
            self.later.push(Lines { partial, dweight: dweight.range(), lines: blocks, columns });
            return Ok(vec![gradient]);
        }
        let lines = Arguments::default().pointer(partial).pointer(dweight.at).u32(blocks).u32(columns);
        let sum = Grid::of([columns.div_ceil(16), 1, 1], [16, 32, 1]);
        Ok(vec![gradient, self.kernel(call, NORM, "sum_lines", sum, lines)?])
    }

    /// One kernel for all deferred sums, and the ranges that it writes.
    pub fn sum_later(&mut self) -> Result<Option<(Action, Vec<Range<u64>>)>, CudaError> {
        let later = std::mem::take(&mut self.later);
        let Some(widest) = later.iter().map(|one| one.columns).max() else { return Ok(None) };
        let words = |one: &Lines| [one.partial, one.dweight.start, one.lines as u64, one.columns as u64];
        let table = self.table(&later.iter().flat_map(words).collect::<Vec<u64>>())?;
        let grid = Grid::of([widest.div_ceil(16), later.len(), 1], [16, 32, 1]);
        let unit = Unit { source: NORM, options: vec![] };
        let action = self.kernel_of(&unit, "sum_all_lines", grid, Arguments::default().pointer(table))?;
        Ok(Some((action, later.into_iter().map(|one| one.dweight).collect())))
    }

    pub fn accumulate(&mut self, call: &Call) -> Result<Vec<Action>, CudaError> {
        Ok(vec![self.add_into(call, &call.inputs[0], &call.inputs[1])?])
    }

    /// The sum over a single rank: zeros the output and adds the input.
    pub fn alone(&mut self, call: &Call, to: &[Operand], from: &[Operand]) -> Result<Vec<Action>, CudaError> {
        let mut actions = vec![];
        for (to, from) in to.iter().zip(from) {
            actions.push(Action::Zero { at: to.at, bytes: to.ty.bytes() });
            actions.push(self.add_into(call, to, from)?);
        }
        Ok(actions)
    }

    /// Updates the half-precision copies of the gathered tensors.
    pub fn copies(&mut self, call: &Call, op: &AllGather) -> Result<Vec<Action>, CudaError> {
        let types = |operands: &[Operand]| operands.iter().map(|operand| operand.ty.clone()).collect::<Vec<_>>();
        let (whole, copies) = (&call.inputs[..op.tensors], &call.inputs[2 * op.tensors..]);
        let Some(of) = copied_tensors(&types(whole), &types(copies)) else {
            return Err(call.unsupported("copies of other tensors"));
        };
        let unit = Unit { source: EXCHANGE, options: vec![] };
        let mut actions = vec![];
        for (copy, at) in copies.iter().zip(of) {
            let elements = copy.ty.elements();
            let arguments = Arguments::default().pointer(whole[at].at).pointer(copy.at).u64(elements);
            actions.push(self.kernel_of(&unit, "to_half", self.through(elements), arguments)?);
        }
        Ok(actions)
    }

    fn add_into(&mut self, call: &Call, sum: &Operand, x: &Operand) -> Result<Action, CudaError> {
        let arguments = Arguments::default().pointer(sum.at).pointer(x.at).u64(x.ty.elements());
        self.kernel(call, ELEMENTWISE, "accumulate", self.through(x.ty.elements()), arguments)
    }
}

/// Upper bound of the bytes that a norm over `x` keeps, known without a device.
pub fn later_bound(x: &TensorType) -> usize {
    const MOST_BLOCKS: usize = NORM_BLOCKS * 256;
    let (columns, rows) = (x.shape.row().max(1), x.elements() / x.shape.row().max(1));
    let bytes = rows.min(MOST_BLOCKS) * columns * 4;
    bytes.min(MOST_LATER)
}

/// The fewest blocks that finish in as many rounds as `most` blocks would: each block adds a line to the weight's sum.
pub fn blocks_in_equal_turns(items: usize, most: usize) -> usize {
    let turns = items.div_ceil(most.max(1)).max(1);
    items.div_ceil(turns)
}

/// How many threads share a row, so that each keeps at most four packs of it in registers.
pub struct Fit {
    pub threads: usize,
    /// Number of packs that a thread keeps, and bytes per pack.
    each: usize,
    pack: usize,
    pub suffix: &'static str,
}

impl Fit {
    /// Fits rows of this many columns.
    pub fn of(call: &Call, x: &Operand, columns: usize) -> Result<Fit, CudaError> {
        let (width, vector) = if is_wide(x, columns) { (wide(x), true) } else { (1, false) };
        let packs = columns.div_ceil(width);
        let each = match (vector, packs) {
            (true, ..=512) => 1,
            (true, ..=1024) => 2,
            _ => 4,
        };
        let threads = packs.div_ceil(each).next_multiple_of(32);
        if threads > 512 {
            return Err(call.unsupported(format!("rows of {columns} are longer than a block can hold")));
        }
        let suffix = match (vector, each) {
            (false, _) => "s4",
            (_, 1) if threads <= 256 => "v1",
            (_, 1) => "w1",
            (_, 2) => "v2",
            _ => "v4",
        };
        Ok(Fit { threads, each, pack: width * x.ty.dtype.bytes(), suffix })
    }

    /// One warp per row, if it can keep the row in registers.
    pub fn by_warps(x: &Operand, columns: usize) -> Option<Fit> {
        let each = columns.div_ceil(32 * wide(x));
        let suffix = *["r1", "r2", "r3", "r4"].get(each.checked_sub(1)?)?;
        is_wide(x, columns).then(|| Fit { threads: 32, each, pack: wide(x) * x.ty.dtype.bytes(), suffix })
    }

    /// Number of rows per block: short rows share one.
    pub fn rows_per_block(&self) -> usize {
        (256 / self.threads).clamp(1, 8)
    }

    /// Rows of the gradient that a block has in shared memory, in flight or in use. On an H200 three were fastest for
    /// short rows with one pack per thread, two otherwise; zero if two do not fit.
    fn stages(&self, shared_memory: usize) -> usize {
        let wanted = if self.suffix == "v1" { 3 } else { 2 };
        (2..=wanted).rev().find(|&stages| NORM_ROOM + self.ring(stages) <= shared_memory).unwrap_or(0)
    }

    /// Bytes of shared memory for `x` and the arriving gradients.
    fn ring(&self, stages: usize) -> usize {
        stages * 3 * self.each * self.pack * self.threads * self.rows_per_block()
    }

    /// At the end, the weight's sums reuse the ring.
    fn gradient_shared(&self, stages: usize, columns: usize) -> usize {
        NORM_ROOM + self.ring(stages).max(self.rows_per_block() * columns * 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_take_equal_turns_and_no_more_than_the_device_holds() {
        for (items, most, want) in [(512, 396, 256), (128, 396, 128), (4096, 396, 373), (396, 396, 396), (1, 396, 1)] {
            let blocks = blocks_in_equal_turns(items, most);
            assert_eq!(blocks, want);
            assert!(blocks <= most && items.div_ceil(blocks) == items.div_ceil(most), "{items}");
        }
    }
}
