//! The ladder: pass after pass, best predicted first, each measured in turn with the list before it, and kept if it helps.

use crate::bench::{Bench, ExperimentError, Setting};
use crate::gates::{self, Gate, Outputs};
use crate::prediction::{Calibration, Predicted};
use headroom_engine::Program;
use headroom_graph::passes::{OFFERED, Offered, PassList, offered};
use headroom_training::data::BatchShape;
use headroom_training::program::{Keep, StepConfig, training_program};

/// How long to look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patience {
    /// Turns of each side.
    pub rounds: usize,
    /// Steps of a turn, of which the fastest counts.
    pub steps: usize,
    /// Steps of the final list's loss curve.
    pub curve: usize,
}

/// A ratio of times, and the interval that holds it with 95%.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speedup {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

/// One pass that was tried on top of a list, or one list held against the baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct Rung {
    /// The pass, or the label of the list.
    pub name: String,
    pub list: PassList,
    pub predicted: Option<f64>,
    pub measured: Speedup,
    pub memory: (usize, usize),
    pub kernels: (usize, usize),
    pub loss_difference: f64,
    pub gradient_difference: f64,
    pub kept: bool,
    /// Where the prediction was off by more than its share, and by what op.
    pub surprise: Option<Surprise>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Surprise {
    pub op: &'static str,
    pub predicted_seconds: f64,
    pub measured_seconds: f64,
}

pub struct Ladder {
    pub baseline_seconds: f64,
    pub baseline_by_op: Vec<(&'static str, f64)>,
    /// Passes in the order in which they were tried.
    pub tried: Vec<Rung>,
    /// Version 1, Version 2, all, and what was kept, against Version 1.
    pub versions: Vec<Rung>,
    pub kept: PassList,
    pub gates: Vec<Gate>,
}

/// What is told while the ladder is climbed.
pub trait Watcher {
    fn doing(&mut self, what: &str);
}

/// Over the whole curve, rounding grows with the steps.
const CURVE_LIMIT: f64 = 1e-3;

pub fn climb(
    step: &StepConfig,
    setting: &Setting,
    patience: Patience,
    min_speedup: f64,
    watcher: &mut dyn Watcher,
) -> Result<Ladder, ExperimentError> {
    let base = StepConfig { passes: PassList::none(), ..step.clone() };
    watcher.doing("measuring the baseline, call by call");
    let mut baseline = Bench::new(&base, Keep::OnlyTheLoss, setting)?;
    baseline.fastest(2)?;
    let calls = baseline.call_seconds(5)?;
    let baseline_seconds = baseline.fastest(patience.steps)?;
    let mut calibration = Calibration::default();
    calibration.learn(&baseline.program, &calls);
    let reference = outputs(&base, setting)?;

    let mut tried = vec![];
    let mut current = PassList::none();
    let mut standing = baseline;
    let mut left: Vec<&Offered> = OFFERED.iter().collect();
    while let Some((next, predicted)) = best_predicted(step, &calibration, &current, &mut left)? {
        watcher.doing(&format!("trying {}", next.name));
        let list = current.with(next.name);
        let candidate = StepConfig { passes: list.clone(), ..step.clone() };
        let mut bench = Bench::new(&candidate, Keep::OnlyTheLoss, setting)?;
        let rung = try_pass(next, list.clone(), &predicted, &mut standing, &mut bench, patience)?;
        let (loss_difference, gradient_difference) = gates::difference(&reference, &outputs(&candidate, setting)?);
        let exact = loss_difference <= tolerance(&list) && gradient_difference <= tolerance(&list);
        let kept = exact && helps(&rung);
        tried.push(Rung { loss_difference, gradient_difference, kept, ..rung });
        if kept {
            current = list;
            let seconds = bench.call_seconds(3)?;
            calibration.learn(&bench.program, &seconds);
            standing = bench;
        }
    }
    drop(standing);
    let versions = versions(step, setting, patience, &current, watcher)?;
    let chosen = versions.last().map_or(1.0, |rung| rung.measured.low);
    watcher.doing("checking the gates");
    let gates = check_gates(step, setting, patience, &current, chosen, min_speedup)?;
    Ok(Ladder {
        baseline_seconds,
        baseline_by_op: by_op(&Bench::new(&base, Keep::OnlyTheLoss, setting)?.program, &calls),
        tried,
        versions,
        kept: current,
        gates,
    })
}

/// The pass with the largest predicted saving among those that can be applied now; it is taken out of `left`.
fn best_predicted<'a>(
    step: &StepConfig,
    calibration: &Calibration,
    current: &PassList,
    left: &mut Vec<&'a Offered>,
) -> Result<Option<(&'a Offered, (f64, Predicted))>, ExperimentError> {
    let program = |passes: PassList| training_program(&StepConfig { passes, ..step.clone() }, Keep::OnlyTheLoss);
    let now = calibration.predict(&program(current.clone())?.program).seconds;
    let mut best: Option<(usize, f64, Predicted)> = None;
    for (index, pass) in left.iter().enumerate() {
        if !pass.needs.iter().all(|needed| current.contains(needed)) {
            continue;
        }
        let predicted = calibration.predict(&program(current.with(pass.name))?.program);
        let saving = now - predicted.seconds;
        if best.as_ref().is_none_or(|(_, most, _)| saving > *most) {
            best = Some((index, saving, predicted));
        }
    }
    Ok(best.map(|(index, _, predicted)| (left.remove(index), (now, predicted))))
}

