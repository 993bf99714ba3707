//! The ladder: searches for passes forwards, best predicted first, and backwards, by leaving passes out. The resulting
//! lists and the versions then race against each other, and the fastest is kept.

mod checkpointing;
mod finals;
mod forecast;
mod layout;
mod points;
mod rung;
mod search;

pub use checkpointing::Checkpointing;
pub use layout::LayoutFacts;
pub use points::Point;
pub use rung::{Accuracy, Rung, Surprise, Verdict, accuracy};

use crate::bench::{Bench, ExperimentError, Setting, Variant, fastest_calls, program};
use crate::findings::{BaselineProfile, baseline_profile};
use crate::gates::{self, Outputs};
use crate::prediction::Calibration;
use crate::turns::{Patience, Speedup};
use crate::validation::{Validation, curve_limit, outputs_and_curve, tolerance, validate};
use finals::Finals;
use forecast::Forecasts;
use headroom_graph::cost::Rates;
use headroom_graph::passes::{OFFERED, PassList};
use headroom_training::program::{Keep, StepConfig};
use rung::by_op;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Settings of a climb.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    pub patience: Patience,
    /// Steps of the final list's loss curve.
    pub curve_steps: usize,
    /// Minimum speed-up of the kept list, if requested.
    pub min_speedup: Option<f64>,
    pub ablation: Ablation,
    /// The machine's peaks.
    pub rates: Rates,
    /// Bytes that all models together may take, if known.
    pub room: Option<usize>,
}

/// Whether to measure, for each pass, all passes but that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ablation {
    No,
    Yes,
}

pub struct Ladder {
    /// Median of Version 1's recorded steps. Operators and findings are those of that very step, so they add up to it.
    pub baseline_seconds: f64,
    /// Number of steps behind the median.
    pub baseline_steps: usize,
    /// Seconds by operator; the time between operators comes last.
    pub baseline_by_op: Vec<(&'static str, f64)>,
    pub profile: BaselineProfile,
    /// Every pass, each on top of those before it. Those of the kept list come first; their speed-ups multiply to its
    /// own.
    pub tried: Vec<Rung>,
    /// Version 2, all passes, and the kept list, against Version 1.
    pub versions: Vec<Rung>,
    /// All passes against all but one.
    pub ablation: Vec<Rung>,
    pub kept: PassList,
    /// Lists that may be as fast as the kept one, and their speed relative to it.
    pub as_good: Vec<(PassList, Speedup)>,
    pub validation: Validation,
    /// Activation checkpointing on top of the kept list: Phase 3 of the workshop's roadmap.
    pub checkpointing: Checkpointing,
    /// Memory layout, which is fixed.
    pub layout: LayoutFacts,
    /// Version 1, Version 2 and the kept list at two shapes.
    pub points: Vec<Point>,
}

/// Receives progress while the ladder is climbed.
pub trait Watcher {
    fn doing(&mut self, what: &str);
}

/// Recorded steps of Version 1: an odd number, so that one of them is the median.
const RECORDED: usize = 9;

/// Steps in the loss curve of every list; the kept one's is longer.
const SHORT_CURVE: usize = 5;

/// Label of the time between operators.
pub const BETWEEN_OPERATORS: &str = "between operators";

/// Share of the total time after which each part of the climb adds no more rounds.
const FORWARD_UNTIL: f64 = 0.25;
const BACKWARD_UNTIL: f64 = 0.5;
const FINALS_UNTIL: f64 = 0.95;

/// Checkpointing gets one in this many parts of the time, in addition to it.
const SHARE_OF_CHECKPOINTING: u32 = 12;

pub fn climb(
    step: &StepConfig,
    setting: &Setting,
    wanted: &Wanted,
    watcher: &mut dyn Watcher,
) -> Result<Ladder, ExperimentError> {
    watcher.doing("profiling Version 1");
    let climber = Climber { step, setting };
    let mut baseline = climber.warm(&PassList::none())?;
    let mut recording = baseline.record_steps(RECORDED)?;
    let mut calibration = Calibration::default();
    calibration.learn(&baseline.program, &fastest_calls(&recording, baseline.calls()));
    recording.keep_median_step();
    let profile = baseline_profile(&baseline, &recording, wanted.rates, &step.model)?;
    let (baseline_seconds, baseline_by_op) = median_step(&baseline, &recording);

    watcher.doing("probing fused kernels on one layer");
    climber.probe(&mut calibration)?;
    let mut forecasts = Forecasts::new(calibration.clone());

    let started = Instant::now();
    let until = |share: f64| started + wanted.patience.time.mul_f64(share);
    let mut checks = Checks::new(step, setting)?;
    let quick = Patience { rounds: SEARCHED_ROUNDS, most_rounds: 4 * SEARCHED_ROUNDS, ..wanted.patience };
    let forward =
        climber.forwards(calibration, baseline, &mut forecasts, &mut checks, &quick, until(FORWARD_UNTIL), watcher)?;
    let backward = climber.backwards(&quick, wanted.room, until(BACKWARD_UNTIL), watcher)?;

    let order = search::order(&forward, &backward);
    let mut finals = Finals::new(&climber, wanted.patience, wanted.min_speedup, wanted.room);
    let everything = chain(&PassList::all(), &order);
    let mut lists = vec![PassList::none()];
    lists.extend(everything);
    lists.push(PassList::version_2());
    lists.extend(search::left_out(&backward));
    if wanted.ablation == Ablation::Yes {
        lists.extend(OFFERED.iter().map(|pass| PassList::all().without(pass.name)));
    }
    for list in lists {
        finals.add(list, &mut checks)?;
    }
    finals.race_all(until(FINALS_UNTIL), watcher)?;
    let kept = finals.settle(&order, &mut checks, until(1.0), watcher)?;
    let way = chain(&finals.list(kept), &order);
    let tried = finals.rungs(&way, kept, &forecasts);
    let versions = finals.versions(kept, &forecasts);
    let ablation = match wanted.ablation {
        Ablation::Yes => finals.ablation(),
        Ablation::No => vec![],
    };
    let (list, speedup, as_good) = (finals.list(kept), finals.over_baseline(kept), finals.as_good(kept));
    let mut points = points::at_asked_shape(&finals, kept, step.shape);
    drop(finals);

    watcher.doing("trying activation checkpointing in turns with the kept list");
    let short = Patience { time: wanted.patience.time / SHARE_OF_CHECKPOINTING, ..quick };
    let checkpointing = checkpointing::try_checkpointing(&climber, &list, &checks, short)?;
    watcher.doing("timing Version 1, Version 2 and the kept list at twice the batch and length");
    points.extend(points::at_larger_shape(&climber, &list, &wanted.patience, wanted.room, watcher)?);

    watcher.doing("checking the gates");
    let validation = validate(step, setting, &Variant::of(&list), wanted.curve_steps, &speedup, wanted.min_speedup)?;
    Ok(Ladder {
        baseline_seconds,
        baseline_steps: RECORDED,
        baseline_by_op,
        profile,
        tried,
        versions,
        ablation,
        kept: list.clone(),
        as_good,
        validation,
        checkpointing,
        layout: layout::layout_of(&program(step, &Variant::of(&list), Keep::OnlyTheLoss)?.program),
        points,
    })
}

/// Rounds per comparison of the search, which only has to nominate lists for the race.
const SEARCHED_ROUNDS: usize = 4;

/// The one recorded step: its seconds, and those of its operators, longest first, with the time between them last.
fn median_step(
    baseline: &Bench,
    recording: &headroom_training::recording::Recording,
) -> (f64, Vec<(&'static str, f64)>) {
    let wall = recording.steps().iter().map(|step| step.end.saturating_sub(step.start)).sum::<Duration>().as_secs_f64();
    let mut rows = by_op(&baseline.program, &fastest_calls(recording, baseline.calls()));
    let between = wall - rows.iter().map(|(_, seconds)| seconds).sum::<f64>();
    if between > 0.0 {
        rows.push((BETWEEN_OPERATORS, between));
    }
    (wall, rows)
}

struct Climber<'a> {
    step: &'a StepConfig,
    setting: &'a Setting,
}

impl Climber<'_> {
    fn warm(&self, list: &PassList) -> Result<Bench, ExperimentError> {
        let mut bench = Bench::new(self.step, &Variant::of(list), Keep::OnlyTheLoss, self.setting)?;
        bench.losses(bench.warm_up_steps())?;
        Ok(bench)
    }
}

