//! A search over simulated processes with known times, losses and failures.

use super::*;
use crate::note::{Applied, Loader, Module, Reread};
use crate::remedies::named;
use std::path::PathBuf;
use std::time::Duration;

/// Step times by remedy; a process costs ten seconds.
pub(super) struct ScriptedRuns {
    pub(super) left: f64,
    pub(super) speed: fn(&Variant) -> f64,
    pub(super) losses: fn(&Variant) -> Vec<f64>,
    pub(super) runs: usize,
    /// The way of each process that was run.
    pub(super) ways: Vec<Way>,
    /// Number of active dropouts of the module, and whether loading draws random numbers.
    pub(super) random: (u64, bool),
    /// Seconds per process, and seconds of compiling in the first one.
    pub(super) costs: (f64, f64),
    /// Bytes that a variant takes.
    pub(super) memory: fn(&Variant) -> u64,
    pub(super) asked: Vec<String>,
    /// Processes after which a person ends the search.
    pub(super) over_after: usize,
    /// Whether processes prove something, and the best that was told.
    pub(super) proving: Vec<bool>,
    pub(super) is_proving: bool,
    pub(super) best: f64,
}

impl Runner for ScriptedRuns {
    fn run(&mut self, variant: &Variant, way: Way, within: f64) -> Ran {
        let is_cold = variant.is_compiled() && !self.asked.contains(&variant.asked());
        let cost = self.costs.0 + if is_cold { self.costs.1 } else { 0.0 };
        self.ways.push(way);
        self.asked.push(variant.asked());
        self.proving.push(self.is_proving);
        self.left -= cost.min(within);
        self.runs += 1;
        if cost > within {
            return Ran::TooLong(Duration::from_secs_f64(within));
        }
        if variant.names().contains(&"sdpa") {
            return Ran::Failed("it ended with RuntimeError: no kernel".into());
        }
        // Processes vary by up to 1%.
        let noise = 1.0 + 0.01 * ((self.runs * 7 % 5) as f64 / 2.0 - 1.0);
        let seconds = 0.1 / (self.speed)(variant) * noise * if way == Way::Patched { 0.5 } else { 1.0 };
        let applied = |name: &str| Applied {
            did: if name == "gc-frozen" { vec![] } else { vec![format!("{name} was applied")] },
            ..Applied::default()
        };
        Ran::Measured(Box::new(Note {
            steps: 11,
            phase: "done".into(),
            peak_bytes: Some((self.memory)(variant)),
            peak_reserved_bytes: Some((self.memory)(variant)),
            step_seconds: vec![seconds; 8],
            losses: (self.losses)(variant).into_iter().map(|loss| vec![Some(loss)]).collect(),
            remedies: variant.names().into_iter().map(|name| (name.to_string(), applied(name))).collect(),
            modules: vec![Module { dropouts: self.random.0, ..Module::default() }],
            loaders: vec![Loader {
                draws_random: Some(self.random.1),
                reread: reread(variant, way),
                ..Loader::default()
            }],
            ..Note::default()
        }))
    }

    fn seconds_left(&self) -> f64 {
        self.left
    }

    fn patch_with(&mut self, _: Vec<(PathBuf, String)>) {}

    fn seconds_at_most(&self) -> f64 {
        self.left + 8.0
    }

    fn is_over(&self) -> bool {
        self.runs >= self.over_after
    }

    fn set_proving(&mut self, is_proving: bool) {
        self.is_proving = is_proving;
    }

    fn set_best(&mut self, best: f64) {
        self.best = best;
    }
}

/// Batches of workers, read again and found right.
pub(super) fn reread(variant: &Variant, way: Way) -> Option<Reread> {
    let is_read = variant.names().contains(&"loader-workers") && matches!(way, Way::Proof { .. });
    is_read.then(|| Reread { batches: 25, samples: 200, ..Reread::default() })
}

pub(super) const REPEATS: Repeats = Repeats { originals: 3, most: 4, finals: 3 };

