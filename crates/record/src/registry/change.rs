//! Decides by confidence interval whether one run's steps are slower than another's.

use crate::statistics::{Interval, MISSED, trimmed_difference, trimmed_mean};
use serde::{Deserialize, Serialize};

/// Median of the new steps over the median of the old ones, with its 95% confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    pub ratio: f64,
    pub low: f64,
    pub high: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The whole interval lies beyond the threshold.
    Regression,
    /// The interval reaches beyond the threshold but does not lie there entirely.
    Undecided,
    NoRegression,
    /// The whole interval lies below 1.
    Faster,
}

/// Fewer steps than this do not give a meaningful interval.
pub const LEAST_STEPS: usize = 6;

/// Fewer rounds than this say nothing about their spread.
pub const LEAST_ROUNDS: usize = 3;

impl Change {
    /// From steps that were not taken together: the difference of the trimmed means of their logarithms, widened to hold
    /// the ratio of the medians. `None` with too few steps.
    pub fn of(old: &[f64], new: &[f64]) -> Option<Change> {
        if old.len() < LEAST_STEPS || new.len() < LEAST_STEPS {
            return None;
        }
        let logs = |steps: &[f64]| steps.iter().map(|seconds| seconds.max(f64::MIN_POSITIVE).ln()).collect::<Vec<_>>();
        let Interval { low, high, .. } = trimmed_difference(&logs(new), &logs(old))?.map(f64::exp);
        let ratio = median(&mut new.to_vec()) / median(&mut old.to_vec()).max(f64::MIN_POSITIVE);
        Some(Change { ratio, low: low.min(ratio), high: high.max(ratio).min(f64::MAX) })
    }

    /// From rounds in which old and new alternate: the trimmed mean of their ratios' logarithms, which a disturbed round
    /// does not move far. Whatever slows a whole round cancels out. `None` with too few rounds.
    pub fn of_turns(rounds: &[(f64, f64)]) -> Option<Change> {
        let logs: Vec<f64> = rounds.iter().map(|(old, new)| (new / old).ln()).collect();
        if logs.len() < LEAST_ROUNDS || logs.iter().any(|log| !log.is_finite()) {
            return None;
        }
        let Interval { value, low, high } = trimmed_mean(&logs, MISSED).map(f64::exp);
        Some(Change { ratio: value, low, high })
    }

    /// A `threshold` of 0.05 allows steps to grow by 5%.
    pub fn verdict(&self, threshold: f64) -> Verdict {
        match () {
            () if self.low > 1.0 + threshold => Verdict::Regression,
            () if self.high > 1.0 + threshold => Verdict::Undecided,
            () if self.high < 1.0 => Verdict::Faster,
            () => Verdict::NoRegression,
        }
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) { (values[middle - 1] + values[middle]) / 2.0 } else { values[middle] }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps around a mean, with noise of a few percent and one outlier.
    fn steps(mean: f64) -> Vec<f64> {
        let noise = |index: usize| 1.0 + 0.02 * ((index * 37 % 11) as f64 - 5.0) / 5.0;
        (0..47).map(|index| if index == 20 { 3.0 * mean } else { mean * noise(index) }).collect()
    }

    #[test]
    fn slower_steps_are_a_regression_and_equal_ones_are_none() {
        let verdict = |new: f64| Change::of(&steps(0.1), &steps(new)).unwrap().verdict(0.05);
        assert_eq!(verdict(0.1), Verdict::NoRegression);
        assert_eq!(verdict(0.103), Verdict::NoRegression);
        assert_eq!(verdict(0.115), Verdict::Regression);
        assert_eq!(verdict(0.09), Verdict::Faster);
    }

    #[test]
    fn thresholds_belong_to_the_better_verdict() {
        let verdict = |low: f64, high: f64| Change { ratio: 1.0, low, high }.verdict(0.25);
        assert_eq!(verdict(1.25, 1.5), Verdict::Undecided);
        assert_eq!(verdict(1.0, 1.25), Verdict::NoRegression);
        assert_eq!(verdict(0.5, 1.0), Verdict::NoRegression);
        assert_eq!(verdict(0.5, 0.99), Verdict::Faster);
    }

