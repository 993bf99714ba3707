//! AdamW on one parameter, sums of squares, and the clipping scale.

use super::frame::Frame;
use super::math::sum_of;
use super::{Team, by_isa};
use headroom_graph::TensorType;
use headroom_graph::ops::adamw::AdamW;
use headroom_graph::ops::adamw_all::AdamWAll;

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
    if max_norm == f64::INFINITY {
        return (1.0, norm as f32);
    }
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
    let factors = Factors::new(op, rates, clip);
    team.pool.for_each_chunk3((weight, CHUNK), (first, CHUNK), (second, CHUNK), |index, weight, first, second| {
        let gradient = &gradient[index * CHUNK..][..weight.len()];
        adamw_chunk(team.isa, &factors, weight, first, second, gradient);
    });
}

/// AdamW on all parameters in one hand-over to the threads; returns the norm where gradients are clipped.
///
/// The operands are found in the frame by their place: the rates, then weight, moments and gradient of each parameter.
pub fn adamw_all(team: &Team, op: &AdamWAll, types: &[TensorType], at: &Frame, scratch: &mut [f32]) -> Option<f32> {
    // Chunk `i` of all belongs to the parameter whose range of chunks holds it.
    let chunks = |parameter: usize| types[1 + 4 * parameter].elements().div_ceil(CHUNK);
    let total: usize = (0..op.parameters).map(chunks).sum();
    let find = |mut chunk: usize| {
        for parameter in 0..op.parameters {
            if chunk < chunks(parameter) {
                let first = chunk * CHUNK;
                return (1 + 4 * parameter, first, CHUNK.min(types[1 + 4 * parameter].elements() - first));
            }
            chunk -= chunks(parameter);
        }
        unreachable!("a chunk of some parameter")
    };
    let clip = (op.max_norm > 0.0).then(|| {
        let partial = &mut scratch[..total];
        team.pool.for_each_chunk(&mut *partial, 1, |chunk, partial| {
            let (place, first, length) = find(chunk);
            partial[0] = sum_of_squares(team.isa, &at.input(place + 3)[first..][..length]);
        });
        clip_scale(op.max_norm, partial.iter().copied())
    });
    let factors = Factors::new(&op.single(), at.input(0), clip.map_or(1.0, |(scale, _)| scale));
    team.pool.for_each(total, &|chunk, _| {
        let (place, first, length) = find(chunk);
        // SAFETY: every chunk is handed out once, and chunks do not overlap.
        let part = |operand: usize| unsafe { at.shared(operand).slice(first, length) };
        let (weight, m, v) = (part(place), part(place + 1), part(place + 2));
        adamw_chunk(team.isa, &factors, weight, m, v, &at.input(place + 3)[first..][..length]);
    });
    clip.map(|(_, norm)| norm)
}

/// Elements of scratch that [`adamw_all`] needs.
pub fn adamw_all_scratch(types: &[TensorType]) -> usize {
    types.iter().skip(1).step_by(4).map(|weight| weight.elements().div_ceil(CHUNK)).sum()
}

impl Factors {
    fn new(op: &AdamW, rates: &[f32], clip: f32) -> Factors {
        Factors {
            decay: (1.0 - f64::from(rates[0]) * op.weight_decay) as f32,
            rate: rates[0] / rates[1],
            second_root: 1.0 / rates[2],
            beta1: op.beta1 as f32,
            beta2: op.beta2 as f32,
            rest1: (1.0 - op.beta1) as f32,
            rest2: (1.0 - op.beta2) as f32,
            eps: op.eps as f32,
            clip,
        }
    }
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
        sum_of(x, |x| x * x)
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
