//! The gates that an optimized list has to pass against the baseline, each with its figure.

use crate::turns::Speedup;
pub use headroom_record::gate::{Answer, Gate};
use std::collections::BTreeMap;

/// Loss and gradients for the same weights and batch.
pub struct Outputs {
    pub loss: f32,
    pub gradients: BTreeMap<String, Vec<f32>>,
}

/// The relative difference of the loss, and the largest of any gradient (in norm).
pub fn difference(baseline: &Outputs, other: &Outputs) -> (f64, f64) {
    let loss = (f64::from(other.loss) - f64::from(baseline.loss)).abs() / f64::from(baseline.loss).abs();
    let gradient = |name: &String, want: &Vec<f32>| {
        let Some(have) = other.gradients.get(name) else { return f64::INFINITY };
        relative(want, have)
    };
    let gradients = baseline.gradients.iter().map(|(name, want)| gradient(name, want));
    (worst([loss]), worst(gradients))
}

/// `at` describes the shapes.
pub fn accuracy(differences: &[(f64, f64)], limit: f64, at: &str) -> Gate {
    let figure = worst(differences.iter().flat_map(|(loss, gradients)| [*loss, *gradients]));
    let about = format!("largest relative difference of loss and gradients from Version 1, same weights, at {at}");
    gate("accuracy", figure, limit, figure <= limit, about)
}

pub fn loss_curve(baseline: &[f32], other: &[f32], limit: f64) -> Gate {
    let differences = baseline
        .iter()
        .zip(other)
        .map(|(want, have)| (f64::from(*have) - f64::from(*want)).abs() / f64::from(*want).abs());
    let figure = if baseline.len() == other.len() { worst(differences) } else { f64::INFINITY };
    let about = format!(
        "largest relative difference of the loss from Version 1 over {} steps of the Markov source",
        baseline.len()
    );
    gate("loss_curve", figure, limit, figure <= limit, about)
}

/// A relative difference from single precision with the same list and weights; `of` says what differs.
pub fn against_single(name: &'static str, of: &str, figure: f64, limit: f64) -> Gate {
    let figure = worst([figure]);
    let about = format!("largest relative difference {of} from single precision, same passes and weights");
    gate(name, figure, limit, figure <= limit, about)
}

/// Number of last steps of a curve that are averaged.
const LAST_STEPS: usize = 10;

/// The mean of the last losses compared with the baseline's on the same batches: single steps are noise.
pub fn final_loss(baseline: &[f32], other: &[f32], limit: f64) -> Gate {
    let last = |losses: &[f32]| {
        let counted = &losses[losses.len().saturating_sub(LAST_STEPS)..];
        counted.iter().map(|loss| f64::from(*loss)).sum::<f64>() / counted.len().max(1) as f64
    };
    let (want, have) = (last(baseline), last(other));
    let same_length = baseline.len() == other.len() && !baseline.is_empty();
    let figure = if same_length { worst([(have - want).abs() / want.abs()]) } else { f64::INFINITY };
    let about = format!(
        "relative difference from single precision of the mean loss over the last {} of {} steps of the Markov source",
        LAST_STEPS.min(baseline.len()),
        baseline.len()
    );
    gate("final_loss", figure, limit, figure <= limit, about)
}

/// Planned bytes of the previous precision and of this one.
pub fn memory_of_precision((before, after): (usize, usize), limit: f64) -> Gate {
    let figure = after as f64 / before.max(1) as f64;
    gate("memory", figure, limit, figure <= limit, "planned memory relative to the precision before it".into())
}

/// Planned bytes with a change relative to those without it.
pub fn memory_over((before, after): (usize, usize), limit: f64, over: &str) -> Gate {
    let figure = after as f64 / before.max(1) as f64;
    gate("memory", figure, limit, figure <= limit, format!("planned memory over that of {over}"))
}

/// The whole interval must lie above 1: a change that is not shown to be faster is not accepted.
pub fn throughput_over(speedup: &Speedup, over: &str) -> Gate {
    Gate {
        about: format!("speed-up over {over}; 95% between {:.2} and {:.2}", speedup.low, speedup.high),
        ..throughput(speedup, None)
    }
}

/// Every parameter receives a gradient that is not zero.
pub fn every_parameter_has_a_gradient(outputs: &Outputs, parameters: usize) -> Gate {
    let alive = |gradient: &&Vec<f32>| gradient.iter().any(|x| *x != 0.0) && gradient.iter().all(|x| x.is_finite());
    let figure = outputs.gradients.values().filter(alive).count();
    let about = format!("parameters, of {parameters}, with a gradient that is finite and not zero");
    gate("every_parameter_has_a_gradient", figure as f64, parameters as f64, figure == parameters, about)
}

