//! The race between all lists that the search produced: every statement about their speed comes from it.

use super::forecast::Forecasts;
use super::rung::{Rung, Verdict, surprise, verdict};
use super::{Check, Checks, Climber, Watcher, chain};
use crate::bench::{ExperimentError, Variant, program};
use crate::turns::{LEAST_ROUNDS, Patience, Rounds, Speedup, race};
use headroom_engine::Program;
use headroom_graph::passes::{OFFERED, PassList};
use headroom_record::statistics::Interval;
use headroom_training::memory::MemoryNeed;
use headroom_training::program::Keep;
use std::time::Instant;

/// Number of times that the race is extended to measure the way to a list that turned out best.
const EXTENSIONS: u32 = 2;

/// A median below this is a slowdown, even if the interval contains 1.
const NO_SLOWER: f64 = 0.99;

/// Steps of every list whose calls are timed after the race.
const RECORDED: usize = 2;

/// Share of the free memory that all models together may take.
const SHARE_OF_ROOM: f64 = 0.7;

struct Entry {
    list: PassList,
    program: Program,
    memory: usize,
    /// Seconds of each call; empty before its race.
    calls: Vec<f64>,
    check: Check,
}

pub(super) struct Finals<'a> {
    climber: &'a Climber<'a>,
    patience: Patience,
    min_speedup: Option<f64>,
    room: Option<usize>,
    /// Recorded steps per list.
    recorded: usize,
    entries: Vec<Entry>,
    rounds: Rounds,
}

