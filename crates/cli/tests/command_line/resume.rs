//! A run that stops and resumes is identical to one that never stopped.

use crate::place::{Place, SMALL};

/// Every setting that could break when a run is cut in two.
const DEMANDING: &str = "--data markov --gradient-accumulation-steps 3 --clip 0.5 --lr-schedule wsd --lr-floor 0.1 \
                         --lr-decay-steps 6 --betas 0.8,0.95 --eps 1e-6 --lr-warmup-steps 4 --weight-decay 0.1 --learning-rate 1e-3 --seed 7 --passes v1";

fn assert_same_checkpoint(place: &Place, left: &str, right: &str) {
    for file in ["model.safetensors", "optimizer.safetensors", "config.json", "training_state.json"] {
        let [left, right] = [left, right].map(|folder| place.read(&format!("{folder}/{file}")));
        assert!(left == right, "{file} differs");
    }
}

#[test]
fn ten_steps_and_ten_more_are_twenty() {
    let place = Place::new();
    place.succeeds(&format!("train {SMALL} --num-steps 20 --save straight"));
    place.succeeds(&format!("train {SMALL} --num-steps 10 --save half"));
    place.succeeds("train --resume half --num-steps 20 --save whole");
    assert_same_checkpoint(&place, "whole", "straight");
}

#[test]
fn every_optimizer_goes_on_from_its_own_state_and_from_no_other() {
    let place = Place::new();
    for flags in ["--optimizer sgd", "--optimizer sgd --momentum 0", "--optimizer muon --clip 0.5"] {
        place.succeeds(&format!("train {SMALL} {flags} --num-steps 8 --save straight --overwrite"));
        place.succeeds(&format!("train {SMALL} {flags} --num-steps 4 --save half --overwrite"));
        place.succeeds("train --resume half --num-steps 8 --save whole --overwrite");
        assert_same_checkpoint(&place, "whole", "straight");
    }
    place.refuses(
        "train --resume half --num-steps 8 --optimizer adamw",
        &["--optimizer adamw cannot continue from a state of muon", "--init-from"],
    );
    place.refuses(&format!("train {SMALL} --momentum 0.9"), &["no effect with --optimizer adamw"]);
    place.refuses(&format!("train {SMALL} --optimizer sgd --betas 0.9,0.99"), &["--betas has no effect"]);
    place.refuses(&format!("train {SMALL} --optimizer muon --momentum 1"), &["--momentum is 1"]);
}

#[test]
fn a_checkpoint_can_be_resumed_into_its_own_folder() {
    let place = Place::new();
    place.succeeds(&format!("train {SMALL} --num-steps 6 --save straight"));
    place.succeeds(&format!("train {SMALL} --num-steps 2 --save ck"));
    for steps in [3, 6] {
        place.succeeds(&format!("train --resume ck --num-steps {steps} --save ck"));
    }
    assert_same_checkpoint(&place, "ck", "straight");
}

#[test]
fn a_killed_run_goes_on_from_its_last_checkpoint_without_any_flag() {
    let place = Place::new();
    place.succeeds(&format!("train {SMALL} {DEMANDING} --num-steps 40 --save straight"));
    let run = place.start(&format!("train {SMALL} {DEMANDING} --num-steps 40 --save ck --save-every 4"));
    run.has_written(&place.path("ck/training_state.json"));
    run.kill();
    let done = place.succeeds("train --resume ck --save ck --json");
    assert_eq!(done.objects()[0]["step"].as_u64().unwrap() % 4, 1, "the last checkpoint was a fourth step's");
    assert_same_checkpoint(&place, "ck", "straight");
}

#[test]
fn ctrl_c_finishes_the_step_saves_it_and_writes_the_summary() {
    let place = Place::new();
    let line = format!("train --size nano {DEMANDING} --num-steps 60");
    place.succeeds(&format!("{line} --save straight"));
    let run = place.start(&format!("{line} --save ck --output-dir o --json --log-interval 1"));
    let log = place.path("o/training_output.log");
    run.waits_until(|| std::fs::read_to_string(&log).is_ok_and(|log| log.contains("Step 3/60")));
    let done = run.interrupt();
    assert_eq!(done.code, Some(130), "{}", done.stderr);
    assert!(done.stderr.contains("interrupted: step "), "{}", done.stderr);
    let reached = done.objects().len() as u64 - 1;
    assert!((3..60).contains(&reached), "{reached} steps");
    assert_eq!(done.summary()["training_params"]["num_steps"], reached);
    assert_eq!(place.json("o/performance_summary.json"), done.summary());
    assert_eq!(place.json("ck/training_state.json")["step"], reached);
    place.succeeds("train --resume ck --save ck");
    assert_same_checkpoint(&place, "ck", "straight");
}

