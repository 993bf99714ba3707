//! Selects the remedies to try, their order, and which of them share a process.

use crate::note::Offer;
pub use crate::outcome::Candidate;
use crate::outcome::{Outcome, Row};
use crate::remedies::{Class, REMEDIES};
use crate::variant::{compiles, is_alternative};
use std::collections::BTreeMap;

/// Selection from the command line.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub precision: bool,
    pub only: Vec<String>,
    pub skip: Vec<String>,
}

/// Code compiled in the default mode still launches kernels, about half as many.
const HALF: [(&str, &str); 2] = [("compile", "launch-bound"), ("compile-blocks", "launch-bound")];

/// Remedies that are harmless next to each other and free to set up. Those with a small expected gain share one
/// process.
const CHEAP: [&str; 9] = [
    "loader-pinning",
    "non-blocking-copies",
    "fused-optimizer",
    "foreach-optimizer",
    "zero-grad-none",
    "cudnn-benchmark",
    "expandable-segments",
    "gc-frozen",
    "ddp-bucket-view",
];

/// Remedies that leave the device's memory alone: what a process with them takes less is not theirs.
const ON_THE_HOST: [&str; 5] = ["loader-pinning", "loader-workers", "non-blocking-copies", "gc-frozen", "threads"];

pub fn acts_on_the_host(name: &str) -> bool {
    ON_THE_HOST.contains(&name)
}

/// Predictions of at least this share of the step get processes of their own.
pub const LARGE: f64 = 0.03;

/// Remedies with a larger prediction are tried before those without one.
pub const PROMISING: f64 = 0.05;

/// Predictions of at least this share justify minutes of compiling before remedies with small predictions are tried.
const MINUTES: f64 = 0.1;

/// Blocks compile in a fraction of the time: they come first if their predicted saving is at least this share of the
/// whole module's.
const NEARLY: f64 = 0.8;

/// Replays launches as CUDA graphs: the script counts as launch-bound if its prediction is this many times that of
/// compiled code that is still launched.
pub const GRAPHS: &str = "compile-reduce-overhead";
pub const MUCH_MORE: f64 = 1.25;

/// Applicable remedies that were asked for, best predicted first, and rows for those that are not tried.
pub fn candidates(
    offered: &BTreeMap<String, Offer>,
    roadmap: &[(String, f64)],
    wanted: &Wanted,
) -> (Vec<Candidate>, Vec<Row>) {
    let mut tried = vec![];
    let mut left = vec![];
    for remedy in &REMEDIES {
        let answered: Vec<&(String, f64)> =
            roadmap.iter().filter(|(rule, _)| remedy.answers.contains(&rule.as_str())).collect();
        // Savings of findings about the same time are not added up: a gap between kernels hides what fusing them would
        // save.
        let part = |rule: &str| if HALF.contains(&(remedy.name, rule)) { 0.5 } else { 1.0 };
        let predicted = answered.iter().map(|(rule, share)| share * part(rule)).reduce(f64::max);
        let answers = answered.into_iter().map(|(rule, _)| rule.clone()).collect();
        let candidate = Candidate { remedy, predicted: predicted.map(|share| share.min(1.0)), answers };
        let named = |names: &[String]| names.iter().any(|name| name == remedy.name);
        let obstacle =
            offered.get(remedy.name).map_or(Some("the hook does not know it".into()), |offer| offer.obstacle.clone());
        let why = match () {
            () if named(&wanted.skip) => Some("left out by --skip".to_string()),
            () if !wanted.only.is_empty() && !named(&wanted.only) => Some("not among --only".to_string()),
            () if remedy.class == Class::Precision && !wanted.precision && !named(&wanted.only) => {
                Some("needs --allow precision".to_string())
            }
            () => obstacle,
        };
        match why {
            None => tried.push(candidate),
            Some(why) => left.push(Row::of(candidate, Outcome::NotTried(why))),
        }
    }
    tried.sort_by(|left, right| right.expects().total_cmp(&left.expects()));
    (tried, left)
}

/// Candidates that share a process; most units have one.
pub type Unit = Vec<Candidate>;

/// Large predictions first, each alone, including the first that compiles if it justifies the minutes; then the cheap
/// ones with small predictions, together; then the others that compile; then the rest. If the script is launch-bound,
/// CUDA graphs come with the first group.
pub fn units(candidates: Vec<Candidate>) -> Vec<Unit> {
    let is_together = |one: &Candidate| one.expects() < LARGE && CHEAP.contains(&one.remedy.name);
    let (mut together, alone): (Unit, Vec<Candidate>) = candidates.into_iter().partition(is_together);
    let (large, small): (Vec<Candidate>, Vec<Candidate>) = alone.into_iter().partition(|one| one.expects() >= LARGE);
    let (mut compiled, mut first): (Vec<Candidate>, Vec<Candidate>) =
        large.into_iter().partition(|one| compiles(one.remedy.name));
    let graphs = in_order_of_cost(&mut compiled);
    if graphs.is_none() && compiled.first().is_some_and(|one| one.expects() >= MINUTES) {
        first.push(compiled.remove(0));
    }
    first.extend(graphs);
    first.sort_by(|left, right| right.expects().total_cmp(&left.expects()));
    // Only the first of two alternatives in the table joins the group.
    let mut spare = vec![];
    let mut at = 0;
    while at < together.len() {
        let name = together[at].remedy.name;
        match together[..at].iter().any(|one| is_alternative(one.remedy.name, name)) {
            true => spare.push(together.remove(at)),
            false => at += 1,
        }
    }
    let mut units: Vec<Unit> = first.into_iter().map(|one| vec![one]).collect();
    if !together.is_empty() {
        units.push(together);
    }
    let others = compiled.into_iter().chain(small).chain(spare);
    units.extend(others.map(|one| vec![one]));
    units
}

