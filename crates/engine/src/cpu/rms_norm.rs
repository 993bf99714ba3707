//! RMSNorm and its gradient, row by row.

use super::math::{dot3, sum_of};
use super::{Team, by_isa};

/// Rows handed to a thread at a time.
const ROWS: usize = 16;

pub fn forward(team: &Team, eps: f64, x: &[f32], weight: &[f32], y: &mut [f32]) {
    let width = weight.len();
    team.pool.for_each_chunk(y, ROWS * width, |index, y| {
        let x = &x[index * ROWS * width..][..y.len()];
        forward_rows(team.isa, eps as f32, x, weight, y);
    });
}

/// Computes `total = x + branch`, and its norm while the row is in cache.
pub fn add_forward(
    team: &Team,
    eps: f64,
    (x, branch): (&[f32], &[f32]),
    weight: &[f32],
    (total, y): (&mut [f32], &mut [f32]),
) {
    let chunk = ROWS * weight.len();
    team.pool.for_each_chunk2((total, chunk), (y, chunk), |index, total, y| {
        let (x, branch) = (&x[index * chunk..][..y.len()], &branch[index * chunk..][..y.len()]);
        add_forward_rows(team.isa, eps as f32, x, branch, weight, total, y);
    });
}

/// Computes only the scales of rows.
pub fn scales(team: &Team, eps: f64, width: usize, x: &[f32], scales: &mut [f32]) {
    team.pool.for_each_chunk(scales, ROWS, |index, scales| {
        let x = &x[index * ROWS * width..][..scales.len() * width];
        scale_rows(team.isa, eps as f32, width, x, scales);
    });
}

/// Computes `total = x + branch`, and the scales of its rows.
pub fn add_scales(
    team: &Team,
    eps: f64,
    width: usize,
    (x, branch): (&[f32], &[f32]),
    (total, scales): (&mut [f32], &mut [f32]),
) {
    let chunk = ROWS * width;
    team.pool.for_each_chunk2((total, chunk), (scales, ROWS), |index, total, scales| {
        let (x, branch) = (&x[index * chunk..][..total.len()], &branch[index * chunk..][..total.len()]);
        total.iter_mut().zip(x).zip(branch).for_each(|((total, x), branch)| *total = x + branch);
        scale_rows(team.isa, eps as f32, width, total, scales);
    });
}

/// Elements of scratch that [`gradient`] needs: the weight gradient of each group of rows.
pub fn gradient_scratch(rows: usize, width: usize, groups: usize) -> usize {
    rows.div_ceil(rows_in_group(rows, groups)) * width
}

/// Rows per group in the sum for a weight's gradient.
pub(super) fn rows_in_group(rows: usize, groups: usize) -> usize {
    rows.div_ceil(groups).max(1)
}

/// Operands of [`gradient`].
pub struct Gradient<'a> {
    pub eps: f64,
    pub x: &'a [f32],
    pub weight: &'a [f32],
    pub dy: &'a [f32],
    /// A gradient that reaches `x` by another path, added to `dx`.
    pub also: Option<&'a [f32]>,
    pub dx: &'a mut [f32],
    pub dweight: &'a mut [f32],
}

pub fn gradient(team: &Team, at: Gradient, scratch: &mut [f32]) {
    let Gradient { eps, x, weight, dy, also, dx, dweight } = at;
    let width = weight.len();
    let rows = rows_in_group(x.len() / width, team.parts);
    let partial = &mut scratch[..gradient_scratch(x.len() / width, width, team.parts)];
    team.pool.for_each_chunk2((dx, rows * width), (&mut *partial, width), |index, dx, partial| {
        let start = index * rows * width;
        let (x, dy) = (&x[start..][..dx.len()], &dy[start..][..dx.len()]);
        gradient_rows(team.isa, eps as f32, x, weight, dy, dx, partial);
        if let Some(also) = also {
            add_to(team.isa, &also[start..][..dx.len()], dx);
        }
    });
    dweight.copy_from_slice(&partial[..width]);
    for group in partial.chunks_exact(width).skip(1) {
        dweight.iter_mut().zip(group).for_each(|(sum, part)| *sum += part);
    }
}

by_isa! {
    fn forward_rows(eps: f32, x: &[f32], weight: &[f32], y: &mut [f32]) {
        let width = weight.len();
        for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
            let scale = 1.0 / (sum_of(x, |x| x * x) / width as f32 + eps).sqrt();
            for ((y, x), w) in y.iter_mut().zip(x).zip(weight) {
                *y = w * (x * scale);
            }
        }
    }

    fn scale_rows(eps: f32, width: usize, x: &[f32], scales: &mut [f32]) {
        for (x, scale) in x.chunks_exact(width).zip(scales) {
            *scale = 1.0 / (sum_of(x, |x| x * x) / width as f32 + eps).sqrt();
        }
    }

    fn add_forward_rows(
        eps: f32,
        x: &[f32],
        branch: &[f32],
        weight: &[f32],
        total: &mut [f32],
        y: &mut [f32],
    ) {
        let width = weight.len();
        let inputs = x.chunks_exact(width).zip(branch.chunks_exact(width));
        let outputs = total.chunks_exact_mut(width).zip(y.chunks_exact_mut(width));
        for ((x, branch), (total, y)) in inputs.zip(outputs) {
            for ((total, x), branch) in total.iter_mut().zip(x).zip(branch) {
                *total = x + branch;
            }
            let scale = 1.0 / (sum_of(total, |x| x * x) / width as f32 + eps).sqrt();
            for ((y, x), w) in y.iter_mut().zip(&*total).zip(weight) {
                *y = w * (x * scale);
            }
        }
    }

    fn add_to(also: &[f32], dx: &mut [f32]) {
        for (dx, also) in dx.iter_mut().zip(also) {
            *dx += also;
        }
    }

    fn gradient_rows(
        eps: f32,
        x: &[f32],
        weight: &[f32],
        dy: &[f32],
        dx: &mut [f32],
        dweight: &mut [f32],
    ) {
        let width = weight.len();
        dweight.fill(0.0);
        for ((x, dy), dx) in x.chunks_exact(width).zip(dy.chunks_exact(width)).zip(dx.chunks_exact_mut(width)) {
            let weight = &weight[..width];
            let scale = 1.0 / (sum_of(x, |x| x * x) / width as f32 + eps).sqrt();
            let mean = dot3(dy, weight, x) * scale / width as f32;
            for i in 0..width {
                let normed = x[i] * scale;
                dx[i] = scale * (dy[i] * weight[i] - normed * mean);
                dweight[i] += dy[i] * normed;
            }
        }
    }
}
