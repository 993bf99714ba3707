//! Element-wise kernels: add, multiply, scale, SiLU, GELU and their gradients, accumulate, zero.

use super::math::sigmoid;
use super::{Team, by_isa};
use crate::cpu::lanes::by_lanes;

const TWICE_SLOPE: f32 = headroom_graph::ops::gelu::TWICE_SLOPE as f32;
const CUBE: f32 = headroom_graph::ops::gelu::CUBE as f32;

/// Elements handed to a thread at a time: 64 KiB, large enough to repay the hand-over, small enough to balance.
const CHUNK: usize = 16 * 1024;

pub fn add(team: &Team, a: &[f32], b: &[f32], out: &mut [f32]) {
    zip(team, a, b, out, add_chunk);
}

pub fn mul(team: &Team, a: &[f32], b: &[f32], out: &mut [f32]) {
    zip(team, a, b, out, mul_chunk);
}

pub fn scale(team: &Team, factor: f64, x: &[f32], y: &mut [f32]) {
    let factor = factor as f32;
    team.pool.for_each_chunk(y, CHUNK, |index, y| scale_chunk(team.isa, factor, &x[index * CHUNK..][..y.len()], y));
}

pub fn silu_gradient(team: &Team, x: &[f32], dy: &[f32], dx: &mut [f32]) {
    zip(team, x, dy, dx, silu_gradient_chunk);
}

pub fn silu(team: &Team, x: &[f32], y: &mut [f32]) {
    team.pool.for_each_chunk(y, CHUNK, |index, y| silu_chunk(team.isa, &x[index * CHUNK..][..y.len()], y));
}

pub fn gelu(team: &Team, x: &[f32], y: &mut [f32]) {
    team.pool.for_each_chunk(y, CHUNK, |index, y| gelu_chunk(team.isa, &x[index * CHUNK..][..y.len()], y));
}

pub fn gelu_gradient(team: &Team, x: &[f32], dy: &[f32], dx: &mut [f32]) {
    zip(team, x, dy, dx, gelu_gradient_chunk);
}

/// `silu(gate) * up`.
pub fn swiglu(team: &Team, gate: &[f32], up: &[f32], y: &mut [f32]) {
    zip(team, gate, up, y, swiglu_chunk);
}

/// Operands of [`swiglu_gradient`].
pub struct SwiGluGradient<'a> {
    pub gate: &'a [f32],
    pub up: &'a [f32],
    pub dy: &'a [f32],
    pub dgate: &'a mut [f32],
    pub dup: &'a mut [f32],
}

pub fn swiglu_gradient(team: &Team, at: SwiGluGradient) {
    let SwiGluGradient { gate, up, dy, dgate, dup } = at;
    team.pool.for_each_chunk2((dgate, CHUNK), (dup, CHUNK), |index, dgate, dup| {
        let (start, length) = (index * CHUNK, dgate.len());
        let (gate, up, dy) = (&gate[start..][..length], &up[start..][..length], &dy[start..][..length]);
        swiglu_gradient_chunk(team.isa, gate, up, dy, dgate, dup);
    });
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

    fn scale_chunk(factor: f32, x: &[f32], y: &mut [f32]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = factor * x;
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

    fn gelu_chunk(x: &[f32], y: &mut [f32]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = x * sigmoid(TWICE_SLOPE * (x + CUBE * x * x * x));
        }
    }

    fn gelu_gradient_chunk(x: &[f32], dy: &[f32], dx: &mut [f32]) {
        for ((dx, &x), dy) in dx.iter_mut().zip(x).zip(dy) {
            let s = sigmoid(TWICE_SLOPE * (x + CUBE * x * x * x));
            let slope = TWICE_SLOPE * (1.0 + 3.0 * CUBE * x * x);
            *dx = dy * (s + x * s * (1.0 - s) * slope);
        }
    }

    fn accumulate_chunk(x: &[f32], kept: &mut [f32]) {
        for (kept, x) in kept.iter_mut().zip(x) {
            *kept += x;
        }
    }
}

by_lanes! {
    fn swiglu_chunk<L>(gate: &[f32], up: &[f32], y: &mut [f32]) {
        let (up, y) = (&up[..gate.len()], &mut y[..gate.len()]);
        // SAFETY: masks stop at the end of the slices, which all have the same length.
        unsafe {
            let (one, minus_one) = (L::splat(1.0), L::splat(-1.0));
            for at in (0..gate.len()).step_by(L::LANES) {
                let mask = L::first(gate.len() - at);
                let (g, u) = (L::load_masked(mask, gate.as_ptr().add(at)), L::load_masked(mask, up.as_ptr().add(at)));
                let s = L::divide(one, L::add(one, L::exp(L::multiply(g, minus_one))));
                L::store_masked(mask, y.as_mut_ptr().add(at), L::multiply(L::multiply(g, s), u));
            }
        }
    }

    fn swiglu_gradient_chunk<L>(gate: &[f32], up: &[f32], dy: &[f32], dgate: &mut [f32], dup: &mut [f32]) {
        let length = gate.len();
        let (up, dy, dgate, dup) = (&up[..length], &dy[..length], &mut dgate[..length], &mut dup[..length]);
        // SAFETY: masks stop at the end of the slices, which all have the same length.
        unsafe {
            let (one, minus_one) = (L::splat(1.0), L::splat(-1.0));
            for at in (0..length).step_by(L::LANES) {
                let mask = L::first(length - at);
                let g = L::load_masked(mask, gate.as_ptr().add(at));
                let u = L::load_masked(mask, up.as_ptr().add(at));
                let d = L::load_masked(mask, dy.as_ptr().add(at));
                let s = L::divide(one, L::add(one, L::exp(L::multiply(g, minus_one))));
                let ds = L::multiply(d, s);
                L::store_masked(mask, dup.as_mut_ptr().add(at), L::multiply(ds, g));
                let slope = L::multiply_add(g, L::subtract(one, s), one);
                L::store_masked(mask, dgate.as_mut_ptr().add(at), L::multiply(L::multiply(ds, u), slope));
            }
        }
    }
}
