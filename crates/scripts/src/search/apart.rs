//! Splits remedies that were faster together: leaves out halves of them, and drops those that make no difference.

use super::{CHANCE, Outcome, Row, Search, Unit, others};
use crate::variant::Way;
use headroom_record::statistics::MISSED;

impl Search<'_> {
    /// `rows` are those of `own`, which is faster than the best so far. The rows left at the end are kept.
    pub(super) fn take_apart(&mut self, own: usize, rows: &mut [Row], rest: &[Unit]) {
        let all: Vec<&'static str> = rows.iter().map(|row| row.candidate.remedy.name).collect();
        let mut current = own;
        let mut untested: Vec<&'static str> = vec![];
        let mut missed: Vec<&'static str> = vec![];
        let middle = all.len() / 2;
        let mut halves = vec![all[..middle].to_vec(), all[middle..].to_vec()];
        while let Some(half) = halves.pop() {
            match self.without(current, &half, rest) {
                None => untested.extend(half),
                Some(Some(smaller)) => current = smaller,
                Some(None) if half.len() == 1 => missed.extend(half),
                Some(None) => {
                    let middle = half.len() / 2;
                    halves.extend([half[..middle].to_vec(), half[middle..].to_vec()]);
                }
            }
        }
        let left: Vec<&'static str> =
            self.measured[current].variant.names().into_iter().filter(|name| all.contains(name)).collect();
        let speedup = self.speedup(current, self.best, MISSED);
        let saved =
            (self.measured[self.best].seconds() - self.measured[current].seconds()) / self.measured[0].seconds();
        let memory = self.measured[self.best].memory().zip(self.measured[current].memory());
        for row in rows.iter_mut() {
            let name = row.candidate.remedy.name;
            row.outcome = match () {
                () if !left.contains(&name) => Outcome::WithinNoise,
                () if left.len() == 1 => Outcome::Kept,
                () => Outcome::KeptTogether(others(&left, name)),
            };
            if left == [name] {
                (row.speedup, row.saved, row.memory) = (Some(speedup), Some(saved), memory);
            }
        }
        self.keep(current, &left, Some(saved / left.len().max(1) as f64));
    }

    /// A variant without these, if it is not slower and still faster than the best so far; `None` if time was short.
    fn without(&mut self, current: usize, names: &[&'static str], rest: &[Unit]) -> Option<Option<usize>> {
        let variant = self.measured[current].variant.without(names);
        if variant == *self.kept() {
            // This is the best so far, which is slower.
            return Some(None);
        }
        if self.runner.is_over() {
            return None;
        }
        let smaller = self.add(variant, Way::Timed);
        let within = self.allowance(smaller);
        if self.cost(smaller) + self.pending(rest) > within {
            self.measured.pop();
            return None;
        }
        let within = within.min(self.first_allowance(smaller, rest));
        if self.run(smaller, within).is_err() {
            return Some(None);
        }
        let is_missed = self.speedup(current, smaller, MISSED).low > 1.0;
        let is_faster = self.speedup(smaller, self.best, CHANCE).low > 1.0;
        Some((!is_missed && is_faster && self.refusal(smaller).is_none()).then_some(smaller))
    }
}