fn try_pass(
    pass: &Offered,
    list: PassList,
    (now, predicted): &(f64, Predicted),
    standing: &mut Bench,
    bench: &mut Bench,
    patience: Patience,
) -> Result<Rung, ExperimentError> {
    bench.fastest(2)?;
    let measured = in_turns(standing, bench, patience)?;
    let seconds = bench.call_seconds(3)?;
    let surprise = surprise(&bench.program, &seconds, predicted);
    Ok(Rung {
        name: pass.name.into(),
        list,
        predicted: Some(now / predicted.seconds),
        measured,
        memory: (standing.memory.total(), bench.memory.total()),
        kernels: (standing.kernels(), bench.kernels()),
        loss_difference: 0.0,
        gradient_difference: 0.0,
        kept: false,
        surprise,
    })
}

/// Faster, or as fast within the noise and smaller.
fn helps(rung: &Rung) -> bool {
    let (before, after) = rung.memory;
    rung.measured.median > 1.005 || (rung.measured.high >= 1.0 && rung.measured.median > 0.99 && after <= before)
}

/// Both sides take turns; the speed-up of the second over the first.
fn in_turns(first: &mut Bench, second: &mut Bench, patience: Patience) -> Result<Speedup, ExperimentError> {
    let mut ratios = vec![];
    for round in 0..patience.rounds {
        // Who begins changes, so that a drift of the machine favours neither.
        let (before, after) = if round % 2 == 0 {
            let before = first.fastest(patience.steps)?;
            (before, second.fastest(patience.steps)?)
        } else {
            let after = second.fastest(patience.steps)?;
            (first.fastest(patience.steps)?, after)
        };
        ratios.push(before / after);
    }
    Ok(interval(ratios))
}

/// Median and the order statistics that hold it with at least 95%.
fn interval(mut ratios: Vec<f64>) -> Speedup {
    ratios.sort_by(f64::total_cmp);
    let count = ratios.len();
    let statistics = headroom_record::statistics::step_statistics(&ratios);
    Speedup {
        median: statistics.median.unwrap_or(1.0),
        low: statistics.ci95_low.unwrap_or(ratios.first().copied().unwrap_or(1.0)),
        high: statistics.ci95_high.unwrap_or(ratios.get(count.wrapping_sub(1)).copied().unwrap_or(1.0)),
    }
}

/// The op whose time was furthest from its prediction, where that is more than a tenth of what it was predicted to take.
fn surprise(program: &Program, seconds: &[f64], predicted: &Predicted) -> Option<Surprise> {
    let measured = by_op(program, seconds);
    let worst = measured.into_iter().map(|(op, measured_seconds)| {
        let predicted_seconds = predicted.by_op.get(op).copied().unwrap_or(0.0);
        Surprise { op, predicted_seconds, measured_seconds }
    });
    let off = |surprise: &Surprise| (surprise.measured_seconds - surprise.predicted_seconds).abs();
    let worst = worst.max_by(|left, right| off(left).total_cmp(&off(right)))?;
    (off(&worst) > 0.1 * worst.predicted_seconds).then_some(worst)
}

