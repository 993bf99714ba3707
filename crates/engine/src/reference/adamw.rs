//! Reference: AdamW.

use super::Tensor;
use headroom_graph::ops::adamw::AdamW;

pub fn run(op: &AdamW, inputs: &mut [Tensor]) {
    let clip = inputs.get(5).map_or(1.0, |clip| clip.data[0]);
    let [weight, first, second, gradient, rates, ..] = inputs else { unreachable!("five inputs by the shape rule") };
    let [rate, first_correction, second_correction_root] = rates.data[..] else { unreachable!("three rates") };
    for i in 0..weight.data.len() {
        let g = gradient.data[i] * clip;
        first.data[i] = op.beta1 * first.data[i] + (1.0 - op.beta1) * g;
        second.data[i] = op.beta2 * second.data[i] + (1.0 - op.beta2) * g * g;
        let denominator = second.data[i].sqrt() / second_correction_root + op.eps;
        let decayed = weight.data[i] * (1.0 - rate * op.weight_decay);
        weight.data[i] = decayed - rate / first_correction * first.data[i] / denominator;
    }
}
