//! Precisions as rungs of the ladder: each alternates with the fastest one proved before it, and has to pass its own
//! gates against the same list of passes in single precision.

use crate::bench::{Bench, ExperimentError, Setting, Variant, program};
use crate::gates::{self, Gate, Outputs};
use crate::ladder::Watcher;
use crate::turns::{Clock, Patience, Speedup};
use crate::validation::{outputs, outputs_and_curve};
use headroom_engine::Program;
use headroom_graph::cost::{Rates, predicted_seconds};
use headroom_graph::{Op, Precision};
use headroom_training::program::{Keep, StepConfig};

/// Settings of a climb: precisions in the order of the trials with the device's peaks for each, single precision first.
pub struct Asked<'a> {
    pub precisions: &'a [(Precision, Rates)],
    pub patience: Patience,
    /// Steps of each loss curve.
    pub curve_steps: usize,
    /// Losses of the list's first steps in single precision, as many as are known.
    pub known_curve: &'a [f32],
}

/// One precision on top of the fastest proved before it.
pub struct PrecisionRung {
    pub precision: Precision,
    /// The precision it was compared with.
    pub over: Precision,
    /// Predicted speed-up, from the plan and the peaks.
    pub predicted: f64,
    pub measured: Speedup,
    /// Planned bytes of the previous precision and of this one.
    pub memory: (usize, usize),
    /// Differences from Version 1 in single precision with the same weights.
    pub loss_difference: f64,
    pub gradient_difference: f64,
    pub gates: Vec<Gate>,
}

impl PrecisionRung {
    /// Whether it is correct, needs no more memory, and is faster beyond the noise.
    pub fn is_proved(&self) -> bool {
        self.gates.iter().all(Gate::passed)
    }
}

/// The fastest precision that was proved; single precision needs no proof.
pub fn proved(rungs: &[PrecisionRung]) -> Precision {
    rungs.iter().rev().find(|rung| rung.is_proved()).map_or(Precision::Fp32, |rung| rung.precision)
}

/// Planned memory that a precision may take, relative to the one before it. The scratch of other products is a little
/// larger.
const MOST_MEMORY: f64 = 1.02;

/// Steps after which two runs must hold the same weights.
const REPEATED: usize = 3;

/// Tries one precision after the other. The step's own precision and list are ignored.
pub fn climb(
    step: &StepConfig,
    setting: &Setting,
    variant: &Variant,
    asked: &Asked,
    watcher: &mut dyn Watcher,
) -> Result<Vec<PrecisionRung>, ExperimentError> {
    let at = |precision: Precision| StepConfig { precision, ..step.clone() };
    let single = Variant { plant: None, ..variant.clone() };
    watcher.doing("measuring single precision, the reference for the others");
    let reference = outputs_and_curve(&at(Precision::Fp32), &single, setting, (asked.curve_steps, asked.known_curve))?;
    let version_1 = outputs(&at(Precision::Fp32), &Variant::baseline(), setting)?;
    let tried: Vec<(Precision, Rates)> =
        asked.precisions.iter().copied().filter(|(precision, _)| *precision != Precision::Fp32).collect();
    let rates = |precision: Precision| {
        let known =
            |wanted: Precision| asked.precisions.iter().find(|(other, _)| *other == wanted).map(|(_, own)| *own);
        known(precision).or(known(Precision::Fp32)).unwrap_or(headroom_engine::peaks::ASSUMED_RATES)
    };
    let mut clock = Clock::start(asked.patience, tried.len());
    let mut rungs: Vec<PrecisionRung> = vec![];
    let (mut over, mut standing) = (Precision::Fp32, warm(&at(Precision::Fp32), &single, setting)?);
    for (precision, _) in tried {
        watcher.doing(&format!("trying {precision}, alternating with {over}"));
        let own = at(precision);
        let mut bench = warm(&own, variant, setting)?;
        let measured = clock.compare(&mut standing, &mut bench)?;
        let memory = (standing.memory.total(), bench.memory.total());
        let before = predicted(&standing.program, &rates);
        let curve = bench.curve().to_vec();
        drop(bench);
        let (loss_difference, gradient_difference) = gates::difference(&version_1, &outputs(&own, variant, setting)?);
        let rung = PrecisionRung {
            precision,
            over,
            predicted: before / predicted(&program(&own, variant, Keep::OnlyTheLoss)?.program, &rates),
            measured,
            memory,
            loss_difference,
            gradient_difference,
            gates: gates_of(&own, setting, variant, &reference, (asked.curve_steps, &curve), (&measured, memory))?,
        };
        if rung.is_proved() {
            // Drops the slower one first, to free its memory.
            drop(standing);
            (over, standing) = (precision, warm(&own, variant, setting)?);
        }
        rungs.push(rung);
    }
    Ok(rungs)
}

fn warm(step: &StepConfig, variant: &Variant, setting: &Setting) -> Result<Bench, ExperimentError> {
    let mut bench = Bench::new(step, variant, Keep::OnlyTheLoss, setting)?;
    bench.losses(bench.warm_up_steps())?;
    Ok(bench)
}

/// Matrix products run at the peak of their input type: with eight bits, only those of the blocks' linear layers.
fn predicted(program: &Program, rates: &dyn Fn(Precision) -> Rates) -> f64 {
    let others = if program.precision.is_fp8() { Precision::Bf16 } else { program.precision };
    let of = |call: &headroom_graph::plan::Call| match program.graph.node(call.node).op {
        Op::Fp8Product(_) => predicted_seconds(call, &rates(program.precision)),
        _ => predicted_seconds(call, &rates(others)),
    };
    program.plan.calls.iter().map(of).sum()
}

/// Gates against the same list in single precision, with the tolerance that the precision states. `steps` are those of
/// the loss curve, with the losses that are known.
pub fn gates_of(
    step: &StepConfig,
    setting: &Setting,
    variant: &Variant,
    reference: &(Outputs, Vec<f32>),
    steps: (usize, &[f32]),
    (speedup, memory): (&Speedup, (usize, usize)),
) -> Result<Vec<Gate>, ExperimentError> {
    let allowed = step.precision.tolerance();
    let (have, curve) = outputs_and_curve(step, variant, setting, steps)?;
    let (loss, gradients) = gates::difference(&reference.0, &have);
    let weights = || -> Result<Vec<u32>, ExperimentError> {
        let mut bench = Bench::new(step, variant, Keep::OnlyTheLoss, setting)?;
        bench.losses(REPEATED)?;
        Ok(bench.weight_bits())
    };
    Ok(vec![
        gates::against_single("loss", "of the first loss", loss, allowed.loss),
        gates::against_single("gradients", "of any gradient, in norm", gradients, allowed.gradients),
        gates::final_loss(&reference.1, &curve, allowed.loss),
        gates::every_parameter_has_a_gradient(&have, reference.0.gradients.len()),
        gates::determinism(&weights()?, &weights()?),
        gates::memory_of_precision(memory, MOST_MEMORY),
        gates::throughput_over(speedup, "the fastest precision proved before it"),
    ])
}
