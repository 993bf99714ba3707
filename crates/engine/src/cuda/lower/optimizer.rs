//! AdamW and clipping: one launch for any number of parameters, with a table that maps blocks to chunks.

use super::{Call, Grid, Lowering, Operand};
use crate::cuda::compile::{OPTIMIZER, Unit};
use crate::cuda::error::CudaError;
use crate::cuda::launch::{Action, Arguments};
use headroom_graph::ops::adamw::AdamW;
use headroom_graph::ops::adamw_all::AdamWAll;
use headroom_graph::ops::clip::ClipScale;
use headroom_graph::{DType, TensorType};
use std::ops::Range;

/// Elements that a block updates: `CHUNK` of the kernel. A small number of elements is cut finer, so that every
/// multiprocessor has several blocks. A large number stays coarse, because one block adds up all the sums.
const COARSE: usize = 16384;
const FINE: usize = 4096;
const FEW: usize = 32 << 20;

fn chunk(elements: usize) -> usize {
    if elements < FEW { FINE } else { COARSE }
}

/// Upper bound of the bytes for one sum per chunk, over tensors with this many elements in total.
pub fn sums_bytes(elements: usize, tensors: usize) -> usize {
    let chunks = (elements / COARSE).max(elements.min(FEW) / FINE);
    chunks * 4 + tensors * 8 + 256
}

pub const THREADS: usize = 256;

/// One parameter's tensors.
#[derive(Clone, Copy)]
pub struct Update<'a> {
    weight: &'a Operand,
    first: &'a Operand,
    second: &'a Operand,
    gradient: &'a Operand,
    half: Option<&'a Operand>,
}

impl Update<'_> {
    /// Reads four operands per parameter, then the half-precision copies of those that are matrices.
    pub fn list(operands: &[Operand], parameters: usize) -> Vec<Update<'_>> {
        let (tensors, bf16_copies) = operands.split_at(4 * parameters);
        let mut bf16_copies = bf16_copies.iter();
        tensors
            .chunks_exact(4)
            .map(|tensors| {
                let [weight, first, second, gradient] = tensors else { unreachable!("chunks of four") };
                let half = if weight.ty.sizes().len() > 1 { bf16_copies.next() } else { None };
                Update { weight, first, second, gradient, half }
            })
            .collect()
    }
}

impl Update<'_> {
    /// Memory that the update changes, and memory that it only reads.
    pub fn ranges(&self) -> (Vec<Range<u64>>, Range<u64>) {
        let changed = [Some(self.weight), Some(self.first), Some(self.second), self.half];
        (changed.into_iter().flatten().map(Operand::range).collect(), self.gradient.range())
    }

    pub fn elements(&self) -> usize {
        self.gradient.ty.elements()
    }
}

/// The kernel's tables, on the device.
pub struct Tables {
    tensors: u64,
    chunks: u64,
    pub count: usize,
    /// The first chunk of each parameter, and the end of the last.
    pub starts: Vec<u64>,
    unit: Unit,
}

/// The address of the first parameter's rates, and the stride to the next one's in floats.
pub struct RatesAt {
    pub first: u64,
    pub stride: usize,
}

