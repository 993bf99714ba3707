//! The search over simulated GPU scripts: a process takes many seconds to start, and a minute or two to compile at
//! first.

use super::tests::{REPEATS, candidate, reread};
use super::*;
use crate::note::{Applied, Loader, MadeAhead, Module};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// A script, and the effects of its remedies.
struct Script {
    name: &'static str,
    /// Seconds per process, and per step.
    process: f64,
    step: f64,
    /// Seconds to compile new code, and to read it from the cache.
    compiling: f64,
    cached: f64,
    dropout: bool,
    draws: bool,
    /// Remedy, its speed factor, and the predicted saving.
    remedies: &'static [(&'static str, f64, Option<f64>)],
}

impl Script {
    fn candidates(&self) -> Vec<Candidate> {
        let one = |(name, _, predicted): &(&'static str, f64, Option<f64>)| Candidate {
            predicted: *predicted,
            ..candidate(name)
        };
        let mut all: Vec<Candidate> = self.remedies.iter().map(one).collect();
        all.sort_by(|left, right| right.predicted.unwrap_or(0.0).total_cmp(&left.predicted.unwrap_or(0.0)));
        all
    }

    fn speed(&self, variant: &Variant) -> f64 {
        let factor =
            |name: &&str| self.remedies.iter().find(|(own, ..)| own == name).map_or(1.0, |(_, factor, _)| *factor);
        variant.names().iter().map(factor).product()
    }
}

struct Simulated<'a> {
    script: &'a Script,
    limit: f64,
    left: f64,
    runs: u64,
    ways: Vec<Way>,
    code: BTreeSet<String>,
    /// The fastest variant so far, which the patch writes down.
    patched: Variant,
    /// Additional relative deviation of a variant's losses.
    wrong: f64,
}

impl Simulated<'_> {
    fn of(script: &Script, left: f64) -> Simulated<'_> {
        let (ways, code) = (vec![], BTreeSet::new());
        Simulated { script, limit: left, left, runs: 0, ways, code, patched: Variant::default(), wrong: 0.0 }
    }

    fn loaders(&self, variant: &Variant, way: Way) -> Vec<Loader> {
        let (draws_random, reread) = (Some(self.script.draws), reread(variant, way));
        // nanoGPT reads its batches itself.
        let is_loader = self.script.name != "nanoGPT";
        let loader = Loader { draws_random, reread, batches: 25, ..Loader::default() };
        is_loader.then_some(loader).into_iter().collect()
    }

    fn note(&self, variant: &Variant, way: Way) -> Note {
        let noise = 1.0 + 0.004 * ((self.runs * 7 % 5) as f64 / 2.0 - 1.0);
        let seconds = self.script.step / self.script.speed(variant) * noise;
        // Differences grow with the steps; their cause determines their size.
        let compiled = variant.is_compiled() && self.script.dropout && way != Way::ComparableRandom;
        let share = match way {
            Way::Moved(_, 1) => 3e-5,
            Way::Moved(..) => 2e-4,
            Way::OtherDropout(_) => 3e-3,
            Way::OtherLoading(number) => 2e-3 * f64::from(number),
            _ if compiled => 4e-3,
            _ if variant.names().contains(&"tf32") => 3e-4,
            _ => 0.0,
        } + if variant.is_empty() { 0.0 } else { self.wrong };
        let loads = self.script.draws && variant.names().contains(&"loader-workers");
        let share = if loads { share - 2e-3 } else { share };
        let losses = (0..25).map(|at| vec![Some(4.0 * (1.0 + share * 1.15f64.powi(at)))]).collect();
        let did = |name: &str| Applied { did: vec![name.to_string()], ..Applied::default() };
        Note {
            steps: 25,
            phase: "done".into(),
            measured_on: Some("device".into()),
            made_ahead: Some(MadeAhead { taken: 20.0, used_up: 0.0 }),
            peak_bytes: Some(1000),
            peak_reserved_bytes: Some(1000),
            step_seconds: vec![seconds; 20],
            losses,
            remedies: variant.names().into_iter().map(|name| (name.to_string(), did(name))).collect(),
            modules: vec![Module { dropouts: u64::from(self.script.dropout), ..Module::default() }],
            loaders: self.loaders(variant, way),
            epoch_ends: if let Way::Proof { cuts_epochs: true } = way { vec![12, 18, 24] } else { vec![] },
            ..Note::default()
        }
    }
}

