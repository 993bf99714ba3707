//! Reference: matrix product by the triple loop.

use super::Tensor;
use headroom_graph::ops::matmul::{Form, MatMul};

pub fn run(op: &MatMul, inputs: &[Tensor], outputs: &mut [Tensor]) {
    let (a, b) = (&inputs[0], &inputs[1]);
    let (m, k, n) = op.sizes(&a.ty, &b.ty).expect("checked by the shape rule");
    for i in 0..m {
        for j in 0..n {
            let product = |inner: usize| match op.form {
                Form::Nn => a.data[i * k + inner] * b.data[inner * n + j],
                Form::Nt => a.data[i * k + inner] * b.data[j * k + inner],
                Form::Tn => a.data[inner * m + i] * b.data[inner * n + j],
            };
            outputs[0].data[i * n + j] = (0..k).map(product).sum();
        }
    }
}
