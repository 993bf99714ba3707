//! Rotary position embedding.

use super::{Team, by_isa};
use headroom_graph::ops::rope::{Rope, RotationDirection};

/// Rows handed to a thread at a time.
const ROWS: usize = 32;

/// `half` is half of a head's size, the width of the tables.
pub fn run(team: &Team, op: &Rope, half: usize, x: &[f32], (cos, sin): (&[f32], &[f32]), y: &mut [f32]) {
    let width = op.heads * 2 * half;
    let seq = cos.len() / half;
    let sign = match op.turn {
        RotationDirection::Forward => 1.0,
        RotationDirection::Back => -1.0,
    };
    team.pool.for_each_chunk(y, ROWS * width, |index, y| {
        let first = index * ROWS;
        for (row, y) in y.chunks_exact_mut(width).enumerate() {
            let position = (first + row) % seq * half;
            let (cos, sin) = (&cos[position..][..half], &sin[position..][..half]);
            turn_row(team.isa, sign, &x[(first + row) * width..][..width], cos, sin, y);
        }
    });
}

by_isa! {
    fn turn_row(sign: f32, x: &[f32], cos: &[f32], sin: &[f32], y: &mut [f32]) {
        let half = cos.len();
        for (x, y) in x.chunks_exact(2 * half).zip(y.chunks_exact_mut(2 * half)) {
            let ((a, b), (first, second)) = (x.split_at(half), y.split_at_mut(half));
            let (b, sin, second) = (&b[..half], &sin[..half], &mut second[..half]);
            for i in 0..half {
                let s = sign * sin[i];
                first[i] = a[i] * cos[i] - b[i] * s;
                second[i] = b[i] * cos[i] + a[i] * s;
            }
        }
    }
}
