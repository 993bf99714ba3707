//! Reference: element-wise ops.

use super::Tensor;

pub fn zip(inputs: &[Tensor], outputs: &mut [Tensor], f: impl Fn(f64, f64) -> f64) {
    let pairs = inputs[0].data.iter().zip(&inputs[1].data);
    outputs[0].data.iter_mut().zip(pairs).for_each(|(out, (&a, &b))| *out = f(a, b));
}

pub fn silu(inputs: &[Tensor], outputs: &mut [Tensor]) {
    outputs[0].data.iter_mut().zip(&inputs[0].data).for_each(|(out, &x)| *out = x * sigmoid(x));
}

pub fn silu_gradient(x: f64, dy: f64) -> f64 {
    let s = sigmoid(x);
    dy * s * (1.0 + x * (1.0 - s))
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}
