//! The race between all lists that the search produced: every statement about their speed comes from it. A screening
//! lets every list run a few rounds; the most promising ones then run against Version 1 alone, and only these later
//! rounds prove them.

use super::forecast::Forecasts;
use super::rung::{Rung, Verdict, surprise, verdict};
use super::{Check, Checks, Climber, Watcher};
use crate::bench::{Bench, ExperimentError, program};
use crate::turns::{Patience, Rounds, Speedup, race};
use headroom_engine::Program;
use headroom_graph::passes::{OFFERED, PassList};
use headroom_record::race::RaceRecord;
use headroom_record::statistics::Interval;
use headroom_training::memory::MemoryNeed;
use headroom_training::program::Keep;
use std::collections::BTreeMap;
use std::time::Instant;

/// Steps of every list whose calls are timed.
const RECORDED: usize = 2;

/// Share of the free memory that all models together may take.
const SHARE_OF_ROOM: f64 = 0.7;

/// Lists that leave the screening, besides Version 1.
const FINALISTS: usize = 4;

/// Lists that the screening shows to be slower than the best by more than this are not finalists (logarithm).
const WITHIN_REACH: f64 = 0.05;

struct Entry {
    list: PassList,
    program: Program,
    memory: usize,
    /// Losses of the first steps, as many as one of its models has taken.
    curve: Vec<f32>,
    /// Seconds of each call; empty if its steps were not recorded.
    calls: Vec<f64>,
    check: Option<Check>,
}

pub(super) struct Finals<'a> {
    climber: &'a Climber<'a>,
    patience: Patience,
    min_speedup: Option<f64>,
    room: Option<usize>,
    entries: Vec<Entry>,
    /// Warm models by entry, as many as fit into memory together.
    warm: BTreeMap<usize, Bench>,
    rounds: Rounds,
    /// Entries of the final, Version 1 first; empty before it.
    finalists: Vec<usize>,
}