impl<'a> Finals<'a> {
    /// `min_speedup` is what the best list has to reach, `room` the bytes that models may take.
    pub fn new(
        climber: &'a Climber<'a>,
        patience: Patience,
        min_speedup: Option<f64>,
        room: Option<usize>,
    ) -> Finals<'a> {
        let rounds = Rounds::new(patience.looks() + EXTENSIONS);
        Finals { climber, patience, min_speedup, room, recorded: RECORDED, entries: vec![], rounds }
    }

    /// Skips recording, for races where only speeds are wanted.
    pub fn unrecorded(self) -> Finals<'a> {
        Finals { recorded: 0, ..self }
    }

    /// Adds a list and checks its results, so that it can be chosen.
    pub fn add(&mut self, list: PassList, checks: &mut Checks) -> Result<usize, ExperimentError> {
        let at = self.enter(&list)?;
        self.entries[at].check = checks.of(&list)?;
        Ok(at)
    }

    /// Adds a list that only races; the same list again gets the same number.
    pub fn enter(&mut self, list: &PassList) -> Result<usize, ExperimentError> {
        if let Some(at) = self.find(list) {
            return Ok(at);
        }
        let program = program(self.climber.step, &Variant::of(list), Keep::OnlyTheLoss)?.program;
        let memory = MemoryNeed::of(std::slice::from_ref(&program), self.climber.setting.opening.threads).total();
        let check = Check { loss_difference: 0.0, gradient_difference: 0.0, curve_difference: 0.0, exact: true };
        self.entries.push(Entry { list: list.clone(), program, memory, calls: vec![], check });
        self.rounds.join();
        Ok(self.entries.len() - 1)
    }

    pub fn find(&self, list: &PassList) -> Option<usize> {
        self.entries.iter().position(|entry| entry.list == *list)
    }

    pub fn list(&self, at: usize) -> PassList {
        self.entries[at].list.clone()
    }

    pub fn speedup(&self, of: usize, over: usize) -> Speedup {
        self.rounds.speedup(of, over)
    }

    /// Speed-up over the baseline, which is the first list.
    pub fn over_baseline(&self, of: usize) -> Speedup {
        self.speedup(of, 0)
    }

    /// Seconds per step of a list, in the rounds that it was in.
    pub fn seconds(&self, of: usize) -> Option<Interval> {
        self.rounds.seconds(of)
    }

    pub fn race_all(&mut self, until: Instant, watcher: &mut dyn Watcher) -> Result<(), ExperimentError> {
        self.race(&(0..self.entries.len()).collect::<Vec<_>>(), until, watcher)
    }

    /// Races in groups if not all fit into memory, with the baseline in each group.
    fn race(&mut self, members: &[usize], until: Instant, watcher: &mut dyn Watcher) -> Result<(), ExperimentError> {
        let needs: Vec<usize> = self.entries.iter().map(|entry| entry.memory).collect();
        let room = self.room.map(|bytes| (bytes as f64 * SHARE_OF_ROOM) as usize);
        let groups = groups(members, &needs, room);
        for (number, group) in groups.iter().enumerate() {
            let now = Instant::now();
            let until = now + until.saturating_duration_since(now) / (groups.len() - number) as u32;
            watcher.doing(&format!("measuring {} lists, alternating", group.len()));
            let mut benches = vec![];
            for &at in group {
                benches.push((at, self.climber.warm(&self.entries[at].list)?));
            }
            let Finals { patience, min_speedup, entries, rounds, .. } = self;
            let mut settled = |rounds: &Rounds| {
                let best = choice(entries, rounds);
                let leads = rounds.speedup(best, 0);
                watcher.doing(&format!(
                    "after {} rounds {} leads: {:.2}× (95%: {:.2} to {:.2})",
                    leads.rounds,
                    short(&entries[best].list),
                    leads.ratio,
                    leads.low,
                    leads.high
                ));
                let limit = min_speedup.unwrap_or(1.0);
                let is_known = |at: &usize| rounds.speedup(best, *at).stands();
                (leads.low >= limit || leads.high < limit) && group.iter().filter(|at| **at != best).all(is_known)
            };
            race(rounds, &mut benches, patience, until, &mut settled)?;
            for (at, mut bench) in benches.into_iter().filter(|_| self.recorded > 0) {
                self.entries[at].calls = bench.call_seconds(self.recorded)?;
            }
        }
        Ok(())
    }

    /// The best list, once the way to it has been measured pass by pass as well.
    pub fn settle(
        &mut self,
        order: &[&'static str],
        checks: &mut Checks,
        until: Instant,
        watcher: &mut dyn Watcher,
    ) -> Result<usize, ExperimentError> {
        let patience = self.patience;
        for _ in 0..EXTENSIONS {
            let best = choice(&self.entries, &self.rounds);
            let way = chain(&self.entries[best].list, order);
            if way.iter().all(|list| self.is_measured(list)) {
                break;
            }
            let mut members = vec![0];
            for list in way {
                members.push(self.add(list, checks)?);
            }
            // As many rounds as the others have had, with a single look at the end.
            let rounds = self.over_baseline(best).rounds.max(LEAST_ROUNDS);
            self.patience = Patience { rounds, most_rounds: rounds, ..patience };
            self.race(&members, until, watcher)?;
        }
        self.patience = patience;
        let measured: Vec<usize> = (0..self.entries.len())
            .filter(|at| chain(&self.entries[*at].list, order).iter().all(|list| self.is_measured(list)))
            .collect();
        Ok(choice_of(&measured, &self.entries, &self.rounds))
    }

    fn is_measured(&self, list: &PassList) -> bool {
        self.find(list).is_some_and(|at| self.over_baseline(at).rounds > 0)
    }

    /// Lists that the race cannot distinguish from the chosen one, fastest first.
    pub fn as_good(&self, chosen: usize) -> Vec<(PassList, Speedup)> {
        let others = (0..self.entries.len()).filter(|at| *at != chosen && self.entries[*at].check.exact);
        let mut found: Vec<(PassList, Speedup)> =
            others.map(|at| (self.list(at), self.speedup(at, chosen))).filter(|(_, speed)| speed.high >= 1.0).collect();
        found.sort_by(|left, right| right.1.ratio.total_cmp(&left.1.ratio));
        found
    }

    /// Each list along the way compared with the one before it.
    pub fn rungs(&self, way: &[PassList], kept: usize, forecasts: &Forecasts) -> Vec<Rung> {
        let mut before = 0;
        let mut rungs = vec![];
        for list in way {
            let Some(at) = self.find(list) else { continue };
            let added = list.names().iter().find(|name| !self.entries[before].list.contains(name));
            let name = added.copied().unwrap_or("nothing");
            let rung = self.rung(name, before, at, forecasts);
            let is_kept = self.entries[kept].list.contains(name);
            rungs.push(Rung { verdict: verdict(&rung, self.entries[at].check.exact, is_kept), ..rung });
            before = at;
        }
        rungs
    }

    /// Version 2, all passes, and the kept list, against Version 1.
    pub fn versions(&self, kept: usize, forecasts: &Forecasts) -> Vec<Rung> {
        let named =
            [("v2", self.find(&PassList::version_2())), ("all", self.find(&PassList::all())), ("kept", Some(kept))];
        let rung =
            |(name, at): (&str, Option<usize>)| Some(Rung { surprise: None, ..self.rung(name, 0, at?, forecasts) });
        named.into_iter().filter_map(rung).collect()
    }

    /// All passes against all but one, for each.
    pub fn ablation(&self) -> Vec<Rung> {
        let Some(all) = self.find(&PassList::all()) else { return vec![] };
        let without = |name: &'static str| {
            let at = self.find(&PassList::all().without(name))?;
            let list = self.list(at);
            Some(Rung { list, ..self.plain_rung(name, at, all) })
        };
        OFFERED.iter().filter_map(|pass| without(pass.name)).collect()
    }

    fn rung(&self, name: &str, before: usize, after: usize, forecasts: &Forecasts) -> Rung {
        let (old, new) = (&self.entries[before], &self.entries[after]);
        let prediction = forecasts.of((&old.list, &old.program), (&new.list, &new.program));
        let rung = self.plain_rung(name, before, after);
        let surprise = surprise((&old.program, &old.calls), (&new.program, &new.calls), &prediction, &rung.measured);
        Rung { predicted: Some(prediction.speedup()), surprise, ..rung }
    }

    fn plain_rung(&self, name: &str, before: usize, after: usize) -> Rung {
        let (old, new) = (&self.entries[before], &self.entries[after]);
        Rung {
            name: name.into(),
            list: new.list.clone(),
            predicted: None,
            measured: self.speedup(after, before),
            memory: (old.memory, new.memory),
            kernels: (old.program.kernels(), new.program.kernels()),
            loss_difference: new.check.loss_difference,
            gradient_difference: new.check.gradient_difference,
            curve_difference: new.check.curve_difference,
            verdict: Verdict::Measured,
            surprise: None,
        }
    }
}

