//! Reference: LayerNorm and its gradient.

use super::Tensor;
use headroom_graph::ops::layer_norm::{LayerNorm, LayerNormGrad};

pub fn forward(op: &LayerNorm, inputs: &[Tensor], outputs: &mut [Tensor]) {
    let (x, weight, bias) = (&inputs[0], &inputs[1].data, &inputs[2].data);
    for (y, x) in outputs[0].data.chunks_exact_mut(weight.len()).zip(x.rows()) {
        let (mean, scale) = statistics(x, op.eps);
        for i in 0..weight.len() {
            y[i] = weight[i] * (x[i] - mean) * scale + bias[i];
        }
    }
}

/// With `n = (x - mean) * scale` and `g = dy * w`: `dx = scale * (g - mean(g) - n * mean(g * n))`, `dw` is the sum over
/// rows of `dy * n`, and `db` that of `dy`.
pub fn gradient(op: &LayerNormGrad, inputs: &[Tensor], outputs: &mut [Tensor]) {
    let (x, weight, dy) = (&inputs[0], &inputs[1].data, &inputs[2]);
    let width = weight.len();
    let [dx, dw, db] = outputs else { unreachable!("three outputs by the shape rule") };
    for ((dx, x), dy) in dx.data.chunks_exact_mut(width).zip(x.rows()).zip(dy.rows()) {
        let (mean, scale) = statistics(x, op.eps);
        let normed = |i: usize| (x[i] - mean) * scale;
        let mean_of = |f: &dyn Fn(usize) -> f64| (0..width).map(f).sum::<f64>() / width as f64;
        let along = mean_of(&|i| dy[i] * weight[i]);
        let across = mean_of(&|i| dy[i] * weight[i] * normed(i));
        for i in 0..width {
            dx[i] = scale * (dy[i] * weight[i] - along - normed(i) * across);
            dw.data[i] += dy[i] * normed(i);
            db.data[i] += dy[i];
        }
    }
}

/// Mean of a row, and the reciprocal of its standard deviation.
fn statistics(x: &[f64], eps: f64) -> (f64, f64) {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / x.len() as f64;
    (mean, 1.0 / (variance + eps).sqrt())
}
