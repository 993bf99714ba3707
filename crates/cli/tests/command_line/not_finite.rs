//! A loss that is not a number stops the run and says where it came from.

use crate::place::{Place, SMALL};

#[test]
fn a_learning_rate_that_is_far_too_high_stops_with_the_step_and_the_operator() {
    let place = Place::new();
    let line = format!("train {SMALL} --learning-rate 1e15 --save ck --save-every 1 --output-dir o");
    let done = place.run(&line);
    done.is_error(3, &line, &["the loss is not finite at step 2", " in layers.0.", " produced "]);
    assert_eq!(place.json("o/performance_summary.json")["training_params"]["num_steps"], 1);
    assert_eq!(place.json("ck/training_state.json")["step"], 1, "the checkpoint before it stays");
}

#[test]
fn weights_that_are_not_finite_never_replace_a_good_checkpoint() {
    let place = Place::new();
    // So high that the norms hide it: the loss stays finite while the weights overflow.
    let line = format!("train {SMALL} --learning-rate 1e30 --save ck --save-every 1 --output-dir o");
    place.run(&line).is_error(3, &line, &["hold -inf after step 2", "not saved"]);
    assert_eq!(place.json("ck/training_state.json")["step"], 1);
    place.succeeds("train --resume ck --learning-rate 0 --num-steps 2");
}

#[test]
fn a_weight_that_is_not_finite_is_named() {
    let place = Place::new();
    place.copy_case("nano");
    let mut model = place.read("nano/model.safetensors");
    let end = model.len();
    // The last four bytes of the file are an element of its last tensor.
    model[end - 4..].copy_from_slice(&f32::INFINITY.to_le_bytes());
    place.write("nano/model.safetensors", model);
    let before = place.names();
    let line = "train --init-from nano --num-steps 3";
    place.run(line).is_error(3, line, &["not finite at step 1", ".weight hold inf, as loaded"]);
    assert_eq!(place.names(), before, "nothing was trained, nothing is left");
}

#[test]
fn a_loss_that_leaves_its_course_is_told_with_what_grew_or_ends_the_run() {
    let place = Place::new();
    let line = format!("train {SMALL} --data markov --learning-rate 1 --num-steps 8 --log-interval 2");
    let told = place.succeeds(&line);
    assert!(told.stderr.contains("the loss diverged"), "{}", told.stderr);
    assert!(told.stderr.contains("weights grew most in"), "{}", told.stderr);
    let stopped = format!("{line} --on-spike stop");
    place.run(&stopped).is_error(3, &stopped, &["the loss diverged", "after it had fallen to"]);
    // Back to the checkpoint, halving the learning rate each time.
    let back = format!("{line} --on-spike go-back --save ck --save-every 1");
    let done = place.run(&back);
    assert!(
        done.stderr.contains("back to the checkpoint of step") && done.stderr.contains("0.5 times the learning rate")
    );
    place.refuses(&format!("{line} --on-spike go-back"), &["no checkpoint to go back to", "--save"]);
}
