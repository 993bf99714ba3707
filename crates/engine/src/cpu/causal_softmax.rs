//! Softmax over the positions up to a row's own, and its gradient.

use super::math::{dot, exp, largest, sum_of};
use super::{Team, by_isa};

/// Approximate number of elements handed to a thread at a time.
const CHUNK: usize = 16 * 1024;

pub fn forward(team: &Team, seq: usize, scores: &[f32], p: &mut [f32]) {
    let rows = (CHUNK / seq).max(1);
    team.pool.for_each_chunk(p, rows * seq, |index, p| {
        let scores = &scores[index * rows * seq..][..p.len()];
        forward_rows(team.isa, seq, index * rows, scores, p);
    });
}

pub fn gradient(team: &Team, seq: usize, p: &[f32], dp: &[f32], ds: &mut [f32]) {
    let rows = (CHUNK / seq).max(1);
    team.pool.for_each_chunk(ds, rows * seq, |index, ds| {
        let start = index * rows * seq;
        let (p, dp) = (&p[start..][..ds.len()], &dp[start..][..ds.len()]);
        gradient_rows(team.isa, seq, index * rows, p, dp, ds);
    });
}

by_isa! {
    fn forward_rows(seq: usize, first_row: usize, scores: &[f32], p: &mut [f32]) {
        for (row, (x, y)) in scores.chunks_exact(seq).zip(p.chunks_exact_mut(seq)).enumerate() {
            let visible = (first_row + row) % seq + 1;
            let (y, masked) = y.split_at_mut(visible);
            let x = &x[..visible];
            let top = largest(x);
            for (y, x) in y.iter_mut().zip(x) {
                *y = exp(x - top);
            }
            let scale = 1.0 / sum_of(y, |y| y);
            for y in y.iter_mut() {
                *y *= scale;
            }
            masked.fill(0.0);
        }
    }

    fn gradient_rows(seq: usize, first_row: usize, p: &[f32], dp: &[f32], ds: &mut [f32]) {
        let rows = p.chunks_exact(seq).zip(dp.chunks_exact(seq));
        for (row, ((p, dp), ds)) in rows.zip(ds.chunks_exact_mut(seq)).enumerate() {
            let visible = (first_row + row) % seq + 1;
            let (ds, masked) = ds.split_at_mut(visible);
            let (p, dp) = (&p[..visible], &dp[..visible]);
            let dot = dot(p, dp);
            for ((ds, p), dp) in ds.iter_mut().zip(p).zip(dp) {
                *ds = p * (dp - dot);
            }
            masked.fill(0.0);
        }
    }
}
