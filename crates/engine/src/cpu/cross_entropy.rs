//! Mean cross-entropy and its gradient.

use super::math::{exp, largest, sum_of};
use super::{Team, by_isa};

/// Rows handed to a thread at a time.
const ROWS: usize = 16;

/// `row_losses` is scratch with one element per row; the losses are summed in order, in double precision.
pub fn forward(team: &Team, logits: &[f32], targets: &[i32], row_losses: &mut [f32]) -> f32 {
    let vocab = logits.len() / targets.len();
    let row_losses = &mut row_losses[..targets.len()];
    team.pool.for_each_chunk(row_losses, ROWS, |index, losses| {
        for (offset, loss) in losses.iter_mut().enumerate() {
            let row = index * ROWS + offset;
            let logits = &logits[row * vocab..][..vocab];
            let (top, sum) = top_and_sum(team.isa, logits);
            *loss = sum.ln() + top - logits[targets[row] as usize];
        }
    });
    (row_losses.iter().map(|&loss| f64::from(loss)).sum::<f64>() / targets.len() as f64) as f32
}

pub fn gradient(team: &Team, logits: &[f32], targets: &[i32], arrived: f32, out: &mut [f32]) {
    let vocab = logits.len() / targets.len();
    let share = arrived / targets.len() as f32;
    team.pool.for_each_chunk(out, ROWS * vocab, |index, out| {
        for (offset, out) in out.chunks_exact_mut(vocab).enumerate() {
            let row = index * ROWS + offset;
            scaled_softmax(team.isa, share, &logits[row * vocab..][..vocab], out);
            out[targets[row] as usize] -= share;
        }
    });
}

/// Replaces the logits by their gradient in place, scaled by `share`; `losses` gets each row's loss.
pub fn losses_and_gradient(team: &Team, logits: &mut [f32], targets: &[i32], share: f32, losses: &mut [f32]) {
    let vocab = logits.len() / targets.len();
    team.pool.for_each_chunk2((logits, vocab), (losses, 1), |row, logits, loss| {
        let target = targets[row] as usize;
        let at_target = logits[target];
        let (top, sum) = scaled_softmax_in_place(team.isa, share, logits);
        loss[0] = sum.ln() + top - at_target;
        logits[target] -= share;
    });
}

by_isa! {
    fn scaled_softmax_in_place(share: f32, row: &mut [f32]) -> (f32, f32) {
        let top = largest(row);
        for x in row.iter_mut() {
            *x = exp(*x - top);
        }
        let total = sum_of(row, |x| x);
        let scale = share / total;
        for x in row.iter_mut() {
            *x *= scale;
        }
        (top, total)
    }

    fn top_and_sum(row: &[f32]) -> (f32, f32) {
        let top = largest(row);
        (top, sum_of(row, |x| exp(x - top)))
    }

    fn scaled_softmax(share: f32, row: &[f32], out: &mut [f32]) {
        let top = largest(row);
        for (out, x) in out.iter_mut().zip(row) {
            *out = exp(x - top);
        }
        let scale = share / sum_of(out, |x| x);
        for out in out.iter_mut() {
            *out *= scale;
        }
    }
}
