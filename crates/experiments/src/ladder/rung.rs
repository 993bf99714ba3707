//! One pass or list that was measured: the outcome, and where its prediction was off.

use super::forecast::Prediction;
use crate::turns::Speedup;
use headroom_engine::Program;
use headroom_graph::passes::PassList;
use std::collections::{BTreeMap, BTreeSet};

/// One pass tried on top of a list, or one list compared with another.
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
    /// Over a short curve.
    pub curve_difference: f64,
    pub verdict: Verdict,
    /// Where the prediction was off, and which op explains it.
    pub surprise: Option<Surprise>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Kept: faster by itself, beyond the noise.
    Faster,
    /// Kept: needs less memory and is not slower.
    Smaller,
    /// Kept: the list is the best with it, though the pass by itself shows no gain.
    Together,
    /// Faster than the row before it, but the rows it builds on make the list slower.
    Overtaken,
    /// Equally fast to within one or two percent.
    WithinNoise,
    /// Too noisy to decide.
    Undecided,
    Slower,
    /// Loss or gradients differ by more than the pass states.
    NotExact,
    /// Only measured: a list that is not up for a decision.
    Measured,
}

impl Verdict {
    pub fn is_kept(self) -> bool {
        matches!(self, Verdict::Faster | Verdict::Smaller | Verdict::Together)
    }

    pub fn words(self) -> &'static str {
        match self {
            Verdict::Faster => "kept: faster",
            Verdict::Smaller => "kept: less memory",
            Verdict::Together => "kept: part of the best list",
            Verdict::Overtaken => "not kept: the rows before it cost more",
            Verdict::WithinNoise => "within noise",
            Verdict::Undecided => "undecided",
            Verdict::Slower => "slower",
            Verdict::NotExact => "not exact",
            Verdict::Measured => "measured",
        }
    }
}

/// The op whose change was furthest from its prediction, in seconds per step from the fastest run of each call.
#[derive(Clone, Debug, PartialEq)]
pub struct Surprise {
    pub op: &'static str,
    /// Before and after the pass.
    pub predicted_seconds: (f64, f64),
    pub measured_seconds: (f64, f64),
    /// Savings of the whole pass, predicted and measured, as shares of the step.
    pub predicted_saving: f64,
    pub measured_saving: f64,
}

/// Accuracy of the predictions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accuracy {
    pub passes: usize,
    /// Median of |predicted - measured| saving, as a share of the step.
    pub median_error: f64,
    /// Predictions off by at most 3% of the step or 35% of the saving.
    pub within_limit: usize,
    /// Gains or losses of more than 5% of the step and beyond the noise, and how many of them were predicted with the
    /// right sign.
    pub large: usize,
    pub right_sign: usize,
}

const ERROR_OF_STEP: f64 = 0.03;
const ERROR_OF_SAVING: f64 = 0.35;
const LARGE_SAVING: f64 = 0.05;

/// Over all rungs with a prediction; `None` if there are none.
pub fn accuracy(rungs: &[Rung]) -> Option<Accuracy> {
    let savings: Vec<(f64, f64)> =
        rungs.iter().filter_map(|rung| Some((saving(rung.predicted?), saving(rung.measured.ratio)))).collect();
    let mut errors: Vec<f64> = savings.iter().map(|(predicted, measured)| (predicted - measured).abs()).collect();
    errors.sort_by(f64::total_cmp);
    let median_error = (errors.get(errors.len().wrapping_sub(1) / 2)? + errors[errors.len() / 2]) / 2.0;
    let within = |(predicted, measured): &&(f64, f64)| {
        (predicted - measured).abs() <= ERROR_OF_STEP.max(ERROR_OF_SAVING * measured.abs())
    };
    let large: Vec<(f64, f64)> = rungs
        .iter()
        .filter(|rung| !rung.measured.is_within_noise())
        .filter_map(|rung| Some((saving(rung.predicted?), saving(rung.measured.ratio))))
        .filter(|(_, measured)| measured.abs() > LARGE_SAVING)
        .collect();
    Some(Accuracy {
        passes: savings.len(),
        median_error,
        within_limit: savings.iter().filter(within).count(),
        large: large.len(),
        right_sign: large.iter().filter(|(predicted, measured)| predicted * measured > 0.0).count(),
    })
}

/// The share of the step that a speed-up saves.
fn saving(speedup: f64) -> f64 {
    1.0 - 1.0 / speedup
}

/// Judges a pass on top of those before it. `exact` refers to the list, `is_kept` to the pass.
pub(super) fn verdict(rung: &Rung, exact: bool, is_kept: bool) -> Verdict {
    let (before, after) = rung.memory;
    match rung.measured {
        _ if !exact => Verdict::NotExact,
        measured if is_kept && measured.low > 1.0 => Verdict::Faster,
        measured if is_kept && after < before && measured.ratio >= NO_SLOWER => Verdict::Smaller,
        _ if is_kept => Verdict::Together,
        measured if measured.high < 1.0 => Verdict::Slower,
        measured if measured.low > 1.0 => Verdict::Overtaken,
        measured if measured.half_width() <= KNOWN => Verdict::WithinNoise,
        _ => Verdict::Undecided,
    }
}

/// A ratio below this is a slowdown, even if the interval contains 1.
const NO_SLOWER: f64 = 0.99;