/// How far a list's results are from those of Version 1.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Check {
    loss_difference: f64,
    gradient_difference: f64,
    /// Over a short curve.
    curve_difference: f64,
    /// Within the tolerance that its passes state.
    exact: bool,
}

/// Checks every list once.
struct Checks<'a> {
    step: &'a StepConfig,
    setting: &'a Setting,
    reference: (Outputs, Vec<f32>),
    known: BTreeMap<String, Check>,
}

impl<'a> Checks<'a> {
    fn new(step: &'a StepConfig, setting: &'a Setting) -> Result<Checks<'a>, ExperimentError> {
        let reference = outputs_and_curve(step, &Variant::baseline(), setting, SHORT_CURVE)?;
        let same = Check { loss_difference: 0.0, gradient_difference: 0.0, curve_difference: 0.0, exact: true };
        Ok(Checks { step, setting, reference, known: [(PassList::none().label(), same)].into() })
    }

    fn of(&mut self, list: &PassList) -> Result<Check, ExperimentError> {
        if let Some(known) = self.known.get(&list.label()) {
            return Ok(*known);
        }
        let (have, curve) = outputs_and_curve(self.step, &Variant::of(list), self.setting, SHORT_CURVE)?;
        let (loss_difference, gradient_difference) = gates::difference(&self.reference.0, &have);
        let curve_difference = gates::loss_curve(&self.reference.1, &curve, f64::INFINITY).figure;
        let exact = loss_difference <= tolerance(list)
            && gradient_difference <= tolerance(list)
            && curve_difference <= curve_limit(list);
        let check = Check { loss_difference, gradient_difference, curve_difference, exact };
        self.known.insert(list.label(), check);
        Ok(check)
    }
}

/// Lists from one pass to all of them, adding one at a time: first those of `list`, in this order, then the others.
fn chain(list: &PassList, order: &[&'static str]) -> Vec<PassList> {
    let (own, others): (Vec<&str>, Vec<&str>) = order.iter().copied().partition(|name| list.contains(name));
    let mut so_far = PassList::none();
    own.into_iter()
        .chain(others)
        .map(|name| {
            so_far = so_far.with(name);
            so_far.clone()
        })
        .collect()
}
