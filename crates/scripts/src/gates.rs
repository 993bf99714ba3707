//! The gates of a script's variant: the same losses, gradients, batches and samples as the unmodified script, as many
//! steps, all finite, in the same memory, and not slower.

use crate::note::{Loader, Note};
use crate::remedies::Class;
use crate::rereading;
use crate::variation::{Varies, sources};
use headroom_record::gate::{Answer, Gate};
use headroom_record::turns::Speedup;
use std::cmp::Ordering;

/// Memory that a variant may take, relative to the unmodified script.
const MEMORY: f64 = 1.25;
/// A variant may always take this much more: a CUDA graph's pool or a workspace outweighs a small model without harm.
const SMALL_BYTES: u64 = 128 << 20;

/// Lower bound of the denominator in relative differences: a share of the largest loss, or of the largest gradient of
/// the same step.
const LEAST_LOSS: f64 = 1e-3;
const LEAST_GRADIENT: f64 = 1e-2;

/// Losses may deviate from the script's own by this many times the deviation of runs perturbed by rounding. On small
/// models the largest deviation of three such runs is within a factor of two of that of TF32, and of bf16; a single one
/// may be six times smaller.
const MOVED: f64 = 4.0;

/// Number of first steps that share one limit.
const FIRST: usize = 3;

/// If rounding is amplified, one step in this many may exceed its limit, by at most this factor.
const JUMPS: usize = 8;
const JUMP: f64 = 4.0;

/// If a loader draws other random numbers, losses may deviate by this many times the spread of runs with other draws:
/// two such runs do not show the extremes. Never by more than this share, beyond which a loss says nothing.
const OTHER_LOADING: f64 = 2.0;
const MOST_DRAWN: f64 = 0.25;

/// Runs of a variant, and the runs they are compared with.
#[derive(Clone, Debug, Default)]
pub struct Proof {
    pub class: Class,
    /// Runs of the previously kept variant, including some with other random numbers in data loading if the variant
    /// moves loading.
    pub references: Vec<Note>,
    /// Runs of the unmodified script, which show its own variation.
    pub originals: Vec<Note>,
    /// The unmodified script with weights perturbed by rounding, or with other random numbers for dropout: how far an
    /// equivalent change may move the losses by that step.
    pub moved: Vec<Note>,
    /// The unmodified script with other random numbers in data loading.
    pub other_loadings: Vec<Note>,
    /// Runs of the variant with comparable random numbers.
    pub proofs: Vec<Note>,
    /// Whether the variant has other loader workers, and its batches were to be read again.
    pub rereads: bool,
}

/// Every gate for the kept variant except speed: each link of the chain from the unmodified script, and the whole.
pub fn correct(originals: &[Note], kept: &[Note], links: &[Proof]) -> Vec<Gate> {
    let mut gates: Vec<Gate> = vec![];
    // The last ones reach furthest: where they are equally close to their limits, theirs are shown.
    for gate in links.iter().rev().flat_map(Proof::gates) {
        match gates.iter_mut().find(|known| known.name == gate.name) {
            Some(known) if worse(&gate, known) => *known = gate,
            Some(_) => {}
            None => gates.push(gate),
        }
    }
    gates.push(finite(kept));
    gates.push(steps(originals, kept));
    gates.extend(samples(originals, kept));
    gates.extend(memory(originals, kept));
    gates
}

/// All gates for the kept variant, from several processes each.
pub fn gates(originals: &[Note], kept: &[Note], links: &[Proof], speed: Speedup) -> Vec<Gate> {
    let mut gates = correct(originals, kept, links);
    gates.push(not_slower(speed));
    gates
}

/// Gates for the patched copy: those of the kept variant except memory and speed; the speed is reported separately.
pub fn of_patch(originals: &[Note], proof: &Proof) -> Vec<Gate> {
    if proof.proofs.is_empty() {
        return vec![];
    }
    let mut gates = proof.gates();
    gates.push(finite(&proof.proofs));
    gates.push(steps(originals, &proof.proofs));
    gates.extend(samples(originals, &proof.proofs));
    for gate in &mut gates {
        let named = PATCH.into_iter().find(|(name, _)| *name == gate.name);
        gate.name = named.map_or(gate.name, |(_, of_patch)| of_patch);
        gate.about = format!("the patched copy: {}", gate.about);
    }
    gates
}

/// Names of the gates, and their names for the patched copy.
const PATCH: [(&str, &str); 7] = [
    ("loading", "patch_loading"),
    ("losses", "patch_losses"),
    ("gradients", "patch_gradients"),
    ("batches", "patch_batches"),
    ("finite", "patch_finite"),
    ("steps", "patch_steps"),
    ("samples", "patch_samples"),
];

