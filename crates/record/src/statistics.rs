//! Statistics of step times: median, tails and the median's interval; ratios with their intervals.

use serde::{Deserialize, Serialize};
use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, StudentsT};

/// Seconds per step. `None` if there are too few steps for a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepStatistics {
    /// Steps behind the figures, warm-up excluded.
    pub steps: u64,
    pub median: Option<f64>,
    pub p10: Option<f64>,
    pub p90: Option<f64>,
    /// 95% confidence interval of the median; needs at least six steps. `None` if the times are predicted.
    pub ci95_low: Option<f64>,
    pub ci95_high: Option<f64>,
}

impl StepStatistics {
    /// For predicted steps, which are all alike because nothing varies: that is not an interval of zero width.
    pub fn without_interval(self) -> StepStatistics {
        StepStatistics { ci95_low: None, ci95_high: None, ..self }
    }

    /// Half of the median's 95% interval as a share of the median.
    pub fn relative_half_width(&self) -> Option<f64> {
        let (median, low, high) = (self.median?, self.ci95_low?, self.ci95_high?);
        (median > 0.0).then(|| (high - low) / 2.0 / median)
    }
}

/// Percentiles interpolate linearly between the two nearest steps. The interval is distribution-free: a step is below
/// the true median with probability 1/2, so the number of steps below it is binomial, and the interval runs between the
/// two order statistics that contain it with at least 95%.
pub fn step_statistics(step_seconds: &[f64]) -> StepStatistics {
    let mut sorted = step_seconds.to_vec();
    sorted.sort_by(f64::total_cmp);
    let interval = median_interval_ranks(sorted.len()).map(|(low, high)| (sorted[low], sorted[high]));
    StepStatistics {
        steps: sorted.len() as u64,
        median: percentile(&sorted, 0.5),
        p10: percentile(&sorted, 0.1),
        p90: percentile(&sorted, 0.9),
        ci95_low: interval.map(|(low, _)| low),
        ci95_high: interval.map(|(_, high)| high),
    }
}

fn percentile(sorted: &[f64], fraction: f64) -> Option<f64> {
    let place = fraction * sorted.len().checked_sub(1)? as f64;
    let (below, share) = (place.floor() as usize, place.fract());
    let above = (below + 1).min(sorted.len() - 1);
    Some(sorted[below] + share * (sorted[above] - sorted[below]))
}

/// Indices into `n` sorted values between which the median lies with at least 95%: the narrowest symmetric pair.
fn median_interval_ranks(n: usize) -> Option<(usize, usize)> {
    // The value at index `low` is above the median if at most `low` of the values are below it.
    let below = Binomial::new(0.5, n as u64).ok()?;
    let first = below.inverse_cdf(MISSED / 2.0);
    let low = if below.cdf(first) <= MISSED / 2.0 { first } else { first.checked_sub(1)? } as usize;
    (low < n / 2).then(|| (low, n - 1 - low))
}

/// Probability that an interval misses its true value.
pub const MISSED: f64 = 0.05;

/// A figure and its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Interval {
    pub fn holds(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    pub fn map(self, of: impl Fn(f64) -> f64) -> Interval {
        Interval { value: of(self.value), low: of(self.low), high: of(self.high) }
    }
}

/// The median of one sample over that of another, with its 95% interval; `None` if either has fewer than six values.
///
/// Each median has its own interval, and the two are combined on a log scale: the distance to either end is the root of
/// the sum of squares of the corresponding distances (MOVER, the method of variance estimates recovery).
pub fn ratio_of_medians(above: &[f64], below: &[f64]) -> Option<Interval> {
    ratio_of(&step_statistics(above), &step_statistics(below))
}

/// The same from the stored statistics of the two samples.
pub fn ratio_of(above: &StepStatistics, below: &StepStatistics) -> Option<Interval> {
    let logs = |of: &StepStatistics| -> Option<Interval> {
        let found = Interval { value: of.median?, low: of.ci95_low?, high: of.ci95_high? };
        (found.low > 0.0).then(|| found.map(f64::ln))
    };
    let (above, below) = (logs(above)?, logs(below)?);
    let value = above.value - below.value;
    let low = value - (above.value - above.low).hypot(below.high - below.value);
    let high = value + (above.high - above.value).hypot(below.value - below.low);
    Some(Interval { value, low, high }.map(f64::exp))
}

