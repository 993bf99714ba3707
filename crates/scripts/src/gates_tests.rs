//! Gates over synthetic notes, and over notes from real PyTorch runs with deliberately wrong remedies.

use super::*;
use crate::note::SeedSource;

fn run(losses: &[f64]) -> Note {
    let one = |loss: &f64| vec![loss.is_finite().then_some(*loss)];
    Note { losses: losses.iter().map(one).collect(), phase: "done".into(), ..Note::default() }
}

fn proof(references: &[Note], proofs: &[Note], class: Class) -> Proof {
    Proof { class, references: references.to_vec(), proofs: proofs.to_vec(), ..Proof::default() }
}

fn losses(references: &[Note], proofs: &[Note], class: Class) -> Gate {
    proof(references, proofs, class).losses()
}

/// A curve that deviates from another by these shares per step.
fn apart(curve: &[f64], shares: impl Fn(usize) -> f64) -> Vec<f64> {
    curve.iter().enumerate().map(|(at, loss)| loss * (1.0 + shares(at))).collect()
}

#[test]
fn a_script_that_amplifies_rounding_is_held_against_how_far_it_does() {
    let own: Vec<f64> = (0..24).map(|at| 4.0 - 0.1 * at as f64).collect();
    // A difference of 1e-6 grows by half in every step.
    let grown = |factor: f64| move |at: usize| factor * 1e-6 * 1.5f64.powi(at as i32);
    let proof = |moved: &[f64], losses: Vec<f64>| Proof {
        moved: moved.iter().map(|factor| run(&apart(&own, grown(*factor)))).collect(),
        ..proof(&[run(&own), run(&own)], &[run(&losses)], Class::Rounding)
    };
    // The first perturbed run is close by chance and would refuse what the next one allows.
    assert!(!proof(&[0.2], apart(&own, grown(2.0))).holds());
    assert!(proof(&[0.2, 1.0], apart(&own, grown(2.0))).holds());
    assert!(!proof(&[0.2, 1.0], apart(&own, grown(8.0))).holds());
    // Early steps have deviated little, and allow no more than the class does.
    let early = |at: usize| if (2..9).contains(&at) { 3e-3 } else { 0.0 };
    assert!(!proof(&[1.0], apart(&own, early)).holds());
    // A jump of one step is not a fault; one that lasts is, and so is one that nothing explains.
    let jump =
        |from: usize, until: usize, share: f64| move |at: usize| if (from..until).contains(&at) { share } else { 0.0 };
    let limit = 4e-6 * 1.5f64.powi(22);
    assert!(proof(&[1.0], apart(&own, jump(22, 23, 2.0 * limit))).holds());
    assert!(!proof(&[1.0], apart(&own, jump(19, 24, 2.0 * limit))).holds());
    assert!(!proof(&[1.0], apart(&own, jump(22, 23, 9.0 * limit))).holds());
    let gate = proof(&[1.0], apart(&own, grown(2.0))).losses();
    assert!(gate.about.contains("rounding its weights") && gate.limit > 1e-3, "{gate:?}");
}

#[test]
fn a_loader_that_draws_others_may_lie_further_than_two_other_draws_do() {
    let curve = |shift: f64| run(&[2.0 + shift, 1.5 + shift]);
    let proof = |shift: f64, others: Vec<Note>| Proof {
        other_loadings: others.clone(),
        ..proof(&[vec![curve(0.0), curve(0.0)], others].concat(), &[curve(shift)], Class::Same)
    };
    let others = || vec![curve(0.02), curve(-0.01)];
    assert!(proof(0.06, others()).losses().passed(), "{:?}", proof(0.06, others()).losses());
    assert!(!proof(0.12, others()).losses().passed());
    assert!(!proof(0.06, vec![]).losses().passed());
}

#[test]
fn the_patched_copy_has_gates_of_its_own() {
    let originals = [run(&[2.0, 1.5])];
    let failed = |patched: &[Note]| -> Vec<&str> {
        let gates = of_patch(&originals, &proof(&originals, patched, Class::Rounding));
        gates.into_iter().filter(|gate| !gate.passed()).map(|gate| gate.name).collect()
    };
    assert_eq!(failed(&[run(&[2.0, 1.5])]), [""; 0]);
    assert_eq!(failed(&[run(&[2.0, 1.7])]), ["patch_losses"]);
    let short = Note { phase: "timed".into(), ..run(&[2.0, 1.5]) };
    assert_eq!(failed(&[short]), ["patch_steps"]);
    assert!(of_patch(&originals, &proof(&originals, &[], Class::Rounding)).is_empty(), "it was not run");
}

