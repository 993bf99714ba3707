//! Reference: AdamW.

use super::{Tensor, choose};
use headroom_graph::TensorType;
use headroom_graph::ops::adamw::AdamW;
use headroom_graph::ops::adamw_all::AdamWAll;
use headroom_graph::ops::adamw_chosen::AdamWChosen;
use headroom_graph::ops::choose::SHARED;

pub fn run(op: &AdamW, inputs: &mut [Tensor]) {
    let clip = inputs.get(5).map_or(1.0, |clip| clip.data[0]);
    let [weight, first, second, gradient, rates, ..] = inputs else { unreachable!("five inputs by the shape rule") };
    let [rate, first_correction, second_correction_root] = rates.data[..] else { unreachable!("three rates") };
    if first_correction == 0.0 {
        return;
    }
    let weight_decay = op.decay_of(&weight.ty);
    for i in 0..weight.data.len() {
        let g = gradient.data[i] * clip;
        first.data[i] = op.beta1 * first.data[i] + (1.0 - op.beta1) * g;
        second.data[i] = op.beta2 * second.data[i] + (1.0 - op.beta2) * g * g;
        let denominator = second.data[i].sqrt() / second_correction_root + op.eps;
        let decayed = weight.data[i] * (1.0 - rate * weight_decay);
        weight.data[i] = decayed - rate / first_correction * first.data[i] / denominator;
    }
}

pub fn run_all(op: &AdamWAll, inputs: &mut [Tensor], outputs: &mut [Tensor]) {
    let gradients = inputs.iter().skip(4).step_by(4);
    let norm = gradients.flat_map(|gradient| &gradient.data).map(|g| g * g).sum::<f64>().sqrt();
    let scale = if op.max_norm > 0.0 { (op.max_norm / (norm + 1e-6)).min(1.0) } else { 1.0 };
    if let Some(output) = outputs.first_mut() {
        output.data[0] = norm;
    }
    let rates = inputs[0].clone();
    let clip = Tensor { ty: rates.ty.clone(), data: vec![scale] };
    for parameter in 0..op.parameters {
        let own = 1 + 4 * parameter..5 + 4 * parameter;
        let mut single = inputs[own.clone()].to_vec();
        single.extend([rates.clone(), clip.clone()]);
        run(&op.single(), &mut single);
        inputs[own].clone_from_slice(&single[..4]);
    }
}

/// Runs the sums of squares, the choice and the updates one after the other.
pub fn run_chosen(op: &AdamWChosen, inputs: &mut [Tensor], outputs: &mut [Tensor]) {
    let scalar = |value: f64| Tensor { ty: TensorType::f32(&[1]), data: vec![value] };
    let gradients: Vec<usize> = (0..op.parameters).map(|parameter| AdamWChosen::place(parameter) + 3).collect();
    let squares: Vec<f64> = gradients.iter().map(|&at| inputs[at].data.iter().map(|g| g * g).sum()).collect();
    let norm = squares.iter().sum::<f64>().sqrt();
    let scale = if op.max_norm > 0.0 { (op.max_norm / (norm + 1e-6)).min(1.0) } else { 1.0 };
    if let Some(output) = outputs.get_mut(1) {
        output.data[0] = norm;
    }
    let mut chooser = inputs[..SHARED].to_vec();
    chooser.extend(squares.iter().map(|&sum| scalar(sum)));
    let choice = op.choice();
    let mut rates = vec![Tensor::zeros(&TensorType::f32(&[3])); op.parameters];
    choose::run(&choice, &mut chooser, &mut rates);
    inputs[..SHARED].clone_from_slice(&chooser[..SHARED]);
    outputs[0].data = rates.iter().flat_map(|rates| rates.data.clone()).collect();
    for (parameter, rates) in rates.into_iter().enumerate() {
        let own = AdamWChosen::place(parameter)..AdamWChosen::place(parameter + 1);
        let mut single = inputs[own.clone()].to_vec();
        single.extend([rates, scalar(scale)]);
        run(&op.single(), &mut single);
        inputs[own].clone_from_slice(&single[..4]);
    }
}
