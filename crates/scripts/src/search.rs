//! Tries remedies one after the other, best predicted first, each on top of what was kept before it.
//!
//! A process gives one figure: the mean of its timed steps. Two variants alternate. The variation between repeated
//! processes of a variant, pooled over all variants, gives the uncertainty of a ratio, so a few processes of each are
//! enough.
//!
//! Many remedies are tried, so at the 5% level one in twenty would be kept by chance: to be kept, a remedy has to be
//! faster at the 1% level. The final figure for everything that was kept has a 95% interval, from runs that alternate
//! at the end.
//!
//! Time is limited: `time` decides which process may start, and how long it may take.

mod apart;
mod conducted;
mod finals;
mod proofs;
mod time;

use crate::candidates::{Candidate, LARGE, PROMISING, Unit, acts_on_the_host, units};
use crate::gates::{correct, ended_alike, spread};
use crate::note::Note;
use crate::outcome::{Doubt, Outcome, Row};
use crate::runs::{Runs, speedup};
use crate::variant::{Ran, Runner, Variant, Way, is_alternative};
pub use finals::{Found, Patched, ProvedAs};
use headroom_record::gate::{Answer, Gate};
use headroom_record::statistics::MISSED;
use headroom_record::turns::Speedup;
use proofs::Link;
use std::collections::BTreeMap;
use time::Compiled;

/// Probability of keeping a remedy that has no effect.
const CHANCE: f64 = 0.01;

/// A remedy that seems to gain less than this is not pursued.
const WORTH: f64 = 1.01;

/// A remedy that may be faster by this much, but is not shown to be faster, stays undecided.
const UNDECIDED: f64 = 1.05;

/// A remedy is kept for its memory if it needs at most this share of the memory before it; and the lowest speed ratio
/// accepted then.
const SMALLER: f64 = 0.95;

/// It also has to save this share of the device's memory: nobody misses less.
const NOTICEABLE: f64 = 0.01;
pub(crate) const AS_FAST: f64 = 0.97;

/// Gates that more processes may turn into a pass.
const PROVED: [&str; 4] = ["losses", "gradients", "batches", "loading"];

/// Gates without whose answer nothing is kept.
const DECIDED: [&str; 3] = ["losses", "gradients", "loading"];

/// How often a comparison is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeats {
    /// Processes of the unmodified script before anything is tried; their losses show how much runs differ.
    pub originals: usize,
    /// Most processes per remedy.
    pub most: usize,
    /// Most turns at the end.
    pub finals: usize,
}

/// Why nothing can be tried.
#[derive(Clone, Debug, PartialEq)]
pub struct NotMeasured(pub String);

pub struct Search<'a> {
    runner: &'a mut dyn Runner,
    repeats: Repeats,
    /// The unmodified script first, then everything that was measured.
    measured: Vec<Runs>,
    best: usize,
    /// The last variant kept before anything was compiled.
    uncompiled: usize,
    /// Kept variants, each compared with the one kept before it.
    links: Vec<Link>,
    /// Links that were proved, by the variant they belong to.
    proved: BTreeMap<usize, Link>,
    /// Runs of the unmodified script with other random numbers in data loading, once they were needed.
    other_loadings: Vec<Note>,
    /// Perturbed runs of the unmodified script.
    moved: Vec<(Way, Note)>,
    /// Runs that read batches again and end epochs early, by variant.
    across: Vec<(usize, Note)>,
    /// Total time, seconds of the longest process that did not compile, and seconds set aside for what comes later.
    limit: f64,
    longest: f64,
    set_aside: f64,
    /// Keyed by the code that is compiled.
    compiled: BTreeMap<String, Compiled>,
    saved: BTreeMap<&'static str, f64>,
    /// Remedies that pay one by one inside a process, with their figures.
    confirmed: BTreeMap<&'static str, Speedup>,
    /// The gates of variants that were fast enough for them.
    judged: BTreeMap<usize, Vec<Gate>>,
    processes: usize,
    told: &'a mut dyn FnMut(&Row),
}

