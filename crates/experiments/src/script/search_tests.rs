//! A search over processes that are made up: their times, losses and failures are known beforehand.

use super::*;
use crate::remedies::named;
use crate::script::note::{Applied, Loader, Module};

/// Step times by remedies; a process costs ten seconds.
struct Made {
    left: f64,
    speed: fn(&Variant) -> f64,
    losses: fn(&Variant) -> Vec<f64>,
    runs: usize,
    /// Each process, as it was run.
    ways: Vec<Way>,
    /// Active dropouts of the module, and whether loading draws random numbers.
    random: (u64, bool),
}

impl Runner for Made {
    fn run(&mut self, variant: &Variant, way: Way) -> Ran {
        self.ways.push(way);
        self.left -= 10.0;
        self.runs += 1;
        if variant.names().contains(&"sdpa") {
            return Ran::Failed("it ended with RuntimeError: no kernel".into());
        }
        // Processes differ by up to 1%.
        let noise = 1.0 + 0.01 * ((self.runs * 7 % 5) as f64 / 2.0 - 1.0);
        let seconds = 0.1 / (self.speed)(variant) * noise;
        let applied = |name: &str| Applied {
            did: if name == "gc-frozen" { vec![] } else { vec![format!("{name} was applied")] },
            ..Applied::default()
        };
        Ran::Measured(Box::new(Note {
            steps: 11,
            step_seconds: vec![seconds; 8],
            losses: (self.losses)(variant).into_iter().map(|loss| vec![Some(loss)]).collect(),
            remedies: variant.names().into_iter().map(|name| (name.to_string(), applied(name))).collect(),
            modules: vec![Module { dropouts: self.random.0, ..Module::default() }],
            loaders: vec![Loader { draws_random: Some(self.random.1), ..Loader::default() }],
            ..Note::default()
        }))
    }

    fn seconds_left(&self) -> f64 {
        self.left
    }
}

const REPEATS: Repeats = Repeats { originals: 3, least: 2, most: 4, finals: 3 };

fn candidate(name: &str) -> Candidate {
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

fn made(left: f64, losses: fn(&Variant) -> Vec<f64>, random: (u64, bool)) -> Made {
    Made { left, speed, losses, runs: 0, ways: vec![], random }
}

fn found(left: f64, losses: fn(&Variant) -> Vec<f64>, names: &[&str]) -> Found {
    let mut made = made(left, losses, (0, false));
    let mut told = 0;
    let mut tell = |_: &Row| told += 1;
    let search = Search::begin(&mut made, REPEATS, &mut tell).unwrap();
    let found = search.go(names.iter().map(|name| candidate(name)).collect()).unwrap();
    assert_eq!(told, names.len());
    found
}

fn same(_: &Variant) -> Vec<f64> {
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
            "kept: faster",
            "slower",
            "failed: it ended with RuntimeError: no kernel",
            "nothing to do: it found nothing to do",
            "kept: faster",
            "within noise",
        ]
    );
    assert_eq!(found.kept.names(), ["tf32", "compile"]);
    let Speedup { ratio, low, high, .. } = found.speedup;
    assert!(low < 1.8 && 1.8 < high && (ratio - 1.8).abs() < 0.05 && high - low < 0.2, "{:?}", found.speedup);
    assert!((found.rows[0].speedup.unwrap().ratio - 1.5).abs() < 0.05);
    assert_eq!(found.rows[0].did, ["tf32 was applied"]);
}

#[test]
fn a_remedy_that_changes_the_losses_is_not_kept_however_fast() {
    let moved = |variant: &Variant| if variant.is_empty() { vec![2.0, 1.5] } else { vec![2.0, 1.4] };
    let found = found(1e9, moved, &["tf32"]);
    assert!(matches!(found.rows[0].outcome, Outcome::OtherLosses(share, _) if (share - 0.1 / 1.5).abs() < 1e-9));
    assert!(found.kept.is_empty() && found.speedup.ratio == 1.0);
}

#[test]
fn time_that_is_short_leaves_remedies_untried_and_says_so() {
    let found = found(85.0, same, &["tf32", "compile", "zero-grad-none"]);
    assert_eq!(found.rows[0].outcome, Outcome::Kept);
    let untried = Outcome::NotTried("no time was left for it".into());
    assert_eq!([&found.rows[1].outcome, &found.rows[2].outcome], [&untried, &untried]);
}

