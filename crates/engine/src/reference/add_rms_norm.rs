//! Reference: residual add and RMSNorm, as two separate ops.

use super::{Tensor, elementwise, rms_norm};
use headroom_graph::ops::add_rms_norm::{AddRmsNorm, AddRmsNormGrad};
use headroom_graph::ops::rms_norm::{RmsNorm, RmsNormGrad};

pub fn forward(op: &AddRmsNorm, inputs: &[Tensor], outputs: &mut [Tensor]) {
    elementwise::zip(&inputs[..2], &mut outputs[..1], |x, branch| x + branch);
    let normed = [outputs[0].clone(), inputs[2].clone()];
    rms_norm::forward(&RmsNorm { eps: op.eps }, &normed, &mut outputs[1..]);
}

pub fn gradient(op: &AddRmsNormGrad, inputs: &[Tensor], outputs: &mut [Tensor]) {
    rms_norm::gradient(&RmsNormGrad { eps: op.eps }, &inputs[..3], outputs);
    outputs[0].data.iter_mut().zip(&inputs[3].data).for_each(|(dx, also)| *dx += also);
}