impl<'a> Search<'a> {
    /// Runs the unmodified script several times. `first` is a run that has already been made.
    pub fn begin(
        runner: &'a mut dyn Runner,
        repeats: Repeats,
        first: Option<Note>,
        told: &'a mut dyn FnMut(&Row),
    ) -> Result<Search<'a>, NotMeasured> {
        let limit = runner.seconds_left();
        let mut search = Search {
            runner,
            repeats,
            measured: vec![Runs::of(Variant::as_it_is(), Way::Timed)],
            best: 0,
            uncompiled: 0,
            links: vec![],
            proved: BTreeMap::new(),
            other_loadings: vec![],
            moved: vec![],
            across: vec![],
            limit,
            longest: 0.0,
            set_aside: 0.0,
            compiled: BTreeMap::new(),
            saved: BTreeMap::new(),
            confirmed: BTreeMap::new(),
            judged: BTreeMap::new(),
            processes: 0,
            told,
        };
        if let Some(note) = first.filter(|note| note.obstacle().is_none()) {
            search.processes += 1;
            search.measured[0].take(note).map_err(|outcome| NotMeasured(outcome.words()))?;
        }
        while search.measured[0].logs.len() < repeats.originals.max(1) {
            let left = search.runner.seconds_left();
            search.run(0, left).map_err(|outcome| NotMeasured(outcome.words()))?;
        }
        Ok(search)
    }

    /// Runs of the unmodified script.
    pub fn originals(&self) -> &[Note] {
        &self.measured[0].notes
    }

    pub fn kept(&self) -> &Variant {
        &self.measured[self.best].variant
    }

    /// A run with everything that was kept.
    pub fn kept_note(&self) -> Option<&Note> {
        self.measured[self.best].notes.first()
    }

    /// Tries each candidate.
    pub fn try_all(&mut self, candidates: Vec<Candidate>) -> Vec<Row> {
        let mut rows = vec![];
        let mut units: std::collections::VecDeque<Unit> = units(candidates).into();
        while let Some(mut unit) = self.next(&mut units) {
            unit.iter_mut().for_each(|candidate| candidate.predicted = self.predicted(candidate));
            let tried = match self.runner.is_over() {
                true => not_tried(unit, "the search was interrupted"),
                false => self.attempt(unit, units.make_contiguous()),
            };
            for row in tried {
                (self.told)(&row);
                rows.push(row);
            }
        }
        rows
    }

    /// The next unit: promising ones come first, and one that is spent after all others.
    fn next(&self, units: &mut std::collections::VecDeque<Unit>) -> Option<Unit> {
        let is_promising =
            |unit: &Unit| unit.iter().any(|one| self.predicted(one).is_some_and(|share| share > PROMISING));
        let rank = |unit: &Unit| (self.is_spent(unit), !is_promising(unit));
        let first = (0..units.len()).min_by_key(|at| rank(&units[*at]))?;
        units.remove(first)
    }

    /// Whether an alternative was kept already and this one is predicted to add little.
    fn is_spent(&self, unit: &[Candidate]) -> bool {
        let [one] = unit else { return false };
        self.replaced(one.remedy.name).is_some() && self.predicted(one).is_some_and(|share| share < LARGE)
    }

    /// The saving still to be expected: at most what is left of the step, and only beyond what the remedy that it
    /// replaces saves.
    fn predicted(&self, candidate: &Candidate) -> Option<f64> {
        let left = self.measured[self.best].seconds() / self.measured[0].seconds();
        let replaced = self.replaced(candidate.remedy.name).unwrap_or(0.0);
        candidate.predicted.map(|share| (share - replaced).clamp(0.0, left.min(1.0)))
    }

    /// The saving of the kept remedy that it would replace.
    fn replaced(&self, name: &str) -> Option<f64> {
        let kept = self.kept().names();
        let replaced = kept.iter().find(|kept| is_alternative(kept, name))?;
        self.saved.get(replaced).copied()
    }

    fn attempt(&mut self, unit: Unit, rest: &[Unit]) -> Vec<Row> {
        let variant = unit.iter().fold(self.kept().clone(), |variant, one| variant.with(one.remedy));
        let all = |outcome: Outcome| unit.iter().map(|one| Row::of(one.clone(), outcome.clone())).collect::<Vec<Row>>();
        let own = self.add(variant, Way::Timed);
        let proofs = self.proofs_before(own);
        if self.least_cost(own) + self.cost(0) * proofs.len() as f64 > self.first_room(own, rest) {
            self.measured.pop();
            return not_tried(unit, "too little time was left for it");
        }
        self.measure_before(own, &proofs);
        let within = self.first_allowance(own, rest);
        if let Err(outcome) = self.run(own, within) {
            return all(outcome);
        }
        let note = self.measured[own].notes[0].clone();
        let (idle, working): (Vec<&Candidate>, Vec<&Candidate>) =
            unit.iter().partition(|one| note.not_applied(one.remedy.name).is_some());
        let mut rows: Vec<Row> = idle.into_iter().map(|one| idle_row(one, &note)).collect();
        if working.is_empty() {
            return rows;
        }
        let names: Vec<&'static str> = working.iter().map(|one| one.remedy.name).collect();
        self.measured[own].variant = self.narrowed(own, &names);
        let promises = unit.iter().any(|one| one.expects() >= LARGE);
        let doubt = self.take_turns(own, promises, rest);
        let verdict = self.verdict(own, doubt, promises);
        let speedup = self.speedup(own, self.best, MISSED);
        let mut found: Vec<Row> = working.into_iter().map(|one| self.row(one, own, &names)).collect();
        if verdict == Outcome::KeptSmaller && names.iter().any(|name| acts_on_the_host(name)) {
            let (idle, saving): (Vec<Row>, Vec<Row>) =
                found.into_iter().partition(|row| acts_on_the_host(row.candidate.remedy.name));
            rows.extend(idle.into_iter().map(|row| {
                let outcome = Outcome::NoGainTogether(others(&names, row.candidate.remedy.name));
                Row { speedup: Some(speedup), outcome, ..row }
            }));
            rows.extend(self.attempt(saving.into_iter().map(|row| row.candidate).collect(), rest));
            return rows;
        }
        match (&mut found[..], verdict) {
            ([row], verdict) => {
                row.speedup = Some(speedup);
                row.outcome = verdict;
                if row.outcome.is_kept() {
                    self.keep(own, &names, row.saved);
                }
            }
            (rows, Outcome::Kept) => self.take_apart(own, rows, rest),
            (rows, Outcome::KeptSmaller) => {
                for row in &mut *rows {
                    row.outcome = Outcome::KeptSmallerTogether(others(&names, row.candidate.remedy.name));
                }
                self.keep(own, &names, None);
            }
            (rows, verdict) => {
                for row in rows {
                    row.speedup = Some(speedup);
                    row.outcome = match &verdict {
                        Outcome::WithinNoise | Outcome::Slower => {
                            Outcome::NoGainTogether(others(&names, row.candidate.remedy.name))
                        }
                        other => other.clone(),
                    };
                }
            }
        }
        let gates = self.judged.get(&own).cloned().unwrap_or_default();
        found.iter_mut().for_each(|row| row.gates.clone_from(&gates));
        rows.extend(found);
        rows
    }

    /// The variant without the remedies that found nothing to do.
    fn narrowed(&self, own: usize, names: &[&'static str]) -> Variant {
        let before = self.kept().names();
        let variant = &self.measured[own].variant;
        let idle: Vec<&str> =
            variant.names().into_iter().filter(|name| !names.contains(name) && !before.contains(name)).collect();
        variant.without(&idle)
    }

    fn add(&mut self, variant: Variant, way: Way) -> usize {
        self.measured.push(Runs::of(variant, way));
        self.measured.len() - 1
    }

    /// Alternates processes until the remedy is faster, not worth pursuing, or time is short. A remedy is kept after a
    /// single process only if others with large predictions would otherwise have no time. One with a small prediction
    /// leaves them their time, decided or not.
    fn take_turns(&mut self, own: usize, promises: bool, rest: &[Unit]) -> Doubt {
        // The last one to be tried gets all the time left.
        let most = if rest.is_empty() { 2 * self.repeats.most } else { self.repeats.most };
        while self.measured[own].logs.len() < most {
            let likely = self.speedup(own, self.best, MISSED);
            let may_be_smaller = likely.low <= AS_FAST && self.is_smaller(own);
            if likely.high < 1.0 || likely.ratio < WORTH && likely.high < UNDECIDED && !may_be_smaller {
                break;
            }
            let is_faster = self.speedup(own, self.best, CHANCE).low > 1.0;
            let count = self.measured[own].logs.len();
            if is_faster && count >= 2 {
                break;
            }
            if self.runner.is_over() {
                return Doubt::Interrupted;
            }
            let mut turn = vec![own];
            if self.measured[self.best].logs.len() <= count {
                turn.insert(0, self.best);
            }
            let cost: f64 = turn.iter().map(|which| self.cost(*which)).sum();
            let needed = if is_faster || !promises { self.pending(rest) } else { 0.0 };
            let doubt = if count >= self.repeats.most { Doubt::Noise } else { Doubt::Time };
            if cost + needed > self.allowance(own) {
                return doubt;
            }
            for which in turn {
                let within = self.allowance(own);
                // A failure now does not invalidate earlier measurements.
                if self.run(which, within).is_err() {
                    return doubt;
                }
            }
        }
        Doubt::Noise
    }

    /// A remedy with a large prediction stays undecided while it may be much faster. One that no finding suggests, and
    /// that was not faster in all its processes, has no gain beyond the noise.
    fn verdict(&mut self, own: usize, doubt: Doubt, promises: bool) -> Outcome {
        let likely = self.speedup(own, self.best, MISSED);
        let is_faster = self.speedup(own, self.best, CHANCE).low > 1.0;
        let is_smaller = likely.low > AS_FAST && self.is_smaller(own);
        let is_open = likely.high > UNDECIDED && (promises || doubt != Doubt::Noise);
        match () {
            () if likely.high < 1.0 => Outcome::Slower,
            () if !is_faster && !is_smaller && is_open => Outcome::Undecided(doubt),
            () if !is_faster && !is_smaller => Outcome::WithinNoise,
            () => match self.refusal(own) {
                Some(outcome) => outcome,
                None if is_faster => Outcome::Kept,
                None => Outcome::KeptSmaller,
            },
        }
    }

    /// Less device memory, either allocated or reserved, and not more of the other.
    fn is_smaller(&self, own: usize) -> bool {
        let before = self.kept().names();
        let added = self.measured[own].variant.names().into_iter().filter(|name| !before.contains(name));
        if added.into_iter().all(acts_on_the_host) {
            return false;
        }
        let most =
            |which: usize, read: fn(&Note) -> Option<u64>| self.measured[which].notes.iter().filter_map(read).max();
        let device = self.originals().first().and_then(|note| note.device_bytes).unwrap_or(0) as f64;
        let share = |read| {
            let (own, before) = (most(own, read)? as f64, most(self.best, read)?.max(1) as f64);
            let is_noticed = own <= SMALLER * before && before - own >= NOTICEABLE * device;
            Some((own / before, is_noticed))
        };
        let both = share(|note| note.peak_bytes).zip(share(|note| note.peak_reserved_bytes));
        both.is_some_and(|(one, other)| (one.1 || other.1) && one.0.max(other.0) <= 1.01)
    }

    /// Why a faster or smaller variant is not kept: a gate fails, or there was no time to prove that none does.
    fn refusal(&mut self, own: usize) -> Option<Outcome> {
        let link = self.prove(own);
        let gates = correct(self.originals(), &self.measured[own].notes, &self.proofs(&link));
        let is_open = |gate: &Gate| link.lacks_time && PROVED.contains(&gate.name);
        let needs_answer = |gate: &Gate| gate.answer == Answer::Undecided && DECIDED.contains(&gate.name);
        let is_against = |gate: &Gate| gate.answer == Answer::Fail || needs_answer(gate);
        let judged = gates.clone();
        let mut against: Vec<Gate> = gates.into_iter().filter(is_against).collect();
        self.judged.insert(own, judged);
        against.sort_by_key(|gate| (is_open(gate), gate.answer != Answer::Fail));
        let outcome = against.first().map(|gate| match (gate.answer, gate.name) {
            _ if is_open(gate) => Outcome::Undecided(Doubt::Proof),
            (Answer::Fail, "loading") => Outcome::WrongBatches(gate.about.clone()),
            (Answer::Fail, _) => Outcome::Refused(gate.name, gate.figure, gate.limit),
            (_, "loading") => Outcome::Undecided(Doubt::Loading),
            _ if self.varies_by_draws(&link) => Outcome::Undecided(Doubt::Draws),
            _ => Outcome::Undecided(Doubt::Varies),
        });
        self.proved.insert(own, link);
        outcome
    }

    fn keep(&mut self, own: usize, names: &[&'static str], saved: Option<f64>) {
        let link = self.link(own);
        let kept = &self.measured[own].variant;
        if !kept.is_compiled() {
            self.uncompiled = own;
        }
        // A remedy that was replaced is no longer in the chain.
        let before = self.kept().names();
        let replaced = before.iter().any(|name| !kept.names().contains(name));
        for name in names {
            let replaced = self.replaced(name).unwrap_or(0.0);
            self.saved.insert(name, saved.unwrap_or(0.0) + replaced);
        }
        if replaced {
            let over = link.over;
            self.links.retain(|link| link.own <= over);
        }
        self.links.push(link);
        self.best = own;
        self.runner.set_best(self.measured[0].seconds() / self.measured[own].seconds());
    }

    fn row(&self, candidate: &Candidate, own: usize, names: &[&'static str]) -> Row {
        let (best, runs) = (&self.measured[self.best], &self.measured[own]);
        let mut row = Row::of(candidate.clone(), Outcome::WithinNoise);
        if names.len() == 1 {
            row.memory = best.memory().zip(runs.memory());
            row.saved = Some((best.seconds() - runs.seconds()) / self.measured[0].seconds());
        }
        if let Some(note) = runs.notes.first() {
            row.warmup_seconds = note.warmup_seconds;
            row.compile_seconds = note.compile.as_ref().map(|compile| compile.seconds);
            row.did = note.remedies.get(candidate.remedy.name).map_or(vec![], |applied| applied.did.clone());
        }
        row
    }

    fn run(&mut self, which: usize, within: f64) -> Result<(), Outcome> {
        let (variant, way) = (self.measured[which].variant.clone(), self.measured[which].way);
        match self.started(&variant, way, within) {
            Ran::Measured(note) => match note.obstacle() {
                Some(obstacle) => Err(Outcome::Failed(obstacle)),
                None if which > 0 && !ended_alike(self.originals(), &note) => Err(Outcome::Failed(format!(
                    "it ended after {} steps, earlier than the unchanged script",
                    note.steps
                ))),
                None => self.measured[which].take(*note),
            },
            Ran::Failed(why) => Err(Outcome::Failed(why)),
            Ran::TooLong(limit) => Err(Outcome::TooLong(limit)),
            Ran::Interrupted => Err(Outcome::Undecided(Doubt::Interrupted)),
        }
    }

    fn speedup(&self, of: usize, over: usize, missed: f64) -> Speedup {
        if of == over {
            return Speedup::none(self.measured[of].logs.len());
        }
        speedup(&self.measured[of], &self.measured[over], &self.measured, missed)
    }
}

fn not_tried(unit: Unit, why: &str) -> Vec<Row> {
    unit.into_iter().map(|one| Row::of(one, Outcome::NotTried(why.into()))).collect()
}

fn idle_row(candidate: &Candidate, note: &Note) -> Row {
    let why = note.not_applied(candidate.remedy.name).unwrap_or_default();
    let outcome = if why.starts_with("it failed") { Outcome::Failed(why) } else { Outcome::NothingToDo(why) };
    Row::of(candidate.clone(), outcome)
}

fn others(names: &[&'static str], own: &str) -> Vec<&'static str> {
    names.iter().copied().filter(|name| *name != own).collect()
}

/// Whether all runs of the unmodified script are identical.
pub fn repeats_itself(originals: &[Note]) -> bool {
    spread(originals) == 0.0
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "search_conducted_tests.rs"]
mod conducted_tests;

#[cfg(test)]
#[path = "search_ended_tests.rs"]
mod ended_tests;

#[cfg(test)]
#[path = "search_epochs_tests.rs"]
mod epochs_tests;

#[cfg(test)]
#[path = "search_memory_tests.rs"]
mod memory_tests;

#[cfg(test)]
#[path = "search_simulated_tests.rs"]
mod simulated_tests;
