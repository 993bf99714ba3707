//! Reference: sums of squares, the norm of all gradients and the clipping scale.

use super::Tensor;
use headroom_graph::ops::clip::ClipScale;

pub fn squared_norm(inputs: &[Tensor], outputs: &mut [Tensor]) {
    outputs[0].data[0] = inputs[0].data.iter().map(|x| x * x).sum();
}

pub fn gradient_norm(inputs: &[Tensor], outputs: &mut [Tensor]) {
    outputs[0].data[0] = inputs.iter().flat_map(|input| &input.data).map(|x| x * x).sum::<f64>().sqrt();
}

pub fn scale(op: &ClipScale, inputs: &[Tensor], outputs: &mut [Tensor]) {
    let norm = inputs.iter().map(|input| input.data[0]).sum::<f64>().sqrt();
    outputs[0].data[0] = (op.max_norm / (norm + 1e-6)).min(1.0);
    outputs[1].data[0] = norm;
}
