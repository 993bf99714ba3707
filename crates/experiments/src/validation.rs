//! Validates a list before it is trusted: every gate with its figure, at the shapes that the workshop names.

use crate::bench::{Bench, ExperimentError, Setting, Variant, program};
use crate::gates::{self, Gate, LengthMemory, Outputs};
use crate::turns::Speedup;
use headroom_graph::passes::{PassList, offered};
use headroom_training::data::BatchShape;
use headroom_training::memory::MemoryNeed;
use headroom_training::program::{Keep, StepConfig};

pub struct Validation {
    pub gates: Vec<Gate>,
    pub memory_by_length: Vec<LengthMemory>,
}

/// Loss curves that a gate compares: as many steps as asked for, and losses of the first steps that other runs of the
/// same models left. A curve that is too short is computed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Curves<'a> {
    pub steps: usize,
    pub baseline: &'a [f32],
    pub list: &'a [f32],
}

/// Limit for the whole curve: rounding accumulates over the steps.
const CURVE_LIMIT: f64 = 1e-3;

/// Largest difference in loss allowed over a list's steps.
pub fn curve_limit(list: &PassList) -> f64 {
    CURVE_LIMIT.max(tolerance(list))
}

/// Steps after which two runs must hold the same weights.
const REPEATED: usize = 3;

/// Allowed difference of loss and gradients from the baseline: the tolerance of the least exact pass.
pub fn tolerance(list: &PassList) -> f64 {
    list.names().iter().filter_map(|name| offered(name)).map(|pass| pass.tolerance).fold(1e-6, f64::max)
}

/// Loss and gradients of the first batch.
pub fn outputs(step: &StepConfig, variant: &Variant, setting: &Setting) -> Result<Outputs, ExperimentError> {
    Ok(outputs_and_curve(step, variant, setting, (0, &[]))?.0)
}

/// Also returns the losses of the first steps; these are only computed if fewer are known.
pub fn outputs_and_curve(
    step: &StepConfig,
    variant: &Variant,
    setting: &Setting,
    (steps, known): (usize, &[f32]),
) -> Result<(Outputs, Vec<f32>), ExperimentError> {
    let mut bench = Bench::new(step, variant, Keep::Gradients, setting)?;
    let (loss, gradients) = bench.gradients()?;
    let curve = match known.get(..steps) {
        Some(known) => known.to_vec(),
        None => bench.losses(steps)?,
    };
    Ok((Outputs { loss, gradients }, curve))
}

/// `speedup` was measured against the baseline; its lower end must reach `min_speedup`, if one is given.
pub fn validate(
    step: &StepConfig,
    setting: &Setting,
    variant: &Variant,
    curves: Curves<'_>,
    speedup: &Speedup,
    min_speedup: Option<f64>,
) -> Result<Validation, ExperimentError> {
    let baseline = Variant::baseline();
    let mut differences = vec![];
    let mut alive = vec![];
    for shape in validation_shapes(step) {
        let at = StepConfig { shape, ..step.clone() };
        let (want, have) = (outputs(&at, &baseline, setting)?, outputs(&at, variant, setting)?);
        differences.push(gates::difference(&want, &have));
        alive.push(gates::every_parameter_has_a_gradient(&have, want.gradients.len()));
    }
    let curve = |variant: &Variant, known: &[f32]| match known.get(..curves.steps) {
        Some(known) => Ok(known.to_vec()),
        None => Bench::new(step, variant, Keep::OnlyTheLoss, setting)?.losses(curves.steps),
    };
    let (want, have) = (curve(&baseline, curves.baseline)?, curve(variant, curves.list)?);
    let weights = || -> Result<Vec<u32>, ExperimentError> {
        let mut bench = Bench::new(step, variant, Keep::OnlyTheLoss, setting)?;
        bench.losses(REPEATED)?;
        Ok(bench.weight_bits())
    };
    let memory_by_length = memory_by_length(step, setting, variant)?;
    let limit = tolerance(&variant.passes);
    let mut gates = vec![
        gates::accuracy(&differences, limit, &shapes_named(step)),
        gates::loss_curve(&want, &have, curve_limit(&variant.passes)),
    ];
    // The worst of the shapes.
    gates.extend(alive.into_iter().min_by(|left, right| left.figure.total_cmp(&right.figure)));
    gates.push(gates::determinism(&weights()?, &weights()?));
    gates.push(gates::memory(&memory_by_length));
    gates.push(gates::throughput(speedup, min_speedup));
    Ok(Validation { gates, memory_by_length })
}

/// The requested shape, and twice its batch and length: for tiny the workshop's 8 × 128 and 16 × 256.
pub fn validation_shapes(step: &StepConfig) -> [BatchShape; 2] {
    [step.shape, BatchShape { batch_size: 2 * step.shape.batch_size, seq_len: 2 * step.shape.seq_len }]
}

fn shapes_named(step: &StepConfig) -> String {
    validation_shapes(step).map(|shape| format!("{} × {}", shape.batch_size, shape.seq_len)).join(" and ")
}

/// From the requested length to eight times it: planned, so nothing has to run.
fn memory_by_length(
    step: &StepConfig,
    setting: &Setting,
    variant: &Variant,
) -> Result<Vec<LengthMemory>, ExperimentError> {
    let at = |times: usize| {
        let seq_len = times * step.shape.seq_len;
        let at = StepConfig { shape: BatchShape { seq_len, ..step.shape }, ..step.clone() };
        let need = |variant: &Variant| -> Result<(usize, usize), ExperimentError> {
            let planned = program(&at, variant, Keep::OnlyTheLoss)?.program;
            let fixed = planned.plan.kept_bytes;
            Ok((MemoryNeed::of(&[planned], setting.opening.threads).total(), fixed))
        };
        let ((baseline, _), (kept, fixed)) = (need(&Variant::baseline())?, need(variant)?);
        Ok(LengthMemory { seq_len, baseline, kept, fixed })
    };
    [1, 2, 4, 8].into_iter().map(at).collect()
}

/// The exponent with which memory grows with the sequence length, without weights and optimizer state: 1 is linear.
pub fn growth(points: &[(usize, usize)]) -> Option<f64> {
    let logs: Vec<(f64, f64)> =
        points.iter().map(|&(length, bytes)| ((length as f64).ln(), (bytes.max(1) as f64).ln())).collect();
    let count = logs.len() as f64;
    let (x_mean, y_mean) =
        (logs.iter().map(|(x, _)| x).sum::<f64>() / count, logs.iter().map(|(_, y)| y).sum::<f64>() / count);
    let spread: f64 = logs.iter().map(|(x, _)| (x - x_mean).powi(2)).sum();
    (spread > 0.0).then(|| logs.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum::<f64>() / spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_the_power_of_the_length() {
        let squares = [(2, 400), (4, 1600), (8, 6400)];
        assert!((growth(&squares).unwrap() - 2.0).abs() < 1e-9);
        assert!((growth(&[(128, 5), (256, 10)]).unwrap() - 1.0).abs() < 1e-9);
        assert_eq!(growth(&[(128, 5)]), None);
    }
}
