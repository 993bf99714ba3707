//! Medians and their spread.

/// 10th percentile, median and 90th percentile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub p10: f64,
    pub median: f64,
    pub p90: f64,
}

/// `samples` must not be empty.
pub fn spread(samples: &[f64]) -> Spread {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    Spread { p10: quantile(&sorted, 0.1), median: quantile(&sorted, 0.5), p90: quantile(&sorted, 0.9) }
}

/// Interpolates linearly between the two nearest values of `sorted`.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let position = share * (sorted.len() - 1) as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_lies_between_the_nearest_samples() {
        let eleven: Vec<f64> = (0..=10).rev().map(f64::from).collect();
        assert_eq!(spread(&eleven), Spread { p10: 1.0, median: 5.0, p90: 9.0 });
        assert_eq!(spread(&[1.0, 2.0]).median, 1.5);
        assert_eq!(spread(&[7.0]), Spread { p10: 7.0, median: 7.0, p90: 7.0 });
    }
}
