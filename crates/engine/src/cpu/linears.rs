//! Several linear layers on one input.

use super::Team;
use super::frame::Frame;
use super::gemm::{Accumulate, Columns, MatMut, MatRef, Product};
use headroom_graph::TensorType;

/// Outputs whose products share one packed input.
const TOGETHER: usize = 4;

pub fn forward(team: &Team, types: &[TensorType], at: &Frame) {
    let (rows, inner) = matrix(&types[0]);
    let x = MatRef::row_major(at.input(0), rows, inner);
    let columns = |output: usize| {
        let (width, _) = matrix(&types[output + 1]);
        let b = MatRef::row_major(at.input(output + 1), width, inner).transposed();
        Columns { b, c: MatMut::row_major(at.output(output), rows, width) }
    };
    let outputs = types.len() - 1;
    let mut first = 0;
    while first < outputs {
        // An array a length, since nothing is allocated inside a step.
        match (outputs - first).min(TOGETHER) {
            1 => team.products(1.0, x, Accumulate::Overwrite, &[columns(first)]),
            2 => team.products(1.0, x, Accumulate::Overwrite, &[0, 1].map(|next| columns(first + next))),
            3 => team.products(1.0, x, Accumulate::Overwrite, &[0, 1, 2].map(|next| columns(first + next))),
            _ => team.products(1.0, x, Accumulate::Overwrite, &[0, 1, 2, 3].map(|next| columns(first + next))),
        }
        first += TOGETHER;
    }
}

pub fn gradient_input(team: &Team, types: &[TensorType], at: &Frame) {
    let ((rows, _), (_, inner)) = (matrix(&types[0]), matrix(&types[1]));
    let out = at.output(0);
    for pair in 0..types.len() / 2 {
        let (_, width) = matrix(&types[2 * pair]);
        team.product(Product {
            alpha: 1.0,
            a: MatRef::row_major(at.input(2 * pair), rows, width),
            b: MatRef::row_major(at.input(2 * pair + 1), width, inner),
            accumulate: if pair == 0 { Accumulate::Overwrite } else { Accumulate::Add },
            c: MatMut::row_major(out, rows, inner),
        });
    }
}

pub fn gradient_weights(team: &Team, types: &[TensorType], at: &Frame) {
    let (x, (rows, inner)) = (at.input(0), matrix(&types[0]));
    for (output, ty) in types[1..].iter().enumerate() {
        let (_, width) = matrix(ty);
        team.product(Product {
            alpha: 1.0,
            a: MatRef::row_major(at.input(output + 1), rows, width).transposed(),
            b: MatRef::row_major(x, rows, inner),
            accumulate: Accumulate::Overwrite,
            c: MatMut::row_major(at.output(output), width, inner),
        });
    }
}

fn matrix(ty: &TensorType) -> (usize, usize) {
    let &[rows, columns] = ty.sizes() else { unreachable!("checked by the shape rule") };
    (rows, columns)
}
