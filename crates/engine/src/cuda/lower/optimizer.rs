//! AdamW and clipping: one launch for any number of parameters, with a table that says which block updates what.

use super::{Call, Grid, Lowering, Operand};
use crate::cuda::compile::{OPTIMIZER, Unit};
use crate::cuda::error::CudaError;
use crate::cuda::launch::{Action, Arguments};
use headroom_graph::DType;
use headroom_graph::ops::adamw::AdamW;
use headroom_graph::ops::adamw_all::AdamWAll;
use headroom_graph::ops::clip::ClipScale;

/// Elements that a block updates: `CHUNK` of the kernel.
pub const CHUNK: usize = 16384;
const THREADS: usize = 256;

/// One parameter's tensors.
struct Update<'a> {
    weight: &'a Operand,
    first: &'a Operand,
    second: &'a Operand,
    gradient: &'a Operand,
    half: Option<&'a Operand>,
}

/// Tables of the kernel, on the device.
struct Tables {
    tensors: u64,
    chunks: u64,
    count: usize,
    unit: Unit,
}

impl Lowering<'_> {
    pub fn adamw(&mut self, call: &Call, op: &AdamW) -> Result<Vec<Action>, CudaError> {
        let at = call.inputs;
        let half = (op.halves == 1).then(|| &at[5]);
        let clip = at.get(5 + op.halves).map_or(0, |clip| clip.at);
        let update = Update { weight: &at[0], first: &at[1], second: &at[2], gradient: &at[3], half };
        let tables = self.tables_of(&[update])?;
        Ok(vec![self.update(&tables, at[4].at, clip, op)?])
    }

    pub fn adamw_all(&mut self, call: &Call, op: &AdamWAll) -> Result<Vec<Action>, CudaError> {
        let at = call.inputs;
        let mut halves = at[1 + 4 * op.parameters..].iter();
        let updates: Vec<Update> = at[1..=4 * op.parameters]
            .chunks_exact(4)
            .map(|tensors| {
                let [weight, first, second, gradient] = tensors else { unreachable!("chunks of four") };
                let half = if weight.ty.sizes().len() > 1 { halves.next() } else { None };
                Update { weight, first, second, gradient, half }
            })
            .collect();
        let tables = self.tables_of(&updates)?;
        let mut actions = vec![];
        let mut clip = 0;
        if op.max_norm > 0.0 {
            let partial = self.scratch(256, tables.count * 4);
            clip = self.scratch(0, 4);
            let (tensors, chunks) = (tables.tensors, tables.chunks);
            let squares = Arguments::default().pointer(tensors).pointer(chunks).pointer(partial);
            actions.push(self.kernel_of(&tables.unit, "squares", Grid::new(tables.count, THREADS), squares)?);
            let from = Arguments::default()
                .pointer(partial)
                .pointer(clip)
                .pointer(call.outputs[0].at)
                .u32(tables.count)
                .f32(op.max_norm);
            actions.push(self.kernel_of(&tables.unit, "clip_from", Grid::new(1, 1024), from)?);
        }
        actions.push(self.update(&tables, at[0].at, clip, &op.single())?);
        Ok(actions)
    }

    fn update(&mut self, tables: &Tables, rates: u64, clip: u64, op: &AdamW) -> Result<Action, CudaError> {
        let arguments = Arguments::default()
            .pointer(tables.tensors)
            .pointer(tables.chunks)
            .pointer(rates)
            .pointer(clip)
            .f32(op.beta1)
            .f32(1.0 - op.beta1)
            .f32(op.beta2)
            .f32(1.0 - op.beta2)
            .f32(op.eps)
            .f32(op.weight_decay);
        self.kernel_of(&tables.unit, "adamw", Grid::new(tables.count, THREADS), arguments)
    }

    pub fn squared_norm(&mut self, call: &Call) -> Result<Vec<Action>, CudaError> {
        let x = &call.inputs[0];
        let nothing = Operand { at: 0, ..x.clone() };
        let update = Update { weight: &nothing, first: &nothing, second: &nothing, gradient: x, half: None };
        let tables = self.tables_of(&[update])?;
        let partial = self.scratch(0, tables.count * 4);
        let squares = Arguments::default().pointer(tables.tensors).pointer(tables.chunks).pointer(partial);
        let total = Arguments::default().pointer(partial).pointer(call.outputs[0].at).u32(tables.count);
        Ok(vec![
            self.kernel_of(&tables.unit, "squares", Grid::new(tables.count, THREADS), squares)?,
            self.kernel_of(&tables.unit, "total", Grid::new(1, 1024), total)?,
        ])
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

    fn tables_of(&mut self, updates: &[Update]) -> Result<Tables, CudaError> {
        let half = |operand: &Operand| operand.ty.dtype == DType::Bf16;
        let (mut tensors, mut chunks) = (vec![], vec![]);
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
            ]);
            chunks.extend((0..elements.div_ceil(CHUNK)).map(|number| index as u64 | (number as u64) << 32));
        }
        let mut options = vec![];
        if updates.iter().any(|update| half(update.weight)) {
            options.push("-DWEIGHT_BF16".to_string());
        }
        if updates.iter().any(|update| half(update.gradient)) {
            options.push("-DGRADIENT_BF16".to_string());
        }
        let unit = Unit { source: OPTIMIZER, options };
        Ok(Tables { tensors: self.table(&tensors)?, chunks: self.table(&chunks)?, count: chunks.len(), unit })
    }
}
