//! The final comparison: the unmodified script, the kept variant and the patch alternate.

use super::time::LEAST;
use super::{NotMeasured, Outcome, Row, Search};
use crate::gates::{Proof, of_patch};
use crate::note::Note;
use crate::variant::{Variant, Way};
use headroom_record::gate::Gate;
use headroom_record::statistics::MISSED;
use headroom_record::turns::Speedup;
use std::path::PathBuf;

/// The result of the search.
#[derive(Clone, Debug)]
pub struct Found {
    pub rows: Vec<Row>,
    pub kept: Variant,
    /// The kept variant relative to the unmodified script.
    pub speedup: Speedup,
    pub originals: Vec<Note>,
    pub finals: Vec<Note>,
    /// From the unmodified script to the kept variant, each compared with the one before; then over an epoch's end.
    pub links: Vec<Proof>,
    pub patched: Option<Patched>,
    /// Number of processes started.
    pub processes: usize,
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
    /// Runs the final turns; `files` are the texts of the files that the patch changes, by path, if there is a patch.
    pub fn finish(mut self, rows: Vec<Row>, files: Option<Vec<(PathBuf, String)>>) -> Result<Found, NotMeasured> {
        let patch = files.map(|files| {
            self.runner.patch_with(files);
            self.add(Variant::as_it_is(), Way::Patched)
        });
        self.prove_across();
        let mut why = None;
        let mut turn =
            if self.best == 0 { vec![] } else { [Some(0), Some(self.best), patch].into_iter().flatten().collect() };
        for round in 0..self.repeats.finals.max(LEAST) {
            let cost = |which: &usize| if Some(*which) == patch { self.cost_when_kept() } else { self.cost(*which) };
            let is_time = self.runner.seconds_left() > turn.iter().map(cost).sum();
            for which in turn.clone() {
                let count = self.measured[which].logs.len();
                let is_needed = which != 0 && count < LEAST;
                // Going a little over the time limit is better than a figure from a single process.
                let left = self.runner.seconds_left();
                if round >= self.repeats.finals && !is_needed || !is_time && (!is_needed || left <= 0.0) {
                    continue;
                }
                if let Err(outcome) = self.run(which, left.max(1.5 * self.cost_when_kept())) {
                    turn.retain(|one| *one != which);
                    if Some(which) == patch {
                        why = Some(in_short(&outcome));
                    }
                }
            }
        }
        let speedup = self.speedup(self.best, 0, MISSED);
        let patched = patch.map(|which| {
            let runs = &self.measured[which];
            let over = (!runs.logs.is_empty()).then(|| self.speedup(which, 0, MISSED));
            let gates = of_patch(self.originals(), &self.proof_of_patch(which));
            Patched { speedup: over, notes: runs.notes.clone(), gates, why: why.or(no_time(runs.logs.len())) }
        });
        let links = self.links.iter().flat_map(|link| self.proofs(link)).chain(self.proof_across()).collect();
        let (originals, best) = (self.measured[0].notes.clone(), self.measured[self.best].clone());
        let processes = self.processes;
        Ok(Found { rows, kept: best.variant, speedup, originals, finals: best.notes, links, patched, processes })
    }

    fn cost_when_kept(&self) -> f64 {
        self.cost(self.best)
    }
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
