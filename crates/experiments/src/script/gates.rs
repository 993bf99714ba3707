//! The gates of a script's variant: the same losses, batches and samples as the script as it is, finite, in the same memory,
//! and not slower.

use super::note::Note;
use crate::gates::{Answer, Gate};
use crate::remedies::Class;
use crate::turns::Speedup;

/// Memory that a variant may take, of the script's own.
const MEMORY: f64 = 1.25;

/// A loss near zero is held against this share of the first one.
const LEAST_LOSS: f64 = 1e-3;

/// All gates of what was kept; several processes of each.
pub fn gates(originals: &[Note], kept: &[Note], proof: &Proof, class: Class, speed: Speedup) -> Vec<Gate> {
    let mut gates = vec![losses(proof, class), finite(kept)];
    gates.extend(batches(originals, kept));
    gates.extend(samples(originals, kept));
    gates.extend(memory(originals, kept));
    gates.push(not_slower(speed));
    gates
}

/// Losses of a run, summed over the backward passes of a step; not a number where one was not finite.
fn curve(note: &Note) -> Vec<f64> {
    note.losses.iter().map(|step| step.iter().map(|loss| loss.unwrap_or(f64::NAN)).sum()).collect()
}

/// Relative differences over the steps that both have; infinite where one is not finite.
fn differences(want: &[f64], have: &[f64]) -> Vec<f64> {
    let least = LEAST_LOSS * want.first().map_or(0.0, |first| first.abs());
    let one = |(want, have): (&f64, &f64)| (have - want).abs() / want.abs().max(least);
    want.iter().zip(have).map(one).map(|one| if one.is_nan() { f64::INFINITY } else { one }).collect()
}

/// The largest relative difference; infinite where there is no step that both have.
pub fn apart(want: &[f64], have: &[f64]) -> f64 {
    differences(want, have).into_iter().reduce(f64::max).unwrap_or(f64::INFINITY)
}

/// How far runs of the script as it is lie apart.
pub fn spread(originals: &[Note]) -> f64 {
    let curves: Vec<Vec<f64>> = originals.iter().map(curve).collect();
    let pairs = curves.iter().enumerate().flat_map(|(at, one)| curves[at + 1..].iter().map(move |other| (one, other)));
    pairs.map(|(one, other)| apart(one, other)).fold(0.0, f64::max)
}

/// Runs of what was kept, and what their losses are held against.
#[derive(Clone, Debug, Default)]
pub struct Proof {
    /// The script as it is, also with other random numbers of loading where loading was moved.
    pub references: Vec<Note>,
    /// The script as it is with weights moved by one rounding of the class, or with other random numbers of dropout: how far
    /// a change that is none may move losses by that step.
    pub moved: Vec<Note>,
    /// Runs of all that was kept, with random numbers that can be compared.
    pub proofs: Vec<Note>,
}

/// Losses may lie this many times as far from the script's own as those of a run that was moved by one rounding.
const MOVED: f64 = 3.0;

/// Step by step against the nearest run of the script as it is: where runs differ by themselves, any of them is as right. The
/// step that comes closest to what is allowed, or exceeds it the most, is the gate's figure.
pub fn losses(proof: &Proof, class: Class) -> Gate {
    let Proof { references, moved, proofs } = proof;
    let wanted: Vec<Vec<f64>> = references.iter().map(curve).collect();
    let spread = spread(references);
    let allowed = allowed(&wanted, moved, class.tolerance().max(spread));
    let worst = |have: &Vec<f64>| {
        let of = |want: &Vec<f64>| {
            let steps = differences(want, have);
            let worst = steps.iter().zip(&allowed).map(|(&step, &limit)| (step, limit));
            worst.max_by(|left, right| (left.0 / left.1).total_cmp(&(right.0 / right.1)))
        };
        let nearest =
            wanted.iter().filter_map(of).min_by(|left, right| (left.0 / left.1).total_cmp(&(right.0 / right.1)));
        nearest.unwrap_or((f64::INFINITY, class.tolerance()))
    };
    let all = proofs.iter().map(curve).map(|have| worst(&have));
    let (figure, limit) = all
        .max_by(|left, right| (left.0 / left.1).total_cmp(&(right.0 / right.1)))
        .unwrap_or((f64::INFINITY, class.tolerance()));
    let steps = wanted.iter().map(Vec::len).min().unwrap_or(0);
    let why = match limit {
        limit if limit <= class.tolerance() => format!("that `{}` remedies may move them by", class.name()),
        limit if limit <= spread => "by which runs of the script as it is differ".to_string(),
        _ => format!(
            "of {MOVED} times what one rounding of its weights, or other dropout, does to the script by that step"
        ),
    };
    gate(
        "losses",
        figure,
        limit,
        format!("relative difference of the losses of {steps} steps, held against the share {why}"),
    )
}