fn worse(one: &Gate, other: &Gate) -> bool {
    let rank = |gate: &Gate| match gate.answer {
        Answer::Fail => 2,
        Answer::Undecided => 1,
        Answer::Pass => 0,
    };
    let share = |gate: &Gate| (gate.figure, gate.limit);
    rank(one).cmp(&rank(other)).then(nearer(share(one), share(other))) == Ordering::Greater
}

/// Orders by the used share of the limit.
fn nearer(left: (f64, f64), right: (f64, f64)) -> Ordering {
    let share = |(figure, limit): (f64, f64)| if figure == 0.0 { 0.0 } else { figure / limit };
    share(left).total_cmp(&share(right))
}

/// One figure for each step and backward pass, or for each gradient.
type Curve = Vec<Vec<Option<f64>>>;

/// Losses of a run, by step and backward pass.
fn losses_of(note: &Note) -> Curve {
    note.losses.clone()
}

fn gradients_of(note: &Note) -> Curve {
    note.gradients.clone()
}

/// The largest relative difference in each step that both runs have. A value that is not finite in both counts as
/// equal, in only one as an infinite difference. Small values are compared with `least`. If the runs have different
/// numbers of backward passes in a step, their sums are compared.
fn differences(want: &Curve, have: &Curve, least: impl Fn(usize) -> f64) -> Vec<f64> {
    let steps = want.iter().zip(have).enumerate();
    let of_step = |(at, (want, have)): (usize, (&Vec<Option<f64>>, &Vec<Option<f64>>))| {
        let one = |want: Option<f64>, have: Option<f64>| match (want, have) {
            (Some(want), Some(have)) if want == have => 0.0,
            (Some(want), Some(have)) => (have - want).abs() / want.abs().max(least(at)),
            (None, None) => 0.0,
            _ => f64::INFINITY,
        };
        if want.len() == have.len() {
            return want.iter().zip(have).map(|(want, have)| one(*want, *have)).fold(0.0, f64::max);
        }
        let sum = |values: &[Option<f64>]| values.iter().copied().sum::<Option<f64>>();
        if want.is_empty() || have.is_empty() { f64::INFINITY } else { one(sum(want), sum(have)) }
    };
    steps.map(of_step).collect()
}

/// A quantity to compare: how to read it from a note, and the share of the largest value that small ones are compared
/// with.
#[derive(Clone, Copy)]
struct Compared {
    read: fn(&Note) -> Curve,
    /// Whether the largest value is that of the step rather than of the run.
    by_step: bool,
    least: f64,
    /// The most that rounding may ever explain, and the most by which sums in another order differ in the first steps.
    ceiling: f64,
    rounding: f64,
}

const LOSSES: Compared = Compared { read: losses_of, by_step: false, least: LEAST_LOSS, ceiling: 0.1, rounding: 1e-4 };
const GRADIENTS: Compared =
    Compared { read: gradients_of, by_step: true, least: LEAST_GRADIENT, ceiling: 0.5, rounding: 1e-2 };

impl Compared {
    fn differences(&self, want: &Note, have: &Note) -> Vec<f64> {
        let (want, have) = ((self.read)(want), (self.read)(have));
        let largest = |values: &mut dyn Iterator<Item = &Option<f64>>| {
            values.flatten().map(|value| value.abs()).fold(0.0, f64::max).max(f64::MIN_POSITIVE)
        };
        let whole = largest(&mut want.iter().flatten());
        let least = |at: usize| self.least * if self.by_step { largest(&mut want[at].iter()) } else { whole };
        differences(&want, &have, least)
    }

    /// The largest relative difference; infinite if the runs have no step in common.
    fn apart(&self, want: &Note, have: &Note) -> f64 {
        self.differences(want, have).into_iter().reduce(f64::max).unwrap_or(f64::INFINITY)
    }

    /// Spread of a set of runs; at most 1, even if one of them is not finite.
    fn spread(&self, runs: &[Note]) -> f64 {
        let pairs = runs.iter().enumerate().flat_map(|(at, one)| runs[at + 1..].iter().map(move |other| (one, other)));
        pairs.map(|(one, other)| self.apart(one, other)).fold(0.0, f64::max).min(1.0)
    }