/// The best measured list.
fn choice(entries: &[Entry], rounds: &Rounds) -> usize {
    choice_of(&(0..entries.len()).collect::<Vec<_>>(), entries, rounds)
}

fn choice_of(among: &[usize], entries: &[Entry], rounds: &Rounds) -> usize {
    let facts = |at: usize| (entries[at].check.exact, entries[at].memory);
    best(among, facts, |of, over| rounds.speedup(of, over))
}

/// The fastest list whose results are correct; among those as fast within the noise and one percent, the one that needs
/// least memory.
fn best(
    among: &[usize],
    exact_and_memory: impl Fn(usize) -> (bool, usize),
    speedup: impl Fn(usize, usize) -> Speedup,
) -> usize {
    let measured = among.iter().copied().filter(|&at| exact_and_memory(at).0 && speedup(at, 0).rounds > 0);
    let over_baseline = |at: usize| speedup(at, 0).ratio;
    let fastest = measured.clone().max_by(|a, b| over_baseline(*a).total_cmp(&over_baseline(*b))).unwrap_or(0);
    let is_as_fast = |at: &usize| {
        let against = speedup(*at, fastest);
        against.ratio >= NO_SLOWER && against.high >= 1.0
    };
    let order = |a: &usize, b: &usize| {
        let memory = |at: usize| exact_and_memory(at).1;
        memory(*a).cmp(&memory(*b)).then(over_baseline(*b).total_cmp(&over_baseline(*a)))
    };
    measured.filter(is_as_fast).min_by(order).unwrap_or(fastest)
}

/// As many per group as fit, with the first member in every group.
fn groups(members: &[usize], needs: &[usize], room: Option<usize>) -> Vec<Vec<usize>> {
    let first = needs.first().copied().unwrap_or(0);
    let mut groups: Vec<(Vec<usize>, usize)> = vec![];
    for &at in members.iter().filter(|at| **at != 0) {
        match groups.last_mut() {
            Some((group, taken)) if room.is_none_or(|room| *taken + needs[at] <= room) => {
                group.push(at);
                *taken += needs[at];
            }
            _ => groups.push((vec![0, at], first + needs[at])),
        }
    }
    groups.into_iter().map(|(group, _)| group).collect()
}

fn short(list: &PassList) -> String {
    match list.label() {
        label if label.len() < 40 => label,
        _ => {
            let missing: Vec<&str> = OFFERED.iter().map(|pass| pass.name).filter(|name| !list.contains(name)).collect();
            match missing.len() {
                0..4 => format!("all without {}", missing.join(", ")),
                _ => format!("a list of {}", list.names().len()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contestants with these speeds, each ratio known to within `half`.
    fn speeds(speeds: &'static [f64], half: f64) -> impl Fn(usize, usize) -> Speedup {
        move |of, over| {
            let ratio = speeds[of] / speeds[over];
            match of == over {
                true => Speedup::none(8),
                false => Speedup { ratio, low: ratio * (1.0 - half), high: ratio * (1.0 + half), rounds: 8 },
            }
        }
    }

    #[test]
    fn the_best_list_that_was_measured_is_the_one_that_is_kept() {
        // Version 1, the search's list at 1.06, all passes at 1.14, and a fast list that is wrong.
        let facts = |at: usize| (at != 3, 100 - at);
        assert_eq!(best(&[0, 1, 2, 3], facts, speeds(&[1.0, 1.06, 1.14, 2.0], 0.02)), 2);
        assert_eq!(best(&[0, 1, 2, 3], facts, speeds(&[1.0, 0.9, 0.8, 2.0], 0.02)), 0);
    }

    #[test]
    fn of_lists_that_are_as_fast_the_smaller_is_kept() {
        let facts = |at: usize| (true, [100, 60, 50, 40][at]);
        assert_eq!(best(&[0, 1, 2, 3], facts, speeds(&[1.0, 1.100, 1.095, 1.05], 0.02)), 2);
        // Slower beyond the noise is slower, however small the difference.
        assert_eq!(best(&[0, 1, 2, 3], facts, speeds(&[1.0, 1.100, 1.095, 1.05], 0.001)), 1);
    }

    #[test]
    fn lists_race_in_groups_where_memory_is_short_and_the_first_is_in_each() {
        assert_eq!(groups(&[0, 1, 2, 3], &[10, 10, 10, 10], Some(30)), [vec![0, 1, 2], vec![0, 3]]);
        assert_eq!(groups(&[0, 1, 2, 3], &[10, 10, 10, 10], None), [vec![0, 1, 2, 3]]);
        assert_eq!(groups(&[0, 1, 2], &[10, 90, 90], Some(30)), [vec![0, 1], vec![0, 2]]);
    }
}
