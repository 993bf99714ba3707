//! Takes over the findings of a search inside a process: everything it kept is tried
//! together, in fresh processes, and whatever it decided against is not tried again.

use super::{Candidate, Outcome, Row, Search, Unit, units};
use crate::conductor::search::{Conducted, Verdict};
use headroom_record::turns::Speedup;

impl Search<'_> {
    /// Tries what was kept inside a process, all of it together, then every candidate that was not decided there.
    pub fn try_conducted(&mut self, conducted: &Conducted, candidates: Vec<Candidate>) -> Vec<Row> {
        let mut rows = vec![];
        let mut unit: Unit = vec![];
        let mut rest: Vec<Candidate> = vec![];
        for candidate in candidates {
            let decided = conducted.verdicts.iter().find(|(remedy, ..)| *remedy == candidate.remedy);
            match decided {
                Some((_, Verdict::Kept, speedup)) => {
                    self.confirmed.extend(speedup.map(|speedup| (candidate.remedy.name, speedup)));
                    unit.push(candidate);
                }
                Some((_, verdict, speedup)) => match outcome_of(verdict) {
                    Some(outcome) => {
                        let mut row = Row::of(candidate, outcome);
                        row.speedup = *speedup;
                        (self.told)(&row);
                        rows.push(row);
                    }
                    None => rest.push(candidate),
                },
                None => rest.push(candidate),
            }
        }
        if !unit.is_empty() {
            let tried = self.attempt(unit.clone(), &units(rest.clone()));
            if tried.iter().any(|row| row.outcome.is_kept()) || unit.len() == 1 {
                tried.iter().for_each(|row| (self.told)(row));
                rows.extend(tried);
            } else {
                // Together they are refused, or not faster in fresh processes: one at a time, they may be.
                rest.splice(0..0, unit);
            }
        }
        rows.extend(self.try_all(rest));
        rows
    }

    /// The rows of remedies that were confirmed one by one inside a process, and are faster together in a fresh one.
    pub(super) fn keep_confirmed(&mut self, own: usize, rows: &mut [Row]) {
        let (best, runs) = (&self.measured[self.best], &self.measured[own]);
        let saved = (best.seconds() - runs.seconds()) / self.measured[0].seconds();
        let names: Vec<&'static str> = rows.iter().map(|row| row.candidate.remedy.name).collect();
        let gain = |name: &str| self.confirmed.get(name).map_or(0.0, |speedup: &Speedup| speedup.ratio.ln().max(0.0));
        let total: f64 = names.iter().map(|name| gain(name)).sum();
        for row in rows.iter_mut() {
            let name = row.candidate.remedy.name;
            row.speedup = self.confirmed.get(name).copied();
            row.saved = (total > 0.0).then(|| saved * gain(name) / total);
            row.outcome = Outcome::Kept;
        }
        self.keep(own, &names, Some(saved / names.len().max(1) as f64));
    }
}

/// The verdict as a row shows it; `None` if fresh processes have to decide.
fn outcome_of(verdict: &Verdict) -> Option<Outcome> {
    match verdict {
        Verdict::Kept | Verdict::Untried(_) => None,
        Verdict::NoGain => Some(Outcome::WithinNoise),
        Verdict::Slower => Some(Outcome::Slower),
        Verdict::Differs(which) => Some(Outcome::Differs(which.clone())),
        Verdict::Failed(why) => Some(Outcome::Failed(why.clone())),
        // Compiled code that falls back, or a switch without anything to act on between steps.
        Verdict::Void(_) => None,
    }
}