pub(super) fn candidate(name: &str) -> Candidate {
    Candidate { remedy: named(name).unwrap(), predicted: None, answers: vec![] }
}

fn speed(variant: &Variant) -> f64 {
    let factor = |name: &&str| match *name {
        "tf32" => 1.5,
        "compile" => 1.2,
        "loader-pinning" => 0.8,
        _ => 1.0,
    };
    variant.names().iter().map(factor).product()
}

pub(super) fn made(left: f64, losses: fn(&Variant) -> Vec<f64>, random: (u64, bool)) -> ScriptedRuns {
    ScriptedRuns {
        left,
        speed,
        losses,
        runs: 0,
        ways: vec![],
        random,
        costs: (10.0, 0.0),
        memory: |_| 1000,
        asked: vec![],
        over_after: usize::MAX,
        proving: vec![],
        is_proving: false,
        best: 1.0,
    }
}

/// Runs everything, from the first process to the last.
pub(super) fn searched(runner: &mut dyn Runner, candidates: Vec<Candidate>, patch: bool) -> Found {
    let mut tell = |_: &Row| {};
    let mut search = Search::begin(runner, REPEATS, None, &mut tell).unwrap();
    let rows = search.try_all(candidates);
    search.finish(rows, patch.then(Vec::new)).unwrap()
}

fn found(left: f64, losses: fn(&Variant) -> Vec<f64>, names: &[&str]) -> Found {
    searched(&mut made(left, losses, (0, false)), names.iter().map(|name| candidate(name)).collect(), false)
}

pub(super) fn same(_: &Variant) -> Vec<f64> {
    vec![2.0, 1.5, 1.2]
}

#[test]
fn what_is_faster_is_kept_on_top_of_what_was_and_the_rest_says_why_not() {
    let names = ["tf32", "loader-pinning", "sdpa", "gc-frozen", "compile", "zero-grad-none"];
    let found = found(1e9, same, &names);
    let outcomes: Vec<String> = found.rows.iter().map(|row| row.outcome.words()).collect();
    assert_eq!(
        outcomes,
        [
            "nothing to do: it found nothing to do",
            "together with zero-grad-none: no gain beyond the noise",
            "together with loader-pinning: no gain beyond the noise",
            "kept: faster",
            "failed: it ended with RuntimeError: no kernel",
            "kept: faster",
        ]
    );
    assert_eq!(found.kept.names(), ["tf32", "compile"]);
    let Speedup { ratio, low, high, .. } = found.speedup;
    assert!(low < 1.8 && 1.8 < high && (ratio - 1.8).abs() < 0.05 && high - low < 0.2, "{:?}", found.speedup);
    assert!((found.rows[3].speedup.unwrap().ratio - 1.5).abs() < 0.05);
    assert_eq!(found.rows[3].did, ["tf32 was applied"]);
}

#[test]
fn a_remedy_that_changes_the_losses_is_not_kept_however_fast() {
    let moved = |variant: &Variant| if variant.is_empty() { vec![2.0, 1.5] } else { vec![2.0, 1.4] };
    let found = found(1e9, moved, &["tf32"]);
    assert!(matches!(found.rows[0].outcome, Outcome::Refused("losses", share, _) if (share - 0.1 / 1.5).abs() < 1e-9));
    assert!(found.kept.is_empty() && found.speedup.ratio == 1.0);
}

#[test]
fn time_that_is_short_leaves_remedies_untried_and_says_so() {
    let found = found(95.0, same, &["tf32", "compile", "zero-grad-none"]);
    let outcome = |name: &str| &found.rows.iter().find(|row| row.candidate.remedy.name == name).unwrap().outcome;
    assert_eq!(*outcome("tf32"), Outcome::Kept);
    assert_eq!(*outcome("compile"), Outcome::NotTried("too little time was left for it".into()));
    assert!(found.speedup.rounds >= 2, "the end has the time that was set aside for it");
}

