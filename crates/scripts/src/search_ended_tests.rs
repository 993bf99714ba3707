//! The search when a person ends it, when time is too short for the proof, and the order by predictions.

use super::tests::{REPEATS, ScriptedRuns, candidate, made, same};
use super::*;
use crate::conductor::search::{Conducted, Verdict};
use crate::remedies::named;

fn outcome<'a>(found: &'a Found, name: &str) -> &'a Outcome {
    &found.rows.iter().find(|row| row.candidate.remedy.name == name).unwrap().outcome
}

fn searched(runner: &mut ScriptedRuns, names: &[&str]) -> Found {
    super::tests::searched(runner, names.iter().map(|name| candidate(name)).collect(), false)
}

#[test]
fn a_search_that_is_ended_proves_what_it_kept_and_tries_no_more() {
    // Three unmodified processes, one of the cheap remedy, and one with TF32.
    let mut runner = ScriptedRuns { over_after: 5, ..made(1e9, same, (0, false)) };
    let found = searched(&mut runner, &["tf32", "compile", "zero-grad-none"]);
    assert_eq!(found.kept.names(), ["tf32"]);
    assert_eq!(*outcome(&found, "compile"), Outcome::NotTried("the search was interrupted".into()));
    assert!(!outcome(&found, "compile").has_run() && outcome(&found, "zero-grad-none").has_run());
    assert!(found.speedup.rounds >= 2 && runner.proving[5..].iter().all(|proving| *proving), "{:?}", runner.proving);
    assert!((runner.best - 1.5).abs() < 0.05, "the best so far is told: {}", runner.best);
}

#[test]
fn what_is_kept_and_cannot_be_proved_any_more_is_not_kept() {
    // No time is left once the second request came.
    struct AtOnce(ScriptedRuns, usize);
    impl Runner for AtOnce {
        fn run(&mut self, variant: &Variant, way: Way, within: f64) -> Ran {
            if self.is_over() { Ran::Interrupted } else { self.0.run(variant, way, within) }
        }
        fn seconds_left(&self) -> f64 {
            if self.is_over() { 0.0 } else { self.0.seconds_left() }
        }
        fn is_over(&self) -> bool {
            self.0.runs >= self.1
        }
        fn patch_with(&mut self, _: Vec<(std::path::PathBuf, String)>) {}
    }
    let mut runner = AtOnce(made(1e9, same, (0, false)), 5);
    let found = super::tests::searched(&mut runner, vec![candidate("tf32"), candidate("compile")], true);
    assert!(found.kept.is_empty() && found.speedup.ratio == 1.0, "{:?}", found.rows);
    let undecided = found.rows.iter().filter(|row| row.outcome == Outcome::Undecided(Doubt::Interrupted)).count();
    assert_eq!((undecided, runner.0.runs), (1, 5), "{:?}", found.rows);
    // A process that is ended in the middle decides nothing.
    let mut runner = AtOnce(made(1e9, same, (0, false)), 3);
    let found = super::tests::searched(&mut runner, vec![candidate("tf32")], true);
    assert_eq!(found.rows[0].outcome, Outcome::NotTried("the search was interrupted".into()));
}

#[test]
fn confirmed_remedies_without_time_for_their_turns_are_not_claimed() {
    let figure = Speedup { ratio: 1.5, low: 1.45, high: 1.55, rounds: 20 };
    let kept = Conducted {
        kept: vec![named("tf32").unwrap()],
        verdicts: vec![(named("tf32").unwrap(), Verdict::Kept, Some(figure))],
        speedup: Some(figure),
        with_all_bits: None,
        offers: vec![],
        shadows: vec![],
        rounds: vec![],
        blocks: 99,
        processes: 1,
    };
    let mut runner = made(45.0, same, (0, false));
    let mut tell = |_: &Row| {};
    let mut search = Search::begin(&mut runner, REPEATS, None, &mut tell).unwrap();
    let rows = search.try_conducted(&kept, vec![candidate("tf32")]);
    let found = search.finish(rows, None).unwrap();
    assert_eq!(*outcome(&found, "tf32"), Outcome::Undecided(Doubt::Turns), "{:?}", found.rows);
    assert!(found.kept.is_empty() && outcome(&found, "tf32").is_open());
    assert!(runner.left >= 0.0, "{} s left", runner.left);
}

#[test]
fn promising_remedies_come_before_those_without_a_prediction() {
    let predicted = |name: &str, share| Candidate { predicted: Some(share), ..candidate(name) };
    let all = || {
        vec![
            predicted("tf32", 0.5),
            predicted("compile", 0.08),
            predicted("compile-blocks", 0.06),
            candidate("gc-frozen"),
            candidate("zero-grad-none"),
            candidate("channels-last"),
        ]
    };
    let speed = |variant: &Variant| if variant.names().contains(&"tf32") { 2.0 } else { 1.0 };
    let mut runner = ScriptedRuns { speed, costs: (10.0, 30.0), ..made(1e9, same, (0, false)) };
    super::tests::searched(&mut runner, all(), false);
    let first = |name: &str| runner.asked.iter().position(|asked| asked.split(',').any(|one| one == name)).unwrap();
    for promising in ["tf32", "compile", "compile-blocks"] {
        for other in ["gc-frozen", "zero-grad-none", "channels-last"] {
            assert!(first(promising) < first(other), "{promising} after {other}: {:?}", runner.asked);
        }
    }
    // In any time, none of them is left untried for one that promises nothing.
    for left in (50..400).step_by(10).map(f64::from) {
        let mut runner = ScriptedRuns { speed, costs: (10.0, 30.0), ..made(left, same, (0, false)) };
        super::tests::searched(&mut runner, all(), false);
        let at = |name: &str| runner.asked.iter().position(|asked| asked.split(',').any(|one| one == name));
        if let (Some(promising), Some(other)) = (at("tf32"), at("channels-last")) {
            assert!(promising < other, "{left} s: {:?}", runner.asked);
        }
    }
}

#[test]
fn rows_have_the_gates_that_judged_them() {
    let moved = |variant: &Variant| if variant.is_empty() { vec![2.0, 1.5] } else { vec![2.0, 1.4] };
    let found = searched(&mut made(1e9, moved, (0, false)), &["tf32", "loader-pinning"]);
    let row = |name: &str| found.rows.iter().find(|row| row.candidate.remedy.name == name).unwrap();
    let losses = row("tf32").gates.iter().find(|gate| gate.name == "losses").unwrap();
    assert_eq!(losses.answer, Answer::Fail);
    assert!(row("loader-pinning").gates.is_empty(), "a slower one is not judged");
}
