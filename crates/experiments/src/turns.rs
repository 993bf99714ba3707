//! Benches that alternate until their ratios are known well enough or time is up.
//!
//! A look at the figures may end the measurement, and looking repeatedly until the answer suits gives a wrong answer
//! more often than one time in twenty. So the number of looks is fixed in advance, the error probability of an interval
//! is divided by it, and every reported interval holds with 95% however the measurement ended
//! ([0022](../../../docs/decisions/0022-one-race-decides.md)).

use crate::bench::{Bench, ExperimentError};
use headroom_record::statistics::{Interval, MISSED, trimmed_mean};
use std::time::{Duration, Instant};

/// How long to measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patience {
    /// Rounds before the first look; the number doubles before each later look.
    pub rounds: usize,
    /// Rounds after which a comparison ends, whatever its interval.
    pub most_rounds: usize,
    /// Time for all comparisons together; beyond it none gets more than [`LEAST_ROUNDS`].
    pub time: Duration,
}

/// Fewer rounds give no interval.
pub const LEAST_ROUNDS: usize = 4;

impl Patience {
    /// Number of possible looks: one before each doubling, and one more if the clock ends it.
    pub fn looks(&self) -> u32 {
        (self.most_rounds / self.rounds.max(1)).max(1).ilog2() + 2
    }
}

/// A ratio of times with its 95% confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speedup {
    pub ratio: f64,
    pub low: f64,
    pub high: f64,
    pub rounds: usize,
}

impl Speedup {
    /// Speed-up of a list over itself.
    pub fn none(rounds: usize) -> Speedup {
        Speedup { ratio: 1.0, low: 1.0, high: 1.0, rounds }
    }

    /// Half the width of the interval, relative to the ratio.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / (2.0 * self.ratio)
    }

    /// Whether the interval contains 1.
    pub fn is_within_noise(&self) -> bool {
        self.low <= 1.0 && self.high >= 1.0
    }

    /// Whether it is known well enough: faster or slower beyond the noise, or equally fast to within one percent.
    pub fn stands(&self) -> bool {
        self.half_width() <= PRECISE || !self.is_within_noise() && self.half_width() <= DECIDED
    }
}

/// Precise enough whatever the result.
const PRECISE: f64 = 0.01;
/// Precise enough if faster or slower is decided.
const DECIDED: f64 = 0.02;

/// Takes turns in a race.
pub trait Contestant {
    /// Seconds of one step.
    fn seconds(&mut self) -> Result<f64, ExperimentError>;
}

impl Contestant for Bench {
    fn seconds(&mut self) -> Result<f64, ExperimentError> {
        Bench::seconds(self)
    }
}

/// Times of all contestants in every round, as logarithms of seconds. The first contestant is in every round and every
/// other is measured against it, so that ratios of ratios agree, whichever two are compared.
#[derive(Clone, Debug)]
pub struct Rounds {
    /// By contestant and round; NaN if it sat out.
    logs: Vec<Vec<f64>>,
    count: usize,
    looks: u32,
}

impl Rounds {
    /// `looks` is how often intervals may be looked at before the measurement ends.
    pub fn new(looks: u32) -> Rounds {
        Rounds { logs: vec![], count: 0, looks: looks.max(1) }
    }

    /// Adds a contestant, from the next round on.
    pub fn join(&mut self) -> usize {
        self.logs.push(vec![f64::NAN; self.count]);
        self.logs.len() - 1
    }

    /// Adds a round with the seconds of those who took part.
    pub fn push(&mut self, seconds: &[(usize, f64)]) {
        self.logs.iter_mut().for_each(|own| own.push(f64::NAN));
        for &(contestant, seconds) in seconds {
            self.logs[contestant][self.count] = seconds.ln();
        }
        self.count += 1;
    }

    /// Seconds of one contestant: the geometric mean over its rounds; `None` before its first round.
    pub fn seconds(&self, of: usize) -> Option<Interval> {
        let logs: Vec<f64> = self.logs.get(of)?.iter().copied().filter(|log| !log.is_nan()).collect();
        if logs.is_empty() {
            return None;
        }
        let mean = trimmed_mean(&logs, MISSED / f64::from(self.looks));
        let exp = |log: f64| log.exp().min(f64::MAX);
        Some(Interval { value: exp(mean.value), low: exp(mean.low), high: exp(mean.high) })
    }

