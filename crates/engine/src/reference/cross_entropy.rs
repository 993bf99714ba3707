//! Reference: mean cross-entropy and its gradient.

use super::Tensor;

pub fn forward(inputs: &[Tensor], outputs: &mut [Tensor]) {
    let (logits, targets) = (&inputs[0], &inputs[1]);
    let losses = logits.rows().zip(&targets.data).map(|(row, &target)| log_sum_exp(row) - row[target as usize]);
    outputs[0].data[0] = losses.sum::<f64>() / targets.data.len() as f64;
}

pub fn gradient(inputs: &[Tensor], outputs: &mut [Tensor]) {
    let (logits, targets, arrived) = (&inputs[0], &inputs[1], inputs[2].data[0]);
    let share = arrived / targets.data.len() as f64;
    let rows = outputs[0].data.chunks_exact_mut(logits.ty.shape.row());
    for ((out, row), &target) in rows.zip(logits.rows()).zip(&targets.data) {
        let total = log_sum_exp(row);
        for (i, (out, x)) in out.iter_mut().zip(row).enumerate() {
            let hit = if i == target as usize { 1.0 } else { 0.0 };
            *out = share * ((x - total).exp() - hit);
        }
    }
}

fn log_sum_exp(row: &[f64]) -> f64 {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    largest + row.iter().map(|x| (x - largest).exp()).sum::<f64>().ln()
}