#[test]
fn proofs_of_several_processes_are_held_against_all_the_time_left() {
    let speed = |variant: &Variant| if variant.names().contains(&"loader-workers") { 2.0 } else { 1.0 };
    // One process may take 115 s; the first one of the remedy and three proofs take 160 s of a thousand.
    let mut made = ScriptedRuns { speed, costs: (40.0, 0.0), ..made(1144.0, same, (0, true)) };
    let workers = Candidate { predicted: Some(0.54), ..candidate("loader-workers") };
    let found = searched(&mut made, vec![workers], false);
    assert_eq!(found.rows[0].outcome, Outcome::Kept);
}

#[test]
fn a_script_that_cannot_be_measured_gets_its_reason() {
    struct Broken;
    impl Runner for Broken {
        fn run(&mut self, _: &Variant, _: Way, _: f64) -> Ran {
            Ran::TooLong(Duration::from_secs(60))
        }
        fn seconds_left(&self) -> f64 {
            100.0
        }
        fn patch_with(&mut self, _: Vec<(PathBuf, String)>) {}
    }
    let mut tell = |_: &Row| {};
    let error = Search::begin(&mut Broken, REPEATS, None, &mut tell).err().unwrap();
    assert_eq!(error.0, "ended after 60 s: neither its share of the time nor --time-limit allows more");
}

#[test]
fn compiled_dropout_is_held_against_other_dropout_and_else_draws_as_the_script_does() {
    let mut runner = made(1e9, same, (3, false));
    let found = searched(&mut runner, vec![candidate("compile"), candidate("tf32")], false);
    assert_eq!(found.kept.names(), ["tf32", "compile"]);
    assert_eq!(found.processes, runner.runs);
    // Once, before `compile`; `tf32` is compared with code compiled before it, which draws the same numbers.
    assert_eq!(runner.ways.iter().filter(|way| matches!(way, Way::OtherDropout(_))).count(), 1);
    assert!(!runner.ways.contains(&Way::ComparableRandom));
    // If other dropout does not explain its losses, it is compiled once more.
    let drawn = |variant: &Variant| if variant.is_compiled() { vec![2.0, 1.49, 1.2] } else { vec![2.0, 1.5, 1.2] };
    let mut runner = made(1e9, drawn, (3, false));
    searched(&mut runner, vec![candidate("compile")], false);
    assert_eq!(runner.ways.iter().filter(|way| **way == Way::ComparableRandom).count(), 1);
}

#[test]
fn loading_that_draws_is_held_against_the_script_with_other_draws_and_nothing_else_is() {
    let speed = |variant: &Variant| variant.names().iter().map(|_| 1.5).product();
    // Workers draw other pixels, which move losses by a tenth; later variants draw the same ones.
    let losses = |variant: &Variant| match variant.asked().as_str() {
        "" => vec![2.0, 1.5],
        "loader-workers" => vec![2.0, 1.5],
        _ => vec![2.0, 1.3],
    };
    let mut made = ScriptedRuns { speed, ..made(1e9, losses, (0, true)) };
    let found = searched(&mut made, vec![candidate("loader-workers"), candidate("channels-last")], false);
    assert_eq!(found.kept.names(), ["loader-workers"]);
    assert!(matches!(found.rows[1].outcome, Outcome::Refused("losses", ..)), "{:?}", found.rows[1].outcome);
    assert_eq!(found.links[0].other_loadings.len(), 2);
    let others: Vec<&Way> = made.ways.iter().filter(|way| matches!(way, Way::OtherLoading(_))).collect();
    assert_eq!(others, [&Way::OtherLoading(1), &Way::OtherLoading(2)]);
}