    #[test]
    fn medians_lie_between_the_two_in_the_middle() {
        assert_eq!(median(&mut [9.0, 1.0, 4.0]), 4.0);
        assert_eq!(median(&mut [9.0, 1.0, 4.0, 5.0]), 4.5);
        assert_eq!(median(&mut [2.0, 7.0]), 4.5);
    }

    #[test]
    fn an_interval_is_as_wide_as_the_noise_of_both_sides() {
        // Steps within 2% of their mean: the interval lies within that, on both sides of the ratio.
        let change = Change::of(&steps(0.1), &steps(0.12)).unwrap();
        assert!(change.low < 1.2 && change.low > 1.2 * 0.97, "{change:?}");
        assert!(change.high > 1.2 && change.high < 1.2 * 1.03, "{change:?}");
        // A side whose steps are all equal adds no spread.
        let one_side = Change::of(&[0.1; 47], &steps(0.1)).unwrap();
        assert!(one_side.high - one_side.low < change.high - change.low, "{one_side:?}");
        let exact = Change::of(&[0.1; 8], &[0.2; 8]).unwrap();
        assert!(exact.ratio == 2.0 && exact.high - exact.low < 1e-9, "{exact:?}");
    }

    #[test]
    fn steps_that_were_disturbed_do_not_widen_the_interval() {
        let (old, mut new) = (steps(0.1), steps(0.12));
        let quiet = Change::of(&old, &new).unwrap();
        new.iter_mut().step_by(12).for_each(|seconds| *seconds *= 20.0);
        let disturbed = Change::of(&old, &new).unwrap();
        assert!(disturbed.high - disturbed.low < 2.0 * (quiet.high - quiet.low), "{disturbed:?} against {quiet:?}");
        assert_eq!(disturbed.verdict(0.05), Verdict::Regression);
    }

    #[test]
    fn an_interval_across_the_threshold_is_not_decided() {
        let change = Change { ratio: 1.05, low: 0.98, high: 1.12 };
        assert_eq!(change.verdict(0.05), Verdict::Undecided);
    }

    #[test]
    fn rounds_in_turns_cancel_what_slows_both() {
        let rounds: Vec<(f64, f64)> = [1.0, 3.0, 0.7, 2.0].iter().map(|slow| (0.1 * slow, 0.11 * slow)).collect();
        let change = Change::of_turns(&rounds).unwrap();
        assert!((change.ratio - 1.1).abs() < 1e-9 && change.high - change.low < 1e-9, "{change:?}");
        assert_eq!(change.verdict(0.05), Verdict::Regression);
        let noisy = Change::of_turns(&[(0.1, 0.09), (0.1, 0.13), (0.1, 0.11)]).unwrap();
        // The logarithms of 0.9, 1.3 and 1.1, and Student's 4.303 with two degrees of freedom.
        assert!((noisy.low - 0.688).abs() < 1e-3 && (noisy.high - 1.719).abs() < 1e-3, "{noisy:?}");
        assert_eq!(noisy.verdict(0.05), Verdict::Undecided);
        assert_eq!(Change::of_turns(&rounds[..2]), None);
        assert_eq!(Change::of_turns(&[(0.0, 1.0); 4]), None);
    }

    #[test]
    fn the_interval_holds_the_ratio_and_is_the_same_every_time() {
        let change = Change::of(&steps(0.1), &steps(0.12)).unwrap();
        assert!(change.low <= change.ratio && change.ratio <= change.high, "{change:?}");
        assert!((change.ratio - 1.2).abs() < 1e-9);
        assert_eq!(Some(change), Change::of(&steps(0.1), &steps(0.12)));
        assert_eq!(Change::of(&[0.1; 5], &steps(0.1)), None);
    }
}
