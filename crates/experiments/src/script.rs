//! A PyTorch script under remedies from outside: measured as it is, each remedy in turns with the best so far, what was kept
//! against the script as it is, and the gates that its losses, batches and memory have to pass.
//!
//! Nothing here starts a process: a [`Runner`] does, and tells what the hook wrote down.

pub mod candidates;
pub mod gates;
pub mod note;
pub mod outcome;
pub mod places;
mod runs;
pub mod search;

use crate::remedies::{Class, Remedy, Rounding};
use note::Note;
use std::path::PathBuf;
use std::time::Duration;

/// Remedies that are applied together, in the order of the table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Variant {
    remedies: Vec<&'static Remedy>,
}

impl Variant {
    /// The script as it is.
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

    /// The same without some.
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

    /// The remedy that compiles.
    pub fn compiled_as(&self) -> Option<&'static str> {
        self.names().into_iter().find(|name| compiles(name))
    }

    /// Stands for the code that a compiler makes of it: variants with the same find it in the compiler's cache.
    pub fn code(&self) -> String {
        let changes_code = |name: &&str| compiles(name) || CHANGES_CODE.contains(name);
        self.names().into_iter().filter(changes_code).collect::<Vec<_>>().join(",")
    }

    /// The class that allows the most.
    pub fn class(&self) -> Class {
        self.remedies.iter().map(|remedy| remedy.class).max().unwrap_or(Class::Same)
    }

    /// The coarsest one.
    pub fn rounding(&self) -> Rounding {
        self.remedies.iter().map(|remedy| remedy.rounding()).max().unwrap_or(Rounding::Single)
    }

    /// As the hook takes it.
    pub fn asked(&self) -> String {
        self.names().join(",")
    }
}

/// Remedies that stand in for each other: the one that is tried takes the place of the one that was kept.
const ALTERNATIVES: [&[&str]; 2] =
    [&["compile", "compile-blocks", "compile-reduce-overhead"], &["fused-optimizer", "foreach-optimizer"]];

/// Remedies that change what is compiled.
const CHANGES_CODE: [&str; 5] = ["channels-last", "tf32", "sdpa", "bf16-autocast", "ddp-static-graph"];

fn compiles(name: &str) -> bool {
    ALTERNATIVES[0].contains(&name)
}

fn is_alternative(one: &str, other: &str) -> bool {
    ALTERNATIVES.iter().any(|group| group.contains(&one) && group.contains(&other))
}

/// How a process is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// As it would run, timed.
    Timed,
    /// Compiled code draws random numbers as uncompiled code does; slower.
    ComparableRandom,
    /// Loading draws other random numbers, chosen by this one.
    OtherLoading(u32),
    /// Weights are moved by a rounding, chosen by this number, in every step.
    Moved(Rounding, u32),
    /// Dropout draws other random numbers, chosen by this one.
    OtherDropout(u32),
    /// With the patch in the script's files, and no remedy from outside.
    Patched,
}

/// The end of one process.
#[derive(Clone, Debug)]
pub enum Ran {
    Measured(Box<Note>),
    /// It ended without a measurement, and why.
    Failed(String),
    /// It was ended, since it took longer than it may.
    TooLong(Duration),
}

/// Starts the script in a process of its own under a variant, and waits for it.
pub trait Runner {
    /// `within` so many seconds, or it is ended.
    fn run(&mut self, variant: &Variant, way: Way, within: f64) -> Ran;
    /// Seconds that are left for all measuring.
    fn seconds_left(&self) -> f64;
    /// Texts that take the place of the script's files in [`Way::Patched`], by their paths.
    fn patch_with(&mut self, files: Vec<(PathBuf, String)>);
}
