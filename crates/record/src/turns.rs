//! Contestants that alternate until their ratios are known well enough or time is up. Everything that races, races here.
//!
//! Three things can make such a measurement say something wrong
//! ([0052](../../../docs/decisions/0052-proof-before-luck.md)):
//!
//! - Other programs. Every turn is watched; one that was disturbed is taken again, and one that stayed disturbed
//!   does not count. The decision is made from the machine's counters before any time is looked at, so it
//!   favours nobody.
//! - A few bad rounds. Ratios are trimmed means of paired logarithms, which a round cannot spoil.
//! - Looking often. A look at the figures may end the measurement, and looking until the answer suits is wrong more
//!   often than one time in twenty. So the number of looks is fixed in advance and the error is divided among them.

use crate::interference::InterferenceWatch;
pub use crate::interference::Work;
use crate::statistics::{Interval, MISSED, trimmed_mean};
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

/// With fewer rounds nothing can be trimmed, so that one of them could spoil an interval.
pub const LEAST_ROUNDS: usize = 5;

/// A turn of which other programs took more than this share is taken again. Of work in another process only the waits of
/// the whole machine are known, which has always some.
fn most_interference(work: Work) -> f64 {
    match work {
        Work::Here => 0.02,
        Work::Elsewhere => 0.10,
    }
}

/// How often a turn is taken again.
const REPEATS: usize = 2;

/// After so many turns in a row that stayed disturbed the load is taken to be steady, and repeating ends until a turn
/// is undisturbed.
const STEADY: usize = 3;

impl Patience {
    /// Number of possible looks: one before each doubling, and one more if the clock ends it.
    pub fn looks(&self) -> u32 {
        (self.most_rounds / self.rounds.max(1)).max(1).ilog2() + 2
    }
}

/// Error probability of a look, counted from 1, of so many. Most races end at the first look, so that it has the larger
/// part. The later ones share what is left of 5%: computed for looks after doubled numbers of rounds, at each of which a
/// race may end because of what it shows.
pub fn missed_at(look: u32, looks: u32) -> f64 {
    const FIRST: f64 = 0.035;
    const LATER: [f64; 7] = [0.0234, 0.0125, 0.0080, 0.0059, 0.0046, 0.0038, 0.0032];
    match (look, looks) {
        (_, 0 | 1) => MISSED,
        (0 | 1, _) => FIRST,
        _ => LATER.get(looks as usize - 2).copied().unwrap_or((MISSED - FIRST) / f64::from(looks - 1)),
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

/// One timed turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn {
    pub seconds: f64,
    /// Time that other programs took, as a share of the turn; `None` where the system does not tell.
    pub interference: Option<f64>,
    /// Whether that is too much.
    pub is_disturbed: bool,
}

impl Turn {
    /// A turn with the interference that was counted during it.
    pub fn new(work: Work, seconds: f64, interference: Option<f64>) -> Turn {
        let is_disturbed = interference.is_some_and(|share| share > most_interference(work));
        Turn { seconds, interference, is_disturbed }
    }
}

/// Takes turns in a race.
pub trait Contestant {
    type Error;

    fn turn(&mut self) -> Result<Turn, Self::Error>;
}

/// Times something and counts what other programs took of it.
pub fn watched<E>(work: Work, seconds: impl FnOnce() -> Result<f64, E>) -> Result<Turn, E> {
    let watch = InterferenceWatch::start(work);
    let seconds = seconds()?;
    Ok(Turn::new(work, seconds, watch.share()))
}

/// Times of all contestants in every round, as logarithms of seconds. The first contestant is in every round and every
/// other is measured against it, so that ratios of ratios agree, whichever two are compared.
#[derive(Clone, Debug)]
pub struct Rounds {
    /// By contestant and round; NaN if it sat out.
    logs: Vec<Vec<f64>>,
    /// By contestant and round, whether its turn stayed disturbed.
    disturbed: Vec<Vec<bool>>,
    count: usize,
    repeated: Vec<Repeated>,
    /// How often an interval may be looked at.
    looks: u32,
    /// By contestant, how often its interval was.
    looked: Vec<u32>,
}

/// A turn that was taken again, and the interference that it had.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repeated {
    pub round: usize,
    pub contestant: usize,
    pub interference: f64,
}

impl Rounds {
    /// `looks` is how often intervals may be looked at before the measurement ends.
    pub fn new(looks: u32) -> Rounds {
        Rounds { logs: vec![], disturbed: vec![], count: 0, repeated: vec![], looks: looks.max(1), looked: vec![] }
    }

