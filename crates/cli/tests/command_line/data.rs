//! Training data: generators, text and token files, and the data for evaluation.

use crate::place::{Place, SMALL, assert_near};

#[test]
fn a_markov_source_has_a_floor_that_training_comes_close_to() {
    let place = Place::new();
    let line = "train --size nano --vocab-size 20 --seq-len 32 --data markov --learning-rate 1e-2 --num-steps 120";
    let done = place.succeeds(&format!("{line} --output-dir o"));
    assert!(done.stdout.contains("is the lowest possible loss"), "{}", done.stdout);
    let said = done.stdout.lines().find(|line| line.starts_with("Loss floor:")).unwrap();
    assert!(said.contains("came within") || said.contains("below it"), "{said}");
    let record = place.json("o/performance_summary.json");
    let figure = |key: &str| record["performance_summary"][key].as_f64().unwrap();
    let above = figure("final_loss") - figure("loss_floor");
    assert!((0.8..1.4).contains(&figure("loss_floor")) && above.abs() < 0.15, "{above} above");
}

#[test]
fn text_is_read_as_bytes_and_learned() {
    let place = Place::new();
    place.write("corpus.txt", "abcdefgh".repeat(200));
    let line =
        "train --size nano --seq-len 16 --batch-size 4 --data corpus.txt --learning-rate 1e-2 --num-steps 40 --json";
    let losses = place.succeeds(line).losses();
    assert!(losses[0] > 6.0 && losses[39] < 1.0, "{losses:?}");
}

#[test]
fn token_files_of_both_widths_hold_the_same_tokens() {
    let place = Place::new();
    let tokens: Vec<u16> = (0..400).map(|i| i * 7 % 1000).collect();
    place.write("tokens.bin", tokens.iter().flat_map(|token| token.to_le_bytes()).collect::<Vec<u8>>());
    place.write("tokens.u32", tokens.iter().flat_map(|token| u32::from(*token).to_le_bytes()).collect::<Vec<u8>>());
    let losses = |file: &str| place.succeeds(&format!("train {SMALL} --data {file} --num-steps 3 --json")).losses();
    assert_eq!(losses("tokens.bin"), losses("tokens.u32"));
}

#[test]
fn a_token_beyond_the_vocabulary_stops_the_run_and_keeps_what_was_learned_before_it() {
    let place = Place::new();
    let mut tokens = vec![5u16; 4000];
    tokens[2000] = 1000;
    place.write("tokens.bin", tokens.iter().flat_map(|token| token.to_le_bytes()).collect::<Vec<u8>>());
    let line = format!("train {SMALL} --data tokens.bin --num-steps 100000 --save ck --output-dir o");
    place.run(&line).is_error(2, &line, &["token 1000 at position 2000", "tokens.bin", "vocabulary of 1000"]);
    let step = place.json("ck/training_state.json")["step"].as_u64().unwrap();
    assert!(step > 0);
    assert_eq!(place.json("o/performance_summary.json")["training_params"]["num_steps"], step);
}

#[test]
fn evaluation_has_a_batch_size_of_its_own_and_leaves_training_alone() {
    let place = Place::new();
    let line = format!("train {SMALL} --data markov --num-steps 7 --json");
    let plain = place.succeeds(&line);
    let evaluated = |flags: &str| {
        let done = place.succeeds(&format!("{line} --eval-every 3 {flags}"));
        assert_eq!(done.losses(), plain.losses());
        let found: Vec<(u64, f64)> = done
            .objects()
            .iter()
            .filter_map(|object| Some((object["step"].as_u64()?, object["eval_loss"].as_f64()?)))
            .collect();
        assert_eq!(found.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [3, 6, 7]);
        found.into_iter().map(|(_, loss)| loss).collect::<Vec<f64>>()
    };
    let twelve_at_once = evaluated("--eval-batch-size 12 --eval-batches 1");
    assert_near(&evaluated("--eval-batch-size 3 --eval-batches 4"), &twelve_at_once, 1e-5);
    assert_ne!(evaluated("--eval-data synthetic"), twelve_at_once);
}

#[test]
fn the_learning_rate_warms_up_and_falls() {
    let place = Place::new();
    let line = format!("train {SMALL} --num-steps 8 --lr-schedule cosine --lr-warmup-steps 2 --learning-rate 1e-3");
    let done = place.succeeds(&format!("{line} --json"));
    let rates: Vec<f64> = done.objects().iter().filter_map(|object| object["learning_rate"].as_f64()).collect();
    assert_eq!(rates[..3], [5e-4, 1e-3, 1e-3]);
    assert!(rates[2..].windows(2).all(|pair| pair[1] < pair[0]), "{rates:?}");
}