/// An interval around 1 at most this wide to either side shows that there is no relevant difference.
const KNOWN: f64 = 0.02;

/// A prediction is explained only if it is off by more than this share of the step.
const EXPLAINED: f64 = 0.01;

/// The op that explains most of a prediction's error, by its actual change compared with the predicted one. `None` if
/// the prediction is within the noise of the measurement.
pub(super) fn surprise(
    (before, before_seconds): (&Program, &[f64]),
    (after, after_seconds): (&Program, &[f64]),
    prediction: &Prediction,
    measured: &Speedup,
) -> Option<Surprise> {
    let expected = prediction.speedup();
    if (measured.low..=measured.high).contains(&expected) {
        return None;
    }
    let (predicted_saving, measured_saving) = (saving(expected), saving(measured.ratio));
    let error = predicted_saving - measured_saving;
    if error.abs() < EXPLAINED {
        return None;
    }
    let sums = |program: &Program, seconds: &[f64]| -> BTreeMap<&'static str, f64> {
        by_op(program, seconds).into_iter().collect()
    };
    let (was, is) = (sums(before, before_seconds), sums(after, after_seconds));
    let at = |sums: &BTreeMap<&'static str, f64>, op: &str| sums.get(op).copied().unwrap_or(0.0);
    let ops: BTreeSet<&'static str> = was.keys().chain(is.keys()).copied().collect();
    // An op that took longer than predicted explains a saving that fell short, and vice versa.
    let explains = |op: &&'static str| {
        let change = at(&is, op) - at(&was, op);
        let should = at(&prediction.after.by_op, op) - at(&prediction.now.by_op, op);
        (change - should) * error.signum()
    };
    let most = ops.into_iter().max_by(|left, right| explains(left).total_cmp(&explains(right)))?;
    (explains(&most) > 0.0).then(|| Surprise {
        op: most,
        predicted_seconds: (at(&prediction.now.by_op, most), at(&prediction.after.by_op, most)),
        measured_seconds: (at(&was, most), at(&is, most)),
        predicted_saving,
        measured_saving,
    })
}

/// Seconds by op, the longest first.
pub(super) fn by_op(program: &Program, seconds: &[f64]) -> Vec<(&'static str, f64)> {
    let mut sums: BTreeMap<&'static str, f64> = BTreeMap::new();
    for (call, seconds) in program.plan.calls.iter().zip(seconds) {
        *sums.entry(program.graph.node(call.node).op.name()).or_default() += seconds;
    }
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_by(|left, right| right.1.total_cmp(&left.1));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rung(predicted: f64, (low, ratio, high): (f64, f64, f64), memory: (usize, usize)) -> Rung {
        Rung {
            name: "a pass".into(),
            list: PassList::none(),
            predicted: Some(predicted),
            measured: Speedup { ratio, low, high, rounds: 8 },
            memory,
            kernels: (2, 1),
            loss_difference: 0.0,
            gradient_difference: 0.0,
            curve_difference: 0.0,
            verdict: Verdict::Measured,
            surprise: None,
        }
    }

    #[test]
    fn a_kept_pass_says_what_it_is_kept_for() {
        let verdict = |interval, memory| verdict(&rung(1.0, interval, memory), true, true);
        assert_eq!(verdict((1.01, 1.05, 1.10), (10, 12)), Verdict::Faster);
        assert_eq!(verdict((0.98, 1.00, 1.02), (10, 9)), Verdict::Smaller);
        assert_eq!(verdict((0.98, 1.00, 1.02), (10, 10)), Verdict::Together);
        assert_eq!(verdict((0.90, 0.93, 0.97), (10, 9)), Verdict::Together);
    }

    #[test]
    fn noise_that_hides_a_difference_is_told_from_no_difference() {
        let verdict = |interval| verdict(&rung(1.0, interval, (10, 9)), true, false);
        assert_eq!(verdict((0.99, 1.00, 1.01)), Verdict::WithinNoise);
        assert_eq!(verdict((0.80, 1.40, 2.30)), Verdict::Undecided);
        assert_eq!(verdict((0.90, 0.93, 0.97)), Verdict::Slower);
        assert_eq!(verdict((1.01, 1.05, 1.10)), Verdict::Overtaken);
    }

    #[test]
    fn what_is_not_exact_is_not_kept_however_fast() {
        let verdict = verdict(&rung(1.0, (2.0, 2.1, 2.2), (10, 1)), false, false);
        assert_eq!((verdict, verdict.is_kept()), (Verdict::NotExact, false));
    }

    #[test]
    fn predictions_are_judged_by_the_saving() {
        let (even, same) = ((1.0, 1.0, 1.0), (1, 1));
        // Savings of 0.20 against 0.25 (within 35% of it), 0.00 against -0.10 (wrong sign), 0.01 against 0.
        let rungs =
            [rung(1.25, (1.3, 1.0 / 0.75, 1.4), same), rung(1.0, (0.9, 1.0 / 1.1, 0.95), same), rung(1.01, even, same)];
        let found = accuracy(&rungs).unwrap();
        assert_eq!((found.passes, found.within_limit, found.large, found.right_sign), (3, 2, 2, 1));
        assert!((found.median_error - 0.05).abs() < 1e-9);
        assert_eq!(accuracy(&[]), None);
    }
}