    /// Adds a contestant, from the next round on.
    pub fn join(&mut self) -> usize {
        self.logs.push(vec![f64::NAN; self.count]);
        self.disturbed.push(vec![false; self.count]);
        self.looked.push(0);
        self.logs.len() - 1
    }

    /// Adds a round with the turns of those who took part.
    pub fn push(&mut self, turns: &[(usize, Turn)]) {
        self.logs.iter_mut().for_each(|own| own.push(f64::NAN));
        self.disturbed.iter_mut().for_each(|own| own.push(false));
        for (contestant, turn) in turns {
            self.logs[*contestant][self.count] = turn.seconds.ln();
            self.disturbed[*contestant][self.count] = turn.is_disturbed;
        }
        self.count += 1;
    }

    /// Forgets all earlier rounds of these contestants, so that figures from now on owe nothing to the rounds by which
    /// they were chosen. The first contestant keeps its rounds, for those who are not chosen.
    pub fn start_over(&mut self, chosen: &[usize]) {
        for &contestant in chosen.iter().filter(|contestant| **contestant != 0) {
            self.logs[contestant].fill(f64::NAN);
            self.looked[contestant] = 0;
        }
    }

    /// Rounds of which no comparison with the first contestant counts, because turns stayed disturbed.
    pub fn dropped(&self) -> Vec<usize> {
        let others = 1.min(self.logs.len().saturating_sub(1))..self.logs.len();
        let counted: Vec<Vec<usize>> = others.map(|contestant| self.counted(contestant, 0)).collect();
        let counts = |round: &usize| counted.iter().any(|rounds| rounds.binary_search(round).is_ok());
        (0..self.count).filter(|round| self.is_disturbed(*round) && !counts(round)).collect()
    }

    /// Turns of the other rounds that do not count: round and contestant.
    pub fn dropped_turns(&self) -> Vec<(usize, usize)> {
        let dropped = self.dropped();
        let mut found: Vec<(usize, usize)> = vec![];
        for (contestant, logs) in self.logs.iter().enumerate().skip(1) {
            let counted = self.counted(contestant, 0);
            let took_part = (0..self.count).filter(|round| !logs[*round].is_nan() && !self.logs[0][*round].is_nan());
            let missing = took_part.filter(|round| counted.binary_search(round).is_err());
            found
                .extend(missing.filter(|round| dropped.binary_search(round).is_err()).map(|round| (round, contestant)));
        }
        found.sort_unstable();
        found
    }

    fn is_disturbed(&self, round: usize) -> bool {
        self.disturbed.iter().any(|own| own[round])
    }

    /// Rounds in which a turn stayed disturbed, whether they count or not.
    pub fn disturbed(&self) -> usize {
        (0..self.count).filter(|round| self.is_disturbed(*round)).count()
    }

    /// The rounds that both were in and that count for the two: those in which neither was disturbed, or all if too few
    /// are left. A turn of somebody else does not matter, so a load that comes and goes spoils single comparisons, and not
    /// a whole round of many lists.
    fn counted(&self, one: usize, other: usize) -> Vec<usize> {
        let is_there = |round: &usize| !self.logs[one][*round].is_nan() && !self.logs[other][*round].is_nan();
        let is_clean = |round: &usize| !self.disturbed[one][*round] && !self.disturbed[other][*round];
        let all: Vec<usize> = (0..self.count).filter(is_there).collect();
        let clean: Vec<usize> = all.iter().copied().filter(is_clean).collect();
        if clean.len() < LEAST_ROUNDS { all } else { clean }
    }

    /// Seconds of two contestants in the rounds that count and that both were in.
    pub fn pairs(&self, one: usize, other: usize) -> Vec<(f64, f64)> {
        let seconds = |round: usize| (self.logs[one][round].exp(), self.logs[other][round].exp());
        self.counted(one, other).into_iter().map(seconds).collect()
    }

    /// Seconds of one contestant in the rounds that count and that it was in.
    pub fn times(&self, of: usize) -> Vec<f64> {
        self.pairs(of, of).into_iter().map(|(seconds, _)| seconds).collect()
    }

    /// Whether as many rounds are undisturbed as are needed for the others to be dropped.
    pub fn is_clean_enough(&self) -> bool {
        self.count() - self.disturbed() >= LEAST_ROUNDS
    }