    /// Compares each run step by step with the nearest reference run: if runs differ by themselves, any of them is
    /// correct. The figure is that of the step that comes closest to its limit or exceeds it most.
    fn held(&self, proof: &Proof, least: f64) -> Held {
        if !proof.moved.is_empty() && self.is_unexplained(&proof.originals, least) {
            // Perturbed runs differ for the same reason as the others, and would measure that.
            return self.held(&Proof { moved: vec![], ..proof.clone() }, least);
        }
        let own = self.own_variation(proof, &self.allowed(proof, least, least));
        // A script that varies by itself does not show the effect of other draws.
        let is_drawn = own.is_none() && !proof.other_loadings.is_empty();
        let drawn = if is_drawn { OTHER_LOADING * self.spread(&proof.references) } else { 0.0 };
        let allowed = self.allowed(proof, least.max(drawn.min(MOST_DRAWN)), least);
        let worst = |have: &Note| {
            let of = |want: &Note| self.worst_step(want, have, &allowed, !proof.moved.is_empty());
            let nearest = proof.references.iter().filter_map(of).min_by(|left, right| nearer(*left, *right));
            nearest.unwrap_or((f64::INFINITY, least))
        };
        let all = proof.proofs.iter().map(worst).max_by(|left, right| nearer(*left, *right));
        let (figure, limit) = all.unwrap_or((f64::INFINITY, least));
        let why = match limit {
            limit if limit <= least => format!("the share allowed for `{}` remedies", proof.class.name()),
            limit if limit <= drawn => {
                format!(
                    "{OTHER_LOADING} times the effect of other random numbers in data loading, at most {MOST_DRAWN}"
                )
            }
            _ => format!(
                "{MOVED} times the effect of rounding its weights, or of other dropout, by that step (runs of that kind: \
                 {}), at most {}",
                proof.moved.len(),
                self.ceiling
            ),
        };
        let by_draws = (drawn > MOST_DRAWN).then_some(Varies::ByDraws(drawn / OTHER_LOADING));
        let varies = own.map(Varies::ByItself).or(by_draws);
        Held { figure, limit, why, steps: allowed.len(), varies }
    }

    /// Figure and limit of the step that exceeds its limit most. A script that amplifies rounding jumps at some steps,
    /// which differ from run to run: these are excused if `may_jump`.
    fn worst_step(&self, want: &Note, have: &Note, allowed: &[f64], may_jump: bool) -> Option<(f64, f64)> {
        let steps = self.differences(want, have);
        let mut steps: Vec<(f64, f64)> = steps.into_iter().zip(allowed.iter().copied()).collect();
        steps.sort_by(|left, right| nearer(*right, *left));
        let most = *steps.first()?;
        let excused = if may_jump { steps.len() / JUMPS } else { 0 };
        Some(if most.0 > JUMP * most.1 { most } else { steps[excused] })
    }

    /// Whether runs of the unmodified script differ by more than `least`, and not by rounding: from the beginning, or by
    /// draws that are known.
    fn is_unexplained(&self, runs: &[Note], least: f64) -> bool {
        let pairs = runs.iter().enumerate().flat_map(|(at, one)| runs[at + 1..].iter().map(move |other| (one, other)));
        let mut apart = pairs.map(|(one, other)| self.differences(one, other));
        let has_source = !sources(runs).is_empty();
        apart.any(|steps| {
            let begins = steps.iter().take(FIRST).any(|one| *one > self.rounding);
            steps.iter().any(|one| *one > least) && (begins || has_source)
        })
    }

    /// The difference between two runs of the unmodified script, if it is more than a remedy is allowed: then nothing
    /// can be compared. No limit is widened by it, since what explains it is not known.
    fn own_variation(&self, proof: &Proof, allowed: &[f64]) -> Option<f64> {
        let runs = &proof.originals;
        let pairs = runs.iter().enumerate().flat_map(|(at, one)| runs[at + 1..].iter().map(move |other| (one, other)));
        let worst = pairs.filter_map(|(one, other)| self.worst_step(one, other, allowed, !proof.moved.is_empty()));
        let beyond = worst.filter(|(figure, limit)| figure > limit).map(|(figure, _)| figure);
        beyond.reduce(f64::max)
    }

    /// Limits by step: at least `least`, and more if perturbed runs have deviated further by then, up to the ceiling.
    /// Deviations grow with the steps, so early limits stay tight; the first few steps share theirs, since a single step
    /// may be close by chance. Steps beyond those of a perturbed run have the limit of its last.
    fn allowed(&self, proof: &Proof, least: f64, of_class: f64) -> Vec<f64> {
        let steps = proof.references.iter().map(|note| (self.read)(note).len()).max().unwrap_or(0);
        let mut allowed = vec![least; steps];
        let Some(want) = proof.originals.first().or(proof.references.first()) else { return allowed };
        let ceiling = self.ceiling.max(of_class);
        for note in &proof.moved {
            let apart = self.differences(want, note);
            let apart = |at: usize| apart.get(at).copied().filter(|one| one.is_finite()).unwrap_or(0.0);
            let mut most = (0..FIRST).map(apart).fold(0.0, f64::max);
            for (at, limit) in allowed.iter_mut().enumerate() {
                most = most.max(apart(at));
                *limit = limit.max((MOVED * most).min(ceiling));
            }
        }
        allowed
    }
}

