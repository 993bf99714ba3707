//! Gate figures worked out by hand, and which of several gates is shown.

use super::*;
use crate::note::Compile;

fn run(losses: &[f64]) -> Note {
    Note { losses: losses.iter().map(|loss| vec![Some(*loss)]).collect(), phase: "done".into(), ..Note::default() }
}

fn link(reference: &[f64], proof: &[f64], class: Class) -> Proof {
    Proof { class, references: vec![run(reference)], proofs: vec![run(proof)], ..Proof::default() }
}

fn near(found: f64, wanted: f64) {
    assert!((found - wanted).abs() < 1e-9, "{found} where {wanted} is wanted");
}

#[test]
fn the_link_that_is_furthest_from_what_it_may_be_is_shown() {
    let own = [run(&[2.0])];
    let shown = |links: &[Proof]| {
        let gates = correct(&own, &own, links);
        assert_eq!(gates.iter().filter(|gate| gate.name == "losses").count(), 1);
        gates.into_iter().find(|gate| gate.name == "losses").unwrap()
    };
    // A tenth of the bf16 limit, half of the rounding limit, and one and a half times the rounding limit.
    let (little, half, beyond) = (
        link(&[1.0], &[1.002], Class::Precision),
        link(&[1.0], &[1.0005], Class::Rounding),
        link(&[1.0], &[1.0015], Class::Rounding),
    );
    for links in [[little.clone(), half.clone()], [half.clone(), little.clone()]] {
        near(shown(&links).figure, 0.0005);
    }
    for links in [[little.clone(), beyond.clone()], [beyond, little]] {
        let gate = shown(&links);
        near(gate.figure, 0.0015);
        assert_eq!(gate.answer, Answer::Fail);
    }
    let same = link(&[1.0], &[1.0], Class::Same);
    near(shown(&[same.clone(), half.clone()]).figure, 0.0005);
    near(shown(&[half, same]).figure, 0.0005);
}

#[test]
fn a_gate_that_failed_or_is_undecided_is_worse_than_one_that_passed() {
    let gate = |answer, figure| Gate { answer, ..gate("speed", figure, 1.0, String::new()) };
    let (pass, fail, open) = (gate(Answer::Pass, 9.0), gate(Answer::Fail, 0.5), gate(Answer::Undecided, 0.7));
    assert!(worse(&fail, &pass) && worse(&fail, &open) && worse(&open, &pass));
    assert!(!worse(&pass, &fail) && !worse(&open, &fail) && !worse(&pass, &open));
    assert!(!worse(&pass, &pass), "as far is not further");
    assert!(worse(&gate(Answer::Pass, 0.9), &gate(Answer::Pass, 0.8)));
}

#[test]
fn runs_lie_as_far_apart_as_the_two_furthest() {
    near(spread(&[run(&[2.0, 1.0]), run(&[2.2, 1.0]), run(&[2.1, 1.02])]), 0.1);
    near(spread(&[run(&[2.0])]), 0.0);
    near(spread(&[run(&[])]), 0.0);
    near(spread(&[run(&[2.0, 1.0]), run(&[2.0])]), 0.0);
    // The spread is at most 1.
    near(spread(&[run(&[1.0]), run(&[7.0])]), 1.0);
    near(spread(&[run(&[]), run(&[7.0])]), 1.0);
}

#[test]
fn what_is_near_zero_is_held_against_the_largest() {
    // The loss of the second step is compared with a thousandth of the first.
    let gate = link(&[8.0, 1e-6], &[8.0, 5e-6], Class::Rounding).losses();
    near(gate.figure, 4e-6 / 8e-3);
    assert!(gate.passed());
    // A gradient is compared with a hundredth of the largest of its own step.
    let note =
        |norms: [[f64; 2]; 2]| Note { gradients: norms.map(|step| step.map(Some).to_vec()).to_vec(), ..run(&[1.0]) };
    let proof = |have| Proof {
        references: vec![note([[100.0, 0.0], [2.0, 0.001]])],
        proofs: vec![note(have)],
        class: Class::Precision,
        ..Proof::default()
    };
    let gate = |have| proof(have).gradients().unwrap();
    near(gate([[100.0, 0.0], [2.0, 0.002]]).figure, 0.001 / 0.02);
    near(gate([[100.0, 0.1], [2.0, 0.001]]).figure, 0.1);
    assert_eq!(gate([[100.0, 0.0], [2.0, 0.001]]).figure, 0.0);
    // Negative losses have a magnitude too.
    near(link(&[-2.0], &[-2.02], Class::Precision).losses().figure, 0.01);
}

