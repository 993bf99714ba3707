//! Expected and allowed duration of processes. A process starts with many seconds of imports, and compiling takes
//! minutes. Time is planned so that it neither runs out before the end nor is left over while remedies with large
//! predictions are untried.

use super::{Search, Unit};
use crate::candidates::LARGE;
use crate::variant::{Ran, Variant, Way, is_alternative};

/// Expected seconds of compiling new code, and the minimum for which a process is started.
const COMPILING: f64 = 90.0;
const COMPILING_LEAST: f64 = 30.0;

/// Share of a first compilation that recurs when the compiler's cache has the code.
const CACHED: f64 = 0.25;

/// Share of the total time for the first process of a compiling variant while others with large predictions wait.
const COMPILING_SHARE: f64 = 0.5;

/// A process that does not compile may take this many times as long as the longest so far, plus this many seconds for
/// workers to start.
const SLOW: f64 = 2.5;
const SLOW_SECONDS: f64 = 15.0;

/// Processes of the unmodified script, and of what was kept, that the final turns need.
pub const LEAST: usize = 2;

/// Durations of processes that compiled the same code.
#[derive(Clone, Copy, Debug)]
pub struct Compiled {
    pub first: f64,
    last: f64,
    count: usize,
}

impl Search<'_> {
    pub(super) fn started(&mut self, variant: &Variant, way: Way, within: f64) -> Ran {
        let before = self.runner.seconds_left();
        let ran = self.runner.run(variant, way, within);
        self.processes += 1;
        let seconds = before - self.runner.seconds_left();
        if matches!(ran, Ran::Measured(_)) {
            match variant.is_compiled() {
                true if way == Way::Timed => {
                    let known = self.compiled.get(&variant.code()).copied();
                    let before = known.unwrap_or(Compiled { first: seconds, last: seconds, count: 0 });
                    let now = Compiled { last: seconds, count: before.count + 1, ..before };
                    self.compiled.insert(variant.code(), now);
                }
                // Proofs evaluate and save at the ends of epochs.
                false if !matches!(way, Way::Patched | Way::Proof { .. }) => self.longest = self.longest.max(seconds),
                _ => {}
            }
        }
        ran
    }

    /// Expected seconds of one more process.
    pub(super) fn cost(&self, which: usize) -> f64 {
        self.cost_of(&self.measured[which].variant, COMPILING)
    }

    /// Minimum seconds that must be left to start one more process.
    pub(super) fn least_cost(&self, which: usize) -> f64 {
        self.cost_of(&self.measured[which].variant, COMPILING_LEAST)
    }

    fn cost_of(&self, variant: &Variant, compiling: f64) -> f64 {
        match (variant.is_compiled(), self.compiled.get(&variant.code())) {
            (false, _) => self.longest,
            (true, None) => self.longest + compiling,
            (true, Some(known)) if known.count == 1 => self.longest + CACHED * (known.first - self.longest).max(0.0),
            (true, Some(known)) => known.last,
        }
    }

    /// Seconds to reserve for the final turns if this variant is kept: two processes of it, as a patch, and of the
    /// unmodified script, and proofs over an epoch's end. The unmodified script needs nothing.
    fn reserve(&self, which: usize) -> f64 {
        if which == 0 { 0.0 } else { self.final_turns(which) + self.across_seconds() }
    }

    pub(super) fn final_turns(&self, which: usize) -> f64 {
        LEAST as f64 * (self.cost(0) + self.cost_again(which))
    }

    /// Expected seconds of a process once its code was compiled before.
    fn cost_again(&self, which: usize) -> f64 {
        if self.is_new_code(which) { self.longest + CACHED * COMPILING } else { self.cost(which) }
    }

    /// Seconds for the first process of a variant and the processes that prove it, together. While nothing is kept, all but
    /// the final turns that it would need: what cannot be proved in time need not be tried.
    pub(super) fn first_room(&self, own: usize, rest: &[Unit]) -> f64 {
        let left = match self.best {
            0 => self.runner.seconds_at_most() - self.final_turns(own),
            kept => self.runner.seconds_left() - self.reserve(kept),
        } - self.set_aside;
        match self.is_new_code(own) {
            true => left.min((left - self.pending(rest)).max(COMPILING_SHARE * self.limit)),
            false => left,
        }
    }

    /// Seconds that the first process of a variant may take by itself.
    pub(super) fn first_allowance(&self, own: usize, rest: &[Unit]) -> f64 {
        let room = self.first_room(own, rest);
        if self.is_new_code(own) { room } else { room.min(SLOW * self.cost(own) + SLOW_SECONDS) }
    }

    fn is_new_code(&self, own: usize) -> bool {
        let variant = &self.measured[own].variant;
        variant.is_compiled() && !self.compiled.contains_key(&variant.code())
    }

    /// Seconds that further processes of it may take.
    pub(super) fn allowance(&self, own: usize) -> f64 {
        self.runner.seconds_left() - self.final_turns(own).max(self.reserve(self.best)) - self.set_aside
    }

    /// Seconds for the remaining candidates with large predictions: one process each, and one for all alternatives
    /// together.
    pub(super) fn pending(&self, rest: &[Unit]) -> f64 {
        let mut counted: Vec<&str> = vec![];
        let mut seconds = 0.0;
        for candidate in rest.iter().flatten().filter(|one| self.predicted(one).is_some_and(|share| share >= LARGE)) {
            let name = candidate.remedy.name;
            if !counted.iter().any(|other| is_alternative(other, name)) {
                counted.push(name);
                seconds += self.cost_of(&self.kept().with(candidate.remedy), COMPILING);
            }
        }
        seconds
    }
}