#[test]
fn runs_that_differ_by_themselves_widen_no_limit_and_leave_it_open() {
    let source =
        SeedSource { code: "rng = default_rng()".into(), file: "train.py".into(), line: 3, ..SeedSource::default() };
    let own = |losses: &[f64]| Note { entropy: vec![source.clone()], ..run(losses) };
    // A third apart, and twice as much.
    for far in [1.97, 3.0] {
        let originals = vec![own(&[2.0, 1.5]), own(&[2.0, far])];
        let gate = |have: &[f64], moved: &[Note]| {
            let proof = proof(&originals, &[run(have)], Class::Same);
            Proof { originals: originals.clone(), moved: moved.to_vec(), ..proof }.losses()
        };
        let other = gate(&[2.0, 1.7], &[]);
        assert_eq!((other.answer, other.limit), (Answer::Undecided, 1e-5), "{other:?}");
        assert!(other.about.contains("`rng = default_rng()` (train.py:3) draws from the system"), "{}", other.about);
        assert!(gate(&[2.0, far], &[]).passed(), "what repeats a run of the script is right");
        // A perturbed run differs for the same reason, and measures no rounding.
        let far = gate(&[2.0, 1.7], &[run(&[2.0, 1.9])]);
        assert_eq!((far.answer, far.limit), (Answer::Undecided, 1e-5));
    }
    // Sums in another order differ from run to run: perturbed weights explain that.
    let ends = |last: f64| run(&[2.0, 1.9, 1.8, last]);
    let originals = vec![ends(1.5), ends(1.5003)];
    let proof = Proof { originals: originals.clone(), ..proof(&originals, &[ends(1.4997)], Class::Same) };
    assert_eq!(proof.losses().answer, Answer::Undecided);
    assert!(Proof { moved: vec![ends(1.5002)], ..proof }.losses().passed());
}

#[test]
fn rounding_never_explains_more_than_a_tenth_of_a_loss() {
    let same = [run(&[2.0, 1.5]), run(&[2.0, 1.5])];
    let gate = |loss: f64| {
        let proof = proof(&same, &[run(&[2.0, loss])], Class::Rounding);
        Proof { moved: vec![run(&[2.0, 2.9])], ..proof }.losses()
    };
    assert_eq!((gate(1.6).limit, gate(1.6).passed()), (0.1, true));
    assert_eq!(gate(1.7).answer, Answer::Fail);
}

#[test]
fn draws_of_loading_explain_nothing_where_the_script_varies_by_itself() {
    let curve = |shift: f64| run(&[2.0 + shift, 1.5 + shift]);
    let originals = vec![curve(0.0), curve(0.1)];
    let others = vec![curve(0.02), curve(-0.01)];
    let references = [originals.clone(), others.clone()].concat();
    let proof = Proof { originals, other_loadings: others, ..proof(&references, &[curve(0.15)], Class::Same) };
    assert_eq!((proof.losses().answer, proof.losses().limit), (Answer::Undecided, 1e-5));
}

#[test]
fn an_epochs_end_among_the_compared_steps_is_said() {
    let note = |ends: &[u64]| Note { epoch_ends: ends.to_vec(), ..run(&[2.0, 1.9, 1.8, 1.7]) };
    let about = |ends: &[u64]| losses(&[note(ends)], &[note(ends)], Class::Same).about;
    assert!(about(&[1, 3, 4]).contains("over 4 steps, 2 ends of epochs among them"), "{}", about(&[1, 3, 4]));
    assert!(about(&[2]).contains("an epoch's end among them") && about(&[]).contains("over 4 steps;"));
    let loaded = Note { loaders: vec![Loader::default()], ..note(&[]) };
    let gate = losses(std::slice::from_ref(&loaded), std::slice::from_ref(&loaded), Class::Same);
    assert!(gate.about.contains("no epoch's end among them"), "{}", gate.about);
}

#[test]
fn a_proof_without_runs_to_compare_with_judges_the_batches_alone() {
    let link = Proof { rereads: true, ..proof(&[], &[run(&[2.0])], Class::Same) };
    let gates = link.gates();
    assert_eq!(gates.iter().map(|gate| (gate.name, gate.answer)).collect::<Vec<_>>(), [("loading", Answer::Undecided)]);
}

