//! Remedies for PyTorch scripts, applied from outside: one file each, with the Python side under the same name in
//! `python/headroom_hook/remedies`. Each also describes how to write it into the source once it is kept.

mod bf16_autocast;
mod channels_last;
mod compile;
mod compile_blocks;
mod compile_reduce_overhead;
mod cudnn_benchmark;
mod ddp_bucket_view;
mod ddp_static_graph;
pub mod edit;
mod expandable_segments;
mod foreach_optimizer;
mod fused_optimizer;
mod gc_frozen;
mod loader_pinning;
mod loader_workers;
mod non_blocking_copies;
mod sdpa;
mod tf32;
mod threads;
mod zero_grad_none;

use edit::Edit;

/// How far a remedy may change the losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Not at all, or only through the order of summation.
    #[default]
    Same,
    /// Through the rounding of single-precision products and sums.
    Rounding,
    /// Through computing with fewer bits.
    Precision,
}

impl Class {
    pub const ALL: [Class; 3] = [Class::Same, Class::Rounding, Class::Precision];

    pub fn name(self) -> &'static str {
        match self {
            Class::Same => "same",
            Class::Rounding => "rounding",
            Class::Precision => "precision",
        }
    }

    pub fn named(name: &str) -> Option<Class> {
        Class::ALL.into_iter().find(|class| class.name() == name)
    }

    /// Largest relative difference of a loss that is allowed, unless runs of the script itself differ by more.
    pub fn tolerance(self) -> f64 {
        match self {
            Class::Same => 1e-5,
            Class::Rounding => 1e-3,
            Class::Precision => 2e-2,
        }
    }

    /// The same for a gradient norm, which sums terms that cancel in a loss.
    pub fn gradient_tolerance(self) -> f64 {
        match self {
            Class::Same => 1e-3,
            Class::Rounding => 5e-2,
            Class::Precision => 2e-1,
        }
    }
}

/// The number format that a remedy computes with, which sets how far one rounding moves a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rounding {
    Single,
    Tf32,
    Bf16,
}

impl Rounding {
    pub fn share(self) -> f64 {
        match self {
            Rounding::Single => 6e-8,
            Rounding::Tf32 => 5e-4,
            Rounding::Bf16 => 4e-3,
        }
    }
}

/// One remedy on offer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Remedy {
    pub name: &'static str,
    pub class: Class,
    pub about: &'static str,
    /// Trace rules that it addresses: their expected saving is its prediction.
    pub answers: &'static [&'static str],
    /// Its Python side: the file name that the hook looks for, and its content.
    pub file: &'static str,
    pub python: &'static str,
    /// How to write it into the source.
    pub edits: &'static [Edit],
    /// The same in words, for doing it by hand.
    pub by_hand: &'static str,
}

impl Remedy {
    /// Whether its Python side can be switched between steps; every other remedy acts when the script starts.
    pub fn can_be_switched(&self) -> bool {
        self.python.lines().any(|line| line.starts_with("def on("))
    }

    pub fn rounding(&self) -> Rounding {
        match (self.class, self.name) {
            (Class::Precision, _) => Rounding::Bf16,
            (_, "tf32") => Rounding::Tf32,
            _ => Rounding::Single,
        }
    }
}

macro_rules! remedy {
    ($file:literal, $name:literal, $class:expr, $about:literal, answers [$($rule:literal),*],
     by_hand $words:literal, edits [$($edit:expr),* $(,)?]) => {
        Remedy {
            name: $name,
            class: $class,
            about: $about,
            answers: &[$($rule),*],
            file: concat!($file, ".py"),
            python: include_str!(concat!("../../python/headroom_hook/remedies/", $file, ".py")),
            by_hand: $words,
            edits: &[$($edit),*],
        }
    };
}
use remedy;

/// Every remedy, in the order in which they are applied together.
pub const REMEDIES: [Remedy; 19] = [
    loader_workers::REMEDY,
    loader_pinning::REMEDY,
    non_blocking_copies::REMEDY,
    fused_optimizer::REMEDY,
    foreach_optimizer::REMEDY,
    zero_grad_none::REMEDY,
    cudnn_benchmark::REMEDY,
    channels_last::REMEDY,
    tf32::REMEDY,
    sdpa::REMEDY,
    compile::REMEDY,
    compile_blocks::REMEDY,
    compile_reduce_overhead::REMEDY,
    bf16_autocast::REMEDY,
    expandable_segments::REMEDY,
    gc_frozen::REMEDY,
    threads::REMEDY,
    ddp_bucket_view::REMEDY,
    ddp_static_graph::REMEDY,
];

pub fn named(name: &str) -> Option<&'static Remedy> {
    REMEDIES.iter().find(|remedy| remedy.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies_of_the_start_cannot_be_switched() {
        let can = |name: &str| named(name).unwrap().can_be_switched();
        assert!(can("tf32") && can("compile") && can("fused-optimizer"));
        assert!(!can("loader-workers") && !can("threads") && !can("expandable-segments"));
    }

    #[test]
    fn both_sides_of_a_remedy_agree() {
        for remedy in REMEDIES {
            let says = |line: String| remedy.python.lines().any(|own| own == line);
            assert!(says(format!("NAME = \"{}\"", remedy.name)), "{}", remedy.name);
            assert!(says(format!("CLASS = \"{}\"", remedy.class.name())), "{}", remedy.name);
            assert_eq!(remedy.file, format!("{}.py", remedy.name.replace('-', "_")));
        }
    }
}
