//! Eight-bit products, exact but slow: values are quantized one by one on one thread; the operands, which half
//! precision holds without loss, go through the team's normal product.

use super::Team;
use super::frame::Frame;
use super::gemm::{Accumulate, MatMut, MatRef, Product};
use headroom_graph::TensorType;
use headroom_graph::fp8::{self, LARGEST, SATURATED, SLOT, UNIT};
use headroom_graph::ops::fp8_product::{Fp8Product, Part};
use headroom_graph::ops::quantize::{Quantize, QuantizedCopies, QuantizedValues, Scaling, UpdateScales};

pub fn quantize(op: &Quantize, types: &[TensorType], at: &Frame) {
    let first = types.len() - op.sources(types).len();
    let Ok((rows, columns)) = op.sizes(op.sources(types)) else { unreachable!("checked by the shape rule") };
    let outputs = usize::from(op.ways == QuantizedCopies::Both) + 1;
    let slot = match op.scaling {
        Scaling::Delayed => at.updated(0),
        Scaling::Current => at.output(outputs),
    };
    if op.scaling == Scaling::Current {
        slot.fill(0.0);
    }
    let source = |index: usize| at.input(first + index);
    let width = |index: usize| types[first + index].shape.row();
    let value = |row: usize, column: usize| match op.of {
        QuantizedValues::Columns => {
            let (mut index, mut column) = (0, column);
            while column >= width(index) {
                column -= width(index);
                index += 1;
            }
            source(index)[row * width(index) + column]
        }
        QuantizedValues::Rows => {
            let (mut index, mut element) = (0, row * columns + column);
            while element >= source(index).len() {
                element -= source(index).len();
                index += 1;
            }
            source(index)[element]
        }
        QuantizedValues::Norm => source(1)[column] * (source(0)[row * columns + column] * source(2)[row]),
        QuantizedValues::SwiGlu => {
            let element = row * columns + column;
            let gate = source(0)[element];
            gate * sigmoid(gate) * source(1)[element]
        }
        QuantizedValues::SwiGluGrad => {
            let half = columns / 2;
            let element = row * half + column % half;
            let (gate, up, arrived) = (source(0)[element], source(1)[element], source(2)[element]);
            let s = sigmoid(gate);
            match column < half {
                true => arrived * up * s * (1.0 + gate * (1.0 - s)),
                false => arrived * gate * s,
            }
        }
    };
    // NaN counts as larger than any number.
    let every = || (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    let bits = every().map(|(row, column)| value(row, column).to_bits() & 0x7fff_ffff).max().unwrap_or(0);
    let largest = f32::from_bits(bits);
    if slot[UNIT] == 0.0 {
        slot[UNIT] = op.format.unit_for(largest, op.margin).map_or(1.0, |(unit, _)| unit);
    }
    slot[LARGEST] = f32::from_bits(slot[LARGEST].to_bits().max(bits));
    let (unit, mut saturated) = (slot[UNIT], 0u32);
    let mut rounded = |row: usize, column: usize| {
        let scaled = value(row, column) / unit;
        saturated += u32::from(scaled.abs() > op.format.largest());
        op.format.round(scaled)
    };
    match op.ways {
        QuantizedCopies::Plain => {
            let plain = at.output(0);
            every().for_each(|(row, column)| plain[row * columns + column] = rounded(row, column));
        }
        QuantizedCopies::Transposed => {
            let transposed = at.output(0);
            every().for_each(|(row, column)| transposed[column * rows + row] = rounded(row, column));
        }
        QuantizedCopies::Both => {
            let (plain, transposed) = (at.output(0), at.output(1));
            every().for_each(|(row, column)| {
                let x = rounded(row, column);
                plain[row * columns + column] = x;
                transposed[column * rows + row] = x;
            });
        }
    }
    slot[SATURATED] += saturated as f32;
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

pub fn product(team: &Team, op: &Fp8Product, types: &[TensorType], at: &Frame) {
    let (&[m, k], &[n, _]) = (types[0].sizes(), types[1].sizes()) else { unreachable!("checked by the shape rule") };
    let (a, b, alpha) = (at.input(0), at.input(1), at.input(2)[UNIT] * at.input(3)[UNIT]);
    let mut start = 0;
    for (index, &width) in op.widths.as_slice().iter().enumerate() {
        let (left, rows, right, columns) = match op.part {
            Part::GradWeights => (&a[start * k..], width, b, n),
            _ => (a, m, &b[start * k..], width),
        };
        team.product(Product {
            alpha,
            a: MatRef::row_major(&left[..rows * k], rows, k),
            b: MatRef::row_major(&right[..columns * k], columns, k).transposed(),
            accumulate: Accumulate::Overwrite,
            c: MatMut::row_major(at.output(index), rows, columns),
        });
        start += width;
    }
}

pub fn update_scales(op: &UpdateScales, at: &Frame) {
    for index in 0..op.slots {
        let slot = at.updated(index);
        debug_assert_eq!(slot.len(), SLOT);
        fp8::update(slot, op.format, op.margin);
    }
}