#[test]
fn one_of_two_that_stand_in_for_each_other_is_kept_and_predicted_beyond_it() {
    let speed = |variant: &Variant| match variant.asked().as_str() {
        "compile" => 1.2,
        "compile-reduce-overhead" => 1.5,
        _ => 1.0,
    };
    let mut made = ScriptedRuns { speed, ..made(1e9, same, (0, false)) };
    let predicted = |name: &str, share| Candidate { predicted: Some(share), ..candidate(name) };
    let candidates = vec![predicted("compile-reduce-overhead", 0.24), predicted("compile", 0.2)];
    let found = searched(&mut made, candidates, false);
    assert_eq!(found.kept.names(), ["compile-reduce-overhead"]);
    assert_eq!(found.links.len(), 1, "the first is in the chain no more");
    let row = &found.rows[1];
    assert!((found.speedup.ratio - 1.5).abs() < 0.05 && (row.saved.unwrap() - 1.0 / 6.0).abs() < 0.03);
    assert!((row.candidate.predicted.unwrap() - (0.24 - 1.0 / 6.0)).abs() < 0.03, "{row:?}");
}

#[test]
fn nothing_is_predicted_beyond_what_is_left_of_the_step() {
    let mut made =
        ScriptedRuns { speed: |variant| if variant.is_empty() { 1.0 } else { 4.0 }, ..made(1e9, same, (0, false)) };
    let predicted = |name: &str, share| Candidate { predicted: Some(share), ..candidate(name) };
    let found = searched(&mut made, vec![predicted("loader-workers", 0.8), predicted("tf32", 0.6)], false);
    assert!((found.rows[1].candidate.predicted.unwrap() - 0.25).abs() < 0.02);
}

#[test]
fn a_process_that_fails_at_the_end_takes_nothing_back() {
    struct Fails(ScriptedRuns, usize);
    impl Runner for Fails {
        fn run(&mut self, variant: &Variant, way: Way, within: f64) -> Ran {
            self.1 = self.1.wrapping_sub(1);
            if self.1 == 0 { Ran::Failed("out of memory".into()) } else { self.0.run(variant, way, within) }
        }
        fn seconds_left(&self) -> f64 {
            self.0.seconds_left()
        }
        fn patch_with(&mut self, _: Vec<(PathBuf, String)>) {}
    }
    // Three unmodified, two with the remedy, and the second of the final turns fails.
    let mut runner = Fails(made(1e9, same, (0, false)), 7);
    let found = searched(&mut runner, vec![candidate("tf32")], false);
    assert_eq!(found.kept.names(), ["tf32"]);
    assert!((found.speedup.ratio - 1.5).abs() < 0.05);
}

/// The patched script takes this many times as long as [`ScriptedRuns`] makes it.
struct Patched(ScriptedRuns, f64);

impl Runner for Patched {
    fn run(&mut self, variant: &Variant, way: Way, within: f64) -> Ran {
        let Ran::Measured(mut note) = self.0.run(variant, way, within) else { panic!("it always runs") };
        if way == Way::Patched {
            note.step_seconds.iter_mut().for_each(|seconds| *seconds *= self.1);
        }
        Ran::Measured(note)
    }
    fn seconds_left(&self) -> f64 {
        self.0.seconds_left()
    }
    fn patch_with(&mut self, _: Vec<(PathBuf, String)>) {}
}

#[test]
fn the_proof_alternates_patched_and_unchanged_processes_in_balanced_order() {
    let mut runner = made(1e9, same, (0, false));
    let found = searched(&mut runner, vec![candidate("tf32")], true);
    let last: Vec<bool> = runner.ways[runner.ways.len() - 6..].iter().map(|way| *way == Way::Patched).collect();
    assert_eq!(last, [false, true, true, false, true, false]);
    assert_eq!((found.proved_as, found.speedup.rounds), (ProvedAs::Patch, 3));
    // The patch is twice as fast as the unchanged script, the remedy by itself 1.5 times.
    assert!((found.speedup.ratio - 2.0).abs() < 0.05, "{:?}", found.speedup);
    // Also where time is short: two of each, in turns.
    let mut runner = made(75.0, same, (0, false));
    let found = searched(&mut runner, vec![candidate("tf32")], true);
    assert_eq!((found.kept.names(), found.speedup.rounds), (vec!["tf32"], 2), "{:?}", runner.ways);
}

