//! Matrix product in its three forms, with the packed GEMM.

use super::Team;
use super::frame::Frame;
use super::gemm::{Accumulate, MatMut, MatRef, Product};
use headroom_graph::TensorType;
use headroom_graph::ops::matmul::{Form, MatMul};

pub fn run(team: &Team, op: &MatMul, types: &[TensorType], at: &Frame) {
    let (m, k, n) = op.sizes(&types[0], &types[1]).expect("checked when the graph was built");
    let (left, right) = (at.input(0), at.input(1));
    let (a, b) = match op.form {
        Form::Nn => (MatRef::row_major(left, m, k), MatRef::row_major(right, k, n)),
        Form::Nt => (MatRef::row_major(left, m, k), MatRef::row_major(right, n, k).transposed()),
        Form::Tn => (MatRef::row_major(left, k, m).transposed(), MatRef::row_major(right, k, n)),
    };
    let c = MatMut::row_major(at.output(0), m, n);
    let product = Product { alpha: 1.0, a, b, accumulate: Accumulate::Overwrite, c };
    team.product(product);
}