#[test]
fn the_best_predicted_comes_first_and_classes_and_names_choose() {
    let offer = |obstacle: Option<&str>| Offer { class: String::new(), obstacle: obstacle.map(String::from) };
    let mut offered: BTreeMap<String, Offer> =
        REMEDIES.iter().map(|remedy| (remedy.name.to_string(), offer(None))).collect();
    offered.insert("sdpa".into(), offer(Some("it computes attention in no way that can be replaced")));
    let roadmap = [("data-loading".to_string(), 0.2), ("no-tensor-cores".to_string(), 0.6)];
    let wanted = Wanted { skip: vec!["compile".into()], ..Wanted::default() };
    let (tried, left) = candidates(&offered, &roadmap, &wanted);
    assert_eq!((tried[0].remedy.name, tried[0].predicted), ("tf32", Some(0.6)));
    assert_eq!(
        (tried[1].remedy.name, tried[1].answers.as_slice()),
        ("loader-workers", &["data-loading".to_string()][..])
    );
    let why = |name: &str| left.iter().find(|row| row.candidate.remedy.name == name).unwrap().outcome.words();
    assert_eq!(why("bf16-autocast"), "not tried: needs --allow precision");
    assert_eq!(why("compile"), "not tried: left out by --skip");
    assert!(why("sdpa").contains("no way that can be replaced"));
    let only = Wanted { only: vec!["bf16-autocast".into()], ..Wanted::default() };
    let (tried, _) = candidates(&offered, &roadmap, &only);
    assert_eq!(tried.iter().map(|one| one.remedy.name).collect::<Vec<_>>(), ["bf16-autocast"]);
}

#[test]
fn a_script_that_cannot_be_measured_gets_its_reason() {
    struct Broken;
    impl Runner for Broken {
        fn run(&mut self, _: &Variant, _: Way) -> Ran {
            Ran::TooLong(Duration::from_secs(60))
        }
        fn seconds_left(&self) -> f64 {
            100.0
        }
    }
    let mut tell = |_: &Row| {};
    let error = Search::begin(&mut Broken, REPEATS, &mut tell).err().unwrap();
    assert_eq!(error.0, "ended after 60 s, which is longer than it may take");
}

#[test]
fn compiled_dropout_is_proved_by_a_run_that_draws_as_the_script_does() {
    let mut made = made(1e9, same, (3, false));
    let mut tell = |_: &Row| {};
    let search = Search::begin(&mut made, REPEATS, &mut tell).unwrap();
    let found = search.go(vec![candidate("compile"), candidate("tf32")]).unwrap();
    assert_eq!(found.kept.names(), ["tf32", "compile"]);
    assert_eq!(found.proof.proofs.len(), 1, "its timed runs draw others");
    assert_eq!(found.processes, made.runs);
    // Once for `compile` alone, once with `tf32`.
    assert_eq!(made.ways.iter().filter(|way| **way == Way::ComparableRandom).count(), 2);
}

#[test]
fn loading_that_draws_is_held_against_the_script_with_other_draws() {
    let mut made = Made { speed: |variant| if variant.is_empty() { 1.0 } else { 1.5 }, ..made(1e9, same, (0, true)) };
    let mut tell = |_: &Row| {};
    let search = Search::begin(&mut made, REPEATS, &mut tell).unwrap();
    let found = search.go(vec![candidate("loader-workers")]).unwrap();
    assert_eq!(found.kept.names(), ["loader-workers"]);
    assert_eq!(found.proof.references.len(), found.originals.len() + 2);
    let others: Vec<&Way> = made.ways.iter().filter(|way| **way != Way::Timed).collect();
    assert_eq!(others, [&Way::OtherLoading(1), &Way::OtherLoading(2)]);
}

#[test]
fn one_of_two_that_stand_in_for_each_other_is_kept() {
    let mut made = Made {
        speed: |variant| match variant.asked().as_str() {
            "compile" => 1.2,
            "compile-reduce-overhead" => 1.5,
            _ => 1.0,
        },
        ..made(1e9, same, (0, false))
    };
    let mut tell = |_: &Row| {};
    let search = Search::begin(&mut made, REPEATS, &mut tell).unwrap();
    let found = search.go(vec![candidate("compile"), candidate("compile-reduce-overhead")]).unwrap();
    assert_eq!(found.kept.names(), ["compile-reduce-overhead"]);
    assert!((found.speedup.ratio - 1.5).abs() < 0.05 && (found.rows[1].saved.unwrap() - 1.0 / 6.0).abs() < 0.03);
}

#[test]
fn a_process_that_fails_at_the_end_takes_nothing_back() {
    struct Fails(Made, usize);
    impl Runner for Fails {
        fn run(&mut self, variant: &Variant, way: Way) -> Ran {
            self.1 -= 1;
            if self.1 == 0 { Ran::Failed("out of memory".into()) } else { self.0.run(variant, way) }
        }
        fn seconds_left(&self) -> f64 {
            self.0.seconds_left()
        }
    }
    let mut tell = |_: &Row| {};
    // Three as it is, two of each in turns, and the second of the end fails.
    let mut runner = Fails(made(1e9, same, (0, false)), 8);
    let search = Search::begin(&mut runner, REPEATS, &mut tell).unwrap();
    let found = search.go(vec![candidate("tf32")]).unwrap();
    assert_eq!(found.kept.names(), ["tf32"]);
    assert!((found.speedup.ratio - 1.5).abs() < 0.05);
}
