//! AdamW on one parameter, on all and on chosen ones; sums of squares; the clipping scale.

use super::choose;
use super::frame::Frame;
use super::isa::Isa;
use super::math::sum_of;
use super::{Team, by_isa};
use headroom_graph::TensorType;
use headroom_graph::ops::adamw::AdamW;
use headroom_graph::ops::adamw_all::AdamWAll;
use headroom_graph::ops::adamw_chosen::AdamWChosen;

/// Elements handed to a thread at a time, and elements per partial sum.
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
    total(partial)
}

/// The norm of all operands together, with the same partial sums as [`squared_norm`].
pub fn gradient_norm(team: &Team, at: &Frame, scratch: &mut [f32]) -> f32 {
    let squared = (0..at.inputs()).map(|index| squared_norm(team, at.input(index), scratch));
    clip_scale(f64::INFINITY, squared).1
}

/// The scale for all gradients, and their norm.
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

/// `decay` applies to this weight.
pub fn adamw(team: &Team, op: &AdamW, decay: f64, update: Update) {
    let Update { weight, first, second, gradient, rates, clip } = update;
    if stands_still(rates) {
        return;
    }
    let factors = Factors::new(op, decay, rates, clip);
    team.pool.for_each_chunk3((weight, CHUNK), (first, CHUNK), (second, CHUNK), |index, weight, first, second| {
        let gradient = &gradient[index * CHUNK..][..weight.len()];
        adamw_chunk(team.isa, &factors, weight, first, second, gradient);
    });
}

/// AdamW on all parameters in one hand-over to the threads; returns the norm if gradients are clipped.
///
/// The operands are identified by their index in the frame: the rates, then weight, moments and gradient of each
/// parameter.
pub fn adamw_all(team: &Team, op: &AdamWAll, types: &[TensorType], at: &Frame, scratch: &mut [f32]) -> Option<f32> {
    let parameters = Parameters { first: 1, count: op.parameters, types };
    let clip = (op.max_norm > 0.0).then(|| {
        let partial = parameters.sums_of_squares(team, at, scratch);
        clip_scale(op.max_norm, partial.iter().copied())
    });
    let (single, scale) = (op.single(), clip.map_or(1.0, |(scale, _)| scale));
    team.pool.for_each(parameters.chunks(), &|chunk, _| {
        let part = parameters.find(chunk);
        let decay = single.decay_of(&types[part.place]);
        part.update(team.isa, &Factors::new(&single, decay, at.input(0), scale), at);
    });
    clip.map(|(_, norm)| norm)
}

/// Elements of scratch that [`adamw_all`] needs.
pub fn adamw_all_scratch(op: &AdamWAll, types: &[TensorType]) -> usize {
    Parameters { first: 1, count: op.parameters, types }.chunks()
}

/// Norms, choice and AdamW on the chosen parameters; returns the norm if gradients are clipped.
pub fn adamw_chosen(
    team: &Team,
    op: &AdamWChosen,
    types: &[TensorType],
    at: &Frame,
    scratch: &mut [f32],
) -> Option<f32> {
    let parameters = Parameters { first: AdamWChosen::place(0), count: op.parameters, types };
    let partial = parameters.sums_of_squares(team, at, scratch);
    let clip = (op.max_norm > 0.0).then(|| clip_scale(op.max_norm, partial.iter().copied()));
    let rates = at.output(0); // [n, 3]
    let mut rest = partial;
    let squares = (0..op.parameters).map(|parameter| {
        let (own, others) = rest.split_at(parameters.chunks_of(parameter));
        rest = others;
        total(own)
    });
    choose::choose(&op.choice(), choose::Operands::of(at), squares, |leaf, own| {
        rates[3 * leaf..][..3].copy_from_slice(&own);
    });
    let (rates, scale) = (&*rates, clip.map_or(1.0, |(scale, _)| scale));
    team.pool.for_each(parameters.chunks(), &|chunk, _| {
        let part = parameters.find(chunk);
        let own = &rates[3 * part.parameter..][..3];
        if !stands_still(own) {
            let single = op.single();
            let decay = single.decay_of(&types[part.place]);
            part.update(team.isa, &Factors::new(&single, decay, own, scale), at);
        }
    });
    clip.map(|(_, norm)| norm)
}

/// Elements of scratch that [`adamw_chosen`] needs.
pub fn adamw_chosen_scratch(op: &AdamWChosen, types: &[TensorType]) -> usize {
    Parameters { first: AdamWChosen::place(0), count: op.parameters, types }.chunks()
}

/// The parameters of one call: weight, moments and gradient of each, in order, starting at operand `first`.
struct Parameters<'a> {
    first: usize,
    count: usize,
    types: &'a [TensorType],
}

/// A chunk of one parameter.
struct Part {
    parameter: usize,
    /// Index of the operand that is its weight.
    place: usize,
    first: usize,
    length: usize,
}

impl Parameters<'_> {
    fn elements(&self, parameter: usize) -> usize {
        self.types[self.first + 4 * parameter].elements()
    }

    fn chunks_of(&self, parameter: usize) -> usize {
        self.elements(parameter).div_ceil(CHUNK)
    }

    fn chunks(&self) -> usize {
        (0..self.count).map(|parameter| self.chunks_of(parameter)).sum()
    }

    /// Maps a chunk index over all parameters to its parameter and range.
    fn find(&self, mut chunk: usize) -> Part {
        for parameter in 0..self.count {
            if chunk < self.chunks_of(parameter) {
                let first = chunk * CHUNK;
                let length = CHUNK.min(self.elements(parameter) - first);
                return Part { parameter, place: self.first + 4 * parameter, first, length };
            }
            chunk -= self.chunks_of(parameter);
        }
        unreachable!("a chunk of some parameter")
    }

    /// The sum of squares of every chunk of every gradient, in order.
    fn sums_of_squares<'s>(&self, team: &Team, at: &Frame, scratch: &'s mut [f32]) -> &'s [f32] {
        let partial = &mut scratch[..self.chunks()];
        team.pool.for_each_chunk(&mut *partial, 1, |chunk, partial| {
            partial[0] = sum_of_squares(team.isa, self.find(chunk).gradient(at));
        });
        partial
    }
}

impl Part {
    fn gradient<'a>(&self, at: &Frame<'a>) -> &'a [f32] {
        &at.input(self.place + 3)[self.first..][..self.length]
    }

    /// Updates the part; one thread at a time does so.
    fn update(&self, isa: Isa, factors: &Factors, at: &Frame) {
        // SAFETY: every chunk is handed out once, and chunks do not overlap.
        let part = |operand: usize| unsafe { at.shared(operand).slice(self.first, self.length) };
        let (weight, m, v) = (part(self.place), part(self.place + 1), part(self.place + 2));
        adamw_chunk(isa, factors, weight, m, v, self.gradient(at));
    }
}

/// Whether the rates mark a parameter that was not chosen; no step count gives these rates.
fn stands_still(rates: &[f32]) -> bool {
    rates[1] == 0.0
}

fn total(partial: &[f32]) -> f32 {
    partial.iter().map(|&part| f64::from(part)).sum::<f64>() as f32
}

impl Factors {
    fn new(op: &AdamW, decay: f64, rates: &[f32], clip: f32) -> Factors {
        Factors {
            decay: (1.0 - f64::from(rates[0]) * decay) as f32,
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
