//! The proof: fresh processes of the unmodified script and of the patched one alternate, in balanced order. Whatever does
//! not come out faster there is not kept for its speed.

use super::time::LEAST;
use super::{AS_FAST, Doubt, NotMeasured, Outcome, Row, Search, WORTH};
use crate::gates::{Proof, of_patch};
use crate::note::Note;
use crate::variant::{Variant, Way};
use headroom_record::gate::Gate;
use headroom_record::statistics::MISSED;
use headroom_record::turns::{Speedup, missed_at, place};
use std::path::PathBuf;

/// Times that the final turns are looked at: after the processes asked for, and after twice and four times as many while
/// they decide nothing and time is left.
const LOOKS: u32 = 3;

/// The result of the search.
#[derive(Clone, Debug)]
pub struct Found {
    pub rows: Vec<Row>,
    pub kept: Variant,
    /// Everything kept relative to the unmodified script, in final turns.
    pub speedup: Speedup,
    pub proved_as: ProvedAs,
    pub originals: Vec<Note>,
    pub finals: Vec<Note>,
    /// From the unmodified script to the kept variant, each compared with the one before; then over an epoch's end.
    pub links: Vec<Proof>,
    pub patched: Option<Patched>,
    /// Number of processes started.
    pub processes: usize,
}

/// The form in which the kept remedies took the final turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProvedAs {
    Patch,
    /// Applied from outside: no patch could be written, or it did not run.
    Remedies,
}

impl ProvedAs {
    pub fn name(self) -> &'static str {
        match self {
            ProvedAs::Patch => "patch",
            ProvedAs::Remedies => "remedies",
        }
    }
}

/// The script with the patch in its files.
#[derive(Clone, Debug)]
pub struct Patched {
    /// Relative to the unmodified script; `None` if no process of it was measured.
    pub speedup: Option<Speedup>,
    pub notes: Vec<Note>,
    /// The same gates as for the kept variant, except memory and speed.
    pub gates: Vec<Gate>,
    /// Why it was not measured, or not often enough.
    pub why: Option<String>,
}

