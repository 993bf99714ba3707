//! Reference: attention as separate ops: rotation, scores, softmax, mix; and its gradient from `out` and `lse`.

use super::{Tensor, attention, rope};
use headroom_graph::TensorType;
use headroom_graph::ops::attention::{AttentionMix, AttentionMixBack, AttentionScores};
use headroom_graph::ops::flash_attention::{FlashAttention, Rotation};
use headroom_graph::ops::rope::{Rope, RotationDirection};

pub fn forward(op: &FlashAttention, inputs: &[Tensor], outputs: &mut [Tensor]) {
    let (q, k) = rotated(op, inputs, 3);
    let mut p = scores(op, q, k, op.scale);
    for (row, p) in p.data.chunks_exact_mut(op.seq).enumerate() {
        let visible = row % op.seq + 1;
        let top = p[..visible].iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let lse = top + p[..visible].iter().map(|s| (s - top).exp()).sum::<f64>().ln();
        p[..visible].iter_mut().for_each(|s| *s = (*s - lse).exp());
        p[visible..].fill(0.0);
        outputs[1].data[row] = lse;
    }
    let FlashAttention { heads, kv_heads, seq, .. } = *op;
    let mix = AttentionMix { heads, kv_heads, seq, scale: 1.0 };
    attention::mix(&mix, &[p, inputs[2].clone()], &mut outputs[..1]);
}

pub fn gradient(op: &FlashAttention, inputs: &[Tensor], outputs: &mut [Tensor]) {
    let FlashAttention { heads, kv_heads, seq, scale, .. } = *op;
    let (q, k) = rotated(op, inputs, 6);
    let (v, out, lse, dout) = (&inputs[2], &inputs[3], &inputs[4], &inputs[5]);
    let mut p = scores(op, q.clone(), k.clone(), scale);
    let mut ds = scores(op, dout.clone(), v.clone(), 1.0);
    let width = q.ty.shape.row() / heads;
    for (row, (p, ds)) in p.data.chunks_exact_mut(seq).zip(ds.data.chunks_exact_mut(seq)).enumerate() {
        let (batch, head, position) = (row / seq / heads, row / seq % heads, row % seq);
        let at = ((batch * seq + position) * heads + head) * width;
        let dot: f64 = (at..at + width).map(|i| out.data[i] * dout.data[i]).sum();
        for j in 0..seq {
            p[j] = if j <= position { (p[j] - lse.data[row]).exp() } else { 0.0 };
            ds[j] = if j <= position { p[j] * (ds[j] - dot) } else { 0.0 };
        }
    }
    let back = |scale: f64| AttentionMixBack { heads, kv_heads, seq, scale };
    attention::mix(&AttentionMix { heads, kv_heads, seq, scale }, &[ds.clone(), k], &mut outputs[..1]);
    attention::mix_back(&back(scale), &[ds, q], &mut outputs[1..2]);
    attention::mix_back(&back(1.0), &[p, dout.clone()], &mut outputs[2..3]);
    if op.rotation == Rotation::Inside {
        outputs[0] = rotate_heads(&outputs[0], heads, RotationDirection::Back, &inputs[6..8]);
        outputs[1] = rotate_heads(&outputs[1], kv_heads, RotationDirection::Back, &inputs[6..8]);
    }
}

fn rotated(op: &FlashAttention, inputs: &[Tensor], tables: usize) -> (Tensor, Tensor) {
    match op.rotation {
        Rotation::Before => (inputs[0].clone(), inputs[1].clone()),
        Rotation::Inside => (
            rotate_heads(&inputs[0], op.heads, RotationDirection::Forward, &inputs[tables..]),
            rotate_heads(&inputs[1], op.kv_heads, RotationDirection::Forward, &inputs[tables..]),
        ),
    }
}

fn rotate_heads(x: &Tensor, heads: usize, turn: RotationDirection, tables: &[Tensor]) -> Tensor {
    let mut out = [Tensor::zeros(&x.ty)];
    rope::run(&Rope { heads, turn }, &[x.clone(), tables[0].clone(), tables[1].clone()], &mut out);
    let [out] = out;
    out
}

fn scores(op: &FlashAttention, q: Tensor, k: Tensor, scale: f64) -> Tensor {
    let FlashAttention { heads, kv_heads, seq, .. } = *op;
    let batch = q.ty.sizes()[0] / seq;
    let mut out = [Tensor::zeros(&TensorType::f32(&[batch, heads, seq, seq]))];
    attention::scores(&AttentionScores { heads, kv_heads, seq, scale }, &[q, k], &mut out);
    let [out] = out;
    out
}
