//! Reference: LM head and cross-entropy as separate ops, all logits at once.

use super::{Tensor, cross_entropy, matmul};
use headroom_graph::TensorType;
use headroom_graph::ops::matmul::{Form, MatMul};

pub fn forward(inputs: &[Tensor], outputs: &mut [Tensor]) {
    cross_entropy::forward(&[logits(inputs), inputs[2].clone()], outputs);
}

pub fn with_gradients(inputs: &[Tensor], outputs: &mut [Tensor]) {
    let logits = logits(inputs);
    cross_entropy::forward(&[logits.clone(), inputs[2].clone()], &mut outputs[..1]);
    let mut dlogits = [Tensor::zeros(&logits.ty)];
    cross_entropy::gradient(&[logits, inputs[2].clone(), inputs[3].clone()], &mut dlogits);
    let [dlogits] = dlogits;
    matmul::run(&MatMul { form: Form::Nn }, &[dlogits.clone(), inputs[1].clone()], &mut outputs[1..2]);
    matmul::run(&MatMul { form: Form::Tn }, &[dlogits, inputs[0].clone()], &mut outputs[2..3]);
}

fn logits(inputs: &[Tensor]) -> Tensor {
    let (rows, vocab) = (inputs[0].ty.sizes()[0], inputs[1].ty.sizes()[0]);
    let mut logits = [Tensor::zeros(&TensorType::f32(&[rows, vocab]))];
    matmul::run(&MatMul { form: Form::Nt }, &inputs[..2], &mut logits);
    let [logits] = logits;
    logits
}
