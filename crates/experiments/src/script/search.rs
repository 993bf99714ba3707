//! Remedies tried one after the other, the best predicted first, each on top of what was kept before it.
//!
//! A process is one figure: the median of its timed steps. Two variants take turns, and how far repeated processes of one
//! variant lie apart, over all variants together, says how sure a ratio is: a few processes of each are then enough.
//!
//! Many remedies are tried, so that one in twenty would be kept by chance: to be kept, one has to be faster with
//! a chance of 1% to be wrong. What is told of all that was kept holds with 95%, from turns at the end.

use super::gates::{Proof, losses, spread};
use super::note::{Note, Offer};
use super::{Ran, Runner, Variant, Way};
use crate::remedies::{Class, REMEDIES, Remedy};
use crate::turns::Speedup;
use headroom_record::statistics::{Interval, MISSED, pooled_difference};
use std::collections::BTreeMap;
use std::time::Duration;

/// Chance of a remedy that does nothing to be kept.
const CHANCE: f64 = 0.01;

/// A remedy that cannot be this much faster is not looked at further.
const WORTH: f64 = 1.005;

/// A remedy that may be faster by this much and is not shown to be faster is not decided.
const UNDECIDED: f64 = 1.05;

/// Runs of the script as it is with other random numbers of loading, where a remedy moves loading elsewhere.
const OTHER_LOADINGS: u32 = 2;

/// Seconds of compiling that a variant is given which was not compiled before.
const COMPILING: f64 = 30.0;

/// How often a comparison is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeats {
    /// Processes of the script as it is before anything is tried; their losses say how far runs differ.
    pub originals: usize,
    /// Processes of a remedy before it is judged, and at most.
    pub least: usize,
    pub most: usize,
    /// Processes of each side at the end.
    pub finals: usize,
}

/// A remedy that is to be tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    pub remedy: &'static Remedy,
    /// Share of the step that it is predicted to save; none where no finding asks for it.
    pub predicted: Option<f64>,
    /// Findings that it answers.
    pub answers: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Kept,
    WithinNoise,
    /// It may be much faster, or slower: processes differ too much, or time was short.
    Undecided,
    Slower,
    /// It is faster, and its losses are others, by this share where that one is allowed.
    OtherLosses(f64, f64),
    NothingToDo(String),
    Failed(String),
    TooLong(Duration),
    NotTried(String),
}

/// The verdict on one remedy.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub candidate: Candidate,
    pub outcome: Outcome,
    /// Over what was kept before it.
    pub speedup: Option<Speedup>,
    /// Share of the step of the script as it is, beyond what was kept before it.
    pub saved: Option<f64>,
    /// Bytes before and with it.
    pub memory: Option<(u64, u64)>,
    /// Seconds until its first timed step, and of compiling; beside the step, not in it.
    pub warmup_seconds: Option<f64>,
    pub compile_seconds: Option<f64>,
    /// Sentences of the hook.
    pub did: Vec<String>,
}

/// Selection by the command line.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub precision: bool,
    pub only: Vec<String>,
    pub skip: Vec<String>,
}

/// Remedies in the order in which they are tried, and rows of those that are not.
pub fn candidates(
    offered: &BTreeMap<String, Offer>,
    roadmap: &[(String, f64)],
    wanted: &Wanted,
) -> (Vec<Candidate>, Vec<Row>) {
    let mut tried = vec![];
    let mut left = vec![];
    for remedy in &REMEDIES {
        let answers: Vec<&(String, f64)> =
            roadmap.iter().filter(|(rule, _)| remedy.answers.contains(&rule.as_str())).collect();
        let predicted = (!answers.is_empty()).then(|| answers.iter().map(|(_, share)| share).sum::<f64>().min(1.0));
        let answers = answers.into_iter().map(|(rule, _)| rule.clone()).collect();
        let candidate = Candidate { remedy, predicted, answers };
        let named = |names: &[String]| names.iter().any(|name| name == remedy.name);
        let obstacle =
            offered.get(remedy.name).map_or(Some("the hook does not know it".into()), |offer| offer.obstacle.clone());
        let why = match () {
            () if named(&wanted.skip) => Some("left out by --skip".to_string()),
            () if !wanted.only.is_empty() && !named(&wanted.only) => Some("not among --only".to_string()),
            () if remedy.class == Class::Precision && !wanted.precision && !named(&wanted.only) => {
                Some("needs --allow precision".to_string())
            }
            () => obstacle,
        };
        match why {
            None => tried.push(candidate),
            Some(why) => left.push(Row::of(candidate, Outcome::NotTried(why))),
        }
    }
    tried.sort_by(|left, right| right.predicted.unwrap_or(0.0).total_cmp(&left.predicted.unwrap_or(0.0)));
    (tried, left)
}

