//! AdamW on one parameter, sums of squares, and the clipping scale.

use super::math::sum;
use super::{Team, by_isa};
use headroom_graph::ops::adamw::AdamW;

/// Elements handed to a thread at a time, and those of one partial sum.
const CHUNK: usize = 16 * 1024;

/// Elements of scratch that [`squared_norm`] needs.
pub fn squared_norm_scratch(elements: usize) -> usize {
    elements.div_ceil(CHUNK)
}

pub fn squared_norm(team: &Team, x: &[f32], scratch: &mut [f32]) -> f32 {
    let partial = &mut scratch[..squared_norm_scratch(x.len())];
    team.pool.for_each_chunk(&mut *partial, 1, |index, partial| {
        let start = index * CHUNK;
        partial[0] = sum_of_squares(team.isa, &x[start..x.len().min(start + CHUNK)]);
    });
    partial.iter().map(|&part| f64::from(part)).sum::<f64>() as f32
}

/// The factor for all gradients, and their norm.
pub fn clip_scale(max_norm: f64, squared: impl Iterator<Item = f32>) -> (f32, f32) {
    let norm = squared.map(f64::from).sum::<f64>().sqrt();
    let scale = max_norm / (norm + 1e-6);
    // Not `min`, which would turn a NaN norm into "no clipping".
    (if scale > 1.0 { 1.0 } else { scale as f32 }, norm as f32)
}

/// Operands of [`adamw`].
pub struct Update<'a> {
    pub weight: &'a mut [f32],
    pub first: &'a mut [f32],
    pub second: &'a mut [f32],
    pub gradient: &'a [f32],
    /// Learning rate, `1 - beta1^t`, `sqrt(1 - beta2^t)`.
    pub rates: &'a [f32],
    pub clip: f32,
}

pub fn adamw(team: &Team, op: &AdamW, update: Update) {
    let Update { weight, first, second, gradient, rates, clip } = update;
    let factors = Factors {
        decay: (1.0 - f64::from(rates[0]) * op.weight_decay) as f32,
        rate: rates[0] / rates[1],
        second_root: 1.0 / rates[2],
        beta1: op.beta1 as f32,
        beta2: op.beta2 as f32,
        rest1: (1.0 - op.beta1) as f32,
        rest2: (1.0 - op.beta2) as f32,
        eps: op.eps as f32,
        clip,
    };
    team.pool.for_each_chunk3((weight, CHUNK), (first, CHUNK), (second, CHUNK), |index, weight, first, second| {
        let gradient = &gradient[index * CHUNK..][..weight.len()];
        adamw_chunk(team.isa, &factors, weight, first, second, gradient);
    });
}

struct Factors {
    decay: f32,
    rate: f32,
    second_root: f32,
    beta1: f32,
    beta2: f32,
    rest1: f32,
    rest2: f32,
    eps: f32,
    clip: f32,
}

by_isa! {
    fn sum_of_squares(x: &[f32]) -> f32 {
        sum(x.len(), |i| x[i] * x[i])
    }

    fn adamw_chunk(f: &Factors, weight: &mut [f32], first: &mut [f32], second: &mut [f32], gradient: &[f32]) {
        let length = weight.len();
        let (first, second, gradient) = (&mut first[..length], &mut second[..length], &gradient[..length]);
        for i in 0..length {
            let g = gradient[i] * f.clip;
            first[i] = f.beta1 * first[i] + f.rest1 * g;
            second[i] = f.beta2 * second[i] + f.rest2 * g * g;
            let denominator = second[i].sqrt() * f.second_root + f.eps;
            weight[i] = weight[i] * f.decay - f.rate * (first[i] / denominator);
        }
    }
}