    pub fn repeated(&self) -> &[Repeated] {
        &self.repeated
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Seconds of one contestant: the geometric mean over its rounds; `None` before its first round.
    pub fn seconds(&self, of: usize) -> Option<Interval> {
        self.logs.get(of)?;
        let logs: Vec<f64> = self.counted(of, of).into_iter().map(|round| self.logs[of][round]).collect();
        if logs.is_empty() {
            return None;
        }
        let mean = trimmed_mean(&logs, self.missed(of, of));
        let exp = |log: f64| log.exp().min(f64::MAX);
        Some(Interval { value: exp(mean.value), low: exp(mean.low), high: exp(mean.high) })
    }

    /// How much faster one is than another.
    pub fn speedup(&self, of: usize, over: usize) -> Speedup {
        self.speedup_missing(of, over, self.missed(of, over))
    }

    /// The same with an error probability of the caller's, who makes many comparisons and divides it among them.
    pub fn speedup_missing(&self, of: usize, over: usize, missed: f64) -> Speedup {
        let differences = |of: usize, over: usize| self.differences(of, over);
        let rounds = |contestant: usize| differences(contestant, 0).len();
        if of == over {
            return Speedup::none(rounds(of));
        }
        let against_first = |contestant: usize| match contestant {
            0 => Interval { value: 0.0, low: 0.0, high: 0.0 },
            _ => trimmed_mean(&differences(contestant, 0), missed),
        };
        let (own, other) = (against_first(of), against_first(over));
        let value = own.value - other.value;
        let together = differences(of, over);
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

    /// Error probability of an interval between two. The first contestant is looked at with every other, so that its own
    /// looks say nothing.
    fn missed(&self, one: usize, other: usize) -> f64 {
        let look = |contestant: usize| if contestant == 0 { 0 } else { self.looked[contestant] };
        missed_at(look(one).max(look(other)), self.looks)
    }

    /// How much faster `of` was than `over`, in the rounds that count and that both were in.
    fn differences(&self, of: usize, over: usize) -> Vec<f64> {
        self.counted(of, over).into_iter().map(|round| self.logs[over][round] - self.logs[of][round]).collect()
    }
}

/// Lets all contestants alternate until `settled` agrees at a look or the clock ends it. Every second round takes the
/// order of the one before it backwards, and the contestant that begins changes from pair to pair, so that neither drift of
/// the machine nor the place in a round favours anybody.
pub fn race<C: Contestant>(
    rounds: &mut Rounds,
    contestants: &mut [(usize, C)],
    patience: &Patience,
    until: Instant,
    settled: &mut dyn FnMut(&Rounds) -> bool,
) -> Result<(), C::Error> {
    let count = contestants.len();
    let least = patience.rounds.clamp(1, LEAST_ROUNDS);
    let mut next_look = patience.rounds;
    let mut stayed_disturbed = 0;
    let most = patience.most_rounds.max(least);
    for round in 1..=most {
        let mut turns = vec![];
        for turn in 0..count {
            let (number, contestant) = &mut contestants[place(round, turn, count)];
            let mut best = contestant.turn()?;
            for _ in 0..REPEATS {
                if !best.is_disturbed || stayed_disturbed >= STEADY || Instant::now() >= until {
                    break;
                }
                rounds.repeated.push(Repeated {
                    round: rounds.count(),
                    contestant: *number,
                    interference: best.interference.unwrap_or_default(),
                });
                let again = contestant.turn()?;
                // By the machine's counters alone, never by the time.
                if again.interference < best.interference {
                    best = again;
                }
            }
            stayed_disturbed = if best.is_disturbed { stayed_disturbed + 1 } else { 0 };
            turns.push((*number, best));
        }
        rounds.push(&turns);
        let is_over = round == most || round >= least && Instant::now() >= until;
        if !is_over && round < next_look {
            continue;
        }
        next_look *= 2;
        contestants.iter().for_each(|(number, _)| rounds.looked[*number] += 1);
        if is_over || settled(rounds) {
            break;
        }
    }
    Ok(())
}

/// The contestant whose turn it is, with rounds from 1 and turns from 0.
pub fn place(round: usize, turn: usize, count: usize) -> usize {
    let turn = if round.is_multiple_of(2) { count - 1 - turn } else { turn };
    (turn + (round - 1) / 2) % count
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
    pub fn compare<C: Contestant>(&mut self, first: &mut C, second: &mut C) -> Result<Speedup, C::Error> {
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
    type Error = C::Error;

    fn turn(&mut self) -> Result<Turn, C::Error> {
        self.0.turn()
    }
}

#[cfg(test)]
mod tests;
