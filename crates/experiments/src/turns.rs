//! Benches that take turns, until their ratios are known well enough or the time for it is up.
//!
//! A look at the figures may end the measuring, and who looks again and again and stops when the answer suits is fooled more
//! often than one time in twenty. So the number of looks is fixed beforehand, the chance of an interval to miss is divided by
//! it, and every interval that is shown holds with 95% however the measuring came to its end
//! ([0022](../../../docs/decisions/0022-one-race-decides.md)).

use crate::bench::{Bench, ExperimentError};
use headroom_record::statistics::{Interval, MISSED, trimmed_mean};
use std::time::{Duration, Instant};

/// How long to look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Patience {
    /// Rounds before the first look; every later one comes after twice as many.
    pub rounds: usize,
    /// Rounds after which a comparison ends whatever its interval.
    pub most_rounds: usize,
    /// For all comparisons together; beyond it none gets more than [`LEAST_ROUNDS`].
    pub time: Duration,
}

/// Fewer give no interval.
pub const LEAST_ROUNDS: usize = 4;

impl Patience {
    /// Looks that may be taken: before each doubling, and one more where the clock ends it.
    pub fn looks(&self) -> u32 {
        (self.most_rounds / self.rounds.max(1)).max(1).ilog2() + 2
    }
}

/// A ratio of times, and the interval that holds it with 95%.
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

    /// Half of the interval, as a share of the ratio.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / (2.0 * self.ratio)
    }

    /// Does the interval hold 1?
    pub fn is_within_noise(&self) -> bool {
        self.low <= 1.0 && self.high >= 1.0
    }

    /// Known well enough: faster or slower beyond the noise, or as fast to within a hundredth.
    pub fn stands(&self) -> bool {
        self.half_width() <= PRECISE || !self.is_within_noise() && self.half_width() <= DECIDED
    }
}

/// Known well enough whatever it is.
const PRECISE: f64 = 0.01;
/// Known well enough where faster or slower is decided.
const DECIDED: f64 = 0.02;

/// Somebody who takes a turn.
pub trait Contestant {
    /// Seconds of one step.
    fn seconds(&mut self) -> Result<f64, ExperimentError>;
}

impl Contestant for Bench {
    fn seconds(&mut self) -> Result<f64, ExperimentError> {
        Bench::seconds(self)
    }
}

/// Times of all contestants in every round, as logarithms of seconds. The first contestant is in all of them, and every other is
/// measured against it: so ratios of ratios agree, whatever two are compared.
#[derive(Clone, Debug)]
pub struct Rounds {
    /// By contestant and round; not a number where it sat out.
    logs: Vec<Vec<f64>>,
    count: usize,
    looks: u32,
}

impl Rounds {
    /// `looks` is how often intervals may be looked at before the measuring ends.
    pub fn new(looks: u32) -> Rounds {
        Rounds { logs: vec![], count: 0, looks: looks.max(1) }
    }

    /// One more contestant, from the next round on.
    pub fn join(&mut self) -> usize {
        self.logs.push(vec![f64::NAN; self.count]);
        self.logs.len() - 1
    }

    /// Seconds of those who took part.
    pub fn push(&mut self, seconds: &[(usize, f64)]) {
        self.logs.iter_mut().for_each(|own| own.push(f64::NAN));
        for &(contestant, seconds) in seconds {
            self.logs[contestant][self.count] = seconds.ln();
        }
        self.count += 1;
    }

    /// Seconds of one contestant, the geometric mean over the rounds that it was in; `None` before its first round.
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
        // The rounds that both were in say how sure it is, with what slowed both left out.
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

    /// By how much the first of two was faster, in the rounds that both were in.
    fn differences(&self, of: usize, over: usize) -> Vec<f64> {
        let pairs = self.logs[over].iter().zip(&self.logs[of]);
        pairs.map(|(over, of)| over - of).filter(|difference| !difference.is_nan()).collect()
    }
}

/// Lets everybody take turns, the better of two steps each, until `settled` says so at a look or the clock ends it. Who begins
/// and the direction change from round to round, so that a drift of the machine favours nobody.
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
