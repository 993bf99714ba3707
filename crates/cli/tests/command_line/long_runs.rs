//! Features for long runs: a configuration file, early stopping, the best checkpoint, events, heartbeats.

use crate::place::{Place, SMALL};
use std::fs;

fn text(place: &Place) {
    let word = |at: usize| ["tree ", "river ", "stone ", "wind ", "light "][(at * at + at / 7) % 5];
    place.write("a.txt", (0..600).map(word).collect::<String>());
}

#[test]
fn a_run_leaves_a_file_from_which_it_is_run_again() {
    let place = Place::new();
    text(&place);
    let line =
        format!("train {SMALL} --data a.txt --num-steps 6 --learning-rate 3e-3 --clip 0.5 --betas 0.8,0.95 --tied");
    let done = place.succeeds(&format!("{line} --save one --output-dir first --overwrite"));
    assert!(done.stderr.contains("run again: headroom train --config first/run.toml"), "{}", done.stderr);
    fs::create_dir(place.path("elsewhere")).unwrap();
    let again = place.shell("cd elsewhere && $HEADROOM train --config ../first/run.toml --save two");
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    for file in ["model.safetensors", "optimizer.safetensors", "training_state.json"] {
        assert!(place.read(&format!("one/{file}")) == place.read(&format!("elsewhere/two/{file}")), "{file} differs");
    }
    let file = String::from_utf8(place.read("first/run.toml")).unwrap();
    for line in ["num-steps = 6", "tied = true", "# save = \"one\"", "batch-size = 2"] {
        assert!(file.contains(line), "{line} is not in: {file}");
    }
}

#[test]
fn flags_come_from_a_file_and_those_of_the_command_line_win() {
    let place = Place::new();
    place.write(
        "run.toml",
        "size = \"nano\"\nbatch-size = 2\nseq_len = 16\nnum-steps = 3\nlog-interval = 1\njson = true\n",
    );
    assert_eq!(place.succeeds("train --config run.toml").losses().len(), 3);
    assert_eq!(place.succeeds("train --num-steps 5 --config=run.toml").losses().len(), 5);
    place.write("bad.toml", "num-stpes = 3\n");
    place.refuses("train --config bad.toml", &["bad.toml", "no flag `num-stpes`", "`num-steps`"]);
    place.write("bad.toml", "num-steps = \"many\"\n");
    place.refuses("train --config bad.toml", &["many", "--num-steps"]);
    place.write("bad.toml", "num-steps = \n");
    place.refuses("train --config bad.toml", &["bad.toml", "not TOML"]);
    place.refuses("train --config absent.toml", &["absent.toml"]);
}

#[test]
fn a_run_ends_early_and_its_best_checkpoint_is_whole() {
    let place = Place::new();
    text(&place);
    // A learning rate that is far too high: the first evaluation stays the best for a long time.
    let line = format!("train {SMALL} --data a.txt --learning-rate 3 --eval-every 2");
    let done = place.succeeds(&format!("{line} --num-steps 200 --early-stop 3 --save ck --keep-best --output-dir o"));
    assert!(done.stderr.contains("stopped early after 3 evaluations"), "{}", done.stderr);
    let lines: Vec<serde_json::Value> = String::from_utf8(place.read("o/progress.jsonl"))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let evaluations: Vec<(u64, f64)> =
        lines.iter().filter_map(|line| Some((line["step"].as_u64()?, line["eval_loss"].as_f64()?))).collect();
    let (best_step, best) = evaluations.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    assert_eq!(evaluations.len() as u64, best_step / 2 + 3, "{evaluations:?}");
    let last = place.json("ck/training_state.json");
    assert_eq!(last["step"], best_step + 6);
    let kept = place.json("ck/best/training_state.json");
    assert_eq!((&kept["step"], kept["extra"]["best_eval_loss"].as_f64()), (&best_step.into(), Some(best)));
    // The best checkpoint is what a run to that step would have saved, and it can be resumed.
    place.succeeds(&format!("{line} --num-steps {best_step} --save straight"));
    assert!(place.read("ck/best/model.safetensors") == place.read("straight/model.safetensors"));
    place.succeeds(&format!("train --resume ck/best --num-steps {}", best_step + 1));
    // A resumed run knows how long it has waited.
    let done = place.succeeds("train --resume ck --num-steps 400 --save ck");
    assert!(done.stderr.contains("stopped early"), "{}", done.stderr);
    let state = place.json("ck/training_state.json");
    let best = state["extra"]["best_eval_step"].as_u64().unwrap();
    let stopped = if best == best_step { best_step + 8 } else { best + 6 };
    assert_eq!(state["step"], stopped, "{state}");
}

#[test]
fn early_stopping_and_the_best_need_evaluations() {
    let place = Place::new();
    place.refuses(&format!("train {SMALL} --early-stop 3"), &["--early-stop", "--eval-every"]);
    place.refuses(&format!("train {SMALL} --keep-best --save ck"), &["--keep-best", "--eval-every"]);
    place.refuses(&format!("train {SMALL} --keep-best --eval-every 3"), &["--save"]);
}

#[test]
fn gradient_norms_and_events_are_written_as_the_run_goes_on() {
    let place = Place::new();
    let line = format!("train {SMALL} --data markov --num-steps 6 --eval-every 3 --log-interval 2");
    let done = place.succeeds(&format!("{line} --tensorboard board --output-dir o --json"));
    let norms: Vec<f64> = done.objects().iter().filter_map(|object| object["gradient_norm"].as_f64()).collect();
    assert_eq!(norms.len(), 6);
    let progress = String::from_utf8(place.read("o/progress.jsonl")).unwrap();
    let logged: Vec<f64> = progress
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter_map(|line| line["gradient_norm"].as_f64())
        .collect();
    assert_eq!(logged, [norms[1], norms[3], norms[5]]);
    let names: Vec<_> = fs::read_dir(place.path("board")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let [name] = &names[..] else { panic!("{names:?}") };
    assert!(name.to_str().unwrap().starts_with("events.out.tfevents."), "{name:?}");
    let events = fs::read(place.path("board").join(name)).unwrap();
    let count = |tag: &[u8]| events.windows(tag.len()).filter(|window| *window == tag).count();
    assert_eq!([count(b"train/loss"), count(b"train/gradient_norm"), count(b"eval/loss")], [6, 6, 2]);
    // Without either, the norm is not computed, and the steps are the same.
    let plain = place.succeeds(&format!("{line} --json"));
    assert_eq!(plain.losses(), done.losses());
    assert!(plain.objects()[0]["gradient_norm"].is_null());
}

#[test]
fn the_time_of_a_run_is_said_before_and_a_long_step_says_that_it_goes_on() {
    let place = Place::new();
    let line = "train --size small --batch-size 16 --num-steps 1000 --heartbeat 1 --threads 1";
    let run = place.start_with_errors_in(line, "errors");
    run.waits_until(|| fs::read_to_string(place.path("errors")).unwrap().contains("is still running: "));
    let done = run.signal("TERM");
    assert!(
        done.stdout.lines().any(|line| line.trim_start().starts_with("time ") && line.contains("at least")),
        "{}",
        done.stdout
    );
}
