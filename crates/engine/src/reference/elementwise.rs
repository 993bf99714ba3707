//! Reference: element-wise ops.

use super::Tensor;
use headroom_graph::ops::gelu::{CUBE, TWICE_SLOPE};

pub fn zip(inputs: &[Tensor], outputs: &mut [Tensor], f: impl Fn(f64, f64) -> f64) {
    let pairs = inputs[0].data.iter().zip(&inputs[1].data);
    outputs[0].data.iter_mut().zip(pairs).for_each(|(out, (&a, &b))| *out = f(a, b));
}

pub fn scale(factor: f64, inputs: &[Tensor], outputs: &mut [Tensor]) {
    outputs[0].data.iter_mut().zip(&inputs[0].data).for_each(|(out, &x)| *out = factor * x);
}

pub fn silu(inputs: &[Tensor], outputs: &mut [Tensor]) {
    outputs[0].data.iter_mut().zip(&inputs[0].data).for_each(|(out, &x)| *out = x * sigmoid(x));
}

pub fn silu_gradient(x: f64, dy: f64) -> f64 {
    let s = sigmoid(x);
    dy * s * (1.0 + x * (1.0 - s))
}

pub fn gelu(inputs: &[Tensor], outputs: &mut [Tensor]) {
    outputs[0].data.iter_mut().zip(&inputs[0].data).for_each(|(out, &x)| *out = x / 2.0 * (1.0 + bent(x).tanh()));
}

pub fn gelu_gradient(x: f64, dy: f64) -> f64 {
    let t = bent(x).tanh();
    let slope = TWICE_SLOPE / 2.0 * (1.0 + 3.0 * CUBE * x * x);
    dy * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope)
}

fn bent(x: f64) -> f64 {
    TWICE_SLOPE / 2.0 * (x + CUBE * x * x * x)
}

pub fn swiglu(gate: f64, up: f64) -> f64 {
    gate * sigmoid(gate) * up
}

pub fn swiglu_gradient(inputs: &[Tensor], outputs: &mut [Tensor]) {
    let [gate, up, dy] = inputs else { unreachable!("three inputs by the shape rule") };
    for i in 0..gate.data.len() {
        outputs[0].data[i] = silu_gradient(gate.data[i], dy.data[i] * up.data[i]);
        outputs[1].data[i] = dy.data[i] * gate.data[i] * sigmoid(gate.data[i]);
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}
