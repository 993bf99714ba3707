//! Medians, spread, and the interval of a ratio of medians.

/// 10th percentile, median and 90th percentile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub p10: f64,
    pub median: f64,
    pub p90: f64,
}

/// A ratio of medians with its 95% interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// `samples` must not be empty.
pub fn spread(samples: &[f64]) -> Spread {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    Spread { p10: quantile(&sorted, 0.1), median: quantile(&sorted, 0.5), p90: quantile(&sorted, 0.9) }
}

/// `median(above) / median(below)` with a bootstrap interval over rounds. Both sides of a round are drawn together:
/// they ran next to each other, so a slow moment of the machine hit both.
pub fn ratio_of_medians(above: &[f64], below: &[f64]) -> Ratio {
    const RESAMPLES: usize = 4000;
    let rounds = above.len().min(below.len());
    let mut random = SplitMix { state: 42 };
    let mut ratios: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let drawn: Vec<usize> = (0..rounds).map(|_| random.below(rounds)).collect();
            let median_of = |side: &[f64]| spread(&drawn.iter().map(|round| side[*round]).collect::<Vec<_>>()).median;
            median_of(above) / median_of(below)
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    Ratio {
        value: spread(above).median / spread(below).median,
        low: quantile(&ratios, 0.025),
        high: quantile(&ratios, 0.975),
    }
}

/// Interpolates linearly between the two nearest values of `sorted`.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let position = share * (sorted.len() - 1) as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

/// A counter passed through a mixing function: the same draws in every run.
struct SplitMix {
    state: u64,
}

impl SplitMix {
    /// Uniform enough for a `bound` far below 2³².
    fn below(&mut self, bound: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        (((mixed >> 32) * bound as u64) >> 32) as usize
    }
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

    #[test]
    fn samples_without_noise_give_an_interval_without_width() {
        let ratio = ratio_of_medians(&[3.0; 9], &[2.0; 9]);
        assert_eq!(ratio, Ratio { value: 1.5, low: 1.5, high: 1.5 });
    }

    #[test]
    fn noise_that_hits_both_sides_of_a_round_does_not_widen_the_interval() {
        let below: Vec<f64> = (1..=15).map(f64::from).collect();
        let above: Vec<f64> = below.iter().map(|time| 2.0 * time).collect();
        let ratio = ratio_of_medians(&above, &below);
        assert_eq!(ratio, Ratio { value: 2.0, low: 2.0, high: 2.0 });
    }

    #[test]
    fn the_interval_holds_the_ratio_widens_with_noise_and_is_the_same_every_time() {
        let above = [10.0, 14.0, 11.0, 9.0, 13.0, 10.5, 12.0];
        let below = [5.0, 4.0, 6.0, 5.5, 4.5, 5.2, 4.8];
        let ratio = ratio_of_medians(&above, &below);
        assert!(ratio.low < ratio.value && ratio.value < ratio.high, "{ratio:?}");
        assert!(ratio.low >= 9.0 / 6.0 && ratio.high <= 14.0 / 4.0, "{ratio:?}");
        assert_eq!(ratio, ratio_of_medians(&above, &below));
    }

    #[test]
    fn draws_reach_every_round_about_equally_often() {
        let mut random = SplitMix { state: 42 };
        let mut counts = [0; 5];
        (0..5000).for_each(|_| counts[random.below(5)] += 1);
        assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
    }
}
