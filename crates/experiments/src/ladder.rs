//! The ladder: pass after pass, best predicted first, each measured in turn with the list before it, and kept if it helps.

mod rung;

pub use rung::{Accuracy, Rung, Surprise, Verdict, accuracy};

use crate::bench::{Bench, ExperimentError, Setting, Variant, fastest_calls, program};
use crate::findings::{BaselineProfile, baseline_profile};
use crate::gates::{self, Outputs};
use crate::prediction::{Calibration, Predicted};
use crate::turns::{Clock, Patience, Speedup};
use crate::validation::{Validation, curve_limit, outputs_and_curve, tolerance, validate};
use headroom_graph::cost::Rates;
use headroom_graph::passes::{OFFERED, Offered, PassList};
use headroom_training::data::BatchShape;
use headroom_training::program::{Keep, StepConfig};
use rung::{by_op, surprise, verdict};

/// What is asked of a climb.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    pub patience: Patience,
    /// Steps of the final list's loss curve.
    pub curve_steps: usize,
    /// The least speed-up of the kept list, by the lower end of its interval, where one is asked for.
    pub min_speedup: Option<f64>,
    pub ablation: Ablation,
    /// The machine's peaks.
    pub rates: Rates,
}

/// Are all passes but one measured, for each?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ablation {
    No,
    Yes,
}

