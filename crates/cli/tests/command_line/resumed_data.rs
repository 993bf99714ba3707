//! A resumed run goes on with the next sample, whatever has changed besides the data.

use crate::place::{Place, assert_near};
use serde_json::Value;

const LINE: &str = "train --size nano --seq-len 16 --json --log-interval 1";

fn words(count: usize) -> String {
    let word = |at: usize| ["tree", "river", "stone", "wind", "light", "cloud", "moss"][(at * at + at / 7) % 7];
    (0..count).map(word).collect::<Vec<_>>().join(" ")
}

fn next_sample(place: &Place, folder: &str) -> u64 {
    place.json(&format!("{folder}/training_state.json"))["next_sample"].as_u64().unwrap()
}

#[test]
fn losses_go_on_with_half_the_batch_and_twice_the_accumulation() {
    let place = Place::new();
    place.write("a.txt", words(300));
    std::fs::create_dir(place.path("texts")).unwrap();
    place.write("texts/a.txt", words(150));
    // 150 words give about 50 windows: the run is between one and two epochs.
    for data in ["markov", "synthetic", "a.txt --held-out 0.1", "texts --held-out 0.1"] {
        let line = format!("{LINE} --data {data}");
        let straight = place.succeeds(&format!("{line} --batch-size 6 --num-steps 12 --save straight --overwrite"));
        place.succeeds(&format!("{line} --batch-size 6 --num-steps 5 --save half --overwrite"));
        let want = &straight.losses()[5..];
        for (batch, accumulation) in [(3, 2), (2, 3), (6, 1)] {
            let other = format!("--batch-size {batch} --gradient-accumulation-steps {accumulation}");
            let resumed = place.succeeds(&format!(
                "train --resume half {other} --num-steps 12 --save whole --overwrite --json --log-interval 1"
            ));
            assert_near(&resumed.losses(), want, 2e-5);
            assert!(!resumed.stderr.contains("note: the checkpoint"), "{}", resumed.stderr);
            assert_eq!(next_sample(&place, "whole"), next_sample(&place, "straight"));
        }
    }
}

#[test]
fn another_kind_of_sample_begins_the_data_anew_and_says_so() {
    let place = Place::new();
    place.write("a.txt", words(300));
    std::fs::create_dir(place.path("texts")).unwrap();
    place.write("texts/a.jsonl", "{\"text\": \"0123456789\", \"more\": \"abcdefghij\"}\n".repeat(50));
    place.succeeds(&format!("{LINE} --batch-size 4 --data a.txt --num-steps 3 --save text"));
    place.succeeds(&format!("{LINE} --batch-size 4 --data texts --num-steps 3 --save lines"));
    for (from, other, told) in [
        ("text", "--seq-len 8", "sequences of 16 tokens, and these have 8"),
        ("text", "--data markov", "trained on other data (text a.txt"),
        ("text", "--data texts/a.jsonl", "trained on other data (text a.txt"),
        ("text", "--seed 43", "trained on other data (text a.txt"),
        ("lines", "--text-column more", "column text, and this is more"),
    ] {
        let done =
            place.succeeds(&format!("train --resume {from} {other} --num-steps 5 --save other --overwrite --json"));
        let notes: Vec<&str> = done.stderr.lines().filter(|line| line.contains("begins anew")).collect();
        assert!(notes.len() == 1 && notes[0].contains(told), "{other}: {}", done.stderr);
        assert_eq!(next_sample(&place, "other"), 8, "{other}");
        // From there on it is the run's own data.
        let done = place.succeeds("train --resume other --num-steps 6 --save other --json");
        assert!(!done.stderr.contains("anew"), "{}", done.stderr);
        assert_eq!(next_sample(&place, "other"), 12, "{other}");
    }
    let done = place.succeeds("train --resume text --num-steps 5 --save other --overwrite --json");
    assert!(!done.stderr.contains("anew"), "{}", done.stderr);
    assert_eq!(next_sample(&place, "other"), 20);
}

