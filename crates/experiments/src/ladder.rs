//! The ladder: lists of passes, built up in the order of their predicted saving and by leaving single passes out, run a
//! few rounds each. The most promising ones then race against Version 1, and the one with the largest proven gain is
//! kept.

mod checkpointing;
mod equals;
mod finals;
mod forecast;
mod layout;
mod points;
mod rung;
mod search;

pub use checkpointing::Checkpointing;
#[doc(hidden)]
pub use equals::proved_among_equals;
pub use layout::LayoutFacts;
pub use points::Point;
pub use rung::{Accuracy, Rung, Surprise, Verdict, accuracy};

use crate::bench::{Bench, ExperimentError, Setting, Variant, fastest_calls, program};
use crate::findings::{BaselineProfile, baseline_profile};
use crate::gates::{self, Outputs};
use crate::prediction::Calibration;
use crate::turns::{LEAST_ROUNDS, Patience, Speedup};
use crate::validation::{Curves, Validation, curve_limit, outputs, outputs_and_curve, tolerance, validate};
use finals::Finals;
use forecast::Forecasts;
use headroom_graph::cost::Rates;
use headroom_graph::passes::{OFFERED, PassList};
use headroom_record::race::RaceRecord;
use headroom_training::program::{Keep, StepConfig};
use rung::by_op;
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
    /// Time in addition to that of `patience`, for the proof on a machine that other programs use too.
    pub more_if_busy: Duration,
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
    /// The list with the largest proven gain that passes every gate; empty if none is proved.
    pub kept: PassList,
    /// Losses of the kept list's first steps, as far as its models have gone.
    pub kept_curve: Vec<f32>,
    /// A list that looked faster and was not proved, if none was.
    pub unproved: Option<(PassList, Speedup)>,
    /// Seconds of Version 1 and of the kept list, as the race counts them.
    pub raced_seconds: (f64, f64),
    pub race: RaceRecord,
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

/// Steps in the reference's loss curve; a list is compared over the steps of its warm-up, at most these.
const SHORT_CURVE: usize = 5;

/// Label of the time between operators.
pub const BETWEEN_OPERATORS: &str = "between operators";

/// Share of the total time after which each part of the climb adds no more rounds.
const SCREENED_UNTIL: f64 = 0.45;
const PROVED_UNTIL: f64 = 0.95;

/// Checkpointing gets one in this many parts of the time, in addition to it.
const SHARE_OF_CHECKPOINTING: u32 = 12;

pub fn climb(
    step: &StepConfig,
    setting: &Setting,
    wanted: &Wanted,
    watcher: &mut dyn Watcher,
) -> Result<Ladder, ExperimentError> {
    let started = Instant::now();
    let until = |share: f64| started + wanted.patience.time.mul_f64(share);
    watcher.doing("profiling Version 1");
    let climber = Climber { step, setting, lists: Lists::AsNamed };
    let mut baseline = climber.warm(&PassList::none())?;
    let mut recording = baseline.record_steps(RECORDED)?;
    let mut calibration = Calibration::default();
    let calls = fastest_calls(&recording, baseline.calls());
    calibration.learn(&baseline.program, &calls);
    recording.keep_median_step();
    let profile = baseline_profile(&baseline, &recording, wanted.rates, &step.model)?;
    let (baseline_seconds, baseline_by_op) = median_step(&baseline, &recording);

    let Selection { mut finals, mut checks, forecasts, order, screening } =
        select(&climber, wanted, started, baseline, calibration, watcher)?;
    let (kept, list, validation) = first_that_passes(&mut finals, &climber, wanted, watcher)?;
    let way = chain(&list, &order);
    finals.measure_way(&way, &screening, until(1.0), watcher)?;
    let shown = way.iter().cloned().chain([PassList::version_2(), PassList::all()]);
    let ablated = OFFERED.iter().map(|pass| PassList::all().without(pass.name));
    for list in shown.chain(ablated.filter(|_| wanted.ablation == Ablation::Yes)) {
        let at = finals.enter(&list)?;
        finals.check(at, &mut checks)?;
    }
    let tried = finals.rungs(&way, kept, &forecasts);
    let versions = finals.versions(kept, &forecasts);
    let ablation = match wanted.ablation {
        Ablation::Yes => finals.ablation(),
        Ablation::No => vec![],
    };
    let kept_curve = finals.curve(kept).to_vec();
    let (as_good, unproved, race) = (finals.as_good(kept), finals.unproved(), finals.race_record());
    let raced = |at: usize| finals.seconds(at).map_or(baseline_seconds, |seconds| seconds.value);
    let raced_seconds = (raced(0), raced(0) / finals.over_baseline(kept).ratio);
    let mut points = points::at_asked_shape(&finals, kept, step.shape);
    drop(finals);

    watcher.doing("trying activation checkpointing in turns with the kept list");
    let quick = Patience { rounds: LEAST_ROUNDS, most_rounds: 4 * LEAST_ROUNDS, ..wanted.patience };
    let short = Patience { time: wanted.patience.time / SHARE_OF_CHECKPOINTING, ..quick };
    let checkpointing = checkpointing::try_checkpointing(&climber, &list, &checks, short)?;
    watcher.doing("timing Version 1, Version 2 and the kept list at twice the batch and length");
    points.extend(points::at_larger_shape(&climber, &list, &wanted.patience, wanted.room, watcher)?);
    Ok(Ladder {
        baseline_seconds,
        baseline_steps: RECORDED,
        baseline_by_op,
        profile,
        tried,
        versions,
        ablation,
        kept: list.clone(),
        kept_curve,
        unproved,
        raced_seconds,
        race,
        as_good,
        validation,
        checkpointing,
        layout: layout::layout_of(&program(step, &Variant::of(&list), Keep::OnlyTheLoss)?.program),
        points,
    })
}