impl Row {
    pub fn of(candidate: Candidate, outcome: Outcome) -> Row {
        Row {
            candidate,
            outcome,
            speedup: None,
            saved: None,
            memory: None,
            warmup_seconds: None,
            compile_seconds: None,
            did: vec![],
        }
    }
}

/// Processes of one variant.
#[derive(Clone, Debug)]
struct Runs {
    variant: Variant,
    notes: Vec<Note>,
    logs: Vec<f64>,
    /// A run whose random numbers are those of the script as it is, where its own are not.
    comparable: Option<Note>,
}

impl Runs {
    fn of(variant: Variant) -> Runs {
        Runs { variant, notes: vec![], logs: vec![], comparable: None }
    }

    fn take(&mut self, note: Note) -> Result<(), Outcome> {
        let Some(seconds) = note.seconds().filter(|seconds| *seconds > 0.0) else {
            return Err(Outcome::Failed("no step was timed".into()));
        };
        self.logs.push(seconds.ln());
        self.notes.push(note);
        Ok(())
    }

    fn memory(&self) -> Option<u64> {
        self.notes.iter().filter_map(Note::memory).max()
    }

    /// Seconds of a step: the geometric mean of its processes.
    fn seconds(&self) -> f64 {
        (self.logs.iter().sum::<f64>() / self.logs.len().max(1) as f64).exp()
    }
}

/// All that was found.
#[derive(Clone, Debug)]
pub struct Found {
    pub rows: Vec<Row>,
    pub kept: Variant,
    /// All that was kept over the script as it is.
    pub speedup: Speedup,
    pub originals: Vec<Note>,
    pub finals: Vec<Note>,
    pub proof: Proof,
    /// Processes that were started.
    pub processes: usize,
}

/// Why nothing can be tried.
#[derive(Clone, Debug, PartialEq)]
pub struct NotMeasured(pub String);

pub struct Search<'a> {
    runner: &'a mut dyn Runner,
    repeats: Repeats,
    /// The script as it is first, then everything that was measured.
    measured: Vec<Runs>,
    best: usize,
    /// The script as it is with other random numbers of loading, once it was asked for.
    other_loadings: Vec<Note>,
    /// The script as it is, moved a little.
    moved: Vec<(Way, Note)>,
    /// Seconds of the longest process that compiled nothing, and of the last one of each variant that does.
    longest: f64,
    compiled: BTreeMap<String, f64>,
    processes: usize,
    told: &'a mut dyn FnMut(&Row),
}

