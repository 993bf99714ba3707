//! The same bytes for any number of threads and on every run.

use crate::place::{Place, assert_near};

#[test]
fn saved_weights_are_the_same_bytes_for_any_number_of_threads_and_on_every_run() {
    let place = Place::new();
    let weights = |name: &str, threads: u32| {
        place.succeeds(&format!(
            "train --size nano --batch-size 3 --seq-len 33 --num-steps 6 --clip 0.5 --gradient-accumulation-steps 2 \
             --threads {threads} --save {name}"
        ));
        (place.read(&format!("{name}/model.safetensors")), place.read(&format!("{name}/optimizer.safetensors")))
    };
    let one = weights("one", 1);
    for (name, threads) in [("again", 1), ("two", 2), ("three", 3), ("five", 5)] {
        assert!(weights(name, threads) == one, "{threads} threads");
    }
}

#[test]
fn another_seed_is_another_run() {
    let place = Place::new();
    let losses = |seed: u32| place.succeeds(&format!("train --size nano --num-steps 2 --json --seed {seed}")).losses();
    assert_ne!(losses(1), losses(2));
}

#[test]
fn accumulated_small_batches_train_as_one_large_batch() {
    let place = Place::new();
    let losses = |flags: &str| {
        let line = "train --size nano --seq-len 32 --num-steps 10 --learning-rate 3e-3 --data markov --clip 1 --json";
        place.succeeds(&format!("{line} {flags}")).losses()
    };
    let whole = losses("--batch-size 8");
    assert_near(&losses("--batch-size 4 --gradient-accumulation-steps 2"), &whole, 1e-5);
    assert!(whole[0] - whole[9] > 0.1, "it learns: {whole:?}");
}

#[test]
fn an_analysis_is_the_same_to_the_last_digit_on_every_run() {
    let place = Place::new();
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../trace/tests/data");
    for name in ["slow", "fixed", "graphed_copies"] {
        let analysis = || place.succeeds(&format!("analyze --format json {data}/{name}.pt.trace.json.gz")).stdout;
        let first = analysis();
        assert!(first.len() > 1000, "{name}: {} bytes", first.len());
        // Sums over hash tables differ in about every second run.
        assert!((0..4).all(|_| analysis() == first), "{name}");
    }
}