pub struct Ladder {
    /// Of Version 1, the fastest of some steps.
    pub baseline_seconds: f64,
    pub baseline_by_op: Vec<(&'static str, f64)>,
    pub profile: BaselineProfile,
    /// Passes in the order in which they were tried.
    pub tried: Vec<Rung>,
    /// Passes that found nothing to do, and without which others.
    pub not_tried: Vec<(&'static str, &'static [&'static str])>,
    /// Version 2, all, and what was kept, against Version 1.
    pub versions: Vec<Rung>,
    /// All passes against all but one.
    pub ablation: Vec<Rung>,
    pub kept: PassList,
    pub validation: Validation,
}

/// What is told while the ladder is climbed.
pub trait Watcher {
    fn doing(&mut self, what: &str);
}

/// Steps that are recorded of a bench.
const RECORDED: usize = 6;

/// Steps of every pass's own loss curve; the final list's is longer.
const SHORT_CURVE: usize = 5;

/// Loss, gradients and the first losses of Version 1.
type Reference = (Outputs, Vec<f32>);

pub fn climb(
    step: &StepConfig,
    setting: &Setting,
    wanted: &Wanted,
    watcher: &mut dyn Watcher,
) -> Result<Ladder, ExperimentError> {
    let climber = Climber { step, setting };
    watcher.doing("profiling Version 1");
    let mut baseline = climber.warm(&Variant::baseline())?;
    let recording = baseline.record(RECORDED)?;
    let calls = fastest_calls(&recording, baseline.kernels());
    let profile = baseline_profile(&baseline, &recording, wanted.rates, &step.model)?;
    let baseline_by_op = by_op(&baseline.program, &calls);
    let steps = (0..RECORDED).map(|_| baseline.seconds()).collect::<Result<Vec<f64>, _>>()?;
    let baseline_seconds = steps.into_iter().fold(f64::INFINITY, f64::min);

    watcher.doing("probing fused kernels on one layer");
    let mut calibration = Calibration::default();
    calibration.learn(&baseline.program, &calls);
    climber.probe(&mut calibration)?;
    // Predicted before any pass has run.
    let at_first = calibration.clone();

    let ablated = if wanted.ablation == Ablation::Yes { OFFERED.len() } else { 0 };
    let mut clock = Clock::start(wanted.patience, OFFERED.len() + 3 + ablated);
    let reference = outputs_and_curve(step, &Variant::baseline(), setting, SHORT_CURVE)?;
    let mut tried = vec![];
    let mut current = PassList::none();
    let mut standing = baseline;
    let mut left: Vec<&Offered> = OFFERED.iter().collect();
    while let Some((next, prediction)) = climber.best_predicted(&calibration, &current, &mut left)? {
        watcher.doing(&format!("trying {}", next.name));
        let list = current.with(next.name);
        let mut bench = climber.warm(&Variant::of(&list))?;
        let measured = clock.compare(&mut standing, &mut bench)?;
        let (before, after) = in_turns_recorded(&mut standing, &mut bench)?;
        let rung = Rung {
            surprise: surprise((&standing.program, &before), (&bench.program, &after), &prediction, &measured),
            ..climber.rung(next.name, &list, (&standing, &bench), measured, &reference)?
        };
        let rung = Rung { predicted: Some(prediction.now / prediction.after.seconds), ..rung };
        let rung = Rung { verdict: verdict(&rung, tolerance(&list), curve_limit(&list)), ..rung };
        calibration.learn(&bench.program, &after);
        if rung.verdict.is_kept() {
            current = list;
            standing = bench;
        }
        tried.push(rung);
    }
    let not_tried = left.iter().map(|pass| (pass.name, pass.needs)).collect();
    drop(standing);

    let versions = climber.versions(&current, &at_first, &reference, &mut clock, watcher)?;
    let ablation = match wanted.ablation {
        Ablation::Yes => climber.ablation(&reference, &mut clock, watcher)?,
        Ablation::No => vec![],
    };
    watcher.doing("checking the gates");
    let unmeasured = Speedup { median: 1.0, low: 1.0, high: 1.0, rounds: 0 };
    let speedup = versions.last().map_or(unmeasured, |rung| rung.measured);
    let kept = Variant::of(&current);
    let validation = validate(step, setting, &kept, wanted.curve_steps, &speedup, wanted.min_speedup)?;
    Ok(Ladder {
        baseline_seconds,
        baseline_by_op,
        profile,
        tried,
        not_tried,
        versions,
        ablation,
        kept: current,
        validation,
    })
}

/// What a step is predicted to take, without and with a pass.
pub(crate) struct Prediction {
    pub now: f64,
    pub now_by_op: Predicted,
    pub after: Predicted,
}

struct Climber<'a> {
    step: &'a StepConfig,
    setting: &'a Setting,
}

impl Climber<'_> {
    fn warm(&self, variant: &Variant) -> Result<Bench, ExperimentError> {
        let mut bench = Bench::new(self.step, variant, Keep::OnlyTheLoss, self.setting)?;
        bench.losses(bench.warm_up_steps())?;
        Ok(bench)
    }

    /// One layer and a small batch of the same model, as it is and with passes: how fused kernels compare with their parts.
    fn probe(&self, calibration: &mut Calibration) -> Result<(), ExperimentError> {
        let mut step = self.step.clone();
        step.model.n_layers = 1;
        step.shape = BatchShape { batch_size: step.shape.batch_size.min(2), ..step.shape };
        let measured = |list: &PassList| -> Result<_, ExperimentError> {
            let mut bench = Bench::new(&step, &Variant::of(list), Keep::OnlyTheLoss, self.setting)?;
            bench.losses(2 * bench.warm_up_steps())?;
            let seconds = bench.call_seconds(2 * RECORDED)?;
            Ok((bench, seconds))
        };
        let mut apart = Calibration::default();
        let (bench, seconds) = measured(&PassList::none())?;
        apart.learn(&bench.program, &seconds);
        for list in [PassList::version_2(), PassList::all()] {
            let (bench, seconds) = measured(&list)?;
            calibration.learn_factors(&apart, &bench.program, &seconds);
        }
        Ok(())
    }

    /// The pass with the largest predicted saving among those that can be applied now; it is taken out of `left`.
    fn best_predicted<'b>(
        &self,
        calibration: &Calibration,
        current: &PassList,
        left: &mut Vec<&'b Offered>,
    ) -> Result<Option<(&'b Offered, Prediction)>, ExperimentError> {
        let predict = |list: &PassList| -> Result<Predicted, ExperimentError> {
            Ok(calibration.predict(&program(self.step, &Variant::of(list), Keep::OnlyTheLoss)?.program))
        };
        let now = predict(current)?;
        let mut best: Option<(usize, f64, Predicted)> = None;
        for (index, pass) in left.iter().enumerate() {
            if !pass.needs.iter().all(|needed| current.contains(needed)) {
                continue;
            }
            let after = predict(&current.with(pass.name))?;
            let saving = now.seconds - after.seconds;
            if best.as_ref().is_none_or(|(_, most, _)| saving > *most) {
                best = Some((index, saving, after));
            }
        }
        Ok(best.map(|(index, _, after)| (left.remove(index), Prediction { now: now.seconds, now_by_op: now, after })))
    }