impl Lowering<'_> {
    pub fn adamw(&mut self, call: &Call, op: &AdamW) -> Result<Vec<Action>, CudaError> {
        let at = call.inputs;
        let half = (op.bf16_copies == 1).then(|| &at[5]);
        let clip = at.get(5 + op.bf16_copies).map_or(0, |clip| clip.at);
        let update = Update { weight: &at[0], first: &at[1], second: &at[2], gradient: &at[3], half };
        let tables = self.tables_of(&[update])?;
        Ok(vec![self.update(&tables, RatesAt { first: at[4].at, stride: 0 }, clip, op)?])
    }

    pub fn adamw_all(&mut self, call: &Call, op: &AdamWAll) -> Result<Vec<Action>, CudaError> {
        let at = call.inputs;
        let tables = self.tables_of(&Update::list(&at[1..], op.parameters))?;
        let mut actions = vec![];
        let mut clip = 0;
        if op.max_norm > 0.0 {
            let partial = self.scratch(256, tables.count * 4);
            clip = self.scratch(0, 4);
            actions.push(self.squares(&tables, partial)?);
            actions.push(self.clip_from(&tables, partial, clip, call.outputs[0].at, op.max_norm)?);
        }
        actions.push(self.update(&tables, RatesAt { first: at[0].at, stride: 0 }, clip, &op.single())?);
        Ok(actions)
    }

    /// Updates some parameters of `adamw_all`, without clipping.
    pub fn adamw_some(&mut self, rates: u64, op: &AdamWAll, updates: &[Update]) -> Result<Action, CudaError> {
        let tables = self.tables_of(updates)?;
        self.update(&tables, RatesAt { first: rates, stride: 0 }, 0, &op.single())
    }

    /// Computes a sum of squares for every chunk of the gradients.
    pub fn squares(&mut self, tables: &Tables, partial: u64) -> Result<Action, CudaError> {
        let arguments = Arguments::default().pointer(tables.tensors).pointer(tables.chunks).pointer(partial);
        self.kernel_of(&tables.unit, "squares", Grid::new(tables.count, THREADS), arguments)
    }

    /// Computes the clipping factor and the norm from the sums of all chunks.
    pub fn clip_from(
        &mut self,
        tables: &Tables,
        partial: u64,
        clip: u64,
        norm: u64,
        max_norm: f64,
    ) -> Result<Action, CudaError> {
        let arguments =
            Arguments::default().pointer(partial).pointer(clip).pointer(norm).u32(tables.count).f32(max_norm);
        self.kernel_of(&tables.unit, "clip_from", Grid::new(1, 1024), arguments)
    }

    pub fn update(&mut self, tables: &Tables, rates: RatesAt, clip: u64, op: &AdamW) -> Result<Action, CudaError> {
        let arguments = Arguments::default()
            .pointer(tables.tensors)
            .pointer(tables.chunks)
            .pointer(rates.first)
            .u32(rates.stride)
            .pointer(clip)
            .f32(op.beta1)
            .f32(1.0 - op.beta1)
            .f32(op.beta2)
            .f32(1.0 - op.beta2)
            .f32(op.eps)
            .f32(op.weight_decay)
            .f32(op.decay_of(&TensorType::f32(&[1])));
        self.kernel_of(&tables.unit, "adamw", Grid::new(tables.count, THREADS), arguments)
    }

    pub fn squared_norm(&mut self, call: &Call) -> Result<Vec<Action>, CudaError> {
        let x = &call.inputs[0];
        let nothing = Operand { at: 0, ..x.clone() };
        let update = Update { weight: &nothing, first: &nothing, second: &nothing, gradient: x, half: None };
        let tables = self.tables_of(&[update])?;
        let partial = self.scratch(0, tables.count * 4);
        let total = Arguments::default().pointer(partial).pointer(call.outputs[0].at).u32(tables.count);
        Ok(vec![self.squares(&tables, partial)?, self.kernel_of(&tables.unit, "total", Grid::new(1, 1024), total)?])
    }

    /// One pass over all gradients and one kernel that sums up, as for clipping, but without a clip.
    pub fn gradient_norm(&mut self, call: &Call) -> Result<Vec<Action>, CudaError> {
        let nothing: Vec<Operand> = call.inputs.iter().map(|x| Operand { at: 0, ..x.clone() }).collect();
        let updates: Vec<Update> = call
            .inputs
            .iter()
            .zip(&nothing)
            .map(|(x, none)| Update { weight: none, first: none, second: none, gradient: x, half: None })
            .collect();
        let tables = self.tables_of(&updates)?;
        let (scale, partial) = (self.scratch(0, 4), self.scratch(256, tables.count * 4));
        let norm = call.outputs[0].at;
        Ok(vec![self.squares(&tables, partial)?, self.clip_from(&tables, partial, scale, norm, f64::INFINITY)?])
    }

    pub fn clip_scale(&mut self, call: &Call, op: &ClipScale) -> Result<Vec<Action>, CudaError> {
        let squared: Vec<u64> = call.inputs.iter().map(|operand| operand.at).collect();
        let table = self.table(&squared)?;
        let arguments = Arguments::default()
            .pointer(table)
            .pointer(call.outputs[0].at)
            .pointer(call.outputs[1].at)
            .u32(squared.len())
            .f64(op.max_norm);
        let unit = Unit { source: OPTIMIZER, options: vec![] };
        Ok(vec![self.kernel_of(&unit, "clip_scale", Grid::new(1, 1), arguments)?])
    }

    pub fn tables_of(&mut self, updates: &[Update]) -> Result<Tables, CudaError> {
        let half = |operand: &Operand| operand.ty.dtype == DType::Bf16;
        let chunk = chunk(updates.iter().map(Update::elements).sum());
        let (mut tensors, mut chunks, mut starts) = (vec![], vec![], vec![0]);
        for (index, update) in updates.iter().enumerate() {
            let elements = update.gradient.ty.elements();
            tensors.extend([
                update.weight.at,
                update.first.at,
                update.second.at,
                update.gradient.at,
                update.half.map_or(0, |half| half.at),
                elements as u64,
                u64::from(!half(update.weight)),
                u64::from(!half(update.gradient)),
                u64::from(update.weight.ty.sizes().len() > 1),
            ]);
            chunks.extend((0..elements.div_ceil(chunk)).map(|number| index as u64 | (number as u64) << 32));
            starts.push(chunks.len() as u64);
        }
        let mut options = if chunk == COARSE { vec![] } else { vec![format!("-DCHUNK={chunk}")] };
        if updates.iter().any(|update| half(update.weight)) {
            options.push("-DWEIGHT_BF16".to_string());
        }
        if updates.iter().any(|update| half(update.gradient)) {
            options.push("-DGRADIENT_BF16".to_string());
        }
        let unit = Unit { source: OPTIMIZER, options };
        let count = chunks.len();
        Ok(Tables { tensors: self.table(&tensors)?, chunks: self.table(&chunks)?, count, starts, unit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_every_chunk_have_room_however_tensors_are_cut() {
        for elements in [1, 4096, 3 << 20, FEW - 1, FEW, FEW + 1, 1 << 30] {
            for tensors in [1, 7] {
                let most = elements.div_ceil(chunk(elements)) + tensors;
                assert!(sums_bytes(elements, tensors) >= most * 4 + 256 - 8, "{elements} in {tensors}");
            }
        }
        assert!(chunk(3 << 20) < chunk(1 << 30));
    }
}