#[test]
fn another_held_out_share_keeps_the_order_and_is_told() {
    let place = Place::new();
    place.write("a.txt", words(300));
    let line = format!("{LINE} --batch-size 2 --data a.txt --held-out 0.1");
    let straight = place.succeeds(&format!("{line} --num-steps 9 --save straight"));
    place.succeeds(&format!("{line} --num-steps 3 --save ck"));
    // Less is held out: the same samples. More, and then as before: samples are passed over, and their indices count.
    let less = place.succeeds("train --resume ck --held-out 0 --num-steps 9 --save less --json --log-interval 1");
    assert!(less.stderr.contains("0% of the data is held out now, and the run began with 10%"), "{}", less.stderr);
    assert_near(&less.losses(), &straight.losses()[3..], 2e-5);
    let more = place.succeeds("train --resume ck --held-out 0.6 --eval-every 9 --num-steps 6 --save ck");
    assert!(more.stderr.contains("without those now held out"), "{}", more.stderr);
    assert!(more.stdout.contains("windows, the last 10% never trained on"), "{}", more.stdout);
    assert!(next_sample(&place, "ck") > 12, "{}", next_sample(&place, "ck"));
    assert_eq!(place.json("ck/training_state.json")["extra"]["held_out_at_start"], 0.1);
    let same = place.succeeds("train --resume ck --num-steps 7 --save ck --json");
    assert!(!same.stderr.contains("held out"), "told once: {}", same.stderr);
    let again = place.succeeds("train --resume ck --held-out 0.1 --num-steps 8 --save ck --json");
    assert!(again.stderr.contains("10% of the data is held out again"), "{}", again.stderr);
    assert_eq!(place.json("ck/training_state.json")["extra"]["held_out_at_start"], Value::Null);
}

/// Brings the checkpoint of a version that counted micro-batches: 3 steps of 2 batches of 4.
fn copy_older(place: &Place, change: impl Fn(&mut Value)) {
    place.copy_case("micro_batches");
    let mut state = place.json("micro_batches/training_state.json");
    assert_eq!((&state["data_position"], &state["next_sample"]), (&6.into(), &Value::Null));
    change(&mut state);
    place.write("micro_batches/training_state.json", serde_json::to_vec(&state).unwrap());
}

#[test]
fn a_checkpoint_that_counts_micro_batches_goes_on_with_its_next_sample() {
    let place = Place::new();
    copy_older(&place, |_| {});
    let model =
        "--size nano --hidden-dim 8 --n-layers 1 --n-heads 1 --n-kv-heads 1 --intermediate-dim 8 --vocab-size 16";
    let straight = place.succeeds(&format!(
        "train {model} --seq-len 8 --data markov --batch-size 8 --num-steps 7 --json --log-interval 1"
    ));
    for other in
        ["", "--batch-size 8 --gradient-accumulation-steps 1", "--batch-size 2 --gradient-accumulation-steps 4"]
    {
        let resumed = place.succeeds(&format!(
            "train --resume micro_batches {other} --num-steps 7 --save newer --overwrite --json --log-interval 1"
        ));
        assert_near(&resumed.losses(), &straight.losses()[3..], 2e-5);
        assert_eq!(next_sample(&place, "newer"), 56);
        assert_eq!(place.json("newer/training_state.json")["data_position"], Value::Null);
    }
}

#[test]
fn micro_batches_of_an_unknown_size_are_refused() {
    let place = Place::new();
    copy_older(&place, |state| {
        assert!(state["extra"].as_object_mut().unwrap().remove("batch_size").is_some());
        assert!(state["sha256"].as_object_mut().unwrap().remove("state").is_some());
    });
    place.refuses(
        "train --resume micro_batches --num-steps 7",
        &["training_state.json", "6 micro-batches", "no batch_size", "--init-from"],
    );
    // Other data begins anew, so its position does not matter; nor do weights alone need it.
    place.succeeds("train --resume micro_batches --seq-len 4 --num-steps 4");
    place.succeeds("train --init-from micro_batches --data markov --batch-size 2 --seq-len 8 --num-steps 1");
}
