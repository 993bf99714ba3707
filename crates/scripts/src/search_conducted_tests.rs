//! The search by processes after one inside a process.

use super::tests::{REPEATS, candidate, made, same};
use super::*;
use crate::conductor::search::{Conducted, NotConducted, Switchable, Verdict};
use crate::remedies::named;

/// A search inside a process kept some remedies, and decided against others.
fn conducted(verdicts: &[(&str, Verdict)]) -> Conducted {
    let figure = Speedup { ratio: 1.2, low: 1.15, high: 1.25, rounds: 20 };
    let row = |(name, verdict): &(&str, Verdict)| (named(name).unwrap(), verdict.clone(), Some(figure));
    let verdicts: Vec<_> = verdicts.iter().map(row).collect();
    let kept = verdicts.iter().filter(|(_, verdict, _)| *verdict == Verdict::Kept).map(|(remedy, ..)| *remedy);
    Conducted {
        kept: kept.collect(),
        verdicts,
        speedup: Some(figure),
        with_all_bits: None,
        offers: vec![],
        shadows: vec![],
        rounds: vec![],
        blocks: 99,
        processes: 1,
    }
}

fn after_conducting(runner: &mut dyn Runner, conducted: &Conducted, names: &[&str]) -> Found {
    let mut tell = |_: &Row| {};
    let mut search = Search::begin(runner, REPEATS, None, &mut tell).unwrap();
    let rows = search.try_conducted(conducted, names.iter().map(|name| candidate(name)).collect());
    search.finish(rows, None).unwrap()
}

#[test]
fn remedies_confirmed_inside_a_process_are_proved_together_in_fresh_ones() {
    let found = conducted(&[
        ("tf32", Verdict::Kept),
        ("compile", Verdict::Kept),
        ("zero-grad-none", Verdict::NoGain),
        ("gc-frozen", Verdict::Differs("the weight of layer 3".into())),
        ("loader-pinning", Verdict::Untried("it acts only when the script starts".into())),
    ]);
    let names = ["tf32", "compile", "zero-grad-none", "gc-frozen", "loader-pinning"];
    let mut runner = made(1e9, same, (0, false));
    let found = after_conducting(&mut runner, &found, &names);
    assert_eq!(found.kept.names(), ["tf32", "compile"]);
    let outcome = |name: &str| found.rows.iter().find(|row| row.candidate.remedy.name == name).unwrap().outcome.words();
    assert_eq!(outcome("zero-grad-none"), "within noise");
    assert_eq!(outcome("gc-frozen"), "not kept: a step replayed with it differs: the weight of layer 3");
    assert_eq!(outcome("loader-pinning"), "slower");
    let row = found.rows.iter().find(|row| row.candidate.remedy.name == "compile").unwrap();
    assert_eq!(row.speedup.unwrap().rounds, 20, "the figure of a single remedy is from inside the process");
    assert!(
        !runner.asked.iter().any(|asked| asked.contains("zero-grad-none") || asked == "compile"),
        "{:?}",
        runner.asked
    );
}

#[test]
fn remedies_that_are_refused_together_are_tried_one_at_a_time() {
    let wrong = |variant: &Variant| if variant.is_compiled() { vec![2.0, 1.4] } else { vec![2.0, 1.5] };
    let kept = conducted(&[("tf32", Verdict::Kept), ("compile", Verdict::Kept)]);
    let found = after_conducting(&mut made(1e9, wrong, (0, false)), &kept, &["tf32", "compile"]);
    assert_eq!(found.kept.names(), ["tf32"]);
    assert!(found.rows.iter().any(|row| matches!(row.outcome, Outcome::Refused("losses", ..))), "{:?}", found.rows);
}

/// A script that takes orders: `found` is what the search inside it finds, `asked` the variant under which it ran and the
/// remedies that were to be switched.
struct TakesOrders {
    runs: super::tests::ScriptedRuns,
    found: Conducted,
    asked: Vec<(String, Vec<&'static str>)>,
}

impl Runner for TakesOrders {
    fn run(&mut self, variant: &Variant, way: Way, within: f64) -> Ran {
        self.runs.run(variant, way, within)
    }

    fn seconds_left(&self) -> f64 {
        self.runs.left
    }

    fn patch_with(&mut self, _: Vec<(std::path::PathBuf, String)>) {}