/// By step: at least `least`, more where runs that were moved a little lie further apart by then.
fn allowed(wanted: &[Vec<f64>], moved: &[Note], least: f64) -> Vec<f64> {
    let steps = wanted.iter().map(Vec::len).max().unwrap_or(0);
    let mut allowed = vec![least; steps];
    let Some(want) = wanted.first() else { return allowed };
    for note in moved {
        let mut most = 0.0f64;
        for (limit, difference) in allowed.iter_mut().zip(differences(want, &curve(note))) {
            most = most.max(if difference.is_finite() { difference } else { 0.0 });
            *limit = limit.max(MOVED * most);
        }
    }
    allowed
}

pub fn finite(kept: &[Note]) -> Gate {
    let wrong = kept.iter().filter(|note| note.finite == Some(false)).count();
    gate("finite", wrong as f64, 0.0, "runs with a loss that is not finite".into())
}

/// Digests of the first batches, where loading draws no random numbers of its own; none without loaders.
pub fn batches(originals: &[Note], kept: &[Note]) -> Option<Gate> {
    let want = originals.first()?;
    let drawn = want.loaders.iter().any(|loader| loader.draws_random == Some(true));
    if drawn || want.loaders.iter().all(|loader| loader.digests.is_empty()) {
        return None;
    }
    let mut compared = 0;
    let mut different = 0;
    for have in kept {
        different += want.loaders.len().abs_diff(have.loaders.len());
        for (want, have) in want.loaders.iter().zip(&have.loaders) {
            let pairs = want.digests.iter().zip(&have.digests);
            compared += pairs.len();
            different += pairs.filter(|(want, have)| want != have).count();
        }
    }
    let about = format!("batches that differ, of {compared} whose bytes were compared");
    Some(gate("batches", different as f64, 0.0, about))
}

/// Samples of each step; none where no loader hands them out.
pub fn samples(originals: &[Note], kept: &[Note]) -> Option<Gate> {
    let want = &originals.first()?.samples;
    if want.iter().all(Option::is_none) {
        return None;
    }
    let differ = |have: &Note| want.iter().zip(&have.samples).filter(|(want, have)| want != have).count();
    let different: usize = kept.iter().map(differ).sum();
    Some(gate("samples", different as f64, 0.0, "steps that saw another number of samples".into()))
}

/// Memory of the device, else of the process; none where it is not known.
pub fn memory(originals: &[Note], kept: &[Note]) -> Option<Gate> {
    let most = |notes: &[Note]| notes.iter().filter_map(Note::memory).max();
    let (before, after) = (most(originals)?, most(kept)?);
    let about = format!("peak memory, of the script's own {:.0} MB", before as f64 / (1 << 20) as f64);
    Some(gate("memory", after as f64 / before.max(1) as f64, MEMORY, about))
}

fn not_slower(speed: Speedup) -> Gate {
    let answer = match (speed.low >= 1.0, speed.high < 1.0) {
        (true, _) => Answer::Pass,
        (_, true) => Answer::Fail,
        _ => Answer::Undecided,
    };
    let about = format!("speed of what was kept over the script as it is, {} rounds", speed.rounds);
    let interval = Some((speed.low, speed.high));
    Gate { name: "speed", answer, figure: speed.ratio, limit: 1.0, about, interval }
}