/// The mean of the middle 60% of the values, with an interval that misses it with probability `missed`: Student's t
/// with the winsorized variance (Tukey and McLaughlin). A few disturbed values move neither far.
pub fn trimmed_mean(values: &[f64], missed: f64) -> Interval {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (count, cut) = (sorted.len(), sorted.len() / 5);
    let middle = &sorted[cut..count - cut];
    let value = middle.iter().sum::<f64>() / middle.len().max(1) as f64;
    if middle.len() < 2 {
        return Interval { value, low: f64::NEG_INFINITY, high: f64::INFINITY };
    }
    let drawn_in = |x: &f64| x.clamp(middle[0], middle[middle.len() - 1]);
    let mean = sorted.iter().map(drawn_in).sum::<f64>() / count as f64;
    let squares: f64 = sorted.iter().map(|x| (drawn_in(x) - mean).powi(2)).sum();
    let left = middle.len() as f64;
    let half = student_quantile(1.0 - missed / 2.0, left - 1.0) * (squares / (left * (left - 1.0))).sqrt();
    Interval { value, low: value - half, high: value + half }
}

/// The difference of the trimmed means of two samples that were not taken together, with its 95% interval; `None` if
/// either has fewer than two values. The distance to either end is the root of the sum of squares of the two distances.
pub fn trimmed_difference(of: &[f64], less: &[f64]) -> Option<Interval> {
    let (own, other) = (trimmed_mean(of, MISSED), trimmed_mean(less, MISSED));
    let value = own.value - other.value;
    let low = value - (own.value - own.low).hypot(other.high - other.value);
    let high = value + (own.high - own.value).hypot(other.value - other.low);
    (low.is_finite() && high.is_finite()).then_some(Interval { value, low, high })
}

/// A known lower bound on the noise, whatever a few values say: the standard deviation, and the degrees of freedom it
/// is known with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KnownNoise {
    pub deviation: f64,
    pub freedom: f64,
}

/// The difference of two means. The variance is pooled over `all` groups and is at least the known noise. A group that
/// scatters more uses its own variance, and a single value uses that of the group it is compared with.
pub fn pooled_difference(of: &[f64], less: &[f64], all: &[&[f64]], known: KnownNoise, missed: f64) -> Interval {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let value = mean(of) - mean(less);
    let squares = |values: &[f64]| values.iter().map(|x| (x - mean(values)).powi(2)).sum::<f64>();
    let own = |values: &[f64]| (values.len() > 1).then(|| squares(values) / (values.len() - 1) as f64);
    let freedom = all.iter().map(|values| values.len().saturating_sub(1)).sum::<usize>() as f64;
    if freedom + known.freedom == 0.0 || of.is_empty() || less.is_empty() {
        return Interval { value, low: f64::NEG_INFINITY, high: f64::INFINITY };
    }
    let scatter: f64 = all.iter().filter(|values| !values.is_empty()).map(|values| squares(values)).sum();
    let least = known.deviation.powi(2).max(if freedom > 0.0 { scatter / freedom } else { 0.0 });
    let error = |values: &[f64], other: &[f64]| {
        let variance = own(values).or(own(other)).unwrap_or(0.0).max(least);
        variance / values.len() as f64
    };
    let half =
        student_quantile(1.0 - missed / 2.0, freedom + known.freedom) * (error(of, less) + error(less, of)).sqrt();
    Interval { value, low: value - half, high: value + half }
}

/// Quantile of Student's t distribution.
pub fn student_quantile(share: f64, freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |student| student.inverse_cdf(share))
}