impl<'a> Finals<'a> {
    /// `min_speedup` is what the best list has to reach, `room` the bytes that models may take.
    pub fn new(
        climber: &'a Climber<'a>,
        patience: Patience,
        min_speedup: Option<f64>,
        room: Option<usize>,
    ) -> Finals<'a> {
        let room = room.map(|bytes| (bytes as f64 * SHARE_OF_ROOM) as usize);
        let rounds = Rounds::new(patience.looks());
        let (entries, warm, finalists) = (vec![], BTreeMap::new(), vec![]);
        Finals { climber, patience, min_speedup, room, entries, warm, rounds, finalists }
    }

    /// Adds a list; the same list again gets the same number.
    pub fn enter(&mut self, list: &PassList) -> Result<usize, ExperimentError> {
        if let Some(at) = self.find(list) {
            return Ok(at);
        }
        let program = program(self.climber.step, &self.climber.variant(list), Keep::OnlyTheLoss)?.program;
        let memory = MemoryNeed::of(std::slice::from_ref(&program), self.climber.setting.opening.threads).total();
        let entry = Entry { list: list.clone(), program, memory, curve: vec![], calls: vec![], check: None };
        self.entries.push(entry);
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

    /// How fast the screening found a list; `None` if it did not run.
    pub fn screened_speed(&self, list: &PassList) -> Option<f64> {
        screened_speed(&self.rounds, self.find(list)?)
    }

    /// Seconds per step of a list: those of the baseline over its speed-up, so that both agree.
    pub fn seconds(&self, of: usize) -> Option<Interval> {
        let (first, own) = (self.rounds.seconds(0)?, self.rounds.seconds(of)?);
        let scale = first.value / self.over_baseline(of).ratio / own.value;
        Some(own.map(|seconds| seconds * scale))
    }

    /// Adds a warm model of a list that is entered.
    pub fn hold(&mut self, at: usize, bench: Bench) {
        self.note_curve(at, &bench);
        self.warm.insert(at, bench);
    }

    /// Records some steps of a list; returns its program and the seconds of its calls.
    pub fn record(&mut self, at: usize) -> Result<(&Program, &[f64]), ExperimentError> {
        if self.entries[at].calls.is_empty() {
            let mut bench = self.take_warm(at)?;
            self.entries[at].calls = bench.call_seconds(RECORDED)?;
            self.put_back(at, bench);
        }
        Ok((&self.entries[at].program, &self.entries[at].calls))
    }

    /// Frees the memory of all models.
    fn release(&mut self) {
        self.warm.clear();
    }

    /// Lets models of these lists take the steps that their curves lack, and frees the memory of all models.
    pub fn continue_curves(&mut self, members: &[usize], steps: usize) -> Result<(), ExperimentError> {
        for &at in members {
            if self.entries[at].curve.len() >= steps {
                continue;
            }
            let mut bench = self.take_warm(at)?;
            bench.losses(steps.saturating_sub(bench.curve().len()))?;
            self.note_curve(at, &bench);
        }
        self.release();
        Ok(())
    }

    /// Whether other programs disturbed most rounds so far.
    pub fn is_disturbed(&self) -> bool {
        2 * self.rounds.disturbed() > self.rounds.count()
    }

    fn take_warm(&mut self, at: usize) -> Result<Bench, ExperimentError> {
        if let Some(bench) = self.warm.remove(&at) {
            return Ok(bench);
        }
        self.climber.warm(&self.entries[at].list)
    }

    fn note_curve(&mut self, at: usize, bench: &Bench) {
        let known = &mut self.entries[at].curve;
        if bench.curve().len() > known.len() {
            *known = bench.curve().to_vec();
        }
    }

    /// Losses of a list's first steps, as far as its models have gone.
    pub fn curve(&self, at: usize) -> &[f32] {
        &self.entries[at].curve
    }

    /// Keeps a model for its next turn, if all that are kept fit.
    fn put_back(&mut self, at: usize, bench: Bench) {
        self.note_curve(at, &bench);
        let held: usize = self.warm.keys().map(|at| self.entries[*at].memory).sum();
        if self.room.is_none_or(|room| held + self.entries[at].memory <= room) {
            self.warm.insert(at, bench);
        }
    }

    /// Lets every list run a few rounds.
    pub fn screen(
        &mut self,
        patience: &Patience,
        until: Instant,
        watcher: &mut dyn Watcher,
    ) -> Result<(), ExperimentError> {
        let members: Vec<usize> = (0..self.entries.len()).collect();
        self.race(&members, patience, until, &mut |_, _| false, watcher)
    }

    /// Chooses the lists that could be the best and lets them run against the baseline until the best is proved, told
    /// from the others, or the clock ends it. Their rounds of the screening do not count.
    pub fn prove(
        &mut self,
        nominated: &[usize],
        checks: &mut Checks,
        until: Instant,
        watcher: &mut dyn Watcher,
    ) -> Result<(), ExperimentError> {
        let mut by_speed: Vec<(usize, f64)> =
            (1..self.entries.len()).filter_map(|at| Some((at, self.screened_speed(&self.entries[at].list)?))).collect();
        by_speed.sort_by(|left, right| right.1.total_cmp(&left.1));
        let best = by_speed.first().map_or(0.0, |(_, speed)| *speed);
        let promising = by_speed.iter().filter(|(_, speed)| *speed >= best - WITHIN_REACH).map(|(at, _)| *at);
        let mut chosen = vec![];
        for at in nominated.iter().copied().chain(promising) {
            if chosen.len() < FINALISTS && at != 0 && !chosen.contains(&at) && self.check(at, checks)?.exact {
                chosen.push(at);
            }
        }
        self.rounds.start_over(&chosen);
        self.finalists = [vec![0], chosen].concat();
        let (patience, finalists, limit) =
            (self.patience, self.finalists.clone(), self.min_speedup.unwrap_or(LEAST_GAIN));
        let mut settled = |rounds: &Rounds, watcher: &mut dyn Watcher| {
            let leader = finalists
                .iter()
                .copied()
                .max_by(|a, b| rounds.speedup(*a, 0).low.total_cmp(&rounds.speedup(*b, 0).low));
            let leader = leader.unwrap_or(0);
            let leads = rounds.speedup(leader, 0);
            watcher.doing(&format!(
                "after {} rounds the best proven speed-up is {:.2}× ({:.2} to {:.2})",
                leads.rounds, leads.ratio, leads.low, leads.high
            ));
            let is_known = |at: &usize| rounds.speedup(leader, *at).stands();
            (leads.low >= limit || leads.high < limit) && finalists.iter().filter(|at| **at != leader).all(is_known)
        };
        let members = self.finalists.clone();
        // New models: one that was fast in the screening by where its memory lies would stay so.
        members.iter().for_each(|at| drop(self.warm.remove(at)));
        self.race(&members, &patience, until, &mut settled, watcher)
    }

    /// Races in groups if not all fit into memory, with the baseline in each group.
    fn race(
        &mut self,
        members: &[usize],
        patience: &Patience,
        until: Instant,
        settled: &mut dyn FnMut(&Rounds, &mut dyn Watcher) -> bool,
        watcher: &mut dyn Watcher,
    ) -> Result<(), ExperimentError> {
        let needs: Vec<usize> = self.entries.iter().map(|entry| entry.memory).collect();
        let groups = groups(members, &needs, self.room);
        if groups.len() > 1 {
            self.release();
        }
        for (number, group) in groups.iter().enumerate() {
            let now = Instant::now();
            let until = now + until.saturating_duration_since(now) / (groups.len() - number) as u32;
            watcher.doing(&format!("measuring {} lists, alternating", group.len()));
            let mut benches = vec![];
            for &at in group {
                benches.push((at, self.take_warm(at)?));
            }
            race(&mut self.rounds, &mut benches, patience, until, &mut |rounds| settled(rounds, watcher))?;
            for (at, bench) in benches {
                match groups.len() {
                    1 => self.put_back(at, bench),
                    _ => self.note_curve(at, &bench),
                }
            }
        }
        Ok(())
    }

    /// Proved lists, the highest lower end of the interval first. All are exact and faster than the baseline.
    pub fn proved(&self) -> Vec<usize> {
        proved(&self.finalists, |at| self.over_baseline(at))
    }

    /// A finalist that looks faster than the baseline and is not proved, if none is.
    pub fn unproved(&self) -> Option<(PassList, Speedup)> {
        let faster = self.finalists.iter().map(|&at| (at, self.over_baseline(at))).filter(|(_, own)| own.ratio > 1.0);
        let best = faster.max_by(|left, right| left.1.ratio.total_cmp(&right.1.ratio));
        best.filter(|_| self.proved().is_empty()).map(|(at, own)| (self.list(at), own))
    }

    /// Measures the way to the kept list pass by pass, as far as the screening did not.
    pub fn measure_way(
        &mut self,
        way: &[PassList],
        patience: &Patience,
        until: Instant,
        watcher: &mut dyn Watcher,
    ) -> Result<(), ExperimentError> {
        let mut missing = vec![];
        for list in way {
            let at = self.enter(list)?;
            if self.over_baseline(at).rounds == 0 {
                missing.push(at);
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        missing.insert(0, 0);
        self.race(&missing, patience, until, &mut |_, _| false, watcher)
    }

    /// Checks a list against Version 1; once.
    pub fn check(&mut self, at: usize, checks: &mut Checks) -> Result<Check, ExperimentError> {
        if let Some(known) = self.entries[at].check {
            return Ok(known);
        }
        if self.entries[at].curve.is_empty() {
            let bench = self.take_warm(at)?;
            self.put_back(at, bench);
        }
        let check = checks.of(&self.entries[at].list, &self.entries[at].curve)?;
        self.entries[at].check = Some(check);
        Ok(check)
    }

    /// Lists of the final that cannot be distinguished from the chosen one, fastest first.
    pub fn as_good(&self, chosen: usize) -> Vec<(PassList, Speedup)> {
        let others = self.finalists.iter().copied().filter(|at| *at != chosen && chosen != 0);
        let mut found: Vec<(PassList, Speedup)> =
            others.map(|at| (self.list(at), self.speedup(at, chosen))).filter(|(_, speed)| speed.high >= 1.0).collect();
        found.sort_by(|left, right| right.1.ratio.total_cmp(&left.1.ratio));
        found
    }

    /// How undisturbed the race was.
    pub fn race_record(&self) -> RaceRecord {
        RaceRecord::of(&self.rounds, self.entries.iter().map(|entry| entry.list.label().replace('+', ",")).collect())
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
            rungs.push(Rung { verdict: verdict(&rung, self.known_check(at).exact, is_kept), ..rung });
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

    /// The check of a list that is shown, made beforehand by [`Finals::check`].
    fn known_check(&self, at: usize) -> Check {
        self.entries[at].check.unwrap_or(Check::SAME)
    }

    fn plain_rung(&self, name: &str, before: usize, after: usize) -> Rung {
        let (old, new) = (&self.entries[before], &self.entries[after]);
        let check = self.known_check(after);
        Rung {
            name: name.into(),
            list: new.list.clone(),
            predicted: None,
            measured: self.speedup(after, before),
            memory: (old.memory, new.memory),
            kernels: (old.program.kernels(), new.program.kernels()),
            loss_difference: check.loss_difference,
            gradient_difference: check.gradient_difference,
            curve_difference: check.curve_difference,
            verdict: Verdict::Measured,
            surprise: None,
        }
    }
}

/// Logarithm of a speed relative to the baseline, each by its fastest round. Other programs only ever add time, and the
/// mean of a screening's three rounds keeps whatever they added to one.
fn screened_speed(rounds: &Rounds, of: usize) -> Option<f64> {
    let fastest = |at: usize| rounds.times(at).into_iter().reduce(f64::min);
    Some((fastest(0)? / fastest(of)?).ln())
}

/// A gain is proved if its interval lies above this. Two models of one and the same list differ by up to a percent for as
/// long as they live, presumably by where their memory lies, and no number of rounds averages that.
const LEAST_GAIN: f64 = 1.005;

/// Those faster than the baseline beyond the noise, the highest lower end first: the largest gain that is proved.
fn proved(among: &[usize], over_baseline: impl Fn(usize) -> Speedup) -> Vec<usize> {
    let mut found: Vec<(usize, f64)> = among
        .iter()
        .filter(|at| **at != 0)
        .map(|&at| (at, over_baseline(at).low))
        .filter(|(_, low)| *low > LEAST_GAIN)
        .collect();
    found.sort_by(|left, right| right.1.total_cmp(&left.1));
    found.into_iter().map(|(at, _)| at).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turns::Turn;

    fn speedup(low: f64, ratio: f64, high: f64) -> Speedup {
        Speedup { ratio, low, high, rounds: 9 }
    }

    #[test]
    fn the_largest_proven_gain_is_recommended_and_not_the_highest_median() {
        let found = |at: usize| {
            [speedup(1.0, 1.0, 1.0), speedup(0.29, 1.33, 6.01), speedup(1.09, 1.12, 1.15), speedup(1.05, 1.13, 1.20)]
                [at]
        };
        assert_eq!(proved(&[0, 1, 2, 3], found), [2, 3]);
        assert!(proved(&[0, 1], found).is_empty(), "a faster median without proof is not recommended");
        assert!(proved(&[0], found).is_empty());
    }

    #[test]
    fn one_slow_round_of_three_keeps_no_list_out_of_the_final() {
        let mut rounds = Rounds::new(1);
        for _ in 0..4 {
            rounds.join();
        }
        for seconds in [[1.20, 1.10, 1.05], [1.21, 1.11, 1.90], [1.19, 1.12, 1.06]] {
            let turn = |(at, seconds)| (at, Turn { seconds, interference: None, is_disturbed: false });
            rounds.push(&seconds.into_iter().enumerate().map(turn).collect::<Vec<_>>());
        }
        let speed = |of| screened_speed(&rounds, of).expect("it ran");
        assert!(speed(2) > speed(1) && speed(1) > 0.07 && speed(0) == 0.0);
        assert!(rounds.speedup(2, 1).ratio < 1.0, "a mean says the opposite");
        assert_eq!(screened_speed(&rounds, 3), None);
    }

    #[test]
    fn a_gain_that_equal_lists_show_too_is_not_proved() {
        let found = |at: usize| [speedup(1.0, 1.0, 1.0), speedup(1.003, 1.011, 1.018), speedup(1.006, 1.01, 1.014)][at];
        assert_eq!(proved(&[0, 1, 2], found), [2]);
    }

    #[test]
    fn lists_race_in_groups_where_memory_is_short_and_the_first_is_in_each() {
        assert_eq!(groups(&[0, 1, 2, 3], &[10, 10, 10, 10], Some(30)), [vec![0, 1, 2], vec![0, 3]]);
        assert_eq!(groups(&[0, 1, 2, 3], &[10, 10, 10, 10], None), [vec![0, 1, 2, 3]]);
        assert_eq!(groups(&[0, 1, 2], &[10, 90, 90], Some(30)), [vec![0, 1], vec![0, 2]]);
    }
}
