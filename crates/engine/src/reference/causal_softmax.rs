//! Reference: softmax over the positions up to a row's own, and its gradient.

use super::Tensor;

pub fn forward(inputs: &[Tensor], outputs: &mut [Tensor]) {
    let seq = inputs[0].ty.shape.row();
    for (row, (x, y)) in inputs[0].rows().zip(outputs[0].data.chunks_exact_mut(seq)).enumerate() {
        let visible = row % seq + 1;
        let largest = x[..visible].iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = x[..visible].iter().map(|x| (x - largest).exp()).sum();
        for i in 0..seq {
            y[i] = if i < visible { (x[i] - largest).exp() / sum } else { 0.0 };
        }
    }
}

pub fn gradient(inputs: &[Tensor], outputs: &mut [Tensor]) {
    let seq = inputs[0].ty.shape.row();
    let rows = inputs[0].rows().zip(inputs[1].rows());
    for (row, ((p, dp), out)) in rows.zip(outputs[0].data.chunks_exact_mut(seq)).enumerate() {
        let visible = row % seq + 1;
        let dot: f64 = (0..visible).map(|i| p[i] * dp[i]).sum();
        for i in 0..seq {
            out[i] = if i < visible { p[i] * (dp[i] - dot) } else { 0.0 };
        }
    }
}
