//! Two benches that take turns, until their ratio is known well enough or the time for it is up.

use crate::bench::{Bench, ExperimentError};
use headroom_record::statistics::step_statistics;
use std::time::{Duration, Instant};

/// How long to look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patience {
    /// Rounds of every comparison: two steps of each side.
    pub rounds: usize,
    /// Rounds after which a comparison ends whatever its interval.
    pub most_rounds: usize,
    /// For all comparisons together; beyond it none gets more than `rounds`.
    pub time: Duration,
}

/// A ratio of times, and the interval that holds it with 95%.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speedup {
    pub median: f64,
    pub low: f64,
    pub high: f64,
    pub rounds: usize,
}

impl Speedup {
    /// Half of the interval, as a share of the ratio.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / (2.0 * self.median)
    }

    /// Does the interval hold 1?
    pub fn is_within_noise(&self) -> bool {
        self.low <= 1.0 && self.high >= 1.0
    }
}

/// Known well enough whatever it is.
const PRECISE: f64 = 0.01;
/// Known well enough where faster or slower is decided.
const DECIDED: f64 = 0.02;

/// Divides the time of an experiment between its comparisons: what one leaves, the next ones have.
pub struct Clock {
    patience: Patience,
    started: Instant,
    comparisons: u32,
    done: u32,
}

impl Clock {
    pub fn start(patience: Patience, comparisons: usize) -> Clock {
        Clock { patience, started: Instant::now(), comparisons: comparisons.max(1) as u32, done: 0 }
    }

    /// The speed-up of the second over the first.
    pub fn compare(&mut self, first: &mut Bench, second: &mut Bench) -> Result<Speedup, ExperimentError> {
        self.done = (self.done + 1).min(self.comparisons);
        let until = self.started + self.patience.time * self.done / self.comparisons;
        let mut ratios = vec![];
        loop {
            ratios.push(round(first, second, ratios.len())?);
            if ratios.len() < self.patience.rounds {
                continue;
            }
            let found = interval(&ratios);
            let decided = !found.is_within_noise() && found.half_width() <= DECIDED;
            let ended = ratios.len() >= self.patience.most_rounds || Instant::now() >= until;
            if found.half_width() <= PRECISE || decided || ended {
                return Ok(found);
            }
        }
    }
}

/// The better of two steps of each side. Who is outside changes, so that a drift of the machine favours neither.
fn round(first: &mut Bench, second: &mut Bench, number: usize) -> Result<f64, ExperimentError> {
    let (outer, inner) = if number.is_multiple_of(2) { (first, second) } else { (second, first) };
    let before = outer.seconds()?;
    let inside = inner.seconds()?.min(inner.seconds()?);
    let outside = before.min(outer.seconds()?);
    Ok(if number.is_multiple_of(2) { outside / inside } else { inside / outside })
}

/// Median and the order statistics that hold it with at least 95%.
fn interval(ratios: &[f64]) -> Speedup {
    let statistics = step_statistics(ratios);
    let extreme = |pick: fn(f64, f64) -> f64| ratios.iter().copied().reduce(pick).unwrap_or(1.0);
    Speedup {
        median: statistics.median.unwrap_or(1.0),
        low: statistics.ci95_low.unwrap_or_else(|| extreme(f64::min)),
        high: statistics.ci95_high.unwrap_or_else(|| extreme(f64::max)),
        rounds: ratios.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_says_whether_one_lies_in_it() {
        let even = interval(&[0.9, 0.95, 1.0, 1.02, 1.05, 1.1, 1.12, 0.93]);
        assert!(even.is_within_noise() && even.half_width() > 0.05);
        let faster = interval(&[1.30, 1.31, 1.32, 1.30, 1.29, 1.31, 1.31, 1.30]);
        assert!(!faster.is_within_noise() && faster.half_width() < DECIDED);
    }
}