impl Search<'_> {
    /// Proves what was kept in fresh processes; `files` are the texts of the files that the patch changes, by path, if
    /// there is a patch. Without one, or if it does not run, the remedies are proved as applied from outside.
    pub fn finish(mut self, rows: Vec<Row>, files: Option<Vec<(PathBuf, String)>>) -> Result<Found, NotMeasured> {
        self.runner.set_proving(true);
        self.prove_across();
        let patch = files.filter(|_| self.best != 0).map(|files| {
            self.runner.patch_with(files);
            self.add(Variant::as_it_is(), Way::Patched)
        });
        let unchanged = self.add(Variant::as_it_is(), Way::Timed);
        let why = patch.and_then(|patch| self.take_final_turns(unchanged, patch));
        let has_run = |which: &usize| why.is_none() && !self.measured[*which].logs.is_empty();
        let proved = patch.filter(has_run).unwrap_or(self.best);
        let mut failed = None;
        if proved == self.best && self.best != 0 {
            // A failure takes nothing back: the gate of the speed says that it is not decided.
            failed = self.take_final_turns(unchanged, proved);
        }
        let speedup = match self.measured[unchanged].logs.len() {
            0 => self.speedup(self.best, 0, MISSED),
            _ => self.final_speedup(proved, unchanged),
        };
        let patched = patch.map(|which| {
            let runs = &self.measured[which];
            let over = (!runs.logs.is_empty()).then(|| self.final_speedup(which, unchanged));
            let gates = of_patch(self.originals(), &self.proof_of_patch(which));
            Patched { speedup: over, notes: runs.notes.clone(), gates, why: why.or(no_time(runs.logs.len())) }
        });
        let links = self.links.iter().flat_map(|link| self.proofs(link)).chain(self.proof_across()).collect();
        let originals = [&self.measured[0].notes[..], &self.measured[unchanged].notes[..]].concat();
        let best = self.measured[self.best].clone();
        let lacks_turns = self.best != 0 && self.measured[unchanged].logs.is_empty();
        let (rows, kept) = match lacks_turns {
            true if self.runner.is_over() => not_kept(rows, Doubt::Interrupted),
            true if failed.is_none() => not_kept(rows, Doubt::Turns),
            _ => only_proved(rows, best.variant, speedup),
        };
        let speedup = if kept.is_empty() { Speedup::none(speedup.rounds) } else { speedup };
        let proved_as = if Some(proved) == patch { ProvedAs::Patch } else { ProvedAs::Remedies };
        let processes = self.processes;
        Ok(Found { rows, kept, speedup, proved_as, originals, finals: best.notes, links, patched, processes })
    }

    /// Fresh processes of two variants in balanced order, at least two of each while any time is left. Returns why one
    /// was not measured.
    fn take_final_turns(&mut self, unchanged: usize, which: usize) -> Option<String> {
        let asked = self.asked_turns();
        for round in 1..=asked << (LOOKS - 1) {
            let is_look = (round - 1) % asked == 0 && ((round - 1) / asked).is_power_of_two();
            // Whoever ends the search waits for no more than the turns that were asked for.
            if is_look && (self.runner.is_over() || !self.is_open(which, unchanged)) {
                break;
            }
            let cost = self.cost(0) + self.cost_when_kept();
            // Going a little over the time limit is better than a figure from a single process.
            let is_room = match round {
                ..=LEAST => self.runner.seconds_at_most() >= cost,
                _ => self.runner.seconds_left() > cost,
            };
            if !is_room {
                break;
            }
            for turn in 0..2 {
                let next = [unchanged, which][place(round, turn, 2)];
                let within = self.runner.seconds_at_most();
                if let Err(outcome) = self.run(next, within) {
                    return Some(in_short(&outcome));
                }
            }
        }
        None
    }

    fn asked_turns(&self) -> usize {
        self.repeats.finals.max(LEAST)
    }

    /// Whether a gain that is worth something was seen and may be none.
    fn is_open(&self, which: usize, unchanged: usize) -> bool {
        let speedup = self.final_speedup(which, unchanged);
        speedup.low <= 1.0 && speedup.ratio > WORTH
    }

    /// The figure of the final turns, at the look that they have come to.
    fn final_speedup(&self, which: usize, unchanged: usize) -> Speedup {
        let rounds = self.measured[which].logs.len().min(self.measured[unchanged].logs.len());
        let look = rounds.div_ceil(self.asked_turns()).max(1).next_power_of_two().ilog2() + 1;
        self.speedup(which, unchanged, missed_at(look, LOOKS))
    }

    fn cost_when_kept(&self) -> f64 {
        self.cost(self.best)
    }
}

/// Drops whatever is not faster than the unmodified script: nothing is kept for its speed if the
/// interval includes 1. What is kept for its memory has to be as fast.
fn only_proved(mut rows: Vec<Row>, kept: Variant, speedup: Speedup) -> (Vec<Row>, Variant) {
    if speedup.rounds < LEAST || speedup.low > 1.0 {
        return (rows, kept);
    }
    let mut dropped = vec![];
    for row in rows.iter_mut().filter(|row| row.outcome.is_kept()) {
        if !row.outcome.is_kept_for_memory() || speedup.low <= AS_FAST {
            dropped.push(row.candidate.remedy.name);
            row.outcome = Outcome::NotProved(speedup);
        }
    }
    let kept = kept.without(&dropped);
    (rows, kept)
}

/// Drops everything for want of a proof.
fn not_kept(mut rows: Vec<Row>, doubt: Doubt) -> (Vec<Row>, Variant) {
    for row in rows.iter_mut().filter(|row| row.outcome.is_kept()) {
        row.outcome = Outcome::Undecided(doubt);
    }
    (rows, Variant::as_it_is())
}

fn no_time(count: usize) -> Option<String> {
    (count == 0).then(|| "too little time was left for it".into())
}

fn in_short(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Failed(why) => why.clone(),
        other => other.words(),
    }
}