impl<'a> Search<'a> {
    /// Runs the script as it is some times.
    pub fn begin(
        runner: &'a mut dyn Runner,
        repeats: Repeats,
        told: &'a mut dyn FnMut(&Row),
    ) -> Result<Search<'a>, NotMeasured> {
        let mut search = Search {
            runner,
            repeats,
            measured: vec![Runs::of(Variant::as_it_is())],
            best: 0,
            other_loadings: vec![],
            moved: vec![],
            longest: 0.0,
            compiled: BTreeMap::new(),
            processes: 0,
            told,
        };
        for _ in 0..repeats.originals.max(2) {
            search.run(0).map_err(|outcome| NotMeasured(outcome.words()))?;
        }
        Ok(search)
    }

    /// Processes of the script as it is, as far as they ran.
    pub fn originals(&self) -> &[Note] {
        &self.measured[0].notes
    }

    /// Tries each, then lets what was kept and the script as it is take turns.
    pub fn go(mut self, candidates: Vec<Candidate>) -> Result<Found, NotMeasured> {
        let mut rows = vec![];
        for candidate in candidates {
            let row = self.attempt(candidate);
            (self.told)(&row);
            rows.push(row);
        }
        for _ in 0..self.repeats.finals {
            if self.best == 0 || !self.has_time_for(&[0, self.best]) {
                break;
            }
            // One that fails now takes nothing back of what was measured before.
            if [0, self.best].into_iter().any(|which| self.run(which).is_err()) {
                break;
            }
        }
        let speedup = self.speedup(self.best, 0, MISSED);
        let proof = self.proof(self.best);
        let (originals, best) = (self.measured[0].notes.clone(), self.measured[self.best].clone());
        let processes = self.processes;
        Ok(Found { rows, kept: best.variant, speedup, originals, finals: best.notes, proof, processes })
    }

    fn attempt(&mut self, candidate: Candidate) -> Row {
        let variant = self.measured[self.best].variant.with(candidate.remedy);
        let mut row = Row::of(candidate, Outcome::WithinNoise);
        self.measured.push(Runs::of(variant));
        let own = self.measured.len() - 1;
        // As many as a verdict takes, and a turn at the end that shows what was kept.
        let at_the_end = [0, self.best];
        let first: Vec<usize> = [vec![own], [self.best, own].repeat(self.repeats.least - 1)].concat();
        if !self.has_time_for(&[&first[..], &at_the_end].concat()) {
            self.measured.pop();
            row.outcome = Outcome::NotTried("no time was left for it".into());
            return row;
        }
        for round in 1..=self.repeats.most.max(self.repeats.least) {
            if round > self.repeats.least && !self.has_time_for(&[&[own, self.best], &at_the_end[..]].concat()) {
                break;
            }
            // The first process alone tells whether it runs at all; from then on both take turns.
            let ran = self.run(own).and_then(|()| if round > 1 { self.run(self.best) } else { Ok(()) });
            if let Err(outcome) = ran {
                row.outcome = outcome;
                return row;
            }
            if round == 1
                && let Some(why) = self.measured[own].notes[0].not_applied(row.candidate.remedy.name)
            {
                row.outcome =
                    if why.starts_with("it failed") { Outcome::Failed(why) } else { Outcome::NothingToDo(why) };
                return row;
            }
            let so_far = self.speedup(own, self.best, CHANCE);
            if so_far.high < WORTH || round >= self.repeats.least && so_far.low > 1.0 {
                break;
            }
        }
        self.judge(own, row)
    }

    fn judge(&mut self, own: usize, mut row: Row) -> Row {
        let speedup = self.speedup(own, self.best, MISSED);
        let is_faster = self.speedup(own, self.best, CHANCE).low > 1.0;
        let (best, runs) = (&self.measured[self.best], &self.measured[own]);
        row.memory = best.memory().zip(runs.memory());
        row.saved = Some((best.seconds() - runs.seconds()) / self.measured[0].seconds());
        if let Some(note) = runs.notes.first() {
            row.warmup_seconds = note.warmup_seconds;
            row.compile_seconds = note.compile.as_ref().map(|compile| compile.seconds);
            row.did = note.remedies.get(row.candidate.remedy.name).map_or(vec![], |applied| applied.did.clone());
        }
        row.speedup = Some(speedup);
        row.outcome = match () {
            () if speedup.high < 1.0 => Outcome::Slower,
            () if !is_faster && speedup.high > UNDECIDED => Outcome::Undecided,
            () if !is_faster => Outcome::WithinNoise,
            () => {
                let proof = self.proof(own);
                let same = losses(&proof, class_of(&self.measured[own].variant));
                if same.passed() { Outcome::Kept } else { Outcome::OtherLosses(same.figure, same.limit) }
            }
        };
        if row.outcome == Outcome::Kept {
            self.best = own;
        }
        row
    }

    /// Runs whose losses can be compared: of the script as it is, and of a variant. Compiled code draws the numbers of its
    /// dropout in another order, and workers of a loader draw others: both are run once more so that they say the same. Where
    /// losses differ by more than the class allows all the same, the script shows how far it moves them by itself.
    fn proof(&mut self, own: usize) -> Proof {
        let variant = self.measured[own].variant.clone();
        let mut references = self.originals().to_vec();
        let has_dropout = references.iter().any(|note| note.modules.iter().any(|module| module.dropouts > 0));
        let draws_otherwise = has_dropout && variant.is_compiled();
        if draws_otherwise && self.measured[own].comparable.is_none() && self.has_time_for(&[own]) {
            self.measured[own].comparable = self.extra(&variant, Way::ComparableRandom);
        }
        let draws = |note: &Note| note.loaders.iter().any(|loader| loader.draws_random == Some(true));
        if variant.moves_loading() && references.iter().any(draws) {
            for number in 1..=OTHER_LOADINGS {
                if self.other_loadings.len() < number as usize && self.has_time_for(&[0]) {
                    let note = self.extra(&Variant::as_it_is(), Way::OtherLoading(number));
                    self.other_loadings.extend(note);
                }
            }
            references.extend(self.other_loadings.iter().cloned());
        }
        let runs = &self.measured[own];
        let proofs = runs.comparable.as_ref().map_or_else(|| runs.notes.clone(), |note| vec![note.clone()]);
        let mut proof = Proof { references, moved: vec![], proofs };
        let class = class_of(&variant);
        if class >= Class::Rounding {
            let dropout = draws_otherwise.then_some(Way::OtherDropout);
            for way in [Some(Way::Moved(class)), dropout].into_iter().flatten() {
                if losses(&proof, class).passed() {
                    break;
                }
                proof.moved.extend(self.moved_by(way));
            }
        }
        proof
    }

    /// The script as it is, run once in that way.
    fn moved_by(&mut self, way: Way) -> Option<Note> {
        if let Some((_, note)) = self.moved.iter().find(|(known, _)| *known == way) {
            return Some(note.clone());
        }
        let note = if self.has_time_for(&[0]) { self.extra(&Variant::as_it_is(), way) } else { None };
        self.moved.extend(note.clone().map(|note| (way, note)));
        note
    }

    /// A process whose time does not count.
    fn extra(&mut self, variant: &Variant, way: Way) -> Option<Note> {
        match self.started(variant, way) {
            Ran::Measured(note) if note.obstacle().is_none() => Some(*note),
            _ => None,
        }
    }

    fn started(&mut self, variant: &Variant, way: Way) -> Ran {
        let before = self.runner.seconds_left();
        let ran = self.runner.run(variant, way);
        self.processes += 1;
        let seconds = before - self.runner.seconds_left();
        match variant.is_compiled() {
            true => drop(self.compiled.insert(variant.asked(), seconds)),
            false => self.longest = self.longest.max(seconds),
        }
        ran
    }

    fn run(&mut self, which: usize) -> Result<(), Outcome> {
        let variant = self.measured[which].variant.clone();
        match self.started(&variant, Way::Timed) {
            Ran::Measured(note) => match note.obstacle() {
                Some(obstacle) => Err(Outcome::Failed(obstacle)),
                None => self.measured[which].take(*note),
            },
            Ran::Failed(why) => Err(Outcome::Failed(why)),
            Ran::TooLong(limit) => Err(Outcome::TooLong(limit)),
        }
    }

    /// For one process of each.
    fn has_time_for(&self, which: &[usize]) -> bool {
        let seconds = |which: &usize| {
            let variant = &self.measured[*which].variant;
            match variant.is_compiled() {
                true => self.compiled.get(&variant.asked()).copied().unwrap_or(self.longest + COMPILING),
                false => self.longest,
            }
        };
        self.runner.seconds_left() > which.iter().map(seconds).sum()
    }

    fn speedup(&self, of: usize, over: usize, missed: f64) -> Speedup {
        let rounds = self.measured[of].logs.len().min(self.measured[over].logs.len());
        if of == over {
            return Speedup::none(rounds);
        }
        let all: Vec<&[f64]> = self.measured.iter().map(|runs| runs.logs.as_slice()).collect();
        let Interval { value, low, high } = pooled_difference(all[over], all[of], &all, missed);
        Speedup { ratio: value.exp(), low: low.exp(), high: high.exp().min(f64::MAX), rounds }
    }
}

impl Outcome {
    pub fn words(&self) -> String {
        match self {
            Outcome::Kept => "kept: faster".into(),
            Outcome::WithinNoise => "within noise".into(),
            Outcome::Undecided => "not decided: processes differ by too much".into(),
            Outcome::Slower => "slower".into(),
            Outcome::OtherLosses(share, limit) => {
                format!("not kept: its losses differ by {share:.1e} of them, {limit:.1e} allowed")
            }
            Outcome::NothingToDo(why) => format!("nothing to do: {why}"),
            Outcome::Failed(why) => format!("failed: {why}"),
            Outcome::TooLong(limit) => {
                format!("ended after {:.0} s, which is longer than it may take", limit.as_secs_f64())
            }
            Outcome::NotTried(why) => format!("not tried: {why}"),
        }
    }
}

/// The class among several remedies that allows the most.
pub fn class_of(variant: &Variant) -> Class {
    variant.remedies().iter().map(|remedy| remedy.class).max().unwrap_or(Class::Same)
}

/// Do runs of the script as it is differ at all?
pub fn repeats_itself(originals: &[Note]) -> bool {
    spread(originals) == 0.0
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
