//! Element-wise kernels: add, multiply, SiLU and its gradient, accumulate, zero.

use super::math::sigmoid;
use super::{Team, by_isa};

/// Elements handed to a thread at a time: 64 KiB, large enough to be worth a hand-over, small enough to balance.
const CHUNK: usize = 16 * 1024;

pub fn add(team: &Team, a: &[f32], b: &[f32], out: &mut [f32]) {
    zip(team, a, b, out, add_chunk);
}

pub fn mul(team: &Team, a: &[f32], b: &[f32], out: &mut [f32]) {
    zip(team, a, b, out, mul_chunk);
}

pub fn silu_gradient(team: &Team, x: &[f32], dy: &[f32], dx: &mut [f32]) {
    zip(team, x, dy, dx, silu_gradient_chunk);
}

pub fn silu(team: &Team, x: &[f32], y: &mut [f32]) {
    team.pool.for_each_chunk(y, CHUNK, |index, y| silu_chunk(team.isa, &x[index * CHUNK..][..y.len()], y));
}

pub fn accumulate(team: &Team, kept: &mut [f32], x: &[f32]) {
    team.pool.for_each_chunk(kept, CHUNK, |index, kept| {
        accumulate_chunk(team.isa, &x[index * CHUNK..][..kept.len()], kept);
    });
}

pub fn zero(team: &Team, kept: &mut [f32]) {
    team.pool.for_each_chunk(kept, CHUNK, |_, kept| kept.fill(0.0));
}

type Binary = fn(super::isa::Isa, &[f32], &[f32], &mut [f32]);

fn zip(team: &Team, a: &[f32], b: &[f32], out: &mut [f32], chunk: Binary) {
    team.pool.for_each_chunk(out, CHUNK, |index, out| {
        let (start, length) = (index * CHUNK, out.len());
        chunk(team.isa, &a[start..][..length], &b[start..][..length], out);
    });
}

by_isa! {
    fn add_chunk(a: &[f32], b: &[f32], out: &mut [f32]) {
        for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
            *out = a + b;
        }
    }

    fn mul_chunk(a: &[f32], b: &[f32], out: &mut [f32]) {
        for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
            *out = a * b;
        }
    }

    fn silu_chunk(x: &[f32], y: &mut [f32]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = x * sigmoid(x);
        }
    }

    fn silu_gradient_chunk(x: &[f32], dy: &[f32], dx: &mut [f32]) {
        for ((dx, &x), dy) in dx.iter_mut().zip(x).zip(dy) {
            let s = sigmoid(x);
            *dx = dy * s * (1.0 + x * (1.0 - s));
        }
    }

    fn accumulate_chunk(x: &[f32], kept: &mut [f32]) {
        for (kept, x) in kept.iter_mut().zip(x) {
            *kept += x;
        }
    }
}