impl Runner for Simulated<'_> {
    fn run(&mut self, variant: &Variant, way: Way, within: f64) -> Ran {
        let variant = if way == Way::Patched { self.patched.clone() } else { variant.clone() };
        let code = format!("{}{}", variant.code(), if way == Way::ComparableRandom { " comparable" } else { "" });
        let compiling = match (variant.is_compiled(), self.code.contains(&code)) {
            (false, _) => 0.0,
            (true, false) => self.script.compiling,
            (true, true) => self.script.cached,
        };
        let seconds = self.script.process + 25.0 * self.script.step / self.script.speed(&variant) + compiling;
        self.runs += 1;
        self.ways.push(way);
        self.left -= seconds.min(within.max(0.0));
        if seconds > within {
            return Ran::TooLong(Duration::from_secs_f64(within.max(0.0)));
        }
        self.code.insert(code);
        if way == Way::Timed && self.script.speed(&variant) > self.script.speed(&self.patched) {
            self.patched = variant.clone();
        }
        Ran::Measured(Box::new(self.note(&variant, way)))
    }

    fn seconds_left(&self) -> f64 {
        self.left.max(0.0)
    }

    fn seconds_at_most(&self) -> f64 {
        (self.left + 0.1 * self.limit - 6.0).max(0.0)
    }

    fn patch_with(&mut self, _: Vec<(PathBuf, String)>) {}
}

/// Runs everything from the recording, which takes half as long again, to the patch, which does what was kept.
fn optimized(script: &Script, runner: &mut Simulated) -> Found {
    let first = runner.note(&Variant::as_it_is(), Way::Timed);
    runner.left -= 1.5 * script.process + 60.0 * script.step;
    let mut tell = |_: &Row| {};
    let repeats = Repeats { originals: 2, finals: 4, ..REPEATS };
    let mut search = Search::begin(runner, repeats, Some(first), &mut tell).unwrap();
    let rows = search.try_all(script.candidates());
    search.finish(rows, Some(vec![])).unwrap()
}

/// Six scripts; their findings and remedies are known from an H200 or estimated from their code.
const SCRIPTS: [Script; 6] = [
    Script {
        name: "minGPT",
        process: 18.0,
        step: 0.08,
        compiling: 100.0,
        cached: 12.0,
        dropout: true,
        draws: false,
        remedies: &[
            ("tf32", 2.4, Some(0.58)),
            ("compile", 1.25, Some(0.12)),
            ("gc-frozen", 1.0, None),
            ("zero-grad-none", 1.0, None),
        ],
    },
    Script {
        name: "nanoGPT",
        process: 20.0,
        step: 0.06,
        compiling: 110.0,
        cached: 15.0,
        dropout: false,
        draws: false,
        remedies: &[
            ("gc-frozen", 1.0, None),
            ("expandable-segments", 1.0, None),
            ("zero-grad-none", 1.0, None),
            ("tf32", 1.0, Some(0.02)),
        ],
    },
    Script {
        name: "run_clm",
        process: 20.0,
        step: 0.07,
        compiling: 75.0,
        cached: 12.0,
        dropout: true,
        draws: false,
        remedies: &[
            ("tf32", 1.9, Some(0.45)),
            ("compile-blocks", 1.2, Some(0.15)),
            ("compile", 1.25, Some(0.17)),
            ("loader-pinning", 1.0, Some(0.01)),
            ("gc-frozen", 1.01, None),
        ],
    },
    Script {
        name: "Lightning imagenet",
        process: 16.0,
        step: 0.08,
        compiling: 90.0,
        cached: 12.0,
        dropout: false,
        draws: true,
        remedies: &[
            ("loader-workers", 2.6, Some(0.6)),
            ("channels-last", 1.05, Some(0.05)),
            ("tf32", 1.1, Some(0.1)),
            ("compile", 1.05, Some(0.06)),
        ],
    },
    Script {
        name: "torchvision reference",
        process: 17.0,
        step: 0.07,
        compiling: 80.0,
        cached: 12.0,
        dropout: false,
        draws: true,
        remedies: &[
            ("loader-workers", 1.3, Some(0.25)),
            ("channels-last", 1.1, Some(0.1)),
            ("tf32", 1.3, Some(0.2)),
            ("cudnn-benchmark", 1.05, Some(0.02)),
        ],
    },
    Script {
        name: "DDPM",
        process: 15.0,
        step: 0.02,
        compiling: 100.0,
        cached: 15.0,
        dropout: false,
        draws: false,
        remedies: &[
            ("compile-reduce-overhead", 1.9, Some(0.5)),
            ("compile", 1.3, Some(0.25)),
            ("fused-optimizer", 1.05, Some(0.06)),
            ("gc-frozen", 1.0, None),
        ],
    },
];