#[test]
fn losses_are_held_against_the_class_alone() {
    let same = [run(&[2.0, 1.5]), run(&[2.0, 1.5])];
    assert!(losses(&same, &[run(&[2.0, 1.5])], Class::Same).passed());
    assert!(!losses(&same, &[run(&[2.0, 1.501])], Class::Same).passed());
    assert!(losses(&same, &[run(&[2.0, 1.501])], Class::Rounding).passed());
    let spread = [run(&[2.0, 1.5]), run(&[2.0, 1.6])];
    assert!(losses(&spread, &[run(&[2.0, 1.6])], Class::Same).passed());
    assert!(!losses(&spread, &[run(&[2.0, 1.52])], Class::Same).passed());
}

#[test]
fn a_backward_pass_that_is_missing_or_not_finite_is_caught() {
    let same = [run(&[2.0]), run(&[2.0])];
    let two = Note { losses: vec![vec![Some(1.0), Some(1.0)]], ..Note::default() };
    assert!(losses(&same, &[two], Class::Same).passed(), "a sum of two is the loss of the step");
    let none = Note { losses: vec![vec![None]], finite: Some(false), ..Note::default() };
    assert!(!losses(&same, std::slice::from_ref(&none), Class::Precision).passed());
    assert!(!finite(&[none]).passed());
    assert!(!losses(&same, &[Note::default()], Class::Precision).passed(), "runs without losses prove nothing");
}

#[test]
fn losses_of_zero_and_those_that_are_not_finite_allow_nothing_else() {
    let zero = [run(&[0.0, 1.0]), run(&[0.0, 1.0])];
    assert!(losses(&zero, &[run(&[0.0, 1.0])], Class::Same).passed());
    assert!(!losses(&zero, &[run(&[0.0, 1.2])], Class::Rounding).passed());
    let odd = [run(&[f64::NAN, 1.0]), run(&[f64::NAN, 1.0])];
    assert!(losses(&odd, &[run(&[f64::NAN, 1.0])], Class::Same).passed(), "the same in both");
    assert!(!losses(&odd, &[run(&[f64::NAN, 1.2])], Class::Rounding).passed());
    let once = [run(&[f64::NAN, 1.0]), run(&[2.0, 1.0])];
    assert!(losses(&once, &[run(&[2.0, 9.0])], Class::Rounding).limit <= 1.0, "never an infinite one");
    // The losses of a generator and its critic, which cancel in a sum.
    let pair = |one| Note { losses: vec![vec![Some(one), Some(-one)]], ..Note::default() };
    assert!(!losses(&[pair(1.0)], &[pair(2.0)], Class::Precision).passed());
}

#[test]
fn gradients_tell_where_losses_hardly_move() {
    let note =
        |norms: &[f64]| Note { gradients: vec![norms.iter().map(|norm| Some(*norm)).collect()], ..run(&[7.0, 6.999]) };
    let want = [note(&[3.0, 0.5, 1e-9])];
    let gate = |norms: &[f64], class| proof(&want, &[note(norms)], class).gradients().unwrap();
    assert!(gate(&[3.02, 0.51, 3e-9], Class::Rounding).passed(), "next to nothing is nothing");
    assert!(!gate(&[3.0, 0.0, 1e-9], Class::Precision).passed(), "a layer without its backward pass");
    assert!(!gate(&[3.0, 0.51, 1e-9], Class::Same).passed());
    assert!(!proof(&want, &[note(&[3.0, 0.0, 1e-9])], Class::Precision).holds());
    assert_eq!(proof(&[run(&[7.0])], &[run(&[7.0])], Class::Same).gradients(), None);
}

fn loaded(digests: &[&str], random: bool, workers: u64) -> Note {
    let digests = digests.iter().map(|digest| digest.to_string()).collect();
    Note {
        loaders: vec![Loader { digests, draws_random: Some(random), workers, ..Loader::default() }],
        ..Note::default()
    }
}

#[test]
fn batches_that_differ_are_counted() {
    let gate = |want: &[&str], have: &[&str]| {
        proof(&[loaded(want, false, 0)], &[loaded(have, false, 2)], Class::Same).batches()
    };
    assert!(gate(&["a", "b", "c"], &["a", "b"]).unwrap().passed());
    let dropped = gate(&["a", "b", "c"], &["a", "c"]).unwrap();
    assert_eq!((dropped.passed(), dropped.figure), (false, 1.0));
    assert_eq!(gate(&["a"], &[]).unwrap().answer, Answer::Undecided, "nothing was compared");
    assert_eq!(proof(&[Note::default()], &[Note::default()], Class::Same).batches(), None);
}

