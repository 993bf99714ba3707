//! Eight bits: quantization with a tensor's scale, products of quantized operands, and scales for the next step.

use super::{Call, Grid, Lowering, Operand};
use crate::cuda::compile::{FP8, Unit};
use crate::cuda::error::CudaError;
use crate::cuda::launch::{Action, Arguments};
use crate::cuda::product::{Addresses, Arithmetic, Shape, Side};
use headroom_graph::fp8::Format;
use headroom_graph::ops::fp8_product::{Fp8Product, Part};
use headroom_graph::ops::quantize::{Quantize, QuantizedCopies, QuantizedValues, Scaling, UpdateScales};
use headroom_graph::{DType, TensorType};

/// Edge of the tile that a block quantizes: `TILE` of the kernel.
const TILE: usize = 128;
const THREADS: usize = 256;

/// Largest number of matrices that are quantized together.
const MOST_SOURCES: usize = 3;

pub fn unit() -> Unit {
    Unit { source: FP8, options: vec![] }
}

/// The exponent of a format's largest number.
fn top(format: Format) -> usize {
    match format {
        Format::E4m3 => 8,
        Format::E5m2 => 15,
    }
}

impl Lowering<'_> {
    pub fn quantize(&mut self, call: &Call, op: &Quantize) -> Result<Vec<Action>, CudaError> {
        let sources = op.sources(call.inputs);
        let halves = if op.of == QuantizedValues::Norm { &sources[..1] } else { sources };
        if sources.len() > MOST_SOURCES || halves.iter().any(|source| source.ty.dtype != DType::Bf16) {
            return Err(call.unsupported("rounds up to three matrices in half precision"));
        }
        let (rows, columns) = match op.of {
            QuantizedValues::Columns => (sources[0].rows(), sources.iter().map(Operand::columns).sum()),
            QuantizedValues::Rows => (sources.iter().map(Operand::rows).sum(), sources[0].columns()),
            QuantizedValues::Norm | QuantizedValues::SwiGlu | QuantizedValues::SwiGluGrad => {
                (sources[0].rows(), sources[0].columns())
            }
        };
        let wide = |source: &Operand| {
            let sizes = [source.rows(), source.columns()];
            sizes.iter().all(|size| size.is_multiple_of(16))
                && source.pitch.is_multiple_of(8)
                && source.at.is_multiple_of(16)
        };
        if !halves.iter().all(wide) {
            return Err(call.unsupported("takes sizes that are multiples of 16"));
        }
        let outputs = usize::from(op.ways == QuantizedCopies::Both) + 1;
        let slot = match op.scaling {
            Scaling::Delayed => call.inputs[0].at,
            Scaling::Current => call.outputs[outputs].at,
        };
        let place = |index: usize| sources.get(index).map_or(0, |source| source.at);
        let pitch = |index: usize| sources.get(index).map_or(0, |source| source.pitch);
        let extent = |index: usize| match op.of {
            QuantizedValues::Rows => sources.get(index).map_or(0, Operand::rows),
            _ => sources.get(index).map_or(0, Operand::columns),
        };
        let arguments = Arguments::default()
            .pointer(slot)
            .pointer(place(0))
            .pointer(place(1))
            .pointer(place(2))
            .u64(pitch(0))
            .u64(pitch(1))
            .u64(pitch(2))
            .u32(extent(0))
            .u32(extent(0) + extent(1))
            .u32(rows)
            .u32(columns);
        let units = rows / 4 * (columns / 8);
        let through = Grid::new(units.div_ceil(THREADS).min(8 * self.context.multiprocessors as usize), THREADS);
        let largest = self.kernel_of(&unit(), &format!("largest_{}", op.of), through, arguments.clone())?;
        let first = Arguments::default().pointer(slot).u32(top(op.format)).u32(op.margin as u32 as usize);
        let first = self.kernel_of(&unit(), "first_unit", Grid::new(1, 1), first)?;
        let (plain, transposed) = match op.ways {
            QuantizedCopies::Plain => (call.outputs[0].at, 0),
            QuantizedCopies::Transposed => (0, call.outputs[0].at),
            QuantizedCopies::Both => (call.outputs[0].at, call.outputs[1].at),
        };
        let tiles = Grid::of([columns.div_ceil(TILE), rows.div_ceil(TILE), 1], [THREADS, 1, 1]);
        let name = format!("quantize_{}_{}", op.of, op.format);
        let rounding = self.kernel_of(&unit(), &name, tiles, arguments.pointer(plain).pointer(transposed))?;
        Ok(match op.scaling {
            Scaling::Delayed => vec![largest.on_first_use(), first.on_first_use(), rounding],
            Scaling::Current => {
                vec![Action::Zero { at: slot, bytes: call.outputs[outputs].ty.bytes() }, largest, first, rounding]
            }
        })
    }

    pub fn fp8_product(&mut self, call: &Call, op: &Fp8Product) -> Result<Vec<Action>, CudaError> {
        let [a, b, a_slot, b_slot] = call.inputs else { return Err(call.unsupported("takes two matrices and scales")) };
        if Format::of(a.ty.dtype).is_none() || b.ty.dtype != DType::E4m3 {
            return Err(call.unsupported(format!("multiplies eight bits by e4m3, not {} by {}", a.ty, b.ty)));
        }
        let together = match op.part {
            Part::Output => super::products::stacked_columns(call.outputs),
            Part::GradWeights => super::products::stacked_rows(call.outputs),
            Part::GradInput => Some(call.outputs[0].clone()),
        };
        // Only the forward product uses the fast accumulation; the gradients keep full precision in their sums.
        let arithmetic = if op.part == Part::Output { Arithmetic::Fp8Fast } else { Arithmetic::Fp8 };
        let scales = [a_slot.at, b_slot.at];
        let product = |a: &Operand, b: &Operand, c: &Operand| {
            let shape = Shape {
                m: a.rows(),
                n: b.rows(),
                k: a.columns(),
                a: Side { pitch: a.pitch, transposed: false },
                b: Side { pitch: b.pitch, transposed: true },
                c_pitch: c.pitch,
                inputs: a.element(),
                output: c.element(),
                arithmetic,
                adds: false,
            };
            Action::Scaled(shape, Addresses { a: a.at, b: b.at, c: c.at }, scales)
        };
        if let Some(whole) = together {
            return Ok(vec![product(a, b, &whole)]);
        }
        let mut start = 0;
        let some_rows = |of: &Operand, start: usize, rows: usize| Operand {
            at: of.at + (start * of.pitch * of.ty.dtype.bytes()) as u64,
            ty: TensorType::new(of.ty.dtype, &[rows, of.columns()]),
            pitch: of.pitch,
        };
        let each = op.widths.as_slice().iter().zip(call.outputs).map(|(&width, out)| {
            let part = match op.part {
                Part::GradWeights => product(&some_rows(a, start, width), b, out),
                _ => product(a, &some_rows(b, start, width), out),
            };
            start += width;
            part
        });
        Ok(each.collect())
    }

    pub fn update_scales(&mut self, call: &Call, op: &UpdateScales) -> Result<Vec<Action>, CudaError> {
        let slots: Vec<u64> = call.inputs.iter().map(|slot| slot.at).collect();
        let table = self.table(&slots)?;
        let margin = op.margin as u32 as usize;
        let arguments = Arguments::default().pointer(table).u32(slots.len()).u32(top(op.format)).u32(margin);
        Ok(vec![self.kernel_of(&unit(), "update_scales", Grid::new(slots.len().div_ceil(64), 64), arguments)?])
    }
}
