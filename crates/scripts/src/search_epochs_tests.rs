//! The search over scripts with long epochs, whose batches are read again, and over scripts that no seed fixes.

use super::tests::{ScriptedRuns, candidate, made, same, searched};
use super::*;
use crate::note::Reread;
use std::path::PathBuf;

/// A script with long epochs; its workers' batches are read again as given.
struct Epochs {
    made: ScriptedRuns,
    reread: fn() -> Option<Reread>,
    /// Factor of the losses after an epoch's end under a remedy.
    after: f64,
    ends_unexpected: bool,
}

impl Runner for Epochs {
    fn run(&mut self, variant: &Variant, way: Way, within: f64) -> Ran {
        let Ran::Measured(mut note) = self.made.run(variant, way, within) else { panic!("it always runs") };
        note.loaders[0].batches = 11;
        if let Way::Proof { cuts_epochs } = way {
            note.loaders[0].reread = (self.reread)().filter(|_| !variant.is_empty());
            // One epoch ends after the second step.
            note.epoch_ends = if cuts_epochs { vec![2] } else { vec![] };
            note.exception = (cuts_epochs && self.ends_unexpected).then(|| "StopIteration: ".to_string());
            if !variant.is_empty() && cuts_epochs {
                note.losses[2][0] = note.losses[2][0].map(|loss| loss * self.after);
            }
        }
        Ran::Measured(note)
    }
    fn seconds_left(&self) -> f64 {
        self.made.seconds_left()
    }
    fn patch_with(&mut self, _: Vec<(PathBuf, String)>) {}
}

fn with_epochs(reread: fn() -> Option<Reread>, after: f64) -> Epochs {
    let made =
        ScriptedRuns { speed: |variant| if variant.is_empty() { 1.0 } else { 2.0 }, ..made(1e9, same, (0, false)) };
    Epochs { made, reread, after, ends_unexpected: false }
}

fn right() -> Option<Reread> {
    Some(Reread { batches: 9, samples: 72, ..Reread::default() })
}

#[test]
fn workers_with_other_batches_are_refused_and_the_attribute_is_named() {
    let wrong = || {
        let fields = vec!["`level` is 0 in the workers and 3 in the script".to_string()];
        Some(Reread { different: 12, fields, ..right().unwrap() })
    };
    let found = searched(&mut with_epochs(wrong, 1.0), vec![candidate("loader-workers")], false);
    let words = found.rows[0].outcome.words();
    assert!(words.starts_with("not kept: its batches are wrong") && words.contains("`level` is 0"), "{words}");
    assert!(found.kept.is_empty() && !found.rows[0].outcome.is_open());
    // Nothing that was read again proves nothing.
    let found = searched(&mut with_epochs(|| None, 1.0), vec![candidate("loader-workers")], false);
    assert_eq!(found.rows[0].outcome, Outcome::Undecided(Doubt::Loading));
    let mut runner = with_epochs(right, 1.0);
    let found = searched(&mut runner, vec![candidate("loader-workers")], false);
    assert_eq!(found.kept.names(), ["loader-workers"], "{:?}", found.rows);
    let proofs: Vec<&Way> = runner.made.ways.iter().filter(|way| matches!(way, Way::Proof { .. })).collect();
    assert_eq!(proofs, [&Way::Proof { cuts_epochs: true }; 2], "one of each, and none again at the end");
}

#[test]
fn losses_that_part_after_an_epochs_end_are_refused() {
    let found = searched(&mut with_epochs(right, 1.01), vec![candidate("loader-workers")], false);
    assert!(matches!(found.rows[0].outcome, Outcome::Refused("losses", ..)), "{:?}", found.rows[0].outcome);
    // Other remedies meet it at the end, in one process more of each.
    let failed = |after: f64| -> Vec<&str> {
        let mut runner = with_epochs(right, after);
        let found = searched(&mut runner, vec![candidate("tf32")], false);
        assert_eq!(found.kept.names(), ["tf32"]);
        assert_eq!(runner.made.ways.iter().filter(|way| matches!(way, Way::Proof { .. })).count(), 2);
        let gates = correct(&found.originals, &found.finals, &found.links);
        gates.into_iter().filter(|gate| !gate.passed()).map(|gate| gate.name).collect()
    };
    assert_eq!((failed(1.0), failed(1.01)), (vec![], vec!["losses"]));
}

#[test]
fn a_script_that_expects_no_end_is_read_again_with_whole_epochs() {
    let mut runner = Epochs { ends_unexpected: true, ..with_epochs(right, 1.0) };
    let found = searched(&mut runner, vec![candidate("loader-workers")], false);
    assert_eq!(found.kept.names(), ["loader-workers"], "{:?}", found.rows);
    assert!(runner.made.ways.contains(&Way::Proof { cuts_epochs: false }));
}

/// Losses are multiplied by a factor that depends on the variant, the way of the process and the number of processes.
struct Moved(ScriptedRuns, fn(&Variant, Way, usize) -> f64);

impl Runner for Moved {
    fn run(&mut self, variant: &Variant, way: Way, within: f64) -> Ran {
        let Ran::Measured(mut note) = self.0.run(variant, way, within) else { panic!("it always runs") };
        let factor = (self.1)(variant, way, self.0.runs);
        note.losses.iter_mut().flatten().flatten().for_each(|loss| *loss *= factor);
        Ran::Measured(note)
    }
    fn seconds_left(&self) -> f64 {
        self.0.seconds_left()
    }
    fn patch_with(&mut self, _: Vec<(PathBuf, String)>) {}
}

#[test]
fn a_script_that_no_seed_fixes_decides_nothing() {
    for name in ["tf32", "loader-workers"] {
        let speed = |variant: &Variant| if variant.is_empty() { 1.0 } else { 2.0 };
        let other_each_time = |_: &Variant, _: Way, runs: usize| 1.0 + 0.1 * (runs % 7) as f64;
        let mut runner = Moved(ScriptedRuns { speed, ..made(1e9, same, (0, false)) }, other_each_time);
        let found = searched(&mut runner, vec![candidate(name)], false);
        assert_eq!(found.rows[0].outcome, Outcome::Undecided(Doubt::Varies), "{name}");
        assert!(found.kept.is_empty() && !found.rows[0].outcome.is_open());
    }
}

#[test]
fn losses_that_other_draws_move_too_far_are_named_as_the_reason() {
    let speed = |variant: &Variant| if variant.is_empty() { 1.0 } else { 2.0 };
    let far_off = |variant: &Variant, way: Way, _: usize| match way {
        Way::OtherLoading(number) => 1.0 + 0.4 * f64::from(number),
        _ if !variant.is_empty() => 3.0,
        _ => 1.0,
    };
    let mut runner = Moved(ScriptedRuns { speed, ..made(1e9, same, (0, true)) }, far_off);
    let found = searched(&mut runner, vec![candidate("loader-workers")], false);
    assert_eq!(found.rows[0].outcome, Outcome::Undecided(Doubt::Draws), "{:?}", found.rows[0].gates);
    assert!(found.kept.is_empty() && !found.rows[0].outcome.is_open());
    let losses = found.rows[0].gates.iter().find(|gate| gate.name == "losses").unwrap();
    assert!(losses.about.contains("other random numbers in data loading move"), "{}", losses.about);
}
