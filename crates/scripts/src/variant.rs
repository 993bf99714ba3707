//! Variants of a script: remedies that are applied together, the ways in which a process runs under them, and the
//! [`Runner`] that starts it.

use crate::conductor::verdict::{Conducted, NotConducted, Switchable};
use crate::note::Note;
use crate::remedies::{Class, Remedy, Rounding};
use std::path::PathBuf;
use std::time::Duration;

/// Remedies that are applied together, in the order of the table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Variant {
    remedies: Vec<&'static Remedy>,
}

impl Variant {
    /// The unmodified script.
    pub fn as_it_is() -> Variant {
        Variant::default()
    }

    pub fn with(&self, remedy: &'static Remedy) -> Variant {
        let place = |one: &&'static Remedy| crate::remedies::REMEDIES.iter().position(|other| other.name == one.name);
        let mut remedies = self.remedies.clone();
        remedies.retain(|one| one.name != remedy.name && !is_alternative(one.name, remedy.name));
        remedies.push(remedy);
        remedies.sort_by_key(place);
        Variant { remedies }
    }

    /// The same without these remedies.
    pub fn without(&self, names: &[&str]) -> Variant {
        let is_left = |one: &&&'static Remedy| !names.contains(&one.name);
        Variant { remedies: self.remedies.iter().filter(is_left).copied().collect() }
    }

    pub fn remedies(&self) -> &[&'static Remedy] {
        &self.remedies
    }

    pub fn is_empty(&self) -> bool {
        self.remedies.is_empty()
    }

    pub fn names(&self) -> Vec<&'static str> {
        self.remedies.iter().map(|remedy| remedy.name).collect()
    }

    pub fn is_compiled(&self) -> bool {
        self.compiled_as().is_some()
    }

    /// The remedy that compiles, if any.
    pub fn compiled_as(&self) -> Option<&'static str> {
        self.names().into_iter().find(|name| compiles(name))
    }

    /// Identifies the code that a compiler generates: variants with the same value share the compiler's cache.
    pub fn code(&self) -> String {
        let is_of_code = |name: &&str| compiles(name) || changes_code(name);
        self.names().into_iter().filter(is_of_code).collect::<Vec<_>>().join(",")
    }

    /// The most permissive class of its remedies.
    pub fn class(&self) -> Class {
        self.remedies.iter().map(|remedy| remedy.class).max().unwrap_or(Class::Same)
    }

    /// The coarsest rounding of its remedies.
    pub fn rounding(&self) -> Rounding {
        self.remedies.iter().map(|remedy| remedy.rounding()).max().unwrap_or(Rounding::Single)
    }

    /// The remedies as the hook expects them.
    pub fn asked(&self) -> String {
        self.names().join(",")
    }
}

/// Mutually exclusive remedies: one that is tried replaces the one that was kept.
const ALTERNATIVES: [&[&str]; 2] =
    [&["compile", "compile-blocks", "compile-reduce-overhead"], &["fused-optimizer", "foreach-optimizer"]];

/// Remedies that change the code to be compiled.
const CHANGES_CODE: [&str; 5] = ["channels-last", "tf32", "sdpa", "bf16-autocast", "ddp-static-graph"];

pub(crate) fn changes_code(name: &str) -> bool {
    CHANGES_CODE.contains(&name)
}

pub(crate) fn compiles(name: &str) -> bool {
    ALTERNATIVES[0].contains(&name)
}

pub(crate) fn is_alternative(one: &str, other: &str) -> bool {
    ALTERNATIVES.iter().any(|group| group.contains(&one) && group.contains(&other))
}

/// How a process is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Timed, without further changes.
    Timed,
    /// Compiled code draws the same random numbers as uncompiled code, which is slower.
    ComparableRandom,
    /// Data loading draws other random numbers, seeded with this one.
    OtherLoading(u32),
    /// Weights are perturbed by one rounding in every step, seeded with this number.
    Moved(Rounding, u32),
    /// Dropout draws other random numbers, seeded with this one.
    OtherDropout(u32),
    /// Not timed: batches of loader workers are read again, and epochs are cut short if asked.
    Proof { cuts_epochs: bool },
    /// With the patch in the script's files and no remedy from outside.
    Patched,
    /// Taking orders between its steps.
    Conducted,
}

/// The outcome of one process.
#[derive(Clone, Debug)]
pub enum Ran {
    Measured(Box<Note>),
    /// Ended without a measurement, and why.
    Failed(String),
    /// Killed because it took too long.
    TooLong(Duration),
    /// Killed because a person ended the search.
    Interrupted,
}

/// Starts the script under a variant in a separate process, and waits for it.
pub trait Runner {
    /// Kills the process after `within` seconds.
    fn run(&mut self, variant: &Variant, way: Way, within: f64) -> Ran;
    /// Seconds left for all measurements.
    fn seconds_left(&self) -> f64;
    /// Texts that replace the script's files in [`Way::Patched`], by path.
    fn patch_with(&mut self, files: Vec<(PathBuf, String)>);
    /// Seconds until the last process has to end: a little more than are left, so that a proof is not cut short.
    fn seconds_at_most(&self) -> f64 {
        self.seconds_left()
    }
    /// Whether a person has ended the search: nothing new is tried, and what is kept is proved.
    fn is_over(&self) -> bool {
        false
    }
    /// Whether the next processes prove something, so that they go on when a person ends the search.
    fn set_proving(&mut self, _: bool) {}
    /// The speed of everything kept so far, for a person who waits.
    fn set_best(&mut self, _: f64) {}
    /// Switches remedies between the steps of processes that run under a variant, until `reserve` seconds are left for
    /// others. `None` if this runner's processes take no orders.
    fn conduct(
        &mut self,
        _variant: &Variant,
        _wanted: &[Switchable],
        _reserve: f64,
    ) -> Option<Result<Conducted, NotConducted>> {
        None
    }
}
