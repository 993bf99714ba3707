//! Activation checkpointing on top of the kept list: less memory for a second forward pass, measured in alternation
//! with that list.

use super::{Checks, Climber, SHORT_CURVE};
use crate::bench::{Bench, ExperimentError, Variant, program};
use crate::gates::{self, Gate};
use crate::prediction::Calibration;
use crate::turns::{Clock, Patience, Speedup};
use crate::validation::{curve_limit, outputs_and_curve, tolerance};
use headroom_graph::passes::PassList;
use headroom_training::program::{Keep, StepConfig};

/// The kept list with the activations of all layers recomputed, against the kept list alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpointing {
    /// Layers whose activations are recomputed.
    pub layers: usize,
    /// Predicted speed-up from the call times of the kept list; below 1, as calls are added.
    pub predicted: f64,
    pub measured: Speedup,
    /// Planned bytes without and with it.
    pub memory: (usize, usize),
    pub kernels: (usize, usize),
    /// Differences from Version 1.
    pub loss_difference: f64,
    pub gradient_difference: f64,
    pub gates: Vec<Gate>,
}

/// Steps of the kept list whose calls are timed for the prediction.
const RECORDED: usize = 2;

/// Steps after which two runs must hold the same weights.
const REPEATED: usize = 3;

pub(super) fn try_checkpointing(
    climber: &Climber,
    list: &PassList,
    checks: &Checks,
    patience: Patience,
) -> Result<Checkpointing, ExperimentError> {
    let (setting, layers) = (climber.setting, climber.step.model.n_layers);
    let step = StepConfig { recomputed_layers: layers, ..climber.step.clone() };
    let variant = Variant::of(list);
    let mut kept = climber.warm(list)?;
    // Every recomputed call is a copy of one in the kept list, so the times of that list's calls predict it.
    let mut calibration = Calibration::default();
    let calls = kept.call_seconds(RECORDED)?;
    calibration.learn(&kept.program, &calls);
    let seconds = |program: &headroom_engine::Program| calibration.predict(program).seconds;
    let predicted = seconds(&kept.program) / seconds(&program(&step, &variant, Keep::OnlyTheLoss)?.program);
    let mut bench = Climber { step: &step, ..*climber }.warm(list)?;
    let measured = Clock::start(patience, 1).compare(&mut kept, &mut bench)?;
    let memory = (kept.memory.total(), bench.memory.total());
    let kernels = (kept.kernels(), bench.kernels());
    let curve = bench.curve().to_vec();
    drop((kept, bench));

    let (have, curve) = outputs_and_curve(&step, &variant, setting, (SHORT_CURVE, &curve))?;
    let (want, want_curve) = &checks.reference;
    let difference = gates::difference(want, &have);
    let weights = || -> Result<Vec<u32>, ExperimentError> {
        let mut bench = Bench::new(&step, &variant, Keep::OnlyTheLoss, setting)?;
        bench.losses(REPEATED)?;
        Ok(bench.weight_bits())
    };
    let shape = format!("{} × {}", step.shape.batch_size, step.shape.seq_len);
    let gates = vec![
        gates::accuracy(&[difference], tolerance(list), &shape),
        gates::loss_curve(want_curve, &curve, curve_limit(list)),
        gates::every_parameter_has_a_gradient(&have, want.gradients.len()),
        gates::determinism(&weights()?, &weights()?),
        gates::memory_over(memory, 1.0, "the kept list"),
        gates::throughput_over(&measured, "the kept list"),
    ];
    let (loss_difference, gradient_difference) = difference;
    Ok(Checkpointing { layers, predicted, measured, memory, kernels, loss_difference, gradient_difference, gates })
}
