//! The parts of Muon that are not products.

use super::{Team, by_isa};
use headroom_graph::ops::muon::{Blend, MuonMomentum, MuonUpdate, UnitNorm};

const CHUNK: usize = 16 * 1024;

/// Blends the gradient into the buffer, and computes the Nesterov direction.
pub fn momentum(
    team: &Team,
    op: &MuonMomentum,
    (buffer, gradient): (&mut [f32], &[f32]),
    (rates, clip): (&[f32], f32),
    out: &mut [f32],
) {
    if rates[1] == 0.0 {
        team.pool.for_each_chunk(out, CHUNK, |_, out| out.fill(0.0));
        return;
    }
    let (kept, fresh) = (op.momentum as f32, (1.0 - op.momentum) as f32 * clip);
    team.pool.for_each_chunk2((buffer, CHUNK), (out, CHUNK), |index, buffer, out| {
        momentum_chunk(team.isa, kept, fresh, buffer, out, &gradient[index * CHUNK..][..buffer.len()]);
    });
}

pub fn unit_norm(team: &Team, op: &UnitNorm, x: &[f32], squares: f32, out: &mut [f32]) {
    // Not `max`, which would turn a NaN norm into `least`.
    let norm = f64::from(squares).sqrt();
    let factor = (1.0 / if norm < op.least { op.least } else { norm }) as f32;
    team.pool.for_each_chunk(out, CHUNK, |index, out| {
        blend_chunk(team.isa, factor, 0.0, out, &x[index * CHUNK..][..out.len()], &x[index * CHUNK..][..out.len()]);
    });
}

pub fn blend(team: &Team, op: &Blend, x: &[f32], y: &[f32], out: &mut [f32]) {
    let (of_x, of_y) = (op.of_x as f32, op.of_y as f32);
    team.pool.for_each_chunk(out, CHUNK, |index, out| {
        let part = index * CHUNK..index * CHUNK + out.len();
        blend_chunk(team.isa, of_x, of_y, out, &x[part.clone()], &y[part]);
    });
}

pub fn update(team: &Team, op: &MuonUpdate, weight: &mut [f32], direction: &[f32], rates: &[f32]) {
    if rates[1] == 0.0 {
        return;
    }
    let rate = f64::from(rates[0]);
    let (stays, step) = ((1.0 - rate * op.weight_decay) as f32, (rate * op.scale) as f32);
    team.pool.for_each_chunk(weight, CHUNK, |index, weight| {
        update_chunk(team.isa, stays, step, weight, &direction[index * CHUNK..][..weight.len()]);
    });
}

by_isa! {
    fn momentum_chunk(kept: f32, fresh: f32, buffer: &mut [f32], out: &mut [f32], gradient: &[f32]) {
        for ((buffer, out), gradient) in buffer.iter_mut().zip(out).zip(gradient) {
            let taken = fresh * gradient;
            *buffer = kept * *buffer + taken;
            *out = kept * *buffer + taken;
        }
    }

    fn blend_chunk(of_x: f32, of_y: f32, out: &mut [f32], x: &[f32], y: &[f32]) {
        for ((out, x), y) in out.iter_mut().zip(x).zip(y) {
            *out = of_x * x + of_y * y;
        }
    }

    fn update_chunk(stays: f32, step: f32, weight: &mut [f32], direction: &[f32]) {
        for (weight, direction) in weight.iter_mut().zip(direction) {
            *weight = stays * *weight - step * direction;
        }
    }
}
