//! Attention of the next tokens to the KV cache, one head of a row at a time, with an online softmax.

use super::{Team, by_isa};
use headroom_graph::ops::cached_attention::CachedAttention;

/// Operands.
pub struct Cached<'a> {
    pub q: &'a [f32],
    pub k: &'a [f32],
    pub v: &'a [f32],
    pub keys: &'a mut [f32],
    pub values: &'a mut [f32],
    pub first: usize,
    pub out: &'a mut [f32],
}

/// `wide` and `narrow` are the row widths of queries and of keys.
pub fn run(team: &Team, op: &CachedAttention, (wide, narrow): (usize, usize), at: Cached) {
    let Cached { q, k, v, keys, values, first, out } = at;
    let kept = keys.len() / narrow;
    let new = (q.len() / wide).min(kept.saturating_sub(first));
    let place = first.min(kept) * narrow;
    keys[place..place + new * narrow].copy_from_slice(&k[..new * narrow]);
    values[place..place + new * narrow].copy_from_slice(&v[..new * narrow]);
    let (keys, values, width, scale) = (&*keys, &*values, wide / op.heads, op.scale as f32);
    team.pool.for_each_chunk(out, width, |index, out| {
        let (row, head) = (index / op.heads, index % op.heads);
        let own = (head * op.kv_heads / op.heads) * width;
        let seen = (first + row + 1).min(kept);
        let query = &q[index * width..][..width];
        let rows = Rows { keys, values, narrow, own, seen };
        one_head(team.isa, scale, query, &rows, out);
    });
}

/// Keys and values that a query sees.
struct Rows<'a> {
    keys: &'a [f32],
    values: &'a [f32],
    narrow: usize,
    /// The first column of the head.
    own: usize,
    seen: usize,
}

by_isa! {
    fn one_head(scale: f32, query: &[f32], rows: &Rows, out: &mut [f32]) {
        let width = out.len();
        let (mut top, mut sum) = (f32::NEG_INFINITY, 0.0f32);
        out.fill(0.0);
        for at in 0..rows.seen {
            let place = at * rows.narrow + rows.own;
            let (key, value) = (&rows.keys[place..][..width], &rows.values[place..][..width]);
            let mut lanes = [0.0f32; 16];
            let (whole, rest) = (width / 16 * 16, width % 16);
            for start in (0..whole).step_by(16) {
                for lane in 0..16 {
                    lanes[lane] += query[start + lane] * key[start + lane];
                }
            }
            for lane in 0..rest {
                lanes[lane] += query[whole + lane] * key[whole + lane];
            }
            let score = scale * lanes.iter().sum::<f32>();
            // Not `max`, which would drop a NaN score.
            if score > top || score.is_nan() {
                let shrunk = (top - score).exp();
                sum *= shrunk;
                out.iter_mut().for_each(|out| *out *= shrunk);
                top = score;
            }
            let share = (score - top).exp();
            sum += share;
            for (out, value) in out.iter_mut().zip(value) {
                *out += share * value;
            }
        }
        out.iter_mut().for_each(|out| *out /= sum);
    }
}