fn by_op(program: &Program, seconds: &[f64]) -> Vec<(&'static str, f64)> {
    let mut sums: std::collections::BTreeMap<&'static str, f64> = Default::default();
    for (call, seconds) in program.plan.calls.iter().zip(seconds) {
        *sums.entry(program.graph.node(call.node).op.name()).or_default() += seconds;
    }
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_by(|left, right| right.1.total_cmp(&left.1));
    rows
}

fn tolerance(list: &PassList) -> f64 {
    list.names().iter().filter_map(|name| offered(name)).map(|pass| pass.tolerance).fold(1e-6, f64::max)
}

fn outputs(step: &StepConfig, setting: &Setting) -> Result<Outputs, ExperimentError> {
    let (loss, gradients) = Bench::new(step, Keep::Gradients, setting)?.gradients()?;
    Ok(Outputs { loss, gradients })
}

/// Version 2, all, and what was kept, each in turns with Version 1.
fn versions(
    step: &StepConfig,
    setting: &Setting,
    patience: Patience,
    kept: &PassList,
    watcher: &mut dyn Watcher,
) -> Result<Vec<Rung>, ExperimentError> {
    let mut lists = vec![("Version 2".to_string(), PassList::version_2()), ("all passes".into(), PassList::all())];
    lists.push(("kept".into(), kept.clone()));
    let mut baseline =
        Bench::new(&StepConfig { passes: PassList::none(), ..step.clone() }, Keep::OnlyTheLoss, setting)?;
    baseline.fastest(2)?;
    let mut rungs = vec![];
    for (name, list) in lists {
        watcher.doing(&format!("measuring {name} against Version 1"));
        let mut bench = Bench::new(&StepConfig { passes: list.clone(), ..step.clone() }, Keep::OnlyTheLoss, setting)?;
        bench.fastest(2)?;
        let measured = in_turns(&mut baseline, &mut bench, patience)?;
        rungs.push(Rung {
            name,
            list,
            predicted: None,
            measured,
            memory: (baseline.memory.total(), bench.memory.total()),
            kernels: (baseline.kernels(), bench.kernels()),
            loss_difference: 0.0,
            gradient_difference: 0.0,
            kept: true,
            surprise: None,
        });
    }
    Ok(rungs)
}

/// The asked shape, and the workshop's other validation point where it is affordable.
fn validation_shapes(step: &StepConfig) -> Vec<BatchShape> {
    let other = BatchShape { batch_size: 2 * step.shape.batch_size, seq_len: 2 * step.shape.seq_len };
    vec![step.shape, other]
}

fn check_gates(
    step: &StepConfig,
    setting: &Setting,
    patience: Patience,
    kept: &PassList,
    speedup: f64,
    min_speedup: f64,
) -> Result<Vec<Gate>, ExperimentError> {
    let with = |passes: &PassList, shape: BatchShape| StepConfig { passes: passes.clone(), shape, ..step.clone() };
    let (none, shape) = (PassList::none(), step.shape);
    let mut differences = vec![];
    let mut alive = None;
    for shape in validation_shapes(step) {
        let optimised = outputs(&with(kept, shape), setting)?;
        differences.push(gates::difference(&outputs(&with(&none, shape), setting)?, &optimised));
        let parameters = optimised.gradients.len();
        alive.get_or_insert(gates::every_parameter_has_a_gradient(&optimised, parameters));
    }
    let curve =
        |passes: &PassList| Bench::new(&with(passes, shape), Keep::OnlyTheLoss, setting)?.losses(patience.curve);
    let (want, have) = (curve(&none)?, curve(kept)?);
    let bytes = || -> Result<(Vec<u32>, usize), ExperimentError> {
        let mut bench = Bench::new(&with(kept, shape), Keep::OnlyTheLoss, setting)?;
        bench.losses(3)?;
        Ok((bench.weight_bits(), bench.memory.total()))
    };
    let ((first, memory), (second, _)) = (bytes()?, bytes()?);
    let before = Bench::new(&with(&none, shape), Keep::OnlyTheLoss, setting)?.memory.total();
    let mut all = vec![
        gates::accuracy(&differences, tolerance(kept)),
        gates::loss_curve(&want, &have, CURVE_LIMIT),
        gates::determinism(&first, &second),
        gates::memory(before, memory),
        gates::throughput(speedup, min_speedup),
    ];
    all.extend(alive);
    Ok(all)
}