/// Two runs must give the same bytes.
pub fn determinism(first: &[u32], second: &[u32]) -> Gate {
    let different = first.iter().zip(second).filter(|(a, b)| a != b).count() + first.len().abs_diff(second.len());
    gate("determinism", different as f64, 0.0, different == 0, "weights that differ between two runs".into())
}

/// Planned bytes at one sequence length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LengthMemory {
    pub seq_len: usize,
    pub baseline: usize,
    pub kept: usize,
    /// Part of `kept` that does not grow with the sequence: weights and optimizer state.
    pub fixed: usize,
}

/// Checked at every sequence length, so that a list that only fits short sequences does not pass.
pub fn memory(lengths: &[LengthMemory]) -> Gate {
    let share = |at: &LengthMemory| at.kept as f64 / at.baseline.max(1) as f64;
    let figure = worst(lengths.iter().map(share));
    let named: Vec<String> = lengths.iter().map(|at| at.seq_len.to_string()).collect();
    let about = format!("planned memory relative to Version 1, the worst over sequence lengths {}", named.join(", "));
    gate("memory", figure, 1.0, !lengths.is_empty() && figure <= 1.0, about)
}

/// The whole interval must reach the requested speed-up, or 1 (not slower) by default. An interval that contains the
/// limit is undecided.
pub fn throughput(speedup: &Speedup, asked: Option<f64>) -> Gate {
    let limit = asked.unwrap_or(1.0);
    let answer = match speedup {
        found if found.low >= limit => Answer::Pass,
        found if found.high < limit => Answer::Fail,
        _ => Answer::Undecided,
    };
    let about = format!("speed-up over Version 1; 95% between {:.2} and {:.2}", speedup.low, speedup.high);
    let interval = Some((speedup.low, speedup.high));
    Gate { name: "throughput", answer, figure: speedup.ratio, limit, about, interval }
}

fn gate(name: &'static str, figure: f64, limit: f64, passed: bool, about: String) -> Gate {
    let answer = if passed { Answer::Pass } else { Answer::Fail };
    Gate { name, answer, figure, limit, about, interval: None }
}

