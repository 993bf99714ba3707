//! The search over simulated scripts with known effects, noise, evaluation, ends and failures.

use super::super::messages::{Block, Step};
use super::*;
use crate::moment::Moment;
use crate::remedies::named;
use crate::variant::{changes_code, compiles};

/// A script whose switches multiply its speed.
struct Simulated {
    effects: Vec<(&'static str, f64)>,
    /// Two switches with an effect that only both together have.
    pair: Option<([&'static str; 2], f64)>,
    /// Deviation of a block, and of a step within it.
    noise: (f64, f64),
    random: fastrand::Rng,
    left: f64,
    step: u64,
    /// Steps after which a process comes to its end.
    ends_after: u64,
    /// A switch under which the script raises, one whose shadow step differs, and one whose blocks are void.
    raises: Option<&'static str>,
    differs: Option<&'static str>,
    void: Option<&'static str>,
    /// Seconds of compiling for each new combination of switches that compile or change code, and for a shadow step.
    compiling: f64,
    compiled: Vec<String>,
    /// Every step has inputs of another shape.
    is_ragged: bool,
    starts: usize,
    orders: Vec<Vec<String>>,
    /// Blocks after which a person ends the selection, and the live lines.
    over_after: usize,
    shown: Vec<String>,
}

impl Simulated {
    fn of(effects: &[(&'static str, f64)], seed: u64) -> Simulated {
        Simulated {
            effects: effects.to_vec(),
            pair: None,
            noise: (0.02, 0.01),
            random: fastrand::Rng::with_seed(seed),
            left: 1e9,
            step: 0,
            ends_after: u64::MAX,
            raises: None,
            differs: None,
            void: None,
            compiling: 0.0,
            compiled: vec![],
            is_ragged: false,
            starts: 0,
            orders: vec![],
            over_after: usize::MAX,
            shown: vec![],
        }
    }

    fn wanted(&self) -> Vec<Switchable> {
        let one = |(name, _): &(&'static str, f64)| Switchable {
            remedy: named(name).unwrap(),
            predicted: None,
            proof_seconds: 0.0,
        };
        self.effects.iter().map(one).collect()
    }

    /// About normal, with mean zero and deviation one.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.random.f64()).sum::<f64>() - 6.0
    }
}

impl Stage for Simulated {
    fn start(&mut self) -> Result<Hello, Lost> {
        self.starts += 1;
        self.step = 0;
        self.left -= 10.0;
        let offer = |(name, _): &(&'static str, f64)| SwitchOffer {
            name: (*name).into(),
            place: if *name == "loader-workers" { "start".into() } else { "between_steps".into() },
            settle: 1,
            obstacle: (*name == "sdpa").then(|| "it has no attention".into()),
        };
        let switches = self.effects.iter().map(offer).collect();
        Ok(Hello { version: VERSION, device: "cuda:0".into(), steps: 3, switches })
    }

    fn perform(&mut self, order: &Order, _: f64) -> Result<Report, Lost> {
        if self.left <= 0.0 {
            return Err(Lost::TimeUp);
        }
        let (number, on, settle, steps) = match order {
            Order::Block { number, on, settle, steps } => (*number, on.clone(), *settle, *steps),
            Order::Shadow { number, switch, .. } => {
                self.left -= if compiles(switch) { self.compiling } else { 0.0 };
                let verdict = if Some(switch.as_str()) == self.differs { "differs" } else { "same" };
                return Ok(Report::Shadow {
                    number: *number,
                    switch: switch.clone(),
                    verdict: verdict.into(),
                    reason: (verdict == "differs").then(|| "weight of layer 3".into()),
                    largest: serde_json::json!([]),
                });
            }
            Order::Finish {} => return Err(Lost::Ended),
        };
        self.orders.push(on.clone());
        if on.iter().any(|name| Some(name.as_str()) == self.raises) {
            return Ok(Report::Failed { switch: None, text: "OutOfMemoryError: CUDA".into() });
        }
        if self.step + u64::from(settle + steps) > self.ends_after {
            return Ok(Report::Ended { steps: self.step });
        }
        let code: Vec<&str> =
            on.iter().map(String::as_str).filter(|name| compiles(name) || changes_code(name)).collect();
        if code.iter().any(|name| compiles(name)) && !self.compiled.contains(&code.join(",")) {
            self.compiled.push(code.join(","));
            self.left -= self.compiling;
        }
        let speed: f64 = self
            .effects
            .iter()
            .filter(|(name, _)| on.iter().any(|one| one == name))
            .map(|(_, effect)| effect)
            .product();
        let together = self.pair.filter(|(both, _)| both.iter().all(|name| on.iter().any(|one| one == name)));
        let speed = speed * together.map_or(1.0, |(_, effect)| effect);
        let block = (self.noise.0 * self.normal()).exp();
        let mut rows = vec![];
        for _ in 0..settle + steps {
            self.step += 1;
            // The machine gets slower over the search.
            let drift = 1.0 + 1e-5 * self.step as f64;
            let seconds = 0.05 / speed * block * drift * (self.noise.1 * self.normal()).exp();
            let is_saved = self.step.is_multiple_of(25);
            self.left -= seconds;
            rows.push(Step {
                seconds: if is_saved { seconds + 1.0 } else { seconds },
                shape: if self.is_ragged { format!("{}", self.step) } else { format!("{}", self.step % 2) },
                apart: is_saved.then(|| "saving".into()),
            });
        }
        let void = on
            .iter()
            .any(|name| Some(name.as_str()) == self.void)
            .then(|| "compiled 2 frames in the block".to_string());
        let steps = rows.split_off(settle as usize);
        Ok(Report::Block(Block { number, steps, measured_on: "device".into(), void }))
    }

    fn end(&mut self) {}

    fn seconds_left(&self) -> f64 {
        self.left
    }

    fn is_over(&self) -> bool {
        self.orders.len() >= self.over_after
    }

    fn show(&mut self, moment: &Moment) {
        self.shown.push(moment.words());
    }
}

fn conducted(script: &mut Simulated, seed: u64) -> Conducted {
    let wanted = script.wanted();
    conduct(script, &wanted, seed).unwrap()
}

fn kept(found: &Conducted) -> Vec<&'static str> {
    let mut names: Vec<&str> = found.kept.iter().map(|remedy| remedy.name).collect();
    names.sort_unstable();
    names
}

fn verdict<'a>(found: &'a Conducted, name: &str) -> &'a Verdict {
    &found.verdicts.iter().find(|(remedy, ..)| remedy.name == name).unwrap().1
}

const EFFECTS: [(&str, f64); 6] = [
    ("tf32", 1.7),
    ("channels-last", 1.06),
    ("fused-optimizer", 1.1),
    ("zero-grad-none", 1.0),
    ("gc-frozen", 0.9),
    ("compile", 1.3),
];

#[test]
fn switches_that_pay_are_kept_and_the_figure_is_right() {
    let mut script = Simulated::of(&EFFECTS, 3);
    let found = conducted(&mut script, 5);
    assert_eq!(kept(&found), ["channels-last", "compile", "fused-optimizer", "tf32"], "{:?}", found.verdicts);
    // Neither pays; whether one is slower need not be known.
    for name in ["gc-frozen", "zero-grad-none"] {
        assert!(matches!(verdict(&found, name), Verdict::Slower | Verdict::NoGain), "{name}: {:?}", found.verdicts);
    }
    let speedup = found.speedup.unwrap();
    let truth: f64 = 1.7 * 1.06 * 1.1 * 1.3;
    assert!(speedup.low < truth && truth < speedup.high && speedup.high / speedup.low < 1.10, "{speedup:?} of {truth}");
    // Every round has its own order.
    let singles: Vec<&Vec<String>> = script.orders.iter().filter(|on| on.len() <= 1).take(12).collect();
    assert!(singles[..6] != singles[6..], "{singles:?}");
}

/// The stated chance: with eight switches that do nothing, at most one search in twenty keeps one.
#[test]
fn a_switch_that_does_nothing_is_kept_in_at_most_one_search_of_twenty() {
    let effects = ["tf32", "channels-last", "fused-optimizer", "zero-grad-none", "gc-frozen", "cudnn-benchmark"];
    let effects: Vec<(&str, f64)> = effects.into_iter().map(|name| (name, 1.0)).collect();
    let mut wrong = 0;
    for seed in 0..400 {
        let mut script = Simulated::of(&effects, seed);
        wrong += usize::from(!conducted(&mut script, 1000 + seed).kept.is_empty());
    }
    // Twenty are expected at most; thirty are beyond chance (binomial, 1%).
    assert!(wrong <= 30, "{wrong} of 400 searches kept something");
}

#[test]
fn a_script_that_ends_is_started_again_and_a_failure_costs_one_switch() {
    let mut script = Simulated { ends_after: 700, raises: Some("channels-last"), ..Simulated::of(&EFFECTS, 7) };
    let found = conducted(&mut script, 5);
    assert!(matches!(verdict(&found, "channels-last"), Verdict::Failed(why) if why.starts_with("OutOfMemory")));
    assert!(kept(&found).contains(&"tf32") && script.starts > 2 && found.processes == script.starts);
    // A script that is too short for a block says so.
    let mut script = Simulated { ends_after: 5, ..Simulated::of(&EFFECTS, 7) };
    let wanted = script.wanted();
    let error = conduct(&mut script, &wanted, 5).unwrap_err();
    assert!(error.0.starts_with("it ends before"), "{error:?}");
}

#[test]
fn a_shadow_that_differs_and_blocks_that_are_void_refuse_a_switch() {
    let mut script = Simulated { differs: Some("tf32"), void: Some("fused-optimizer"), ..Simulated::of(&EFFECTS, 11) };
    let found = conducted(&mut script, 5);
    assert_eq!(*verdict(&found, "tf32"), Verdict::Differs("weight of layer 3".into()));
    assert_eq!(*verdict(&found, "fused-optimizer"), Verdict::Void("compiled 2 frames in the block".into()));
    assert!(!script.orders.iter().flatten().any(|name| name == "tf32"), "it is not timed");
    assert!(kept(&found).contains(&"compile"));
}

#[test]
fn switches_of_the_start_are_left_and_shapes_that_never_match_decline() {
    let mut script = Simulated::of(&[("loader-workers", 2.0), ("sdpa", 2.0), ("tf32", 1.5)], 13);
    let found = conducted(&mut script, 5);
    assert_eq!(kept(&found), ["tf32"]);
    assert_eq!(*verdict(&found, "sdpa"), Verdict::Untried("it has no attention".into()));
    assert_eq!(*verdict(&found, "loader-workers"), Verdict::Untried("it acts only when the script starts".into()));
    let mut script = Simulated { is_ragged: true, ..Simulated::of(&EFFECTS, 17) };
    let wanted = script.wanted();
    assert!(conduct(&mut script, &wanted, 5).unwrap_err().0.contains("other shapes in every step"));
}

#[test]
fn nothing_is_kept_that_there_was_no_time_to_confirm() {
    for left in [20.0, 40.0, 80.0] {
        let mut script = Simulated { left, ..Simulated::of(&EFFECTS, 19) };
        let found = conducted(&mut script, 5);
        let confirmed = found.speedup.is_some();
        assert_eq!(found.kept.is_empty(), !confirmed, "{left} s: {:?}", found.verdicts);
        assert_eq!(found.verdicts.len(), EFFECTS.len());
    }
}

/// A block of 0.5 s differs from the next by 0.3% here: five rounds of every selection would leave no time to confirm.
#[test]
fn three_rounds_select_what_is_much_faster() {
    let effects = [("tf32", 5.0)];
    let mut script = Simulated { left: 17.5, noise: (0.003, 0.003), ..Simulated::of(&effects, 41) };
    let found = conducted(&mut script, 5);
    assert_eq!(kept(&found), ["tf32"], "{:?}", found.verdicts);
    let rounds = |stage: &str| found.rounds.iter().filter(|round| round.stage == stage).collect::<Vec<_>>();
    assert_eq!((rounds("select").len(), rounds("confirm").len()), (3, 5));
    // Without the only one that is kept, the script is the unmodified one: no block is taken twice.
    assert!(rounds("confirm").iter().all(|round| round.blocks.len() == 2));
}

#[test]
fn time_for_a_longer_proof_is_left_by_what_needs_it() {
    let wanted = |proof_seconds| vec![Switchable { remedy: named("compile").unwrap(), predicted: None, proof_seconds }];
    let kept_with = |proof_seconds| {
        let mut script = Simulated { left: 40.0, ..Simulated::of(&[("compile", 2.0)], 43) };
        kept(&conduct(&mut script, &wanted(proof_seconds), 5).unwrap())
    };
    assert_eq!((kept_with(0.0), kept_with(30.0)), (vec!["compile"], vec![]));
}

#[test]
fn a_search_that_is_ended_confirms_what_it_selected_and_tries_no_more() {
    let mut script = Simulated { over_after: 60, ..Simulated::of(&EFFECTS, 3) };
    let found = conducted(&mut script, 5);
    assert!(kept(&found).contains(&"tf32") && found.speedup.is_some(), "{:?}", found.verdicts);
    assert_eq!(*verdict(&found, "compile"), Verdict::Untried("the search was interrupted".into()));
    assert!(!script.orders.iter().flatten().any(|name| name == "compile"));
    // Ended before anything was selected: nothing is kept, and every switch says why.
    let mut script = Simulated { over_after: 1, ..Simulated::of(&EFFECTS, 3) };
    let found = conducted(&mut script, 5);
    assert!(found.kept.is_empty() && found.verdicts.len() == EFFECTS.len(), "{:?}", found.verdicts);
}

#[test]
fn a_switch_that_another_one_replaced_says_by_which() {
    let mut script = Simulated::of(&[("foreach-optimizer", 1.3), ("fused-optimizer", 1.6)], 29);
    let found = conducted(&mut script, 5);
    assert_eq!(kept(&found), ["fused-optimizer"]);
    // Either it was kept first and then replaced, or it was slower than what was kept.
    assert!(
        matches!(verdict(&found, "foreach-optimizer"), Verdict::Replaced("fused-optimizer") | Verdict::Slower),
        "{:?}",
        verdict(&found, "foreach-optimizer")
    );
}

#[test]
fn rounds_shadows_and_offers_are_told() {
    let mut script = Simulated { differs: Some("gc-frozen"), ..Simulated::of(&EFFECTS, 3) };
    let found = conducted(&mut script, 5);
    assert_eq!(found.offers.len(), EFFECTS.len());
    let shadow = found.shadows.iter().find(|shadow| shadow.switch == "gc-frozen").unwrap();
    assert_eq!((shadow.verdict.as_str(), shadow.reason.as_deref()), ("differs", Some("weight of layer 3")));
    let stages: Vec<&str> = found.rounds.iter().map(|round| round.stage).collect();
    assert!(stages.starts_with(&["select"; 5]) && stages.ends_with(&["confirm"; 5]), "{stages:?}");
    for round in &found.rounds {
        assert!(round.blocks.len() >= 2 && round.blocks.iter().all(|(_, seconds)| *seconds > 0.0), "{round:?}");
    }
    let first = script.shown.iter().position(|line| line.starts_with("switching tf32 and 3 more")).unwrap();
    assert!(
        script.shown[first].contains("round 1 of 20") && !script.shown[first].contains("best"),
        "{:?}",
        script.shown[first]
    );
    let last = script.shown.last().unwrap();
    assert!(last.starts_with("confirming ") && last.contains("best 2."), "{last}");
}

#[test]
fn switches_that_promise_little_leave_time_to_those_that_promise_much() {
    let promise = |script: &Simulated| -> Vec<Switchable> {
        let mut wanted = script.wanted();
        wanted.iter_mut().filter(|one| one.remedy.name == "bf16-autocast").for_each(|one| one.predicted = Some(0.4));
        wanted
    };
    let effects = [("gc-frozen", 1.0), ("zero-grad-none", 1.0), ("cudnn-benchmark", 1.0), ("bf16-autocast", 1.5)];
    for (left, is_other_tried) in [(18.0, false), (1e9, true)] {
        let mut script = Simulated { left, ..Simulated::of(&effects, 23) };
        let wanted = promise(&script);
        let found = conduct(&mut script, &wanted, 5).unwrap();
        let is_timed = |name: &str| script.orders.iter().flatten().any(|one| one == name);
        assert_eq!((is_timed("bf16-autocast"), is_timed("gc-frozen")), (true, is_other_tried), "{left} s");
        assert_eq!(*verdict(&found, "gc-frozen") == Verdict::Late, !is_other_tried, "{left} s");
    }
}

#[test]
fn what_replaces_a_kept_switch_has_to_promise_more_than_it_saved() {
    let effects = [("compile-blocks", 1.8), ("compile", 1.9), ("tf32", 1.3)];
    let mut script = Simulated::of(&effects, 23);
    let predicted =
        |name: &str, share| Switchable { remedy: named(name).unwrap(), predicted: Some(share), proof_seconds: 0.0 };
    let wanted = [predicted("compile-blocks", 0.45), predicted("compile", 0.44), predicted("tf32", 0.1)];
    let found = conduct(&mut script, &wanted, 5).unwrap();
    assert_eq!(kept(&found), ["compile-blocks", "tf32"], "{:?}", found.verdicts);
    let why = "compile-blocks was selected in its place, and it promises no more";
    assert_eq!(*verdict(&found, "compile"), Verdict::Superfluous(why.into()));
    // With a larger prediction it is tried, and kept instead.
    let wanted = [predicted("compile-blocks", 0.8), predicted("compile", 0.79), predicted("tf32", 0.1)];
    let found = conduct(&mut Simulated::of(&effects, 29), &wanted, 5).unwrap();
    assert_eq!(kept(&found), ["compile", "tf32"], "{:?}", found.verdicts);
}

#[test]
fn the_figure_without_fewer_bits_is_told_beside_the_whole() {
    let effects = [("tf32", 1.5), ("bf16-autocast", 1.4), ("gc-frozen", 1.0)];
    let found = conducted(&mut Simulated::of(&effects, 31), 5);
    assert_eq!(kept(&found), ["bf16-autocast", "tf32"], "{:?}", found.verdicts);
    let (all, without) = (found.speedup.unwrap(), found.with_all_bits.unwrap());
    assert!(without.low < 1.5 && 1.5 < without.high && without.high < all.low, "{without:?} {all:?}");
}

/// Nobody waits for what gains nothing: on a script of 50 ms per step, six switches without an effect take seconds.
#[test]
fn switches_without_effect_take_little_time() {
    let effects = ["tf32", "channels-last", "fused-optimizer", "zero-grad-none", "gc-frozen", "cudnn-benchmark"];
    let effects: Vec<(&str, f64)> = effects.into_iter().map(|name| (name, 1.0)).collect();
    let mut script = Simulated { left: 300.0, ..Simulated::of(&effects, 37) };
    conducted(&mut script, 5);
    assert!(script.left > 240.0, "{:.0} s are left", script.left);
}

/// A gain of one percent takes twenty rounds to tell from none. Nothing else waits for that.
#[test]
fn a_small_gain_is_measured_after_everything_else_was_tried() {
    let effects = [("gc-frozen", 1.012), ("fused-optimizer", 1.012), ("compile", 1.3), ("bf16-autocast", 1.6)];
    let mut script = Simulated { left: 90.0, noise: (0.02, 0.01), ..Simulated::of(&effects, 23) };
    let found = conducted(&mut script, 5);
    assert_eq!(kept(&found), ["bf16-autocast", "compile"], "{:?}", found.verdicts);
    let first = |name: &str| script.orders.iter().position(|on| on.iter().any(|one| one == name)).unwrap();
    let alone = |name: &str| {
        script.orders[..first("bf16-autocast")].iter().filter(|on| on.iter().any(|one| one == name)).count()
    };
    assert!(
        alone("gc-frozen") <= 10 && alone("fused-optimizer") <= 10,
        "{} {}",
        alone("gc-frozen"),
        alone("fused-optimizer")
    );
}

#[test]
fn fewer_bits_and_another_layout_are_found_where_neither_gains_alone() {
    let effects = [("channels-last", 1.0), ("bf16-autocast", 1.0), ("gc-frozen", 1.0)];
    let pair = Some((["channels-last", "bf16-autocast"], 1.4));
    let mut script = Simulated { pair, ..Simulated::of(&effects, 47) };
    let found = conducted(&mut script, 5);
    assert_eq!(kept(&found), ["bf16-autocast", "channels-last"], "{:?}", found.verdicts);
    assert_eq!(found.verdicts.len(), effects.len(), "{:?}", found.verdicts);
    assert!((found.speedup.unwrap().ratio - 1.4).abs() < 0.1);
}

#[test]
fn compiling_is_tried_once_more_with_fewer_bits() {
    let effects = [("compile", 1.0), ("compile-blocks", 1.0), ("bf16-autocast", 1.3)];
    let pair = Some((["compile", "bf16-autocast"], 1.3));
    let mut script = Simulated { pair, ..Simulated::of(&effects, 53) };
    let found = conducted(&mut script, 5);
    assert_eq!(kept(&found), ["bf16-autocast", "compile"], "{:?}", found.verdicts);
    assert!(matches!(verdict(&found, "compile-blocks"), Verdict::Superfluous(_)), "{:?}", found.verdicts);
    assert!(!script.orders.iter().flatten().any(|name| name == "compile-blocks"));
}

/// A step that waits for launches: compiling takes 40 s each time, and fewer bits gain on top of it.
fn launch_bound(limit: f64, seed: u64) -> (Simulated, Vec<Switchable>) {
    let effects = [
        ("tf32", 1.0),
        ("fused-optimizer", 1.2),
        ("gc-frozen", 1.0),
        ("compile", 1.6),
        ("compile-reduce-overhead", 3.0),
        ("bf16-autocast", 1.0),
    ];
    let mut script = Simulated::of(&effects, seed);
    (script.left, script.compiling, script.noise) = (limit, 40.0, (0.005, 0.005));
    script.pair = Some((["compile-reduce-overhead", "bf16-autocast"], 1.5));
    let shares = [("compile", 0.35), ("compile-reduce-overhead", 0.7)];
    let mut wanted = script.wanted();
    for switch in &mut wanted {
        switch.predicted = shares.iter().find(|(name, _)| *name == switch.remedy.name).map(|(_, share)| *share);
    }
    (script, wanted)
}

#[test]
fn graphs_come_before_fewer_bits_and_after_what_is_brief() {
    let (mut script, wanted) = launch_bound(220.0, 4);
    let found = conduct(&mut script, &wanted, 6).unwrap();
    assert_eq!(kept(&found), ["bf16-autocast", "compile-reduce-overhead", "fused-optimizer"]);
    assert!(matches!(verdict(&found, "compile"), Verdict::Superfluous(_)));
    let first = |name: &str| script.orders.iter().position(|on| on.iter().any(|one| one == name)).unwrap();
    assert!(first("gc-frozen") < first("compile-reduce-overhead"), "it would compile again on top of compiled code");
}

/// Eager steps hide what a faster optimizer gains.
#[test]
fn what_launches_hid_is_tried_again_on_top_of_compiled_code() {
    let (mut script, wanted) = launch_bound(1000.0, 4);
    script.effects.iter_mut().filter(|(name, _)| *name == "fused-optimizer").for_each(|(_, effect)| *effect = 1.0);
    script.pair = Some((["compile-reduce-overhead", "fused-optimizer"], 1.3));
    let found = conduct(&mut script, &wanted, 6).unwrap();
    assert_eq!(kept(&found), ["compile-reduce-overhead", "fused-optimizer"]);
    assert!(script.compiled.iter().any(|code| code.contains("tf32")), "{:?}", script.compiled);
}

#[test]
fn nothing_is_compiled_without_the_time_for_it() {
    let (mut script, wanted) = launch_bound(120.0, 4);
    let found = conduct(&mut script, &wanted, 6).unwrap();
    assert_eq!(kept(&found), ["compile-reduce-overhead", "fused-optimizer"]);
    assert_eq!(script.compiled.len(), 1, "fewer bits would need new code: {:?}", script.compiled);
    let (mut script, wanted) = launch_bound(30.0, 4);
    let found = conduct(&mut script, &wanted, 6).unwrap();
    assert_eq!(kept(&found), ["fused-optimizer"], "time that compiling cannot use is there for the others");
    assert!(script.compiled.is_empty());
}
