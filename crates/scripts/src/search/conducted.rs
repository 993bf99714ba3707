//! The search inside a process, as part of the one by processes: remedies of the start that promise much come before it,
//! everything it kept is proved together in fresh processes, and whatever it decided against is not tried again.

use super::time::LEAST;
use super::{Candidate, Outcome, Row, Search, Unit};
use crate::candidates::{LARGE, PROMISING};
use crate::conductor::search::{Conducted, NotConducted, Switchable, Verdict};
use crate::variant::{Way, compiles};
use headroom_record::turns::Speedup;

/// Share of the time that remedies of the start leave to the search inside a process.
const LEFT_TO_SWITCHES: f64 = 0.3;

/// Processes after it, beside the final turns: one of everything kept, and one of the unmodified script with its weights
/// moved by a rounding.
const PROCESSES_AFTER: f64 = 2.0;

/// Expected seconds for which a fresh process loads compiled code that the search has left in the cache.
const LOADING_CODE: f64 = 10.0;

/// The most share of the time that is left for what comes after it.
const MOST_AFTER: f64 = 0.6;

/// A third process of each side, where both take at most this share of the time: with two of each, the interval is three times
/// as wide as their spread.
const ONE_MORE: f64 = 0.1;

/// It is not begun without the time for this many processes.
const LEAST_PROCESSES: f64 = 2.0;

impl Search<'_> {
    /// Tries those remedies that act when the script starts and are predicted to save as much as any switch: while the step
    /// waits for a loader, no switch shows what it gains. Returns their rows, and the candidates that are left.
    pub fn try_starts(&mut self, candidates: Vec<Candidate>) -> (Vec<Row>, Vec<Candidate>) {
        let switches = candidates.iter().filter(|one| one.remedy.can_be_switched());
        let least = switches.map(Candidate::expects).fold(LARGE, f64::max);
        let is_first = |one: &Candidate| !one.remedy.can_be_switched() && one.expects() >= least;
        let (first, rest): (Vec<Candidate>, Vec<Candidate>) = candidates.into_iter().partition(is_first);
        if !self.is_conductible(&rest) {
            return (vec![], first.into_iter().chain(rest).collect());
        }
        self.set_aside = LEFT_TO_SWITCHES * self.limit;
        let rows = self.try_all(first);
        self.set_aside = 0.0;
        (rows, rest)
    }

    /// Whether the script trains in one process, offers something to switch, and there is time for it.
    pub fn is_conductible(&self, candidates: &[Candidate]) -> bool {
        let is_alone = self.originals().first().is_some_and(|note| note.world_size.is_none_or(|ranks| ranks <= 1));
        let left = self.runner.seconds_left() - self.seconds_after();
        !self.runner.is_over()
            && is_alone
            && candidates.iter().any(|one| one.remedy.can_be_switched())
            && left >= LEAST_PROCESSES * self.cost(0)
    }

    /// Searches among the candidates that can be switched, on top of what is kept.
    pub fn conduct(&mut self, candidates: &[Candidate]) -> Option<Result<Conducted, NotConducted>> {
        let can_be = candidates.iter().filter(|one| one.remedy.can_be_switched());
        // One process of everything kept, and the final turns, load what was compiled.
        let loading = (LEAST as f64 + 1.0) * LOADING_CODE;
        let switchable = |one: &Candidate| Switchable {
            remedy: one.remedy,
            predicted: self.predicted(one),
            proof_seconds: if compiles(one.remedy.name) { loading } else { 0.0 },
        };
        let wanted: Vec<Switchable> = can_be.map(switchable).collect();
        let (kept, reserve) = (self.kept().clone(), self.seconds_after());
        self.runner.conduct(&kept, &wanted, reserve)
    }

    /// Seconds to leave for the proof of what it may keep, but for loading compiled code.
    fn seconds_after(&self) -> f64 {
        let least = (PROCESSES_AFTER + 2.0 * LEAST as f64) * self.cost(0);
        let one_more = 2.0 * self.cost(0);
        let more = if one_more <= ONE_MORE * self.limit { one_more } else { 0.0 };
        (least + more).min(MOST_AFTER * self.limit)
    }

    /// Proves what was kept inside a process, all of it together, then tries every candidate that could not be decided
    /// there.
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
                // Processes have the time that was left for a proof of what was not kept.
                Some((_, Verdict::Late, _)) if candidate.expects() > PROMISING => rest.push(candidate),
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
            self.runner.set_proving(true);
            let proved = self.prove_confirmed(&unit);
            self.runner.set_proving(false);
            match proved {
                Ok(tried) => {
                    tried.iter().for_each(|row| (self.told)(row));
                    rows.extend(tried);
                }
                // Together they are refused: one at a time, they may not be.
                Err(_) if unit.len() > 1 => drop(rest.splice(0..0, unit)),
                Err(outcome) => {
                    let row = Row::of(unit.remove(0), outcome);
                    (self.told)(&row);
                    rows.push(row);
                }
            }
        }
        rows.extend(self.try_all(rest));
        rows
    }

    /// Runs everything that was confirmed in a fresh process, and checks its losses, gradients and memory. Its speed was
    /// decided inside a process, and is decided again by the final turns.
    fn prove_confirmed(&mut self, unit: &[Candidate]) -> Result<Vec<Row>, Outcome> {
        let variant = unit.iter().fold(self.kept().clone(), |variant, one| variant.with(one.remedy));
        let own = self.add(variant, Way::Timed);
        let proofs = self.proofs_before(own);
        self.measure_before(own, &proofs);
        let within = self.runner.seconds_left();
        self.run(own, within)?;
        if let Some(outcome) = self.refusal(own) {
            return Err(outcome);
        }
        let names: Vec<&'static str> = unit.iter().map(|one| one.remedy.name).collect();
        let mut rows: Vec<Row> = unit.iter().map(|one| self.row(one, own, &names)).collect();
        let gates = self.judged.get(&own).cloned().unwrap_or_default();
        rows.iter_mut().for_each(|row| row.gates.clone_from(&gates));
        self.keep_confirmed(own, &mut rows);
        Ok(rows)
    }

    /// The rows of remedies that were confirmed one by one inside a process. Their savings are from there too: processes
    /// differ by more than many of them save.
    fn keep_confirmed(&mut self, own: usize, rows: &mut [Row]) {
        let before = self.measured[self.best].seconds() / self.measured[0].seconds();
        let names: Vec<&'static str> = rows.iter().map(|row| row.candidate.remedy.name).collect();
        let gain = |name: &str| self.confirmed.get(name).map_or(0.0, |speedup: &Speedup| speedup.ratio.ln().max(0.0));
        let total: f64 = names.iter().map(|name| gain(name)).sum();
        let saved = before * (1.0 - (-total).exp());
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
        Verdict::Replaced(by) => Some(Outcome::Replaced(by)),
        Verdict::Slower => Some(Outcome::Slower),
        Verdict::Differs(which) => Some(Outcome::Differs(which.clone())),
        Verdict::Failed(why) => Some(Outcome::Failed(why.clone())),
        Verdict::Superfluous(why) => Some(Outcome::NotTried(why.clone())),
        // A process of its own would take longer.
        Verdict::Late => Some(Outcome::NotTried("too little time was left for it".into())),
        // Compiled code that falls back, or a switch without anything to act on between steps.
        Verdict::Void(_) => None,
    }
}
