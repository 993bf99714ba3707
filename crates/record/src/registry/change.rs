//! Whether one run's steps are slower than another's, by interval.

use serde::{Deserialize, Serialize};

/// The median of the new steps over that of the old ones, with its 95% interval.
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
    /// The interval reaches beyond the threshold, and does not lie there.
    Unclear,
    NoRegression,
    /// The whole interval lies below 1.
    Faster,
}

/// Fewer steps than this have no interval worth the name.
pub const LEAST_STEPS: usize = 6;

const RESAMPLES: usize = 2000;

impl Change {
    /// By resampling both sides; the same steps give the same interval. None with too few steps.
    pub fn of(old: &[f64], new: &[f64]) -> Option<Change> {
        if old.len() < LEAST_STEPS || new.len() < LEAST_STEPS {
            return None;
        }
        let mut random = Random(0x9E37_79B9_7F4A_7C15);
        let mut ratios: Vec<f64> =
            (0..RESAMPLES).map(|_| random.median_of(new) / random.median_of(old).max(f64::MIN_POSITIVE)).collect();
        ratios.sort_by(f64::total_cmp);
        let at = |share: f64| ratios[((RESAMPLES - 1) as f64 * share).round() as usize];
        let ratio = median(&mut new.to_vec()) / median(&mut old.to_vec()).max(f64::MIN_POSITIVE);
        Some(Change { ratio, low: at(0.025).min(ratio), high: at(0.975).max(ratio) })
    }

    /// `threshold` 0.05 lets steps grow by 5%.
    pub fn verdict(&self, threshold: f64) -> Verdict {
        match () {
            () if self.low > 1.0 + threshold => Verdict::Regression,
            () if self.high > 1.0 + threshold => Verdict::Unclear,
            () if self.high < 1.0 => Verdict::Faster,
            () => Verdict::NoRegression,
        }
    }
}

/// A small generator of its own: nothing here needs more than evenly spread indices.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Of as many values drawn with replacement.
    fn median_of(&mut self, values: &[f64]) -> f64 {
        let mut drawn: Vec<f64> =
            (0..values.len()).map(|_| values[(((self.next() >> 32) * values.len() as u64) >> 32) as usize]).collect();
        median(&mut drawn)
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
    fn an_interval_across_the_threshold_is_unclear() {
        let change = Change { ratio: 1.05, low: 0.98, high: 1.12 };
        assert_eq!(change.verdict(0.05), Verdict::Unclear);
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
