//! `headroom eval`: evaluates a checkpoint on data, with the same figure as training.

use crate::place::{Place, SMALL};
use serde_json::Value;
use std::fs;

fn text(seed: usize) -> String {
    let word = |at: usize| ["tree ", "river ", "stone ", "wind ", "light "][(at * at + at / 7 + seed) % 5];
    (0..600).map(word).collect()
}

fn eval(place: &Place, line: &str) -> Value {
    let done = place.succeeds(&format!("eval {line} --format json"));
    serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {}", done.stdout))
}

fn figure(evaluation: &Value, key: &str) -> f64 {
    evaluation[key].as_f64().unwrap_or_else(|| panic!("no {key} in {evaluation}"))
}

#[test]
fn the_held_out_part_has_the_loss_that_training_saw() {
    let place = Place::new();
    fs::create_dir(place.path("texts")).unwrap();
    place.write("texts/a.txt", text(1));
    place.write("texts/b.txt", text(2));
    let line =
        format!("train {SMALL} --data texts --num-steps 12 --eval-every 12 --eval-batches 1000 --save ck --json");
    let done = place.succeeds(&line);
    let trained = done.objects().iter().find_map(|object| object["eval_loss"].as_f64()).unwrap();
    let evaluation = eval(&place, "--from ck");
    // Training skips incomplete batches, of which there are none here.
    assert_eq!(evaluation["part"], "its last 5%, held out of training");
    assert!((figure(&evaluation, "loss") - trained).abs() < 0.02 * trained, "{evaluation} {trained}");
    assert!((figure(&evaluation, "perplexity") - figure(&evaluation, "loss").exp()).abs() < 1e-9);
    let bits = figure(&evaluation, "loss") / 2f64.ln() / figure(&evaluation, "bytes_per_token");
    assert!((figure(&evaluation, "bits_per_byte") - bits).abs() < 1e-9);
    assert_eq!(evaluation["step"], 12);
    let shown = place.succeeds("eval --from ck").stdout;
    assert!(shown.contains("bits per byte") && shown.contains("held out of training"), "{shown}");
}

#[test]
fn the_training_file_is_recognised_however_it_is_named() {
    let place = Place::new();
    place.write("a.txt", text(6));
    fs::copy(place.path("a.txt"), place.path("copy.txt")).unwrap();
    place.write("other.txt", text(7));
    fs::create_dir(place.path("in")).unwrap();
    std::os::unix::fs::symlink(place.path("a.txt"), place.path("in/link.txt")).unwrap();
    let part = |line: &str| eval(&place, line)["part"].as_str().unwrap().to_string();
    place.succeeds(&format!("train {SMALL} --data a.txt --num-steps 2 --save whole"));
    let all = "all of it, the same samples that training draws from";
    assert_eq!(part("--from whole"), all);
    for name in ["a.txt", "in/../a.txt", "in/link.txt", "copy.txt"] {
        assert_eq!(part(&format!("--from whole --data {name}")), all, "{name}");
    }
    assert_eq!(part("--from whole --data other.txt"), "all of it");
    // A held-out share is named, and it is the default for the file under any name.
    place.succeeds(&format!("train {SMALL} --data a.txt --held-out 0.2 --num-steps 2 --save most"));
    assert_eq!(part("--from most --data in/link.txt"), "its last 20%, held out of training");
    let mixed = "all of it, the same samples that training draws from but for the last 20%, held out";
    assert_eq!(part("--from most --data copy.txt --held-out 1"), mixed);
    // One batch that is repeated at every step has no other samples.
    place.copy_case("llama3");
    let batch = "llama3/expected.safetensors";
    place.succeeds(&format!("train --init-from llama3 --data {batch} --num-steps 1 --save repeated"));
    assert_eq!(part("--from repeated"), all);
    assert_eq!(part(&format!("--from repeated --data {batch}")), all);
}

#[test]
fn every_window_counts_once_whatever_the_batch_size() {
    let place = Place::new();
    place.write("a.txt", text(3));
    place.write("b.txt", text(4));
    place.succeeds(&format!("train {SMALL} --data a.txt --num-steps 5 --save ck"));
    let with = |flags: &str| eval(&place, &format!("--from ck --data b.txt {flags}"));
    let one = with("--batch-size 1");
    for size in [2, 7, 64, 1000] {
        let other = with(&format!("--batch-size {size}"));
        assert_eq!(one["windows"], other["windows"]);
        let (one, other) = (figure(&one, "loss"), figure(&other, "loss"));
        assert!((one - other).abs() < 1e-4, "{size}: {one} {other}");
    }
    assert_eq!(one["part"], "all of it");
    let few = with("--batch-size 4 --batches 2");
    assert_eq!(few["windows"], 8);
    assert!(few["part"].as_str().unwrap().contains("8 of its"), "{few}");
    let end = with("--held-out 0.5");
    assert!(figure(&end, "windows") < figure(&one, "windows") * 0.6, "{end}");
}

#[test]
fn a_loss_is_the_same_under_any_passes_and_a_generator_has_its_floor() {
    let place = Place::new();
    place.succeeds(
        "train --size nano --vocab-size 20 --seq-len 32 --data markov --learning-rate 1e-2 --num-steps 80 --save ck",
    );
    let loss = |flags: &str| figure(&eval(&place, &format!("--from ck {flags}")), "loss");
    let plain = loss("");
    assert!((0.8..1.8).contains(&plain), "{plain}");
    for passes in ["none", "all"] {
        assert!((loss(&format!("--passes {passes}")) - plain).abs() < 1e-4);
    }
    assert!((loss("--precision bf16") - plain).abs() < 0.05);
    assert!(eval(&place, "--from ck")["bits_per_byte"].is_null());
}

#[test]
fn what_cannot_be_evaluated_is_refused() {
    let place = Place::new();
    place.write("a.txt", text(5));
    place.write("short.txt", "short");
    place.succeeds("train --size nano --vocab-size 100 --batch-size 2 --seq-len 16 --num-steps 1 --save small");
    place.succeeds(&format!("train {SMALL} --data a.txt --num-steps 1 --save ck --output-dir o"));
    place.refuses("eval --from absent --data a.txt", &["absent", "holds no checkpoint"]);
    place.refuses("eval --from small --data a.txt", &["vocabulary of at least 256, not 100"]);
    place.refuses("eval --from ck --data short.txt", &["short.txt", "needs 17"]);
    place.refuses("eval --from ck --data missing.txt", &["missing.txt"]);
    place.refuses("eval --from ck --device null", &["computes nothing"]);
    place.refuses("eval --from ck --held-out 0", &["--held-out is 0"]);
    place.refuses("eval --from ck --data markov --held-out 0.5", &["no effect on markov"]);
    place.refuses("eval --from ck --memory-limit 1KiB", &["evaluating needs", "--batch-size"]);
    let mut state = place.json("ck/training_state.json");
    state["extra"]["held_out"] = 0.5.into();
    place.write("ck/training_state.json", serde_json::to_vec(&state).unwrap());
    place.refuses("eval --from ck", &["training_state.json", "sha256"]);
    fs::remove_file(place.path("ck/training_state.json")).unwrap();
    place.refuses("eval --from ck", &["does not say what it was trained on", "--data"]);
    place.succeeds("eval --from ck --data a.txt --batch-size 2 --seq-len 16");
}