    fn rung(
        &self,
        name: &str,
        list: &PassList,
        (before, after): (&Bench, &Bench),
        measured: Speedup,
        reference: &Reference,
    ) -> Result<Rung, ExperimentError> {
        let (have, curve) = outputs_and_curve(self.step, &Variant::of(list), self.setting, SHORT_CURVE)?;
        let (loss_difference, gradient_difference) = gates::difference(&reference.0, &have);
        Ok(Rung {
            name: name.into(),
            list: list.clone(),
            predicted: None,
            measured,
            memory: (before.memory.total(), after.memory.total()),
            kernels: (before.kernels(), after.kernels()),
            loss_difference,
            gradient_difference,
            curve_difference: gates::loss_curve(&reference.1, &curve, f64::INFINITY).figure,
            verdict: Verdict::Measured,
            surprise: None,
        })
    }

    /// Version 2, all, and what was kept, each in turns with Version 1.
    fn versions(
        &self,
        kept: &PassList,
        at_first: &Calibration,
        reference: &Reference,
        clock: &mut Clock,
        watcher: &mut dyn Watcher,
    ) -> Result<Vec<Rung>, ExperimentError> {
        let mut baseline = self.warm(&Variant::baseline())?;
        let lists = [("v2", PassList::version_2()), ("all", PassList::all()), ("kept", kept.clone())];
        let mut rungs = vec![];
        for (name, list) in lists {
            watcher.doing(&format!("measuring {name} against Version 1"));
            let mut bench = self.warm(&Variant::of(&list))?;
            let measured = clock.compare(&mut baseline, &mut bench)?;
            let rung = self.rung(name, &list, (&baseline, &bench), measured, reference)?;
            let predicted = at_first.predict(&baseline.program).seconds / at_first.predict(&bench.program).seconds;
            rungs.push(Rung { predicted: Some(predicted), ..rung });
        }
        Ok(rungs)
    }

    /// All passes in turns with all but one, for each: what the one is worth among the others.
    fn ablation(
        &self,
        reference: &Reference,
        clock: &mut Clock,
        watcher: &mut dyn Watcher,
    ) -> Result<Vec<Rung>, ExperimentError> {
        let mut all = self.warm(&Variant::of(&PassList::all()))?;
        let mut rungs = vec![];
        for pass in &OFFERED {
            watcher.doing(&format!("measuring all passes without {}", pass.name));
            let list = PassList::all().without(pass.name);
            let mut without = self.warm(&Variant::of(&list))?;
            let measured = clock.compare(&mut without, &mut all)?;
            rungs.push(self.rung(pass.name, &list, (&without, &all), measured, reference)?);
        }
        Ok(rungs)
    }
}

/// Seconds of each call of both, the fastest of steps taken in turns.
fn in_turns_recorded(first: &mut Bench, second: &mut Bench) -> Result<(Vec<f64>, Vec<f64>), ExperimentError> {
    let mut best = (vec![f64::INFINITY; first.kernels()], vec![f64::INFINITY; second.kernels()]);
    for _ in 0..RECORDED / 2 {
        for (bench, best) in [(&mut *first, &mut best.0), (&mut *second, &mut best.1)] {
            let seconds = bench.call_seconds(1)?;
            best.iter_mut().zip(seconds).for_each(|(best, seconds)| *best = best.min(seconds));
        }
    }
    Ok(best)
}
