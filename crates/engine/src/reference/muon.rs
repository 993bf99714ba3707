//! Reference: the parts of Muon that are not products.

use super::Tensor;
use headroom_graph::ops::muon::{Blend, MuonMomentum, MuonUpdate, UnitNorm};

pub fn momentum(op: &MuonMomentum, inputs: &mut [Tensor], outputs: &mut [Tensor]) {
    let clip = inputs.get(3).map_or(1.0, |clip| clip.data[0]);
    let [buffer, gradient, rates, ..] = inputs else { unreachable!("three inputs by the shape rule") };
    if rates.data[1] == 0.0 {
        outputs[0].data.fill(0.0);
        return;
    }
    for i in 0..buffer.data.len() {
        let fresh = (1.0 - op.momentum) * gradient.data[i] * clip;
        buffer.data[i] = op.momentum * buffer.data[i] + fresh;
        outputs[0].data[i] = op.momentum * buffer.data[i] + fresh;
    }
}

pub fn unit_norm(op: &UnitNorm, inputs: &[Tensor], outputs: &mut [Tensor]) {
    let norm = inputs[1].data[0].sqrt().max(op.least);
    outputs[0].data.iter_mut().zip(&inputs[0].data).for_each(|(out, x)| *out = x / norm);
}

pub fn blend(op: &Blend, inputs: &[Tensor], outputs: &mut [Tensor]) {
    for (i, out) in outputs[0].data.iter_mut().enumerate() {
        *out = op.of_x * inputs[0].data[i] + op.of_y * inputs[1].data[i];
    }
}

pub fn update(op: &MuonUpdate, inputs: &mut [Tensor]) {
    let [weight, direction, rates, ..] = inputs else { unreachable!("three inputs by the shape rule") };
    if rates.data[1] == 0.0 {
        return;
    }
    let rate = rates.data[0];
    for (weight, direction) in weight.data.iter_mut().zip(&direction.data) {
        *weight = *weight * (1.0 - rate * op.weight_decay) - rate * op.scale * direction;
    }
}
