//! Adds rows of a table cyclically and sums them back; splits columns into parts and joins them.

use super::rows::{Lines, MOST_LATER, is_wide, wide};
use super::{Call, Grid, Lowering, Operand};
use crate::cuda::compile::{NORM, TABLES};
use crate::cuda::error::CudaError;
use crate::cuda::launch::{Action, Arguments};
use headroom_graph::DType;
use headroom_graph::ops::add_rows::{AddRows, SumRows};

/// Most rows of blocks that sum a matrix's columns: each adds a line to the sum.
pub const MOST_LINES: usize = 64;

impl Lowering<'_> {
    pub fn add_rows(&mut self, call: &Call, op: &AddRows) -> Result<Vec<Action>, CudaError> {
        let ([x, table], [out]) = (call.inputs, call.outputs) else {
            return Err(call.unsupported("takes rows and a table"));
        };
        let columns = x.columns();
        let vector = is_wide(x, columns) && is_wide(out, columns) && table.at.is_multiple_of(16);
        let kind = if table.ty.dtype == DType::F32 { "floats" } else { "table" };
        let name = format!("add_{kind}_{}", if vector { "v" } else { "s" });
        let packs = x.ty.elements() / if vector { wide(x) } else { 1 };
        let arguments = Arguments::default()
            .pointer(x.at)
            .pointer(table.at)
            .pointer(out.at)
            .u32(x.rows())
            .u32(columns)
            .u32(op.period);
        Ok(vec![self.kernel(call, TABLES, &name, self.through(packs), arguments)?])
    }

    pub fn sum_rows(&mut self, call: &Call, op: &SumRows) -> Result<Vec<Action>, CudaError> {
        let ([x], [sums]) = (call.inputs, call.outputs) else { return Err(call.unsupported("takes rows")) };
        let (rows, columns) = (x.rows(), x.columns());
        if op.rows > 0 {
            let elements = sums.ty.elements();
            let arguments =
                Arguments::default().pointer(x.at).pointer(sums.at).u32(rows).u32(columns).u32(op.period).u64(elements);
            return Ok(vec![self.kernel(call, TABLES, "sum_periods", self.through(elements), arguments)?]);
        }
        let lines = rows.div_ceil(8).clamp(1, MOST_LINES);
        let later = self.sums_later && lines * columns * 4 <= MOST_LATER;
        let partial = match later {
            true => self.own_memory(lines * columns * 4)?,
            false => self.scratch(0, lines * columns * 4),
        };
        let arguments = Arguments::default().pointer(x.at).pointer(partial).u32(rows).u32(columns);
        let (name, width) = if is_wide(x, columns) { ("sum_columns_v", wide(x)) } else { ("sum_columns_s", 1) };
        let grid = Grid::of([columns.div_ceil(32 * width), lines, 1], [32, 8, 1]);
        let first = self.kernel(call, TABLES, name, grid, arguments)?;
        if later {
            self.later.push(Lines { partial, dweight: sums.range(), lines, columns });
            return Ok(vec![first]);
        }
        let arguments = Arguments::default().pointer(partial).pointer(sums.at).u32(lines).u32(columns);
        let grid = Grid::of([columns.div_ceil(16), 1, 1], [16, 32, 1]);
        Ok(vec![first, self.kernel(call, NORM, "sum_lines", grid, arguments)?])
    }

    /// One copy per part.
    pub fn split(&mut self, call: &Call) -> Result<Vec<Action>, CudaError> {
        let whole = &call.inputs[0];
        let columns = |part: usize, of: &Operand| columns_of(whole, part, of);
        let parts = call.outputs.iter().enumerate();
        parts.map(|(part, of)| self.copy_columns(call, &columns(part, of), of)).collect()
    }

    pub fn join(&mut self, call: &Call) -> Result<Vec<Action>, CudaError> {
        let whole = &call.outputs[0];
        let parts = call.inputs.iter().enumerate();
        parts.map(|(part, of)| self.copy_columns(call, of, &columns_of(whole, part, of))).collect()
    }

    fn copy_columns(&mut self, call: &Call, from: &Operand, to: &Operand) -> Result<Action, CudaError> {
        let columns = from.columns();
        let vector = is_wide(from, columns) && is_wide(to, columns);
        let packs = from.ty.elements() / if vector { wide(from) } else { 1 };
        let arguments = Arguments::default()
            .pointer(from.at)
            .pointer(to.at)
            .u32(from.rows())
            .u32(columns)
            .u64(from.pitch)
            .u64(to.pitch);
        let name = if vector { "copy_columns_v" } else { "copy_columns_s" };
        self.kernel(call, TABLES, name, self.through(packs), arguments)
    }
}

/// The part's columns of the whole, viewed as a separate matrix.
fn columns_of(whole: &Operand, part: usize, of: &Operand) -> Operand {
    let first = part * of.columns() * whole.ty.dtype.bytes();
    Operand { at: whole.at + first as u64, ty: of.ty.clone(), pitch: whole.pitch }
}
