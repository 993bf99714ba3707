//! Reference: the products of materialised attention.

use super::Tensor;
use headroom_graph::ops::attention::{AttentionMix, AttentionMixBack, AttentionScores, AttentionSizes};

pub fn scores(op: &AttentionScores, inputs: &[Tensor], outputs: &mut [Tensor]) {
    let (q, k) = (&inputs[0].data, &inputs[1].data);
    let sizes = op.sizes(&inputs[0].ty).expect("checked by the shape rule");
    each(sizes, |at| outputs[0].data[at.square] += op.scale * q[at.query] * k[at.key]);
}

pub fn mix(op: &AttentionMix, inputs: &[Tensor], outputs: &mut [Tensor]) {
    let (p, v) = (&inputs[0].data, &inputs[1].data);
    let sizes = op.sizes(&inputs[1].ty).expect("checked by the shape rule");
    each(sizes, |at| outputs[0].data[at.query] += op.scale * p[at.square] * v[at.key]);
}

pub fn mix_back(op: &AttentionMixBack, inputs: &[Tensor], outputs: &mut [Tensor]) {
    let (p, x) = (&inputs[0].data, &inputs[1].data);
    let sizes = op.sizes(&inputs[1].ty).expect("checked by the shape rule");
    each(sizes, |at| outputs[0].data[at.key] += op.scale * p[at.square] * x[at.query]);
}

/// Operand indices of one multiply-add of attention.
struct At {
    /// (batch, head, i, j)
    square: usize,
    /// (batch, i, head, d)
    query: usize,
    /// (batch, j, key-value head, d)
    key: usize,
}

fn each(sizes: AttentionSizes, mut f: impl FnMut(At)) {
    let AttentionSizes { batch, seq, heads, kv_heads, head_dim } = sizes;
    for b in 0..batch {
        for h in 0..heads {
            let kv = h * kv_heads / heads;
            for i in 0..seq {
                for j in 0..seq {
                    for d in 0..head_dim {
                        f(At {
                            square: ((b * heads + h) * seq + i) * seq + j,
                            query: ((b * seq + i) * heads + h) * head_dim + d,
                            key: ((b * seq + j) * kv_heads + kv) * head_dim + d,
                        });
                    }
                }
            }
        }
    }
}