/// Two-sided tail probability of Student's t distribution beyond `t`.
pub fn student_beyond(t: f64, freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(1.0, |student| 2.0 * student.sf(t.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: KnownNoise = KnownNoise { deviation: 0.0, freedom: 0.0 };

    #[test]
    fn percentiles_lie_between_the_nearest_steps() {
        let statistics = step_statistics(&[5.0, 1.0, 4.0, 2.0, 3.0]);
        assert_eq!(statistics.median, Some(3.0));
        assert_eq!(statistics.p10, Some(1.4));
        assert_eq!(statistics.p90, Some(4.6));
        assert_eq!(step_statistics(&[1.0, 2.0]).median, Some(1.5));
        assert_eq!(step_statistics(&[7.0]).p90, Some(7.0));
    }

    #[test]
    fn the_interval_of_the_median_has_the_ranks_of_the_published_tables() {
        // One-based ranks of the distribution-free 95% interval of a median, from tables of the sign test.
        for (n, ranks) in
            [(6, (1, 6)), (8, (1, 8)), (9, (2, 8)), (10, (2, 9)), (25, (8, 18)), (50, (18, 33)), (100, (40, 61))]
        {
            let (low, high) = median_interval_ranks(n).unwrap();
            assert_eq!((low + 1, high + 1), ranks, "n = {n}");
        }
    }

    #[test]
    fn long_runs_have_an_interval_near_the_normal_approximation() {
        let n = 1_000_000;
        let (low, _) = median_interval_ranks(n).unwrap();
        let normal = n as f64 / 2.0 - 1.96 * (n as f64).sqrt() / 2.0;
        assert!((low as f64 - normal).abs() < 3.0, "{low} against {normal}");
    }

    #[test]
    fn students_quantiles_are_those_of_the_published_tables() {
        for (freedom, wanted) in [(1.0, 12.706), (2.0, 4.303), (4.0, 2.776), (9.0, 2.262), (30.0, 2.042)] {
            let found = student_quantile(0.975, freedom);
            assert!((found - wanted).abs() < 6e-4, "{freedom}: {found}");
            assert!((student_beyond(found, freedom) - 0.05).abs() < 1e-9);
        }
        assert!((student_quantile(0.995, 4.0) - 4.604).abs() < 6e-4);
    }

    #[test]
    fn a_ratio_of_medians_has_an_interval_that_says_when_it_is_noise() {
        let steady: Vec<f64> = (0..20).map(|at| 1.0 + 0.001 * f64::from(at)).collect();
        let slower: Vec<f64> = steady.iter().map(|x| 1.5 * x).collect();
        let found = ratio_of_medians(&slower, &steady).unwrap();
        assert!((found.value - 1.5).abs() < 1e-9 && found.low > 1.48 && found.high < 1.52, "{found:?}");
        // Eight steps each, between 1 and 2 seconds: a ratio of 1.5 means nothing.
        let noisy = [1.0, 1.9, 1.1, 2.0, 1.2, 1.0, 1.3, 1.8];
        let other = [1.9, 1.0, 2.0, 1.8, 1.9, 1.1, 1.9, 1.2];
        let found = ratio_of_medians(&other, &noisy).unwrap();
        assert!(found.value > 1.4 && found.holds(1.0), "{found:?}");
        assert_eq!(ratio_of_medians(&noisy[..5], &other), None);
    }

    #[test]
    fn samples_that_scatter_alike_lend_each_other_their_scatter() {
        let (one, other, third) = ([1.0, 1.2], [2.0, 2.2], [5.0, 5.2, 5.1, 5.3]);
        let alone = pooled_difference(&other, &one, &[&one, &other], UNKNOWN, 0.05);
        let pooled = pooled_difference(&other, &one, &[&one, &other, &third], UNKNOWN, 0.05);
        // By hand: squares 0.02 + 0.02, two degrees of freedom, t 4.303. With the third group, five degrees, t 2.571
        // and a pooled variance of 0.018, although the two groups themselves have 0.02.
        assert!(
            (alone.value - 1.0).abs() < 1e-9 && (alone.high - 1.0 - 4.303 * 0.02f64.sqrt()).abs() < 1e-3,
            "{alone:?}"
        );
        assert!((pooled.high - 1.0 - 2.571 * 0.02f64.sqrt()).abs() < 1e-3, "{pooled:?}");
        assert_eq!(pooled_difference(&[1.0], &[2.0], &[&[1.0], &[2.0]], UNKNOWN, 0.05).high, f64::INFINITY);
        // By hand: variance 0.01 of four degrees, t 2.776.
        let known = KnownNoise { deviation: 0.1, freedom: 4.0 };
        let found = pooled_difference(&[2.0], &[1.0], &[&[1.0], &[2.0]], known, 0.05);
        assert!((found.high - 1.0 - 2.776 * 0.02f64.sqrt()).abs() < 1e-3, "{found:?}");
    }

    #[test]
    fn known_noise_is_a_floor_and_a_group_that_scatters_more_keeps_its_own() {
        let known = KnownNoise { deviation: 0.1, freedom: 4.0 };
        let half = |of: &[f64], less: &[f64], all: &[&[f64]]| {
            let found = pooled_difference(of, less, all, known, 0.05);
            (found.high - found.low) / 2.0
        };
        // Values that agree: the noise floor remains. By hand: t with nine degrees is 2.262.
        let (steady, wide) = ([1.0; 6], [3.0, 4.0]);
        let found = half(&[2.0], &steady, &[&steady, &[2.0]]);
        assert!((found - 2.262 * 0.1 * (7.0f64 / 6.0).sqrt()).abs() < 1e-3, "{found}");
        // Values that do not agree: neither the known noise nor the other groups lower a variance of 0.5. t with ten
        // degrees is 2.228.
        let found = half(&wide, &steady, &[&steady, &wide]);
        let pooled: f64 = 0.5 / 6.0;
        assert!((found - 2.228 * (0.5f64 / 2.0 + pooled / 6.0).sqrt()).abs() < 1e-3, "{found}");
        // A single value gets the scatter of the group it is compared with.
        assert!(half(&[9.0], &wide, &[&wide, &[9.0]]) > 2.5 * (0.5f64 * 1.5).sqrt());
    }

    #[test]
    fn a_trimmed_mean_is_moved_by_no_single_value() {
        let mut values: Vec<f64> = (0..15).map(|at| 1.0 + 0.01 * f64::from(at % 5)).collect();
        let before = trimmed_mean(&values, 0.05);
        assert!((before.value - 1.02).abs() < 1e-9 && before.holds(1.02), "{before:?}");
        values[3] = 50.0;
        let after = trimmed_mean(&values, 0.05);
        assert!((after.value - before.value).abs() < 0.01 && after.high < 1.05, "{after:?}");
        assert!(trimmed_mean(&values, 0.01).high > after.high);
        assert_eq!(trimmed_mean(&[1.0], 0.05).high, f64::INFINITY);
    }

    #[test]
    fn a_difference_of_trimmed_means_is_as_unsure_as_both_together() {
        let (of, less) = ([3.0, 3.1, 2.9, 3.0, 3.2], [1.0, 1.3, 0.7, 1.1, 0.9]);
        let found = trimmed_difference(&of, &less).unwrap();
        let half = |values: &[f64]| {
            let ends = trimmed_mean(values, MISSED);
            (ends.high - ends.low) / 2.0
        };
        assert!((found.value - (trimmed_mean(&of, MISSED).value - 1.0)).abs() < 1e-9, "{found:?}");
        assert!((found.high - found.value - half(&of).hypot(half(&less))).abs() < 1e-9, "{found:?}");
        assert!((found.value - found.low - (found.high - found.value)).abs() < 1e-9, "{found:?}");
        assert_eq!(trimmed_difference(&[1.0], &less), None);
        // Counts that never vary leave no doubt.
        let exact = trimmed_difference(&[4.0; 6], &[5.0; 6]).unwrap();
        assert_eq!((exact.low, exact.value, exact.high), (-1.0, -1.0, -1.0));
    }

    #[test]
    fn an_intervals_half_is_a_share_of_its_median() {
        let statistics = |median: f64| StepStatistics {
            median: Some(median),
            ci95_low: Some(3.0),
            ci95_high: Some(6.0),
            ..StepStatistics::default()
        };
        assert_eq!(statistics(4.0).relative_half_width(), Some(0.375));
        assert_eq!(statistics(0.0).relative_half_width(), None);
        assert_eq!(StepStatistics { ci95_low: None, ..statistics(4.0) }.relative_half_width(), None);
        let interval = Interval { value: 2.0, low: 1.0, high: 3.0 };
        assert!(interval.holds(1.0) && interval.holds(3.0) && !interval.holds(0.9) && !interval.holds(3.1));
    }

    #[test]
    fn ratios_and_trimmed_means_are_those_by_hand() {
        // Logarithms of 2, 1.6 and 2.5 over those of 1, 0.5 and 4.
        let of = |median, low, high| StepStatistics {
            median: Some(median),
            ci95_low: Some(low),
            ci95_high: Some(high),
            ..StepStatistics::default()
        };
        let found = ratio_of(&of(2.0, 1.6, 2.5), &of(1.0, 0.5, 4.0)).unwrap();
        let low = 2.0f64.ln() - ((2.0f64 / 1.6).ln().powi(2) + 4.0f64.ln().powi(2)).sqrt();
        let high = 2.0f64.ln() + (1.25f64.ln().powi(2) + 2.0f64.ln().powi(2)).sqrt();
        assert!((found.value - 2.0).abs() < 1e-12);
        assert!((found.low - low.exp()).abs() < 1e-12 && (found.high - high.exp()).abs() < 1e-12, "{found:?}");
        assert_eq!(ratio_of(&of(2.0, 0.0, 2.5), &of(1.0, 0.5, 4.0)), None);
        // Ten values: two are trimmed at either end. Winsorized, 1, 1, 1, 2, 3, 4, 5, 6, 6, 6 lie around 3.5 with a sum
        // of squares of 42.5.
        let values = [0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 9.0, 99.0];
        let found = trimmed_mean(&values, 0.05);
        let half = 2.5706 * (42.5f64 / (6.0 * 5.0)).sqrt();
        assert!((found.value - 3.5).abs() < 1e-12 && (found.high - 3.5 - half).abs() < 1e-3, "{found:?}");
        assert!((found.low - 3.5 + half).abs() < 1e-3, "{found:?}");
    }

    #[test]
    fn too_few_steps_leave_figures_out_instead_of_making_them_up() {
        assert_eq!(step_statistics(&[]), StepStatistics::default());
        let five = step_statistics(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(five.median, Some(3.0));
        assert_eq!((five.ci95_low, five.ci95_high), (None, None));
    }
}
