//! Replays the stored PyTorch runs with the documented command line.

use crate::place::{Place, assert_near};
use serde_json::Value;

fn replays(case: &str, extra: &str) {
    let place = Place::new();
    place.copy_case(case);
    let done = place.succeeds(&format!(
        "train --init-from {case} --data {case}/expected.safetensors --num-steps 20 --learning-rate 3e-4 --log-interval 1 \
         --json {extra}"
    ));
    let stored = place.json(&format!("{case}/losses.json"));
    let list = stored.as_array().or(stored["losses"].as_array()).unwrap();
    let want: Vec<f64> = list.iter().map(|loss| loss.as_f64().unwrap()).collect();
    assert_eq!(want.len(), 20);
    assert_near(&done.losses(), &want, 1e-4);
}

#[test]
fn the_losses_of_the_reference_run_come_back() {
    replays("nano", "");
}

#[test]
fn the_losses_of_the_tied_and_clipped_reference_run_come_back() {
    replays("nano_tied", "--clip 1.0");
}

#[test]
fn json_has_one_object_a_step_at_any_log_interval_and_then_the_summary() {
    let place = Place::new();
    place.copy_case("nano");
    let run = |interval: u32| {
        let line = "train --init-from nano --data nano/expected.safetensors --num-steps 7 --json --log-interval";
        place.succeeds(&format!("{line} {interval}"))
    };
    let done = run(3);
    let objects = done.objects();
    assert_eq!(objects.len(), 8);
    for (index, object) in objects[..7].iter().enumerate() {
        assert_eq!(object["step"], index as u64 + 1);
        assert!(object["loss"].is_f64() && object["samples_per_sec"].is_f64(), "{object}");
    }
    let summary = done.summary();
    assert_eq!(summary["performance_summary"]["final_loss"], objects[6]["loss"]);
    assert_eq!(summary["training_params"]["num_steps"], 7);
    assert_eq!(run(1).losses(), done.losses());
}

#[test]
fn a_batch_file_brings_its_own_shape() {
    let place = Place::new();
    place.copy_case("nano");
    let line = "train --init-from nano --data nano/expected.safetensors --num-steps 1 --json";
    let shape: Value = place.succeeds(line).summary();
    assert_eq!((&shape["config"]["max_seq_len"], &shape["training_params"]["batch_size"]), (&16.into(), &2.into()));
    place.refuses(&format!("{line} --output-dir o --batch-size 7"), &["--batch-size is 7", "brings its own: 2"]);
}