#[test]
fn a_checkpoint_resumes_after_a_kill_at_any_moment() {
    let place = Place::new();
    place.succeeds(&format!("train {SMALL} --num-steps 1 --save ck"));
    for kill in 0..10u64 {
        let before = place.read("ck/training_state.json");
        let run = place.start("train --resume ck --save ck --save-every 1 --num-steps 1000000");
        run.waits_until(|| place.read("ck/training_state.json") != before);
        // Then at any point within the next steps and saves, each of which takes a few milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(kill * 7 % 32));
        run.kill();
        place.succeeds("train --resume ck --validate-setup");
    }
    let reached = place.json("ck/training_state.json")["step"].as_u64().unwrap();
    assert!(reached > 10, "every run before a kill saved a step: {reached}");
    place.succeeds(&format!("train --resume ck --num-steps {} --save ck", reached + 1));
    place.succeeds(&format!("train {SMALL} --num-steps {} --save straight", reached + 1));
    for file in ["model.safetensors", "optimizer.safetensors"] {
        assert!(place.read(&format!("ck/{file}")) == place.read(&format!("straight/{file}")), "{file} differs");
    }
}

#[test]
fn data_files_are_found_again_from_another_folder() {
    let place = Place::new();
    place.write("corpus.txt", "the quick brown fox jumps over the lazy dog; ".repeat(50));
    place.succeeds(&format!("train {SMALL} --data corpus.txt --num-steps 2 --save ck"));
    std::fs::create_dir(place.path("elsewhere")).unwrap();
    let done = place.shell("cd elsewhere && $HEADROOM train --resume ../ck --num-steps 4");
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stdout.contains("text corpus.txt"), "{}", done.stdout);
}

#[test]
fn older_checkpoints_are_kept_when_asked() {
    let place = Place::new();
    place.succeeds(&format!("train {SMALL} --num-steps 6 --save ck --save-every 2 --keep 2"));
    let folders: Vec<_> = std::fs::read_dir(place.path("ck"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_dir())
        .map(|entry| format!("ck/{}", entry.file_name().to_str().unwrap()))
        .collect();
    assert_eq!(folders.len(), 1, "{folders:?}");
    let done = place.succeeds(&format!("train --resume {} --num-steps 5 --json", folders[0]));
    assert_eq!(done.objects()[0]["step"], 5, "the one before the last was of step 4");
}

#[test]
fn other_data_than_the_checkpoints_is_told() {
    let place = Place::new();
    place.succeeds(&format!("train {SMALL} --num-steps 2 --save ck"));
    let done = place.succeeds("train --resume ck --data markov --num-steps 3");
    assert!(done.stderr.contains("trained on other data"), "{}", done.stderr);
}

#[test]
fn weights_start_another_run_from_its_first_step() {
    let place = Place::new();
    place.succeeds(&format!("train {SMALL} --num-steps 3 --save ck"));
    let done = place.succeeds(&format!("train {SMALL} --init-from ck --num-steps 2 --json"));
    assert_eq!(done.objects()[0]["step"], 1);
}

#[test]
fn a_run_in_eight_bits_goes_on_with_the_scales_it_had() {
    let place = Place::new();
    let line = "train --size nano --batch-size 2 --precision fp8 --passes all";
    let done = place.succeeds(&format!("{line} --num-steps 6 --save straight"));
    assert!(done.stdout.contains("Rounded to eight bits: 24 tensors; "), "{}", done.stdout);
    place.succeeds(&format!("{line} --num-steps 3 --eval-every 3 --save half"));
    place.succeeds("train --resume half --num-steps 6 --save whole");
    for file in ["model.safetensors", "optimizer.safetensors"] {
        assert!(place.read(&format!("whole/{file}")) == place.read(&format!("straight/{file}")), "{file} differs");
    }
    assert_eq!(place.json("whole/training_state.json")["scales"].as_object().unwrap().len(), 24);
}
