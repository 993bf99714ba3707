//! LayerNorm and its gradient, row by row.

use super::math::{dot, sum_of};
use super::rms_norm::rows_in_group;
use super::{Team, by_isa};

/// Rows handed to a thread at a time.
const ROWS: usize = 16;

pub fn forward(team: &Team, eps: f64, x: &[f32], (weight, bias): (&[f32], &[f32]), y: &mut [f32]) {
    let width = weight.len();
    team.pool.for_each_chunk(y, ROWS * width, |index, y| {
        let x = &x[index * ROWS * width..][..y.len()];
        forward_rows(team.isa, eps as f32, x, weight, bias, y);
    });
}

/// Elements of scratch that [`gradient`] needs: the weight and bias gradients of each group of rows.
pub fn gradient_scratch(rows: usize, width: usize, groups: usize) -> usize {
    rows.div_ceil(rows_in_group(rows, groups)) * 2 * width
}

/// Operands of [`gradient`].
pub struct Gradient<'a> {
    pub eps: f64,
    pub x: &'a [f32],
    pub weight: &'a [f32],
    pub dy: &'a [f32],
    pub dx: &'a mut [f32],
    pub dweight: &'a mut [f32],
    pub dbias: &'a mut [f32],
}

pub fn gradient(team: &Team, at: Gradient, scratch: &mut [f32]) {
    let Gradient { eps, x, weight, dy, dx, dweight, dbias } = at;
    let width = weight.len();
    let rows = rows_in_group(x.len() / width, team.parts);
    let partial = &mut scratch[..gradient_scratch(x.len() / width, width, team.parts)];
    team.pool.for_each_chunk2((dx, rows * width), (&mut *partial, 2 * width), |index, dx, partial| {
        let start = index * rows * width;
        let (x, dy) = (&x[start..][..dx.len()], &dy[start..][..dx.len()]);
        gradient_rows(team.isa, eps as f32, x, weight, dy, dx, partial);
    });
    dweight.fill(0.0);
    dbias.fill(0.0);
    for group in partial.chunks_exact(2 * width) {
        let (weights, biases) = group.split_at(width);
        dweight.iter_mut().zip(weights).for_each(|(sum, part)| *sum += part);
        dbias.iter_mut().zip(biases).for_each(|(sum, part)| *sum += part);
    }
}

/// Mean of a row, and the reciprocal of its standard deviation.
#[inline(always)]
fn statistics(x: &[f32], eps: f32) -> (f32, f32) {
    let mean = sum_of(x, |x| x) / x.len() as f32;
    let variance = sum_of(x, |x| (x - mean) * (x - mean)) / x.len() as f32;
    (mean, 1.0 / (variance + eps).sqrt())
}

by_isa! {
    fn forward_rows(eps: f32, x: &[f32], weight: &[f32], bias: &[f32], y: &mut [f32]) {
        let width = weight.len();
        for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
            let (mean, scale) = statistics(x, eps);
            for (((y, x), w), b) in y.iter_mut().zip(x).zip(weight).zip(bias) {
                *y = w * ((x - mean) * scale) + b;
            }
        }
    }

    fn gradient_rows(
        eps: f32,
        x: &[f32],
        weight: &[f32],
        dy: &[f32],
        dx: &mut [f32],
        partial: &mut [f32],
    ) {
        let width = weight.len();
        partial.fill(0.0);
        let (dweight, dbias) = partial.split_at_mut(width);
        for ((x, dy), dx) in x.chunks_exact(width).zip(dy.chunks_exact(width)).zip(dx.chunks_exact_mut(width)) {
            let (weight, dweight, dbias) = (&weight[..width], &mut dweight[..width], &mut dbias[..width]);
            let (mean, scale) = statistics(x, eps);
            // The weighted gradient is stored where the result goes.
            for i in 0..width {
                dx[i] = dy[i] * weight[i];
            }
            let along = sum_of(dx, |x| x) / width as f32;
            let across = (dot(dx, x) / width as f32 - mean * along) * scale;
            for i in 0..width {
                let normed = (x[i] - mean) * scale;
                dx[i] = scale * (dx[i] - along - normed * across);
                dweight[i] += dy[i] * normed;
                dbias[i] += dy[i];
            }
        }
    }
}