#[test]
fn nothing_is_kept_for_its_speed_if_the_patch_is_not_faster() {
    let found = searched(&mut Patched(made(1e9, same, (0, false)), 2.0), vec![candidate("tf32")], true);
    assert!(matches!(found.rows[0].outcome, Outcome::NotProved(_)), "{:?}", found.rows[0].outcome);
    assert!(found.kept.is_empty() && found.speedup.ratio == 1.0);
    let words = found.rows[0].outcome.words();
    assert!(words.starts_with("not kept: faster in the search, but not in the proof") && words.contains("3 processes"));
    // Anything that takes less memory has to be as fast.
    let smaller = |slower: f64| {
        let memory = |variant: &Variant| if variant.is_empty() { 1000 } else { 700 };
        let made = ScriptedRuns { speed: |_| 1.0, memory, ..made(1e9, same, (0, false)) };
        searched(&mut Patched(made, 2.0 * slower), vec![candidate("channels-last")], true).kept.names()
    };
    assert_eq!((smaller(1.0), smaller(1.2)), (vec!["channels-last"], vec![]));
}

/// A tuned script on a machine where a process takes 20 s, in five minutes.
#[test]
fn a_tuned_script_has_nothing_to_gain_within_five_minutes() {
    let nothing = |_: &Variant| 1.0;
    let mut made = ScriptedRuns { speed: nothing, costs: (20.0, 40.0), ..made(300.0, same, (0, false)) };
    let names =
        ["loader-pinning", "fused-optimizer", "zero-grad-none", "cudnn-benchmark", "expandable-segments", "tf32"];
    let found = searched(&mut made, names.iter().map(|name| candidate(name)).collect(), true);
    assert!(found.kept.is_empty());
    assert!(found.rows.iter().all(|row| !row.outcome.is_open()), "{:?}", found.rows);
    assert!(made.left >= 0.0 && found.processes <= 8, "{} processes, {} s left", found.processes, made.left);
}

#[test]
fn compiling_takes_neither_the_end_nor_the_patch() {
    let mut made = ScriptedRuns { costs: (20.0, 300.0), ..made(280.0, same, (0, false)) };
    let predicted = |name: &str, share| Candidate { predicted: Some(share), ..candidate(name) };
    let found = searched(&mut made, vec![predicted("tf32", 0.5), predicted("compile", 0.1)], true);
    assert_eq!(found.kept.names(), ["tf32"]);
    assert!(matches!(found.rows[1].outcome, Outcome::TooLong(_) | Outcome::NotTried(_)), "{:?}", found.rows[1].outcome);
    assert!(found.speedup.rounds >= 2 && made.left >= 0.0, "{} s left", made.left);
    assert_eq!(found.patched.unwrap().notes.len(), 2);
}

#[test]
fn a_first_process_keeps_what_is_clear_where_time_is_short_and_the_end_adds_another() {
    let mut made = ScriptedRuns { costs: (20.0, 20.0), ..made(245.0, same, (0, false)) };
    let predicted = |name: &str, share| Candidate { predicted: Some(share), ..candidate(name) };
    let found = searched(&mut made, vec![predicted("tf32", 0.5), predicted("compile", 0.1)], true);
    assert_eq!(found.kept.names(), ["tf32", "compile"]);
    assert_eq!(found.rows[0].speedup.unwrap().rounds, 1);
    assert!(found.speedup.rounds >= 2 && found.patched.unwrap().notes.len() >= 2);
}

