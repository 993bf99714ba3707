//! The search by processes after one inside a process.

use super::tests::{REPEATS, candidate, made, same};
use super::*;
use crate::conductor::search::{Conducted, Verdict};
use crate::remedies::named;

/// A search inside a process kept some remedies, and decided against others.
fn conducted(verdicts: &[(&str, Verdict)]) -> Conducted {
    let figure = Speedup { ratio: 1.2, low: 1.15, high: 1.25, rounds: 20 };
    let row = |(name, verdict): &(&str, Verdict)| (named(name).unwrap(), verdict.clone(), Some(figure));
    let verdicts: Vec<_> = verdicts.iter().map(row).collect();
    let kept = verdicts.iter().filter(|(_, verdict, _)| *verdict == Verdict::Kept).map(|(remedy, ..)| *remedy);
    Conducted { kept: kept.collect(), verdicts, speedup: Some(figure), blocks: 99, processes: 1 }
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