#[test]
fn excess_is_in_units_of_what_is_allowed() {
    near(link(&[1.0], &[1.0005], Class::Rounding).excess(), 0.5);
    near(link(&[1.0], &[1.003], Class::Rounding).excess(), 3.0);
    assert!(!link(&[1.0], &[1.003], Class::Rounding).holds());
    assert_eq!(link(&[1.0], &[1.0], Class::Rounding).excess(), 0.0);
    // The worse of losses and gradients.
    let note = |norm: f64| Note { gradients: vec![vec![Some(norm)]], ..run(&[1.0]) };
    let proof =
        Proof { references: vec![note(1.0)], proofs: vec![note(1.1)], class: Class::Rounding, ..Proof::default() };
    near(proof.excess(), 2.0);
    assert!(!proof.holds());
    // A figure exactly at the limit passes.
    let on_limit =
        Proof { references: vec![note(1.0)], proofs: vec![note(1.05)], class: Class::Rounding, ..Proof::default() };
    assert_eq!(on_limit.holds(), on_limit.gradients().unwrap().passed());
}

#[test]
fn the_nearest_run_is_held_against_and_the_worst_proof_counts() {
    let proof = |proofs: &[f64]| Proof {
        references: vec![run(&[1.0]), run(&[1.5])],
        originals: vec![run(&[1.0]), run(&[1.01])],
        proofs: proofs.iter().map(|loss| run(&[*loss])).collect(),
        class: Class::Precision,
        ..Proof::default()
    };
    near(proof(&[1.51]).losses().figure, 0.01 / 1.5);
    near(proof(&[1.51, 1.1]).losses().figure, 0.1);
    near(proof(&[1.1, 1.51]).losses().figure, 0.1);
    near(proof(&[1.51]).losses().limit, 0.02);
    let narrow = Proof { references: vec![run(&[1.0])], ..proof(&[1.0]) };
    assert!(narrow.losses().about.contains("the share allowed for"), "{}", narrow.losses().about);
    assert!(narrow.losses().about.contains("losses over 1 steps"), "{}", narrow.losses().about);
    assert_eq!(Proof { proofs: vec![], ..narrow }.losses().figure, f64::INFINITY);
}

#[test]
fn other_loading_allows_twice_as_much_and_says_so() {
    let proof = Proof {
        other_loadings: vec![run(&[1.1])],
        references: vec![run(&[1.0]), run(&[1.1])],
        proofs: vec![run(&[1.25])],
        ..Proof::default()
    };
    let gate = proof.losses();
    near(gate.limit, 0.2);
    assert!(gate.about.contains("2 times the effect of other random numbers in data loading"), "{}", gate.about);
    near(Proof { other_loadings: vec![], ..proof.clone() }.losses().limit, 1e-5);
    // Never more than a quarter: beyond that a loss says nothing, and the answer is open.
    let far = Proof { references: vec![run(&[1.0]), run(&[1.4])], ..proof };
    let gate = |loss: f64| Proof { proofs: vec![run(&[loss])], ..far.clone() }.losses();
    near(gate(1.2).limit, 0.25);
    assert_eq!((gate(1.2).answer, gate(1.8).answer), (Answer::Pass, Answer::Undecided));
}

#[test]
fn the_first_steps_share_what_rounding_does_to_them() {
    let proof = |shift: [f64; 5]| Proof {
        class: Class::Same,
        references: vec![run(&[1.0; 5])],
        moved: vec![run(&[1.0, 1.0, 1.01, 1.0, 1.02])],
        proofs: vec![run(&shift.map(|shift| 1.0 + shift))],
        ..Proof::default()
    };
    let limit = |at: usize| {
        let mut shift = [0.0; 5];
        shift[at] = 1e-3;
        proof(shift).losses().limit
    };
    // Four times one percent from the first step on, four times two percent at the last.
    for (at, wanted) in [(0, 0.04), (1, 0.04), (2, 0.04), (3, 0.04), (4, 0.08)] {
        near(limit(at), wanted);
    }
    // A perturbed run that is not finite allows nothing more.
    let broken = Note { losses: vec![vec![None]; 5], ..run(&[]) };
    let broken = Proof { moved: vec![broken], ..proof([0.0, 0.0, 0.0, 0.0, 1e-3]) };
    near(broken.losses().limit, Class::Same.tolerance());
}

#[test]
fn loaders_that_are_missing_and_runs_that_are_short_are_counted() {
    let loader = |digest: &str| Loader { digests: vec![digest.to_string()], ..Loader::default() };
    let note =
        |digests: &[&str]| Note { loaders: digests.iter().map(|digest| loader(digest)).collect(), ..run(&[1.0]) };
    let batches = |want: &[&str], have: &[&[&str]]| {
        let proofs = have.iter().map(|have| note(have)).collect();
        Proof { references: vec![note(want)], proofs, ..Proof::default() }.batches().unwrap()
    };
    assert_eq!(batches(&["a", "b"], &[&["a"]]).figure, 1.0);
    assert_eq!(batches(&["a"], &[&["a", "b", "c"]]).figure, 2.0);
    let gate = batches(&["a", "b"], &[&["a", "c"], &["d", "b"], &["a", "b"]]);
    assert_eq!((gate.figure, gate.answer), (2.0, Answer::Fail));
    assert!(gate.about.contains("of 6 whose"), "{}", gate.about);

    let short = |steps| Note { steps, phase: "timed".into(), ..Note::default() };
    assert_eq!(steps(&[run(&[1.0])], &[short(3), run(&[1.0]), short(4)]).figure, 2.0);
    let infinite = Note { finite: Some(false), ..Note::default() };
    let unknown = Note { finite: None, ..Note::default() };
    assert_eq!(finite(&[infinite.clone(), unknown, infinite]).figure, 2.0);
}

