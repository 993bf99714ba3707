//! Every number that decides a finding or its figures, in one table: value, unit, and its reason or source.
//!
//! The rows are in `constants.tsv`; `build.rs` makes a constant of each. `cargo xtask constants` moves each number by a
//! third and reports which labelled traces are then read differently.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

include!(concat!(env!("OUT_DIR"), "/constants.rs"));

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A share of the step, unless the reason names another whole.
    Share,
    Percent,
    Number,
    Nanos,
    Micros,
    Seconds,
    Bytes,
}

/// A row of the table.
pub struct Entry {
    pub group: &'static str,
    name: &'static str,
    pub unit: Unit,
    pub why: &'static str,
    pub value: f64,
    is_whole: bool,
    /// The bits of the value in use.
    now: AtomicU64,
}

impl Entry {
    const fn new(names: [&'static str; 2], value: f64, is_whole: bool, unit: Unit, why: &'static str) -> Entry {
        let [group, name] = names;
        Entry { group, name, unit, why, value, is_whole, now: AtomicU64::new(value.to_bits()) }
    }

    /// As users write it: `TR104.data-loading-share`; of a model: `norms.reached`.
    pub fn key(&self) -> String {
        let group = if self.is_trigger() { self.group.to_uppercase() } else { self.group.to_string() };
        format!("{group}.{}", self.name.to_lowercase().replace('_', "-"))
    }

    pub fn is_trigger(&self) -> bool {
        self.group.strip_prefix("tr").is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
    }

    /// The value multiplied by `factor`; of a whole number, at least the next one.
    pub fn moved(&self, factor: f64) -> f64 {
        match self.is_whole {
            true if factor > 1.0 => (factor * self.value).round().max(self.value + 1.0),
            true => (factor * self.value).round().min(self.value - 1.0).max(0.0),
            false => factor * self.value,
        }
    }

    /// Runs `analysis` with another value. The whole process sees it, so that nothing else may be analyzed meanwhile.
    pub fn with<T>(&self, value: f64, analysis: impl FnOnce() -> T) -> T {
        self.now.store(value.to_bits(), Ordering::Relaxed);
        let result = analysis();
        self.now.store(self.value.to_bits(), Ordering::Relaxed);
        result
    }
}

/// All rows, triggers first.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    TRIGGERS.iter().chain(MODELS).copied()
}

/// A number of the table, as the code uses it.
pub struct Constant<T> {
    pub entry: Entry,
    kind: PhantomData<fn() -> T>,
}

impl<T: Number> Constant<T> {
    const fn new(names: [&'static str; 2], value: f64, unit: Unit, why: &'static str) -> Constant<T> {
        Constant { entry: Entry::new(names, value, T::IS_WHOLE, unit, why), kind: PhantomData }
    }

    pub fn get(&self) -> T {
        T::of(f64::from_bits(self.entry.now.load(Ordering::Relaxed)))
    }
}

pub trait Number {
    const IS_WHOLE: bool;
    fn of(value: f64) -> Self;
}

macro_rules! numbers {
    ($($kind:ident $is_whole:literal),+) => {
        $(impl Number for $kind {
            const IS_WHOLE: bool = $is_whole;

            fn of(value: f64) -> $kind {
                value as $kind
            }
        })+
    };
}

numbers!(f64 false, i64 true, u64 true, usize true, u32 true);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::trace_rules::TRACE_RULES;

    #[test]
    fn every_rule_has_a_trigger_and_every_number_a_reason_of_its_own() {
        let groups: BTreeSet<String> = TRIGGERS.iter().map(|entry| entry.group.to_uppercase()).collect();
        assert_eq!(groups, TRACE_RULES.iter().map(|rule| rule.code.to_string()).collect());
        let keys: BTreeSet<String> = all().map(Entry::key).collect();
        assert_eq!(keys.len(), all().count(), "each key once");
        for entry in all() {
            assert!(entry.why.ends_with('.') && entry.why.len() >= 15, "{}: {:?}", entry.key(), entry.why);
            assert!(entry.value.is_finite() && entry.value >= 0.0, "{}", entry.key());
        }
    }

    #[test]
    fn a_number_moves_for_one_analysis_and_a_whole_one_by_at_least_one() {
        let (share, count) = (&norms::REACHED, &recomputed::FEWEST);
        assert_eq!((count.entry.moved(2.0 / 3.0), count.entry.moved(4.0 / 3.0)), (1.0, 3.0));
        let moved = share.entry.moved(4.0 / 3.0);
        assert_eq!(share.entry.with(moved, || share.get()), moved);
        assert_eq!(share.get(), share.entry.value);
    }
}