#[test]
fn cheap_remedies_that_are_faster_together_are_taken_apart() {
    let speed = |variant: &Variant| if variant.names().contains(&"fused-optimizer") { 1.3 } else { 1.0 };
    let mut made = ScriptedRuns { speed, ..made(1e9, same, (0, false)) };
    let names = ["loader-pinning", "fused-optimizer", "zero-grad-none", "cudnn-benchmark", "expandable-segments"];
    let found = searched(&mut made, names.iter().map(|name| candidate(name)).collect(), false);
    assert_eq!(found.kept.names(), ["fused-optimizer"], "{:?}", found.rows);
    let row = found.rows.iter().find(|row| row.outcome.is_kept()).unwrap();
    assert!((row.speedup.unwrap().ratio - 1.3).abs() < 0.05);
    // Without time for it they stay together, and the rows say so.
    let mut made = ScriptedRuns { speed, ..self::made(90.0, same, (0, false)) };
    let found = searched(&mut made, names.iter().map(|name| candidate(name)).collect(), false);
    assert_eq!(found.kept.names().len(), 5);
    assert!(found.rows[0].outcome.words().starts_with("kept: faster together with"), "{:?}", found.rows[0]);
}

/// Processes with a remedy alternate between two factors of the script's own time.
struct Noisy {
    made: ScriptedRuns,
    factors: [f64; 2],
    remedied: usize,
}

impl Runner for Noisy {
    fn run(&mut self, variant: &Variant, way: Way, within: f64) -> Ran {
        match self.made.run(variant, way, within) {
            Ran::Measured(note) if !variant.is_empty() => {
                let factor = self.factors[self.remedied % 2];
                self.remedied += 1;
                let step_seconds = note.step_seconds.iter().map(|one| one * factor).collect();
                Ran::Measured(Box::new(Note { step_seconds, ..*note }))
            }
            ran => ran,
        }
    }
    fn seconds_left(&self) -> f64 {
        self.made.seconds_left()
    }
    fn patch_with(&mut self, _: Vec<(PathBuf, String)>) {}
}

#[test]
fn a_remedy_that_promises_much_is_not_decided_where_noise_hides_it() {
    let mut made = Noisy {
        made: ScriptedRuns { speed: |_| 1.0, ..made(1e9, same, (0, false)) },
        factors: [0.6, 1.3],
        remedied: 0,
    };
    let promised = Candidate { predicted: Some(0.2), ..candidate("tf32") };
    let found = searched(&mut made, vec![promised], false);
    assert_eq!(found.rows[0].outcome, Outcome::Undecided(Doubt::Noise), "{:?}", found.rows);
}

#[test]
fn cheap_remedies_that_nothing_asks_for_bring_no_gain_where_noise_hides_any() {
    let mut made = Noisy {
        made: ScriptedRuns { speed: |_| 1.0, ..made(1e9, same, (0, false)) },
        factors: [0.9, 1.1],
        remedied: 0,
    };
    let names = ["zero-grad-none", "expandable-segments"];
    let found = searched(&mut made, names.iter().map(|name| candidate(name)).collect(), false);
    let speedup = found.rows[0].speedup.expect("rows that share a process tell its speed-up");
    assert!(speedup.low < 1.0 && speedup.high > UNDECIDED, "{speedup:?}");
    assert!(!found.rows.iter().any(|row| row.outcome.is_open()), "{:?}", found.rows);
    assert_eq!(found.rows[0].outcome.words(), "together with expandable-segments: no gain beyond the noise");
}

#[test]
fn a_remedy_that_ends_the_script_early_is_no_measurement() {
    struct Short(ScriptedRuns);
    impl Runner for Short {
        fn run(&mut self, variant: &Variant, way: Way, within: f64) -> Ran {
            match self.0.run(variant, way, within) {
                Ran::Measured(note) if !variant.is_empty() => {
                    Ran::Measured(Box::new(Note { phase: "timed".into(), steps: 7, ..*note }))
                }
                ran => ran,
            }
        }
        fn seconds_left(&self) -> f64 {
            self.0.seconds_left()
        }
        fn patch_with(&mut self, _: Vec<(PathBuf, String)>) {}
    }
    let found = searched(&mut Short(made(1e9, same, (0, false))), vec![candidate("tf32")], false);
    assert_eq!(found.rows[0].outcome.words(), "failed: it ended after 7 steps, earlier than the unchanged script");
}