#[test]
fn samples_are_counted_by_step_and_run() {
    let note = |samples: &[Option<u64>]| Note { samples: samples.to_vec(), ..Note::default() };
    let original = [note(&[Some(8), Some(8), None])];
    let figure = |kept: &[Note]| samples(&original, kept).unwrap().figure;
    assert_eq!(figure(&[note(&[Some(4), Some(8), None]), note(&[])]), 1.0 + 3.0);
    assert_eq!(samples(&[note(&[None, None])], &[note(&[Some(1)])]), None);
    assert_eq!(samples(&[], &[note(&[Some(1)])]), None);
}

#[test]
fn memory_is_the_devices_or_else_that_of_a_process_without_a_compiler() {
    let on = |device: Option<u64>, process: Option<u64>| Note {
        peak_bytes: device,
        peak_resident_bytes: process,
        ..Note::default()
    };
    let original = [on(Some(1 << 30), Some(5 << 30)), on(Some(2 << 30), Some(9 << 30))];
    let gate = memory(&original, &[on(Some(1 << 30), None), on(Some(5 << 29), None)]).unwrap();
    assert_eq!((gate.figure, gate.limit, gate.answer), (1.25, 1.25, Answer::Pass));
    assert!(gate.about.ends_with("own 2048 MB"), "{}", gate.about);
    // A small script may take 128 MiB more.
    let gate = memory(&[on(Some(64 << 20), None)], &[on(Some(200 << 20), None)]).unwrap();
    assert_eq!((gate.figure, gate.limit, gate.answer), (3.125, 3.0, Answer::Fail));
    let compiled = |note: Note| Note { compile: Some(Compile::default()), ..note };
    let process = [on(None, Some(100))];
    assert_eq!(memory(&process, &[on(None, Some(50))]).unwrap().figure, 0.5);
    assert_eq!(memory(&process, &[compiled(on(None, Some(50)))]), None);
    assert_eq!(memory(&original, &[compiled(on(Some(1 << 30), None))]).unwrap().figure, 0.5);
}

#[test]
fn speed_is_told_with_its_processes() {
    let speed = |low, high, rounds| not_slower(Speedup { ratio: 1.1, low, high, rounds });
    assert_eq!(speed(1.0, 1.2, 2).answer, Answer::Pass);
    assert_eq!(speed(0.9, 1.0, 2).answer, Answer::Undecided);
    let gate = speed(1.05, 1.2, 3);
    assert_eq!((gate.figure, gate.limit, gate.interval), (1.1, 1.0, Some((1.05, 1.2))));
    assert!(gate.about.ends_with("3 processes of each") && speed(1.0, 1.2, 1).about.ends_with("one process of each"));
}

#[test]
fn gates_of_a_patch_say_whose_they_are() {
    let note = |samples: u64| Note {
        samples: vec![Some(samples)],
        gradients: vec![vec![Some(1.0)]],
        loaders: vec![Loader { digests: vec!["a".into()], ..Loader::default() }],
        ..run(&[1.0])
    };
    let proof = Proof { references: vec![note(8)], proofs: vec![note(8)], ..Proof::default() };
    let gates = of_patch(&[note(8)], &proof);
    let names: Vec<&str> = gates.iter().map(|gate| gate.name).collect();
    let wanted = ["patch_losses", "patch_gradients", "patch_batches", "patch_finite", "patch_steps", "patch_samples"];
    assert_eq!(names, wanted);
    assert!(gates.iter().all(|gate| gate.passed() && gate.about.starts_with("the patched copy: ")));
    // All gates of the kept variant, including speed.
    let speed = Speedup { ratio: 1.1, low: 1.0, high: 1.2, rounds: 3 };
    let names: Vec<&str> = gates_of(&[note(8)], proof, speed).iter().map(|gate| gate.name).collect();
    assert_eq!(names, ["losses", "gradients", "batches", "finite", "steps", "samples", "speed"]);
}

fn gates_of(originals: &[Note], proof: Proof, speed: Speedup) -> Vec<Gate> {
    gates(originals, &proof.proofs.clone(), &[proof], speed)
}
