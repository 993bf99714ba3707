//! Reference: rows of a table added cyclically and summed back; columns split and joined.

use super::Tensor;
use headroom_graph::ops::add_rows::{AddRows, SumRows};

pub fn add(op: &AddRows, inputs: &[Tensor], outputs: &mut [Tensor]) {
    let width = inputs[0].ty.shape.row();
    for (row, (y, x)) in outputs[0].data.chunks_exact_mut(width).zip(inputs[0].rows()).enumerate() {
        let table = &inputs[1].data[row % op.period * width..][..width];
        y.iter_mut().zip(x).zip(table).for_each(|((y, x), added)| *y = x + added);
    }
}

pub fn sum(op: &SumRows, inputs: &[Tensor], outputs: &mut [Tensor]) {
    let width = inputs[0].ty.shape.row();
    for (row, dy) in inputs[0].rows().enumerate() {
        let sums = &mut outputs[0].data[row % op.period * width..][..width];
        sums.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
    }
}

pub fn split(inputs: &[Tensor], outputs: &mut [Tensor]) {
    let width = outputs[0].ty.shape.row();
    for (row, x) in inputs[0].rows().enumerate() {
        for (part, output) in x.chunks_exact(width).zip(outputs.iter_mut()) {
            output.data[row * width..][..width].copy_from_slice(part);
        }
    }
}

pub fn join(inputs: &[Tensor], outputs: &mut [Tensor]) {
    let width = inputs[0].ty.shape.row();
    let whole = outputs[0].ty.shape.row();
    for (row, y) in outputs[0].data.chunks_exact_mut(whole).enumerate() {
        for (part, input) in y.chunks_exact_mut(width).zip(inputs) {
            part.copy_from_slice(&input.data[row * width..][..width]);
        }
    }
}
