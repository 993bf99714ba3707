//! Reference: RMSNorm and its gradient.

use super::{Tensor, elementwise};
use headroom_graph::ops::rms_norm::{RmsNorm, RmsNormGrad};
use headroom_graph::ops::rms_scales::RmsScales;

pub fn forward(op: &RmsNorm, inputs: &[Tensor], outputs: &mut [Tensor]) {
    let (x, weight) = (&inputs[0], &inputs[1]);
    for (y, x) in outputs[0].data.chunks_exact_mut(weight.data.len()).zip(x.data.chunks_exact(weight.data.len())) {
        let scale = row_scale(x, op.eps);
        for ((y, x), w) in y.iter_mut().zip(x).zip(&weight.data) {
            *y = w * x * scale;
        }
    }
}

/// With `n = x * scale` and `g = dy * w`: `dx = scale * (g - n * mean(g * n))`, `dw = sum over rows of dy * n`.
pub fn gradient(op: &RmsNormGrad, inputs: &[Tensor], outputs: &mut [Tensor]) {
    let (x, weight, dy) = (&inputs[0], &inputs[1].data, &inputs[2]);
    let width = weight.len();
    let [dx, dw] = outputs else { unreachable!("two outputs by the shape rule") };
    for ((dx, x), dy) in
        dx.data.chunks_exact_mut(width).zip(x.data.chunks_exact(width)).zip(dy.data.chunks_exact(width))
    {
        let scale = row_scale(x, op.eps);
        let mean = (0..width).map(|i| dy[i] * weight[i] * x[i] * scale).sum::<f64>() / width as f64;
        for i in 0..width {
            dx[i] = scale * (dy[i] * weight[i] - x[i] * scale * mean);
            dw.data[i] += dy[i] * x[i] * scale;
        }
    }
}

pub fn scales(op: &RmsScales, inputs: &[Tensor], outputs: &mut [Tensor]) {
    if let [_, _] = inputs {
        elementwise::zip(inputs, &mut outputs[..1], |x, branch| x + branch);
        let (sum, scales) = outputs.split_at_mut(1);
        scales[0].data = sum[0].rows().map(|x| row_scale(x, op.eps)).collect();
    } else {
        outputs[0].data = inputs[0].rows().map(|x| row_scale(x, op.eps)).collect();
    }
}

fn row_scale(x: &[f64], eps: f64) -> f64 {
    let mean_square = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    1.0 / (mean_square + eps).sqrt()
}