/// The race up to its proof: what may be recommended is decided here.
struct Selection<'a> {
    finals: Finals<'a>,
    checks: Checks<'a>,
    forecasts: Forecasts,
    /// Passes in the order of their predicted savings.
    order: Vec<&'static str>,
    screening: Patience,
}

/// Enters the lists, screens them, and lets the most promising ones race against Version 1.
fn select<'a>(
    climber: &'a Climber<'a>,
    wanted: &Wanted,
    started: Instant,
    baseline: Bench,
    mut calibration: Calibration,
    watcher: &mut dyn Watcher,
) -> Result<Selection<'a>, ExperimentError> {
    let until = |share: f64| started + wanted.patience.time.mul_f64(share);
    watcher.doing("probing fused kernels on one layer");
    climber.probe(&mut calibration)?;
    let mut forecasts = Forecasts::new(calibration.clone());
    let mut checks = Checks::new(climber.step, climber.setting, baseline.curve())?;
    let mut finals = Finals::new(climber, wanted.patience, wanted.min_speedup, wanted.room);
    let first = finals.enter(&PassList::none())?;
    finals.hold(first, baseline);
    finals.record(first)?;
    let order = climber.chain_by_prediction(calibration, &mut forecasts, &mut finals, watcher)?;
    finals.enter(&PassList::version_2())?;
    for list in search::all_but_one() {
        finals.enter(&list)?;
    }
    if wanted.ablation == Ablation::Yes {
        for pass in &OFFERED {
            finals.enter(&PassList::all().without(pass.name))?;
        }
    }
    let screening = Patience { rounds: SCREENED_ROUNDS, most_rounds: 2 * wanted.patience.rounds, ..wanted.patience };
    finals.screen(&screening, until(SCREENED_UNTIL), watcher)?;
    let nominated = finals.enter(&search::helpful(&order, |list| finals.screened_speed(list)))?;
    let more = if finals.is_disturbed() { wanted.more_if_busy } else { Duration::ZERO };
    finals.prove(&[nominated], &mut checks, until(PROVED_UNTIL) + more, watcher)?;
    Ok(Selection { finals, checks, forecasts, order, screening })
}

/// The proved list with the largest gain that passes every other gate too; Version 1 if there is none.
fn first_that_passes(
    finals: &mut Finals,
    climber: &Climber,
    wanted: &Wanted,
    watcher: &mut dyn Watcher,
) -> Result<(usize, PassList, Validation), ExperimentError> {
    watcher.doing("checking the gates");
    let proved = finals.proved();
    let mut validated = |at: usize| -> Result<(usize, PassList, Validation), ExperimentError> {
        finals.continue_curves(&[0, at], wanted.curve_steps)?;
        let (list, speedup) = (finals.list(at), finals.over_baseline(at));
        let variant = Variant::of(&list);
        let (step, setting) = (climber.step, climber.setting);
        let curves = Curves { steps: wanted.curve_steps, baseline: finals.curve(0), list: finals.curve(at) };
        let validation = validate(step, setting, &variant, curves, &speedup, wanted.min_speedup)?;
        Ok((at, list, validation))
    };
    for at in proved {
        let found = validated(at)?;
        if found.2.gates.iter().all(|gate| gate.passed() || gate.name == "throughput") {
            return Ok(found);
        }
        watcher.doing("a gate failed: checking the next list");
    }
    validated(0)
}

/// Least rounds of the screening, which only has to name the lists that could be the best.
const SCREENED_ROUNDS: usize = 3;

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
    lists: Lists,
}

/// The variants that lists of passes run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lists {
    AsNamed,
    /// Version 1, whatever the list is called: nothing that is proved then is true.
    AllVersion1,
}

impl Climber<'_> {
    /// The variant that runs under the name of a list.
    fn variant(&self, list: &PassList) -> Variant {
        match self.lists {
            Lists::AsNamed => Variant::of(list),
            Lists::AllVersion1 => Variant::baseline(),
        }
    }

    /// A model after its warm-up.
    fn warm(&self, list: &PassList) -> Result<Bench, ExperimentError> {
        let mut bench = Bench::new(self.step, &self.variant(list), Keep::OnlyTheLoss, self.setting)?;
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

impl Check {
    /// Version 1 against itself.
    const SAME: Check = Check { loss_difference: 0.0, gradient_difference: 0.0, curve_difference: 0.0, exact: true };
}

/// Holds the results of Version 1.
struct Checks<'a> {
    step: &'a StepConfig,
    setting: &'a Setting,
    reference: (Outputs, Vec<f32>),
}

impl<'a> Checks<'a> {
    /// `curve` are the losses of Version 1's first steps.
    fn new(step: &'a StepConfig, setting: &'a Setting, curve: &[f32]) -> Result<Checks<'a>, ExperimentError> {
        let reference = outputs_and_curve(step, &Variant::baseline(), setting, (SHORT_CURVE, curve))?;
        Ok(Checks { step, setting, reference })
    }

    /// `curve` are the losses of the list's first steps.
    fn of(&self, list: &PassList, curve: &[f32]) -> Result<Check, ExperimentError> {
        let have = outputs(self.step, &Variant::of(list), self.setting)?;
        let (loss_difference, gradient_difference) = gates::difference(&self.reference.0, &have);
        let steps = curve.len().min(self.reference.1.len());
        let curve_difference = gates::loss_curve(&self.reference.1[..steps], &curve[..steps], f64::INFINITY).figure;
        let exact = loss_difference <= tolerance(list)
            && gradient_difference <= tolerance(list)
            && curve_difference <= curve_limit(list);
        Ok(Check { loss_difference, gradient_difference, curve_difference, exact })
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