struct Held {
    figure: f64,
    limit: f64,
    why: String,
    steps: usize,
    /// The difference between runs of the unmodified script, if it is too large to compare others with them.
    varies: Option<Varies>,
}

impl Held {
    fn gate(self, name: &'static str, what: &str, originals: &[Note]) -> Gate {
        let Held { figure, limit, why, varies, .. } = self;
        let mut found = gate(name, figure, limit, format!("{what}; limit: {why}"));
        if let Some(varies) = varies.filter(|_| !found.passed()) {
            found.answer = Answer::Undecided;
            found.about += &format!("; {}", varies.words(originals));
        }
        found
    }
}

/// Relative spread of the losses of the unmodified script.
pub fn spread(originals: &[Note]) -> f64 {
    LOSSES.spread(originals)
}

impl Proof {
    /// Gates of one link.
    pub fn gates(&self) -> Vec<Gate> {
        let mut gates: Vec<Gate> = self.rereads.then(|| rereading::loading(&self.proofs)).into_iter().collect();
        if self.references.is_empty() {
            // Loading draws other numbers, so that only the batches themselves can be compared.
            return gates;
        }
        gates.push(self.losses());
        gates.extend(self.gradients());
        gates.extend(self.batches());
        gates
    }

    /// Whether losses and gradients agree.
    pub fn holds(&self) -> bool {
        self.excess() <= 1.0
    }

    /// Whether runs of the unmodified script differ for a reason that no perturbed run shows.
    pub fn varies_unexplained(&self) -> bool {
        LOSSES.is_unexplained(&self.originals, self.class.tolerance())
    }

    /// How far losses or gradients differ, as a multiple of the limit.
    pub fn excess(&self) -> f64 {
        let share = |gate: Gate| if gate.figure == 0.0 { 0.0 } else { gate.figure / gate.limit };
        share(self.losses()).max(self.gradients().map_or(0.0, share))
    }

    pub fn losses(&self) -> Gate {
        let held = LOSSES.held(self, self.class.tolerance());
        let ends =
            self.proofs.iter().map(|note| note.epoch_ends.iter().filter(|end| **end < held.steps as u64).count());
        let ends = match ends.min().unwrap_or(0) {
            0 if self.proofs.iter().all(|note| note.loaders.is_empty()) => String::new(),
            0 => ", no epoch's end among them".into(),
            1 => ", an epoch's end among them".into(),
            count => format!(", {count} ends of epochs among them"),
        };
        let what = format!("relative difference of the losses over {} steps{ends}", held.steps);
        held.gate("losses", &what, &self.originals)
    }

    /// Gradient norms: they reveal differences in a script that learns too slowly for its losses to show them. `None`
    /// if no run has them.
    pub fn gradients(&self) -> Option<Gate> {
        if self.references.iter().chain(&self.proofs).all(|note| note.gradients.is_empty()) {
            return None;
        }
        let held = GRADIENTS.held(self, self.class.gradient_tolerance());
        let what = "relative difference of the gradient norm over all parameters, early on";
        Some(held.gate("gradients", what, &self.originals))
    }

    /// Digests of the first batches. If loading draws random numbers, only those parts of a batch are compared that do
    /// not depend on them: labels, in the order of the samples. `None` without loaders, or if no such parts are known.
    pub fn batches(&self) -> Option<Gate> {
        let want = self.references.first()?;
        let drawn = want.loaders.iter().any(|loader| loader.draws_random == Some(true));
        if want.loaders.iter().all(|loader| loader.digests.is_empty()) {
            return None;
        }
        let moved =
            |have: &Note| want.loaders.iter().zip(&have.loaders).any(|(want, have)| want.workers != have.workers);
        if drawn && self.other_loadings.is_empty() && self.proofs.iter().any(moved) {
            return None;
        }
        let mut compared = 0;
        let mut different = 0;
        for have in &self.proofs {
            different += want.loaders.len().abs_diff(have.loaders.len());
            for (at, (want, have)) in want.loaders.iter().zip(&have.loaders).enumerate() {
                let others: Vec<&Loader> = self.other_loadings.iter().filter_map(|note| note.loaders.get(at)).collect();
                for (which, (want, have)) in want.digests.iter().zip(&have.digests).enumerate() {
                    let drawn: Vec<&String> = others.iter().filter_map(|other| other.digests.get(which)).collect();
                    let steady = steady_parts(want, &drawn);
                    compared += usize::from(!steady.is_empty());
                    let have: Vec<&str> = have.split(' ').collect();
                    different += usize::from(steady.iter().any(|(part, text)| have.get(*part) != Some(text)));
                }
            }
        }
        let about = format!("batches that differ, of {compared} whose bytes were compared");
        let mut gate = gate("batches", different as f64, 0.0, about);
        if compared == 0 && gate.passed() {
            gate.answer = Answer::Undecided;
        }
        Some(gate)
    }
}

