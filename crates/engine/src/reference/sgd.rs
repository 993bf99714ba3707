//! Reference: SGD.

use super::Tensor;
use headroom_graph::ops::sgd::Sgd;

pub fn run(op: &Sgd, inputs: &mut [Tensor]) {
    let before_clip = 3 + op.buffers();
    let clip = inputs.get(before_clip).map_or(1.0, |clip| clip.data[0]);
    let [weight, gradient, rates, rest @ ..] = inputs else { unreachable!("three inputs by the shape rule") };
    if rates.data[1] == 0.0 {
        return;
    }
    let (rate, decay) = (rates.data[0], op.decay_of(&weight.ty));
    for i in 0..weight.data.len() {
        let mut step = gradient.data[i] * clip + decay * weight.data[i];
        if op.buffers() == 1 {
            step += op.momentum * rest[0].data[i];
            rest[0].data[i] = step;
        }
        weight.data[i] -= rate * step;
    }
}