fn relative(want: &[f32], have: &[f32]) -> f64 {
    if want.len() != have.len() {
        return f64::INFINITY;
    }
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    let difference = norm(&mut want.iter().zip(have).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    difference / norm(&mut want.iter().map(|x| f64::from(*x))).max(f64::MIN_POSITIVE)
}

/// The largest figure; NaN counts as infinite.
fn worst(figures: impl IntoIterator<Item = f64>) -> f64 {
    figures.into_iter().fold(0.0, |worst, figure| if figure.is_nan() { f64::INFINITY } else { f64::max(worst, figure) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outputs() -> Outputs {
        let gradients = [("a", vec![1.0, 2.0]), ("b", vec![0.5, -0.5])];
        Outputs { loss: 3.0, gradients: gradients.map(|(name, data)| (name.to_string(), data)).into() }
    }

    #[test]
    fn a_changed_gradient_fails_the_accuracy_gate() {
        let mut other = outputs();
        assert!(accuracy(&[difference(&outputs(), &other)], 1e-5, "1 × 2").passed());
        other.gradients.insert("b".into(), vec![0.5, -0.49]);
        assert!(!accuracy(&[difference(&outputs(), &other)], 1e-5, "1 × 2").passed());
        other.gradients.remove("b");
        assert!(!accuracy(&[difference(&outputs(), &other)], 1e-5, "1 × 2").passed());
    }

    #[test]
    fn a_nan_fails_the_accuracy_gate() {
        let other = Outputs { loss: f32::NAN, ..outputs() };
        assert!(!accuracy(&[difference(&outputs(), &other)], 1e-5, "1 × 2").passed());
    }

    fn near(found: f64, wanted: f64) {
        assert!((found - wanted).abs() < 1e-6, "{found} where {wanted} is wanted");
    }

    #[test]
    fn differences_are_shares_of_the_baselines_own() {
        let mut other = outputs();
        assert_eq!(difference(&outputs(), &other), (0.0, 0.0));
        other.loss = 2.4;
        // Off by 0.3 and 0.4, where the baseline's norm is √5; the other gradient is off by a tenth in norm.
        other.gradients.insert("a".into(), vec![1.3, 1.6]);
        other.gradients.insert("b".into(), vec![0.55, -0.55]);
        let (loss, gradients) = difference(&outputs(), &other);
        near(loss, 0.2);
        near(gradients, 0.5 / 5f64.sqrt());
        let below = |loss: f32| Outputs { loss, ..outputs() };
        near(difference(&below(-2.0), &below(-2.5)).0, 0.25);
        // A gradient with another number of values belongs to other weights.
        other.gradients.insert("a".into(), vec![1.0, 2.0, 0.0]);
        assert_eq!(difference(&outputs(), &other).1, f64::INFINITY);
        // A gradient of zeros matches only zeros.
        let zero = Outputs { gradients: [("a".to_string(), vec![0.0])].into(), ..outputs() };
        let some = Outputs { gradients: [("a".to_string(), vec![1e-9])].into(), ..outputs() };
        assert_eq!(difference(&zero, &zero).1, 0.0);
        assert!(difference(&zero, &some).1 > 1.0);
    }

    #[test]
    fn the_worst_of_all_shapes_is_held_against_the_limit() {
        let gate = accuracy(&[(0.125, 0.0), (0.0, 0.25)], 0.25, "1 × 2 and 3 × 4");
        assert_eq!((gate.name, gate.figure, gate.limit, gate.answer), ("accuracy", 0.25, 0.25, Answer::Pass));
        assert!(gate.about.ends_with("at 1 × 2 and 3 × 4") && gate.interval.is_none());
        assert!(!accuracy(&[(0.25, 0.0), (0.5, 0.0)], 0.25, "").passed());
        let single = |figure: f64| against_single("logits", "of logits", figure, 0.5);
        assert_eq!((single(0.5).figure, single(0.5).answer), (0.5, Answer::Pass));
        assert_eq!((single(0.6).answer, single(f64::NAN).answer), (Answer::Fail, Answer::Fail));
        assert!(single(0.5).about.contains("difference of logits from single precision"));
        let names = [Answer::Pass, Answer::Fail, Answer::Undecided].map(Answer::name);
        assert_eq!(names, ["pass", "fail", "undecided"]);
    }

    #[test]
    fn figures_of_curves_and_memory_are_those_by_hand() {
        let gate = loss_curve(&[4.0, 2.0, -2.0], &[4.0, 2.5, -2.5], 0.25);
        assert_eq!((gate.figure, gate.answer), (0.25, Answer::Pass));
        assert!(gate.about.contains("over 3 steps"), "{}", gate.about);
        let falling: Vec<f32> = (0..20).map(|at| 8.0 - 0.25 * at as f32).collect();
        let other: Vec<f32> = falling.iter().map(|loss| loss * 1.25).collect();
        let gate = final_loss(&falling, &other, 0.25);
        near(gate.figure, 0.25);
        assert!(gate.passed() && gate.about.contains("last 10 of 20 steps"), "{gate:?}");
        // Exactly the last ten steps count.
        let (flat, mut bent) = ([2.0f32; 20], [2.0f32; 20]);
        bent[9] = 99.0;
        near(final_loss(&flat, &bent, 0.1).figure, 0.0);
        bent[10] = 4.0;
        bent[9] = 2.0;
        near(final_loss(&flat, &bent, 0.1).figure, 0.1);
        assert!(final_loss(&flat[..3], &bent[..3], 0.1).about.contains("last 3 of 3 steps"));

        let planned = memory_of_precision((200, 150), 0.75);
        assert_eq!((planned.figure, planned.limit, planned.answer), (0.75, 0.75, Answer::Pass));
        assert!(!memory_of_precision((200, 151), 0.75).passed());
        let over = memory_over((200, 201), 1.0, "the kept list");
        assert_eq!((over.answer, over.about.as_str()), (Answer::Fail, "planned memory over that of the kept list"));
        assert!(memory_over((200, 200), 1.0, "").passed());
        let at = |seq_len, baseline, kept| LengthMemory { seq_len, baseline, kept, fixed: 10 };
        let gate = memory(&[at(8, 100, 50), at(16, 200, 150)]);
        assert_eq!((gate.figure, gate.limit), (0.75, 1.0));
        assert!(gate.about.ends_with("sequence lengths 8, 16"), "{}", gate.about);
    }

    #[test]
    fn counts_of_gates_are_what_differs() {
        let gate = determinism(&[1, 2, 3, 4, 5, 6], &[1, 9, 9]);
        assert_eq!((gate.figure, gate.limit, gate.answer), (5.0, 0.0, Answer::Fail));
        let mut some = outputs();
        some.gradients.insert("c".into(), vec![1.0, f32::NAN]);
        let gate = every_parameter_has_a_gradient(&some, 3);
        assert_eq!((gate.figure, gate.limit, gate.answer), (2.0, 3.0, Answer::Fail));
        some.gradients.insert("c".into(), vec![0.0, 1.0]);
        assert!(every_parameter_has_a_gradient(&some, 3).passed(), "one value that is not zero is enough");
    }

    #[test]
    fn a_curve_that_leaves_the_baselines_fails() {
        assert!(loss_curve(&[3.0, 2.0], &[3.0, 2.0001], 1e-3).passed());
        assert!(!loss_curve(&[3.0, 2.0], &[3.0, 2.1], 1e-3).passed());
        assert!(!loss_curve(&[3.0, 2.0], &[3.0], 1e-3).passed());
    }

    #[test]
    fn the_mean_of_the_last_losses_decides_and_not_a_single_step() {
        let baseline = vec![4.0f32; 20];
        let mut other = baseline.clone();
        other[15] = 4.2;
        assert!(final_loss(&baseline, &other, 1e-2).passed());
        other[10..].fill(4.1);
        assert!(!final_loss(&baseline, &other, 1e-2).passed());
        other[19] = f32::NAN;
        assert!(!final_loss(&baseline, &other, 1e9).passed());
        assert!(!final_loss(&baseline, &baseline[..19], 1e-2).passed() && !final_loss(&[], &[], 1.0).passed());
    }

    #[test]
    fn a_parameter_without_a_gradient_fails() {
        let mut some = outputs();
        assert!(every_parameter_has_a_gradient(&some, 2).passed());
        assert!(!every_parameter_has_a_gradient(&some, 3).passed());
        some.gradients.insert("b".into(), vec![0.0, 0.0]);
        assert!(!every_parameter_has_a_gradient(&some, 2).passed());
    }

    #[test]
    fn other_bytes_fail_determinism() {
        assert!(determinism(&[1, 2], &[1, 2]).passed());
        assert!(!determinism(&[1, 2], &[1, 3]).passed());
        assert!(!determinism(&[1, 2], &[1]).passed());
    }

    #[test]
    fn more_memory_fails() {
        let at = |kept: usize| LengthMemory { seq_len: 8, baseline: 100, kept, fixed: 10 };
        assert!(memory(&[at(100), at(90)]).passed() && !memory(&[at(100), at(101)]).passed() && !memory(&[]).passed());
    }

    #[test]
    fn throughput_passes_fails_or_is_not_decided() {
        let gate = |low: f64, high: f64, asked| {
            throughput(&Speedup { ratio: (low + high) / 2.0, low, high, rounds: 8 }, asked)
        };
        assert_eq!(gate(1.31, 1.4, Some(1.3)).answer, Answer::Pass);
        assert_eq!(gate(1.2, 1.29, Some(1.3)).answer, Answer::Fail);
        assert_eq!(gate(1.29, 1.4, Some(1.3)).answer, Answer::Undecided);
        assert_eq!(gate(1.01, 1.02, None).answer, Answer::Pass);
        assert_eq!(gate(0.95, 1.02, None).answer, Answer::Undecided);
        assert_eq!(gate(0.9, 0.99, None).answer, Answer::Fail);
        // Nothing was kept: Version 1 against itself.
        assert_eq!(throughput(&Speedup::none(8), None).answer, Answer::Pass);
        assert_eq!(
            [gate(1.3, 1.4, Some(1.3)), gate(0.9, 1.0, None)].map(|gate| gate.answer),
            [Answer::Pass, Answer::Undecided]
        );
        let over = throughput_over(&Speedup { ratio: 1.2, low: 1.1, high: 1.3, rounds: 8 }, "bf16");
        assert_eq!(over.about, "speed-up over bf16; 95% between 1.10 and 1.30");
        assert_eq!((over.name, over.answer, over.figure, over.limit), ("throughput", Answer::Pass, 1.2, 1.0));
        let undecided = gate(1.29, 1.41, Some(1.3));
        assert_eq!((undecided.figure, undecided.limit, undecided.interval), (1.35, 1.3, Some((1.29, 1.41))));
    }
}