#[test]
fn where_loading_draws_the_parts_that_it_leaves_alone_are_compared() {
    let gate = |have: &[&str], others: &[Note]| {
        let want = loaded(&["pixels1 labels1", "pixels2 labels2"], true, 4);
        let proof = proof(&[want], &[loaded(have, true, 16)], Class::Same);
        Proof { other_loadings: others.to_vec(), ..proof }.batches()
    };
    let other = loaded(&["pixels3 labels1", "pixels4 labels2"], true, 4);
    assert!(gate(&["pixels5 labels1", "pixels6 labels2"], std::slice::from_ref(&other)).unwrap().passed());
    let dropped = gate(&["pixels5 labels1", "pixels6 labels3"], &[other]).unwrap();
    assert_eq!((dropped.passed(), dropped.figure), (false, 1.0), "every second batch left out");
    assert_eq!(gate(&["pixels5 labels1"], &[]), None, "nothing is known of what is drawn");
}

#[test]
fn samples_and_memory_are_compared_where_they_are_known() {
    let note = |samples: &[u64], bytes| Note {
        samples: samples.iter().map(|count| Some(*count)).collect(),
        peak_bytes: Some(bytes),
        ..Note::default()
    };
    let original = [note(&[8, 8, 4], 1000 << 20)];
    assert!(samples(&original, &[note(&[8, 8, 4], 0)]).unwrap().passed());
    assert!(!samples(&original, &[note(&[8, 4, 4], 0)]).unwrap().passed());
    assert!(!samples(&original, &[note(&[], 0)]).unwrap().passed(), "none at all");
    assert!(memory(&original, &[note(&[], 1200 << 20)]).unwrap().passed());
    assert!(!memory(&original, &[note(&[], 1300 << 20)]).unwrap().passed());
    assert_eq!(memory(&[Note::default()], &[Note::default()]), None);
}

#[test]
fn a_run_that_ends_before_the_script_does_is_caught() {
    let note = |phase: &str, steps| Note { phase: phase.into(), steps, ..Note::default() };
    let whole = [note("done", 25)];
    assert!(steps(&whole, &[note("done", 60)]).passed());
    assert!(!steps(&whole, &[note("timed", 12)]).passed());
    let short = [note("timed", 8), note("timed", 8)];
    assert!(steps(&short, &[note("timed", 8)]).passed(), "a script of eight steps");
    assert!(!steps(&short, &[note("timed", 4)]).passed());
}

#[test]
fn speed_is_undecided_where_the_interval_holds_one_or_one_process_says_it() {
    let speed = |low, high, rounds| not_slower(Speedup { ratio: 1.1, low, high, rounds }).answer;
    assert_eq!(
        [speed(1.05, 1.2, 5), speed(0.9, 1.2, 5), speed(0.8, 0.9, 5), speed(1.05, 1.2, 1)],
        [Answer::Pass, Answer::Undecided, Answer::Fail, Answer::Undecided]
    );
}

/// Notes from real PyTorch: a plain loop unmodified and under deliberately wrong remedies (`xtask/torch`).
#[test]
fn every_planted_wrong_remedy_is_caught_by_a_gate() {
    let read = |text: &str| -> Note { serde_json::from_str(text).unwrap() };
    let originals =
        [read(include_str!("../tests/notes/as-it-is-1.json")), read(include_str!("../tests/notes/as-it-is-2.json"))];
    let failed = |kept: Note| -> Vec<&str> {
        let kept = [kept];
        let speed = Speedup { ratio: 2.0, low: 1.9, high: 2.1, rounds: 3 };
        let link = Proof { originals: originals.to_vec(), ..proof(&originals, &kept, Class::Precision) };
        let all = gates(&originals, &kept, &[link], speed);
        all.into_iter().filter(|gate| !gate.passed()).map(|gate| gate.name).collect()
    };
    assert_eq!(failed(read(include_str!("../tests/notes/loader-workers.json"))), [""; 0]);
    assert_eq!(failed(read(include_str!("../tests/notes/skip-backward.json"))), ["losses"]);
    assert_eq!(failed(read(include_str!("../tests/notes/drop-batches.json"))), ["losses", "batches"]);
    assert_eq!(failed(read(include_str!("../tests/notes/return-early.json"))), ["losses"]);
}
