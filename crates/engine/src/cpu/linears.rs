//! Several linear layers on one input, one product after the other on data that is still in the cache.

use super::Team;
use super::frame::Frame;
use super::gemm::{Accumulate, MatMut, MatRef, Product, gemm};
use headroom_graph::TensorType;

pub fn forward(team: &Team, types: &[TensorType], at: &Frame) {
    let (x, (rows, inner)) = (at.input(0), matrix(&types[0]));
    for (output, ty) in types[1..].iter().enumerate() {
        let (width, _) = matrix(ty);
        run(
            team,
            Product {
                alpha: 1.0,
                a: MatRef::row_major(x, rows, inner),
                b: MatRef::row_major(at.input(output + 1), width, inner).transposed(),
                accumulate: Accumulate::Overwrite,
                c: MatMut::row_major(at.output(output), rows, width),
            },
        );
    }
}

pub fn gradient_input(team: &Team, types: &[TensorType], at: &Frame) {
    let ((rows, _), (_, inner)) = (matrix(&types[0]), matrix(&types[1]));
    let out = at.output(0);
    for pair in 0..types.len() / 2 {
        let (_, width) = matrix(&types[2 * pair]);
        run(
            team,
            Product {
                alpha: 1.0,
                a: MatRef::row_major(at.input(2 * pair), rows, width),
                b: MatRef::row_major(at.input(2 * pair + 1), width, inner),
                accumulate: if pair == 0 { Accumulate::Overwrite } else { Accumulate::Add },
                c: MatMut::row_major(out, rows, inner),
            },
        );
    }
}

pub fn gradient_weights(team: &Team, types: &[TensorType], at: &Frame) {
    let (x, (rows, inner)) = (at.input(0), matrix(&types[0]));
    for (output, ty) in types[1..].iter().enumerate() {
        let (_, width) = matrix(ty);
        run(
            team,
            Product {
                alpha: 1.0,
                a: MatRef::row_major(at.input(output + 1), rows, width).transposed(),
                b: MatRef::row_major(x, rows, inner),
                accumulate: Accumulate::Overwrite,
                c: MatMut::row_major(at.output(output), width, inner),
            },
        );
    }
}

fn run(team: &Team, product: Product) {
    gemm(&team.pool, team.isa, &team.packing, product);
}

fn matrix(ty: &TensorType) -> (usize, usize) {
    let &[rows, columns] = ty.sizes() else { unreachable!("checked by the shape rule") };
    (rows, columns)
}
