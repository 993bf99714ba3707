//! Reference: rotary position embedding.

use super::Tensor;
use headroom_graph::ops::rope::{Rope, RotationDirection};

pub fn run(op: &Rope, inputs: &[Tensor], outputs: &mut [Tensor]) {
    let (x, cos, sin) = (&inputs[0], &inputs[1], &inputs[2]);
    let (seq, half) = (cos.ty.sizes()[0], cos.ty.sizes()[1]);
    let width = x.ty.shape.row();
    let sign = match op.turn {
        RotationDirection::Forward => 1.0,
        RotationDirection::Back => -1.0,
    };
    for (row, y) in outputs[0].data.chunks_exact_mut(width).enumerate() {
        let position = row % seq;
        for head in 0..op.heads {
            for i in 0..half {
                let (c, s) = (cos.data[position * half + i], sign * sin.data[position * half + i]);
                let (first, second) = (head * 2 * half + i, head * 2 * half + half + i);
                let (a, b) = (x.data[row * width + first], x.data[row * width + second]);
                y[first] = a * c - b * s;
                y[second] = b * c + a * s;
            }
        }
    }
}
