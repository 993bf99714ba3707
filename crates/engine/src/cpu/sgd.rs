//! SGD on one parameter.

use super::{Team, by_isa};

const CHUNK: usize = 16 * 1024;

/// Operands of [`sgd`].
pub struct Update<'a> {
    pub weight: &'a mut [f32],
    pub gradient: &'a [f32],
    pub momentum: Option<&'a mut [f32]>,
    /// As AdamW's; the first is the learning rate.
    pub rates: &'a [f32],
    pub clip: f32,
}

/// `kept` is the momentum coefficient; `decay` applies to this weight.
pub fn sgd(team: &Team, kept: f64, decay: f64, update: Update) {
    let Update { weight, gradient, momentum, rates, clip } = update;
    if rates[1] == 0.0 {
        return;
    }
    let factors = Factors { rate: rates[0], decay: decay as f32, kept: kept as f32, clip };
    match momentum {
        Some(momentum) => {
            team.pool.for_each_chunk2((weight, CHUNK), (momentum, CHUNK), |index, weight, momentum| {
                let gradient = &gradient[index * CHUNK..][..weight.len()];
                with_momentum(team.isa, &factors, weight, momentum, gradient);
            });
        }
        None => team.pool.for_each_chunk(weight, CHUNK, |index, weight| {
            let gradient = &gradient[index * CHUNK..][..weight.len()];
            plain(team.isa, &factors, weight, gradient);
        }),
    }
}

struct Factors {
    rate: f32,
    decay: f32,
    kept: f32,
    clip: f32,
}

by_isa! {
    fn plain(f: &Factors, weight: &mut [f32], gradient: &[f32]) {
        for (weight, gradient) in weight.iter_mut().zip(gradient) {
            *weight -= f.rate * (gradient * f.clip + f.decay * *weight);
        }
    }

    fn with_momentum(f: &Factors, weight: &mut [f32], momentum: &mut [f32], gradient: &[f32]) {
        for ((weight, momentum), gradient) in weight.iter_mut().zip(momentum).zip(gradient) {
            *momentum = f.kept * *momentum + (gradient * f.clip + f.decay * *weight);
            *weight -= f.rate * *momentum;
        }
    }
}