/// One line per script and limit: what was kept, and the verdict on the rest.
fn table(limit: f64) -> Vec<(String, f64, f64)> {
    let line = |script: &Script| {
        let mut runner = Simulated::of(script, limit);
        let found = optimized(script, &mut runner);
        let rows: Vec<String> =
            found.rows.iter().map(|row| format!("{} {}", row.candidate.remedy.name, row.outcome.words())).collect();
        let text = format!(
            "{} in {limit:.0} s: {:.2}x, {:.0} s left; {}",
            script.name,
            found.speedup.ratio,
            runner.left,
            rows.join("; ")
        );
        (text, found.speedup.low, runner.left)
    };
    SCRIPTS.iter().map(line).collect()
}

#[test]
fn three_of_six_scripts_reach_half_as_fast_again_within_the_time_limit() {
    for limit in [280.0, 300.0, 420.0] {
        let lines = table(limit);
        let reached = lines.iter().filter(|(_, low, _)| *low >= 1.45).count();
        assert!(reached >= 4, "{lines:#?}");
        assert!(lines.iter().all(|(_, _, left)| *left >= -0.1 * limit), "the limit holds to a tenth: {lines:#?}");
        assert!(lines[1].0.contains("1.00x") && !lines[1].0.contains("not tried"), "{}", lines[1].0);
    }
}

#[test]
fn only_the_proof_is_set_aside_while_nothing_is_kept() {
    let script = Script { remedies: &[("compile", 1.4, Some(0.12)), ("gc-frozen", 1.0, None)], ..SCRIPTS[0] };
    for (limit, kept) in [(230.0, vec![]), (300.0, vec!["compile"])] {
        let mut runner = Simulated::of(&script, limit);
        let found = optimized(&script, &mut runner);
        assert_eq!(found.kept.names(), kept, "{limit} s: {:?}", found.rows);
        assert!(runner.left >= -0.1 * limit, "{limit} s: {} s left", runner.left);
    }
}

#[test]
fn a_time_limit_holds_to_a_tenth_for_every_script_and_limit() {
    for script in &SCRIPTS {
        for limit in (60..600).step_by(15).map(f64::from) {
            let mut runner = Simulated::of(script, limit);
            let found = optimized(script, &mut runner);
            assert!(runner.left >= -0.1 * limit, "{} in {limit} s: {} s left", script.name, runner.left);
            let is_proved = found.kept.is_empty() || found.speedup.rounds >= 1;
            assert!(is_proved, "{} in {limit} s keeps {:?} without turns", script.name, found.kept.names());
        }
    }
}

#[test]
fn compiled_dropout_is_measured_by_other_dropout_before_it_is_compiled() {
    let script = Script { remedies: &[("compile", 1.4, Some(0.3))], ..SCRIPTS[0] };
    let mut runner = Simulated::of(&script, 300.0);
    let found = optimized(&script, &mut runner);
    assert_eq!(found.kept.names(), ["compile"], "{:?}", found.rows);
    assert_eq!(runner.ways[1], Way::OtherDropout(1), "{:?}", runner.ways);
    assert!(!runner.ways.contains(&Way::ComparableRandom), "which would compile once more");
    // Without time for both it is not started.
    let found = optimized(&script, &mut Simulated::of(&script, 95.0));
    assert_eq!(found.rows[0].outcome, Outcome::NotTried("too little time was left for it".into()));
}

