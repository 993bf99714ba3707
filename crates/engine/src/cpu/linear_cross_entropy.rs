//! LM head and cross-entropy, a chunk of rows at a time: the logits of a chunk live only in scratch.

use super::Team;
use super::cross_entropy;
use super::gemm::{Accumulate, MatMut, MatRef, Product};

/// Elements of scratch: a chunk's logits, and one loss per row.
pub fn scratch(rows: usize, vocab: usize) -> usize {
    rows * vocab + rows
}

/// Operands of [`run`]; without `gradients` only the loss is computed.
pub struct Head<'a> {
    /// Rows of a chunk.
    pub rows: usize,
    pub x: &'a [f32],
    pub weight: &'a [f32],
    pub targets: &'a [i32],
    pub gradients: Option<Gradients<'a>>,
}

pub struct Gradients<'a> {
    pub arrived: f32,
    pub dx: &'a mut [f32],
    pub dweight: &'a mut [f32],
}

/// Returns the mean loss; each chunk's losses are summed in order.
pub fn run(team: &Team, mut head: Head, scratch: &mut [f32]) -> f32 {
    let tokens = head.targets.len();
    let width = head.x.len() / tokens;
    let vocab = head.weight.len() / width;
    let (logits, losses) = scratch.split_at_mut(head.rows * vocab);
    let mut sum = 0.0;
    for first in (0..tokens).step_by(head.rows) {
        let rows = head.rows.min(tokens - first);
        let x = &head.x[first * width..][..rows * width];
        let (logits, targets) = (&mut logits[..rows * vocab], &head.targets[first..][..rows]);
        team.product(Product {
            alpha: 1.0,
            a: MatRef::row_major(x, rows, width),
            b: MatRef::row_major(head.weight, vocab, width).transposed(),
            accumulate: Accumulate::Overwrite,
            c: MatMut::row_major(logits, rows, vocab),
        });
        let Some(gradients) = &mut head.gradients else {
            sum += f64::from(cross_entropy::forward(team, logits, targets, losses)) * rows as f64;
            continue;
        };
        let share = gradients.arrived / tokens as f32;
        cross_entropy::losses_and_gradient(team, logits, targets, share, &mut losses[..rows]);
        sum += losses[..rows].iter().map(|&loss| f64::from(loss)).sum::<f64>();
        team.product(Product {
            alpha: 1.0,
            a: MatRef::row_major(logits, rows, vocab),
            b: MatRef::row_major(head.weight, vocab, width),
            accumulate: Accumulate::Overwrite,
            c: MatMut::row_major(&mut gradients.dx[first * width..][..rows * width], rows, width),
        });
        team.product(Product {
            alpha: 1.0,
            a: MatRef::row_major(logits, rows, vocab).transposed(),
            b: MatRef::row_major(x, rows, width),
            accumulate: if first == 0 { Accumulate::Overwrite } else { Accumulate::Add },
            c: MatMut::row_major(gradients.dweight, vocab, width),
        });
    }
    (sum / tokens as f64) as f32
}