fn gate(name: &'static str, figure: f64, limit: f64, about: String) -> Gate {
    let answer = if figure <= limit { Answer::Pass } else { Answer::Fail };
    Gate { name, answer, figure, limit, about, interval: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::note::Loader;

    fn losses(references: &[Note], proofs: &[Note], class: Class) -> Gate {
        let proof = Proof { references: references.to_vec(), moved: vec![], proofs: proofs.to_vec() };
        super::losses(&proof, class)
    }

    #[test]
    fn a_script_that_amplifies_rounding_is_held_against_how_far_it_does() {
        let moved = run(&[2.0, 1.5003, 1.404]);
        let proof = |losses: &[f64]| Proof {
            references: vec![run(&[2.0, 1.5, 1.4]), run(&[2.0, 1.5, 1.4])],
            moved: vec![moved.clone()],
            proofs: vec![run(losses)],
        };
        let passed = |losses: &[f64]| super::losses(&proof(losses), Class::Rounding).passed();
        assert!(passed(&[2.0, 1.5008, 1.41]), "three times as far at the last step");
        assert!(!passed(&[2.0, 1.5, 1.42]));
        assert!(!passed(&[2.0, 1.51, 1.4]), "early steps have moved by little, and allow little");
        let gate = super::losses(&proof(&[2.0, 1.5, 1.41]), Class::Rounding);
        assert!((gate.limit - 3.0 * 0.004 / 1.4).abs() < 1e-9 && gate.about.contains("one rounding"), "{gate:?}");
    }

    fn run(losses: &[f64]) -> Note {
        Note { losses: losses.iter().map(|loss| vec![Some(*loss)]).collect(), ..Note::default() }
    }

    #[test]
    fn losses_are_held_against_the_class_or_the_scripts_own_spread() {
        let same = [run(&[2.0, 1.5]), run(&[2.0, 1.5])];
        assert!(losses(&same, &[run(&[2.0, 1.5])], Class::Same).passed());
        assert!(!losses(&same, &[run(&[2.0, 1.501])], Class::Same).passed());
        assert!(losses(&same, &[run(&[2.0, 1.501])], Class::Rounding).passed());
        let spread = [run(&[2.0, 1.5]), run(&[2.0, 1.6])];
        assert!(losses(&spread, &[run(&[2.0, 1.52])], Class::Same).passed());
        assert!(!losses(&spread, &[run(&[2.0, 1.8])], Class::Same).passed());
    }

    #[test]
    fn a_backward_pass_that_is_missing_or_not_finite_is_caught() {
        let same = [run(&[2.0]), run(&[2.0])];
        let two = Note { losses: vec![vec![Some(1.0), Some(1.0)]], ..Note::default() };
        assert!(losses(&same, &[two], Class::Same).passed(), "a sum of two is the loss of the step");
        let none = Note { losses: vec![vec![None]], finite: Some(false), ..Note::default() };
        assert!(!losses(&same, std::slice::from_ref(&none), Class::Precision).passed());
        assert!(!finite(&[none]).passed());
        assert!(!losses(&same, &[Note::default()], Class::Precision).passed(), "no loss is no proof");
    }

    #[test]
    fn batches_that_differ_are_counted_unless_loading_draws_them() {
        let note = |digests: &[&str], random| Note {
            loaders: vec![Loader {
                digests: digests.iter().map(|digest| digest.to_string()).collect(),
                draws_random: Some(random),
                ..Loader::default()
            }],
            ..Note::default()
        };
        let original = [note(&["a", "b", "c"], false)];
        assert!(batches(&original, &[note(&["a", "b"], false)]).unwrap().passed());
        let dropped = batches(&original, &[note(&["a", "c"], false)]).unwrap();
        assert_eq!((dropped.passed(), dropped.figure), (false, 1.0));
        assert_eq!(batches(&[note(&["a"], true)], &[note(&["b"], true)]), None);
        assert_eq!(batches(&[Note::default()], &[Note::default()]), None);
    }

    #[test]
    fn samples_and_memory_are_compared_where_they_are_known() {
        let note = |samples: &[u64], bytes| Note {
            samples: samples.iter().map(|count| Some(*count)).collect(),
            peak_bytes: Some(bytes),
            ..Note::default()
        };
        let original = [note(&[8, 8, 4], 1000)];
        assert!(samples(&original, &[note(&[8, 8, 4], 0)]).unwrap().passed());
        assert!(!samples(&original, &[note(&[8, 4, 4], 0)]).unwrap().passed());
        assert!(memory(&original, &[note(&[], 1200)]).unwrap().passed());
        assert!(!memory(&original, &[note(&[], 1300)]).unwrap().passed());
        assert_eq!(memory(&[Note::default()], &[Note::default()]), None);
    }

    #[test]
    fn speed_is_undecided_where_the_interval_holds_one() {
        let speed = |low, high| not_slower(Speedup { ratio: 1.1, low, high, rounds: 5 }).answer;
        assert_eq!(
            [speed(1.05, 1.2), speed(0.9, 1.2), speed(0.8, 0.9)],
            [Answer::Pass, Answer::Undecided, Answer::Fail]
        );
    }

    /// Notes that real PyTorch left, of a plain loop as it is and under remedies that are wrong on purpose (`xtask/torch`).
    #[test]
    fn every_planted_wrong_remedy_is_caught_by_a_gate() {
        let read = |text: &str| -> Note { serde_json::from_str(text).unwrap() };
        let originals = [
            read(include_str!("../../tests/notes/as-it-is-1.json")),
            read(include_str!("../../tests/notes/as-it-is-2.json")),
        ];
        let failed = |kept: Note| -> Vec<&str> {
            let kept = [kept];
            let speed = Speedup { ratio: 2.0, low: 1.9, high: 2.1, rounds: 3 };
            let proof = Proof { references: originals.to_vec(), moved: vec![], proofs: kept.to_vec() };
            let all = gates(&originals, &kept, &proof, Class::Precision, speed);
            all.into_iter().filter(|gate| !gate.passed()).map(|gate| gate.name).collect()
        };
        assert_eq!(failed(read(include_str!("../../tests/notes/loader-workers.json"))), [""; 0]);
        assert_eq!(failed(read(include_str!("../../tests/notes/skip-backward.json"))), ["losses"]);
        assert_eq!(failed(read(include_str!("../../tests/notes/drop-batches.json"))), ["losses", "batches"]);
        assert_eq!(failed(read(include_str!("../../tests/notes/return-early.json"))), ["losses"]);
    }
}