#[test]
fn a_remedy_that_cannot_be_proved_in_time_is_undecided_and_a_wrong_one_is_refused() {
    let script = Script { remedies: &[("compile", 1.4, Some(0.3))], ..SCRIPTS[0] };
    let mut runner = Simulated { wrong: 2e-2, ..Simulated::of(&script, 300.0) };
    let found = optimized(&script, &mut runner);
    assert_eq!(found.rows[0].outcome, Outcome::Undecided(Doubt::Proof), "{:?}", runner.ways);
    assert!(found.rows[0].outcome.is_open() && found.kept.is_empty());
    let mut runner = Simulated { wrong: 2e-2, ..Simulated::of(&script, 1000.0) };
    let found = optimized(&script, &mut runner);
    assert!(matches!(found.rows[0].outcome, Outcome::Refused("losses", ..)), "{:?}", found.rows[0].outcome);
}

#[test]
fn one_moved_run_that_lies_close_refuses_nothing() {
    let script = Script { remedies: &[("tf32", 2.4, Some(0.58))], dropout: false, ..SCRIPTS[0] };
    let mut runner = Simulated::of(&script, 300.0);
    let found = optimized(&script, &mut runner);
    assert_eq!(found.kept.names(), ["tf32"], "{:?}", found.rows);
    let moved: Vec<&Way> = runner.ways.iter().filter(|way| matches!(way, Way::Moved(..))).collect();
    assert_eq!(
        moved,
        [&Way::Moved(crate::remedies::Rounding::Tf32, 1), &Way::Moved(crate::remedies::Rounding::Tf32, 2)]
    );
}

#[test]
fn a_remedy_that_hangs_leaves_the_time_to_others() {
    struct Hangs<'a>(Simulated<'a>);
    impl Runner for Hangs<'_> {
        fn run(&mut self, variant: &Variant, way: Way, within: f64) -> Ran {
            if !variant.names().contains(&"channels-last") {
                return self.0.run(variant, way, within);
            }
            self.0.left -= within;
            Ran::TooLong(Duration::from_secs_f64(within))
        }
        fn seconds_left(&self) -> f64 {
            self.0.seconds_left()
        }
        fn patch_with(&mut self, _: Vec<(PathBuf, String)>) {}
    }
    let remedies = &[("channels-last", 1.0, Some(0.7)), ("tf32", 2.4, Some(0.58))];
    let script = Script { remedies, dropout: false, ..SCRIPTS[0] };
    let mut runner = Hangs(Simulated::of(&script, 300.0));
    let mut tell = |_: &Row| {};
    let mut search = Search::begin(&mut runner, REPEATS, None, &mut tell).unwrap();
    let rows = search.try_all(script.candidates());
    assert!(
        matches!(rows[0].outcome, Outcome::TooLong(limit) if limit < Duration::from_secs(80)),
        "{:?}",
        rows[0].outcome
    );
    assert_eq!(search.kept().names(), ["tf32"]);
}

#[test]
fn a_patch_whose_losses_are_others_fails_its_gate() {
    struct Wrong<'a>(Simulated<'a>);
    impl Runner for Wrong<'_> {
        fn run(&mut self, variant: &Variant, way: Way, within: f64) -> Ran {
            let ran = self.0.run(variant, way, within);
            match ran {
                Ran::Measured(mut note) if way == Way::Patched => {
                    note.losses.iter_mut().flatten().flatten().for_each(|loss| *loss *= 1.3);
                    Ran::Measured(note)
                }
                ran => ran,
            }
        }
        fn seconds_left(&self) -> f64 {
            self.0.seconds_left()
        }
        fn patch_with(&mut self, _: Vec<(PathBuf, String)>) {}
    }
    let script = Script { remedies: &[("tf32", 2.4, Some(0.58))], dropout: false, ..SCRIPTS[0] };
    let failed = |runner: &mut dyn Runner| -> Vec<&str> {
        let mut tell = |_: &Row| {};
        let mut search = Search::begin(runner, REPEATS, None, &mut tell).unwrap();
        let rows = search.try_all(script.candidates());
        let patched = search.finish(rows, Some(vec![])).unwrap().patched.unwrap();
        assert!(patched.gates.len() >= 3);
        patched.gates.into_iter().filter(|gate| gate.answer == Answer::Fail).map(|gate| gate.name).collect()
    };
    assert_eq!(failed(&mut Simulated::of(&script, 300.0)), [""; 0]);
    assert_eq!(failed(&mut Wrong(Simulated::of(&script, 300.0))), ["patch_losses"]);
}
