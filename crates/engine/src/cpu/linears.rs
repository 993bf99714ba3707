//! Several linear layers on one input.

use super::Team;
use super::frame::Frame;
use super::gemm::{Accumulate, Columns, MatMut, MatRef, Product, Rows};
use headroom_graph::TensorType;

/// Largest number of outputs whose products share one packed operand.
const TOGETHER: usize = 4;

pub fn forward(team: &Team, types: &[TensorType], at: &Frame) {
    let (rows, inner) = matrix(&types[0]);
    let x = MatRef::row_major(at.input(0), rows, inner);
    let columns = |output: usize| {
        let (width, _) = matrix(&types[output + 1]);
        let b = MatRef::row_major(at.input(output + 1), width, inner).transposed();
        Columns { b, c: MatMut::row_major(at.output(output), rows, width) }
    };
    in_arrays(types.len() - 1, columns, |columns| team.products(1.0, x, Accumulate::Overwrite, columns));
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
    let (tokens, inner) = matrix(&types[0]);
    let x = MatRef::row_major(at.input(0), tokens, inner);
    let rows = |output: usize| {
        let (_, width) = matrix(&types[output + 1]);
        let a = MatRef::row_major(at.input(output + 1), tokens, width).transposed();
        Rows { a, c: MatMut::row_major(at.output(output), width, inner) }
    };
    in_arrays(types.len() - 1, rows, |rows| team.products_of_right(rows, x, Accumulate::Overwrite));
}

/// Runs up to `TOGETHER` at a time, in a fixed-size array: nothing is allocated inside a step.
fn in_arrays<T>(count: usize, part: impl Fn(usize) -> T, run: impl Fn(&mut [T])) {
    for first in (0..count).step_by(TOGETHER) {
        match (count - first).min(TOGETHER) {
            1 => run(&mut [part(first)]),
            2 => run(&mut [0, 1].map(|next| part(first + next))),
            3 => run(&mut [0, 1, 2].map(|next| part(first + next))),
            _ => run(&mut [0, 1, 2, 3].map(|next| part(first + next))),
        }
    }
}

fn matrix(ty: &TensorType) -> (usize, usize) {
    let &[rows, columns] = ty.sizes() else { unreachable!("checked by the shape rule") };
    (rows, columns)
}
