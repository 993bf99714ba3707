//! Reference: attention of the next tokens to the KV cache.

use super::Tensor;
use headroom_graph::ops::cached_attention::CachedAttention;

pub fn run(op: &CachedAttention, inputs: &mut [Tensor], outputs: &mut [Tensor]) {
    let [q, k, v, keys, values, first] = inputs else { unreachable!("six inputs by the shape rule") };
    let (rows, kept) = (q.ty.sizes()[0], keys.ty.sizes()[0]);
    let (wide, narrow, first) = (q.ty.shape.row(), k.ty.shape.row(), first.data[0] as usize);
    let width = wide / op.heads;
    for row in 0..rows.min(kept.saturating_sub(first)) {
        let (from, to) = (row * narrow..(row + 1) * narrow, (first + row) * narrow..(first + row + 1) * narrow);
        keys.data[to.clone()].copy_from_slice(&k.data[from.clone()]);
        values.data[to].copy_from_slice(&v.data[from]);
    }
    for row in 0..rows {
        for head in 0..op.heads {
            let own = (head * op.kv_heads / op.heads) * width;
            let query = &q.data[row * wide + head * width..][..width];
            let seen = (first + row + 1).min(kept);
            let score = |at: usize| {
                let key = &keys.data[at * narrow + own..][..width];
                op.scale * query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>()
            };
            let scores: Vec<f64> = (0..seen).map(score).collect();
            let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let shares: Vec<f64> = scores.iter().map(|score| (score - top).exp()).collect();
            let sum: f64 = shares.iter().sum();
            for column in 0..width {
                let mixed = (0..seen).map(|at| shares[at] * values.data[at * narrow + own + column]).sum::<f64>();
                outputs[0].data[row * wide + head * width + column] = mixed / sum;
            }
        }
    }
}
