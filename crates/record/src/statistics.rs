//! How long a step took: median, tails, and how sure the median is.

use serde::{Deserialize, Serialize};

/// Seconds a step. A figure that too few steps cannot give is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepStatistics {
    /// Steps the figures are drawn from: warm-up is left out.
    pub steps: u64,
    pub median: Option<f64>,
    pub p10: Option<f64>,
    pub p90: Option<f64>,
    /// 95% interval of the median; at least six steps are needed for one.
    pub ci95_low: Option<f64>,
    pub ci95_high: Option<f64>,
}

/// Percentiles lie between the two nearest steps in proportion. The interval makes no assumption about the times'
/// distribution: a step is below the true median with probability 1/2, so the number of steps below it is binomial, and the
/// interval runs between the two order statistics that hold it with at least 95%.
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

/// Indices into `n` sorted values between which the median lies with at least 95%: symmetric, the narrowest such pair.
fn median_interval_ranks(n: usize) -> Option<(usize, usize)> {
    // Binomial(n, 1/2) weights relative to the middle one: the absolute ones underflow for long runs.
    let middle = n / 2;
    let mut weights = vec![1.0; n + 1];
    for k in (0..middle).rev() {
        weights[k] = weights[k + 1] * (k + 1) as f64 / (n - k) as f64;
    }
    for k in middle..n {
        weights[k + 1] = weights[k] * (n - k) as f64 / (k + 1) as f64;
    }
    let total: f64 = weights.iter().sum();
    // The value at index `low` is above the median when at most `low` values are below it.
    let mut tail = 0.0;
    let mut low = None;
    for (k, weight) in weights.iter().enumerate().take(middle) {
        tail += weight / total;
        if tail > 0.025 {
            break;
        }
        low = Some(k);
    }
    low.map(|low| (low, n - 1 - low))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // One-based ranks of the distribution-free 95% interval of a median, as tables of the sign test give them.
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
    fn too_few_steps_leave_figures_out_instead_of_making_them_up() {
        assert_eq!(step_statistics(&[]), StepStatistics::default());
        let five = step_statistics(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(five.median, Some(3.0));
        assert_eq!((five.ci95_low, five.ci95_high), (None, None));
    }
}