    /// How much faster one is than another.
    pub fn speedup(&self, of: usize, over: usize) -> Speedup {
        let rounds = |contestant: usize| self.differences(contestant, 0).len();
        if of == over {
            return Speedup::none(rounds(of));
        }
        let missed = MISSED / f64::from(self.looks);
        let against_first = |contestant: usize| match contestant {
            0 => Interval { value: 0.0, low: 0.0, high: 0.0 },
            _ => trimmed_mean(&self.differences(contestant, 0), missed),
        };
        let (own, other) = (against_first(of), against_first(over));
        let value = own.value - other.value;
        let together = self.differences(of, over);
        // The rounds that both were in give the uncertainty, since whatever slowed both cancels out.
        let paired = match together.len() {
            0 => {
                let half = |ends: Interval| (ends.high - ends.low) / 2.0;
                let half = half(own).hypot(half(other));
                Interval { value, low: value - half, high: value + half }
            }
            _ => trimmed_mean(&together, missed),
        };
        Speedup {
            ratio: value.exp(),
            low: paired.low.min(value).exp(),
            high: paired.high.max(value).exp().min(f64::MAX),
            rounds: if together.is_empty() { rounds(of).min(rounds(over)) } else { together.len() },
        }
    }

    /// How much faster `of` was than `over`, in the rounds that both were in.
    fn differences(&self, of: usize, over: usize) -> Vec<f64> {
        let pairs = self.logs[over].iter().zip(&self.logs[of]);
        pairs.map(|(over, of)| over - of).filter(|difference| !difference.is_nan()).collect()
    }
}

/// Lets all contestants alternate, each with the better of two steps, until `settled` agrees at a look or the clock
/// ends it. The starting contestant and the direction change from round to round, so that drift of the machine favours
/// nobody.
pub fn race<C: Contestant>(
    rounds: &mut Rounds,
    contestants: &mut [(usize, C)],
    patience: &Patience,
    until: Instant,
    settled: &mut dyn FnMut(&Rounds) -> bool,
) -> Result<(), ExperimentError> {
    let count = contestants.len();
    let mut next_look = patience.rounds;
    for round in 1..=patience.most_rounds.max(LEAST_ROUNDS) {
        let mut seconds = vec![];
        for turn in 0..count {
            let turn = if round.is_multiple_of(2) { count - 1 - turn } else { turn };
            let (number, contestant) = &mut contestants[(turn + round) % count];
            seconds.push((*number, contestant.seconds()?.min(contestant.seconds()?)));
        }
        rounds.push(&seconds);
        if round >= LEAST_ROUNDS && Instant::now() >= until {
            break;
        }
        if round >= next_look {
            next_look *= 2;
            if settled(rounds) {
                break;
            }
        }
    }
    Ok(())
}

/// Divides the time of an experiment between its comparisons: time that one leaves goes to the next.
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

    /// Speed-up of the second over the first.
    pub fn compare<C: Contestant>(&mut self, first: &mut C, second: &mut C) -> Result<Speedup, ExperimentError> {
        self.done = (self.done + 1).min(self.comparisons);
        let until = self.started + self.patience.time * self.done / self.comparisons;
        let mut rounds = Rounds::new(self.patience.looks());
        let mut contestants = [(rounds.join(), Borrowed(first)), (rounds.join(), Borrowed(second))];
        race(&mut rounds, &mut contestants, &self.patience, until, &mut |rounds| rounds.speedup(1, 0).stands())?;
        Ok(rounds.speedup(1, 0))
    }
}

struct Borrowed<'a, C>(&'a mut C);

impl<C: Contestant> Contestant for Borrowed<'_, C> {
    fn seconds(&mut self) -> Result<f64, ExperimentError> {
        self.0.seconds()
    }
}

#[cfg(test)]
mod tests;