/// Parts of a batch's digest, with their positions, that are the same in all runs.
fn steady_parts<'a>(want: &'a str, others: &[&String]) -> Vec<(usize, &'a str)> {
    let is_steady = |(at, text): &(usize, &str)| others.iter().all(|other| other.split(' ').nth(*at) == Some(*text));
    want.split(' ').enumerate().filter(is_steady).collect()
}

pub fn finite(kept: &[Note]) -> Gate {
    let wrong = kept.iter().filter(|note| note.finite == Some(false)).count();
    gate("finite", wrong as f64, 0.0, "runs with a loss that is not finite".into())
}

/// Number of runs that ended before taking as many steps as the unmodified script.
pub fn steps(originals: &[Note], kept: &[Note]) -> Gate {
    let is_short = |have: &&Note| !ended_alike(originals, have);
    let short = kept.iter().filter(is_short).count();
    gate("steps", short as f64, 0.0, "runs that took fewer steps than the unchanged script".into())
}

/// Whether the run timed all its steps, or ended where a run of the unmodified script also ends.
pub fn ended_alike(originals: &[Note], have: &Note) -> bool {
    have.is_whole() || originals.iter().any(|want| !want.is_whole() && want.steps == have.steps)
}

/// Samples of each step; `None` if no loader provides them.
pub fn samples(originals: &[Note], kept: &[Note]) -> Option<Gate> {
    let want = &originals.first()?.samples;
    if want.iter().all(Option::is_none) {
        return None;
    }
    let differ = |have: &Note| match have.samples.is_empty() {
        true => want.len(),
        false => want.iter().zip(&have.samples).filter(|(want, have)| want != have).count(),
    };
    let different: usize = kept.iter().map(differ).sum();
    Some(gate("samples", different as f64, 0.0, "steps with a different number of samples".into()))
}

/// Memory of the device, or else of the process; `None` if unknown. The compiler's own memory in the process does not
/// count as the training's.
pub fn memory(originals: &[Note], kept: &[Note]) -> Option<Gate> {
    let on_device = kept.iter().any(|note| note.peak_bytes.is_some());
    if !on_device && kept.iter().any(|note| note.compile.is_some()) {
        return None;
    }
    let most = |notes: &[Note]| notes.iter().filter_map(Note::memory).max();
    let (before, after) = (most(originals)?, most(kept)?);
    let whose = if on_device { "device" } else { "process" };
    let own = before as f64 / (1 << 20) as f64;
    let about = format!("peak memory of the {whose} relative to the script's own {own:.0} MB");
    let before = before.max(1) as f64;
    let limit = MEMORY.max(1.0 + SMALL_BYTES as f64 / before);
    Some(gate("memory", after as f64 / before, limit, about))
}

fn not_slower(speed: Speedup) -> Gate {
    let answer = match (speed.low >= 1.0, speed.high < 1.0) {
        // One process of each proves nothing.
        _ if speed.rounds < 2 => Answer::Undecided,
        (true, _) => Answer::Pass,
        (_, true) => Answer::Fail,
        _ => Answer::Undecided,
    };
    let processes = if speed.rounds == 1 { "one process".to_string() } else { format!("{} processes", speed.rounds) };
    let about = format!("speed of what was kept over the unchanged script, {processes} of each");
    let interval = Some((speed.low, speed.high));
    Gate { name: "speed", answer, figure: speed.ratio, limit: 1.0, about, interval }
}

fn gate(name: &'static str, figure: f64, limit: f64, about: String) -> Gate {
    let answer = if figure <= limit { Answer::Pass } else { Answer::Fail };
    Gate { name, answer, figure, limit, about, interval: None }
}

#[cfg(test)]
#[path = "gates_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "gates_figures_tests.rs"]
mod figures_tests;