    fn conduct(
        &mut self,
        variant: &Variant,
        wanted: &[Switchable],
        reserve: f64,
    ) -> Option<Result<Conducted, NotConducted>> {
        self.asked.push((variant.asked(), wanted.iter().map(|one| one.remedy.name).collect()));
        self.runs.left = self.runs.left.min(reserve);
        Some(Ok(self.found.clone()))
    }
}

fn predicted(name: &str, share: f64) -> Candidate {
    Candidate { predicted: Some(share), ..candidate(name) }
}

#[test]
fn a_loader_that_the_step_waits_for_comes_before_the_switches() {
    let speed = |variant: &Variant| match variant.names().contains(&"loader-workers") {
        true if variant.names().contains(&"tf32") => 3.0,
        true => 2.0,
        // While the step waits, nothing else shows.
        false => 1.0,
    };
    let runs = super::tests::ScriptedRuns { speed, ..made(300.0, same, (0, false)) };
    let found = conducted(&[("tf32", Verdict::Kept), ("gc-frozen", Verdict::Late)]);
    let mut runner = TakesOrders { runs, found, asked: vec![] };
    let mut tell = |_: &Row| {};
    let mut search = Search::begin(&mut runner, REPEATS, None, &mut tell).unwrap();
    let all = vec![predicted("tf32", 0.2), predicted("loader-workers", 0.5), candidate("gc-frozen")];
    let (mut rows, rest) = search.try_starts(all);
    assert_eq!(search.kept().names(), ["loader-workers"], "{rows:?}");
    assert!(search.is_conductible(&rest), "a share of the time is left to the switches");
    let found = search.conduct(&rest).unwrap().unwrap();
    rows.extend(search.try_conducted(&found, rest));
    let found = search.finish(rows, None).unwrap();
    assert_eq!(found.kept.names(), ["loader-workers", "tf32"]);
    assert_eq!(runner.asked, [("loader-workers".to_string(), vec!["tf32", "gc-frozen"])]);
    // A loader that promises less than a switch waits for it. CUDA graphs are a switch too.
    let mut runner = made(300.0, same, (0, false));
    let mut search = Search::begin(&mut runner, REPEATS, None, &mut tell).unwrap();
    let all = vec![predicted("tf32", 0.3), predicted("loader-workers", 0.2), predicted("compile-reduce-overhead", 0.9)];
    let (rows, rest) = search.try_starts(all);
    assert!(rows.is_empty() && rest.len() == 3, "{rows:?}");
    let late = found.rows.iter().find(|row| row.candidate.remedy.name == "gc-frozen").unwrap();
    assert_eq!(late.outcome.words(), "not tried: too little time was left for it");
}

#[test]
fn what_was_confirmed_inside_a_process_is_not_raced_again_before_the_proof() {
    let kept = conducted(&[("tf32", Verdict::Kept), ("compile", Verdict::Kept)]);
    let mut runner = made(1e9, same, (0, false));
    let found = after_conducting(&mut runner, &kept, &["tf32", "compile"]);
    assert_eq!(found.kept.names(), ["tf32", "compile"]);
    // One process of it, then the final turns.
    let own = runner.asked.iter().filter(|asked| *asked == "tf32,compile").count();
    assert_eq!(own, 1 + REPEATS.finals, "{:?}", runner.asked);
    // Nothing is known to be slower until then: the turns decide.
    let mut slow = super::tests::ScriptedRuns { speed: |_| 1.0, ..made(1e9, same, (0, false)) };
    let found = after_conducting(&mut slow, &kept, &["tf32", "compile"]);
    assert!(found.kept.is_empty(), "{:?}", found.rows);
}

#[test]
fn a_switch_that_promises_much_and_found_no_time_is_tried_by_processes() {
    let late = conducted(&[("tf32", Verdict::Late), ("gc-frozen", Verdict::Late)]);
    let mut runner = made(1e9, same, (0, false));
    let mut tell = |_: &Row| {};
    let mut search = Search::begin(&mut runner, REPEATS, None, &mut tell).unwrap();
    let rows = search.try_conducted(&late, vec![predicted("tf32", 0.5), candidate("gc-frozen")]);
    let found = search.finish(rows, None).unwrap();
    assert_eq!(found.kept.names(), ["tf32"]);
    let outcome = |name: &str| found.rows.iter().find(|row| row.candidate.remedy.name == name).unwrap().outcome.words();
    assert_eq!(outcome("gc-frozen"), "not tried: too little time was left for it");
}

/// One process of the kept variant is disturbed while it proves something.
struct DisturbedOnce {
    runs: super::tests::ScriptedRuns,
    is_left: bool,
}

impl Runner for DisturbedOnce {
    fn run(&mut self, variant: &Variant, way: Way, within: f64) -> Ran {
        let mut ran = self.runs.run(variant, way, within);
        let is_hit = self.is_left && self.runs.is_proving && !variant.is_empty();
        if let (true, Ran::Measured(note)) = (is_hit, &mut ran) {
            note.step_seconds.iter_mut().for_each(|seconds| *seconds *= 3.0);
            self.is_left = false;
        }
        ran
    }

    fn seconds_left(&self) -> f64 {
        self.runs.left
    }

    fn patch_with(&mut self, _: Vec<(std::path::PathBuf, String)>) {}

    fn set_proving(&mut self, is_proving: bool) {
        self.runs.is_proving = is_proving;
    }

    fn is_over(&self) -> bool {
        self.runs.is_over()
    }
}

#[test]
fn final_turns_go_on_while_a_gain_is_not_decided_and_time_is_left() {
    let turns = |left: f64, over_after: usize| {
        let runs = super::tests::ScriptedRuns { over_after, ..made(left, same, (0, false)) };
        let mut runner = DisturbedOnce { runs, is_left: true };
        let found = after_conducting(&mut runner, &conducted(&[("tf32", Verdict::Kept)]), &["tf32"]);
        (found.speedup.rounds, found.kept.names())
    };
    assert_eq!(turns(1e9, usize::MAX), (4 * REPEATS.finals, vec!["tf32"]));
    // With time for three turns of each only, one disturbed process decides that nothing is kept.
    assert_eq!(turns(120.0, usize::MAX), (REPEATS.finals, vec![]));
    // Nor do they go on for a person who ends the search meanwhile, in their second process.
    assert_eq!(turns(1e9, 6), (REPEATS.finals, vec![]));
    // An undisturbed proof ends at the first look.
    let mut calm = made(1e9, same, (0, false));
    let found = after_conducting(&mut calm, &conducted(&[("tf32", Verdict::Kept)]), &["tf32"]);
    assert_eq!((found.speedup.rounds, found.kept.names()), (REPEATS.finals, vec!["tf32"]));
}
