//! Reference: several linear layers on one input, each by the plain product.

use super::{Tensor, matmul};
use headroom_graph::ops::matmul::{Form, MatMul};

pub fn forward(inputs: &[Tensor], outputs: &mut [Tensor]) {
    for (weight, output) in inputs[1..].iter().zip(outputs) {
        product(Form::Nt, &inputs[0], weight, output);
    }
}

pub fn gradient_input(inputs: &[Tensor], outputs: &mut [Tensor]) {
    let mut part = Tensor::zeros(&outputs[0].ty);
    for pair in inputs.chunks_exact(2) {
        product(Form::Nn, &pair[0], &pair[1], &mut part);
        outputs[0].data.iter_mut().zip(&part.data).for_each(|(sum, part)| *sum += part);
    }
}

pub fn gradient_weights(inputs: &[Tensor], outputs: &mut [Tensor]) {
    for (dy, output) in inputs[1..].iter().zip(outputs) {
        product(Form::Tn, dy, &inputs[0], output);
    }
}

fn product(form: Form, left: &Tensor, right: &Tensor, output: &mut Tensor) {
    matmul::run(&MatMul { form }, &[left.clone(), right.clone()], std::slice::from_mut(output));
}