/// Blocks come before the whole module if they are predicted to save nearly as much. CUDA graphs fail more often, so
/// they come last, unless they are predicted to save much more than the other two: then they are returned, to come
/// before both.
fn in_order_of_cost(compiled: &mut Vec<Candidate>) -> Option<Candidate> {
    let expected = |name: &str| compiled.iter().find(|one| one.remedy.name == name).map_or(0.0, Candidate::expects);
    let (blocks, whole) = (expected("compile-blocks"), expected("compile"));
    let is_launch_bound = expected(GRAPHS) >= MUCH_MORE * blocks.max(whole);
    let order: [&str; 3] = match blocks >= NEARLY * whole {
        true => ["compile-blocks", "compile", GRAPHS],
        false => ["compile", "compile-blocks", GRAPHS],
    };
    compiled.sort_by_key(|one| order.iter().position(|name| *name == one.remedy.name));
    if is_launch_bound && compiled.last().is_some_and(|one| one.remedy.name == GRAPHS) { compiled.pop() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remedies::{Remedy, named};

    fn offered() -> BTreeMap<String, Offer> {
        let offer = |remedy: &Remedy| (remedy.name.to_string(), Offer::default());
        REMEDIES.iter().map(offer).collect()
    }

    #[test]
    fn the_best_predicted_comes_first_and_classes_and_names_choose() {
        let mut offered = offered();
        let obstacle = Some("its attention is fused already".to_string());
        offered.insert("sdpa".into(), Offer { obstacle, ..Offer::default() });
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
        assert!(why("sdpa").contains("fused already"));
        let only = Wanted { only: vec!["bf16-autocast".into()], ..Wanted::default() };
        let (tried, _) = candidates(&offered, &roadmap, &only);
        assert_eq!(tried.iter().map(|one| one.remedy.name).collect::<Vec<_>>(), ["bf16-autocast"]);
    }

    #[test]
    fn findings_about_the_same_time_are_not_added() {
        let roadmap = [("launch-bound".to_string(), 0.5), ("small-kernels-fusable".to_string(), 0.07)];
        let (tried, _) = candidates(&offered(), &roadmap, &Wanted::default());
        let of = |name: &str| tried.iter().find(|one| one.remedy.name == name).unwrap().predicted;
        assert_eq!(of("compile-reduce-overhead"), Some(0.5));
        assert_eq!(of("compile"), Some(0.25), "half of the launches stay");
        assert_eq!(of("compile-blocks"), Some(0.07));
    }

    #[test]
    fn cheap_remedies_that_promise_little_share_one_process() {
        let one = |name: &str, predicted| Candidate { remedy: named(name).unwrap(), predicted, answers: vec![] };
        let units = units(vec![
            one("tf32", Some(0.5)),
            one("compile", Some(0.12)),
            one("compile-reduce-overhead", Some(0.12)),
            one("compile-blocks", Some(0.11)),
            one("fused-optimizer", Some(0.04)),
            one("loader-pinning", Some(0.01)),
            one("loader-workers", None),
            one("gc-frozen", None),
            one("foreach-optimizer", None),
        ]);
        let names: Vec<Vec<&str>> = units.iter().map(|unit| unit.iter().map(|one| one.remedy.name).collect()).collect();
        assert_eq!(
            names,
            [
                vec!["tf32"],
                vec!["compile-blocks"],
                vec!["fused-optimizer"],
                vec!["loader-pinning", "gc-frozen", "foreach-optimizer"],
                vec!["compile"],
                vec!["compile-reduce-overhead"],
                vec!["loader-workers"],
            ]
        );
    }

    #[test]
    fn a_script_that_is_bound_by_launches_gets_graphs_before_code_that_is_still_launched() {
        let one =
            |name: &str, share| Candidate { remedy: named(name).unwrap(), predicted: Some(share), answers: vec![] };
        let order = |graphs: f64| -> Vec<&str> {
            let units = units(vec![
                one("compile", 0.25),
                one("compile-reduce-overhead", graphs),
                one("fused-optimizer", 0.1),
                one("tf32", 0.6),
                one("gc-frozen", 0.0),
            ]);
            units.iter().flatten().map(|one| one.remedy.name).collect()
        };
        assert_eq!(order(0.5), ["tf32", "compile-reduce-overhead", "fused-optimizer", "gc-frozen", "compile"]);
        assert_eq!(order(0.26), ["tf32", "compile", "fused-optimizer", "gc-frozen", "compile-reduce-overhead"]);
    }
}
