//! Gates judge by the interval: it is beyond the limit, within it, or contains it and leaves the gate undecided.

use crate::place::{Place, SMALL};
use serde_json::Value;

/// A trace with a step and one operator for each duration, in milliseconds.
fn trace(steps: &[f64]) -> String {
    let mut events = vec![];
    let mut at = 0.0;
    for (number, milliseconds) in steps.iter().enumerate() {
        let micros = 1000.0 * milliseconds;
        let event = |category: &str, name: &str, start: f64, length: f64| {
            format!(r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":1,"tid":1,"ts":{start},"dur":{length}}}"#)
        };
        events.push(event("user_annotation", &format!("ProfilerStep#{number}"), at, micros));
        events.push(event("cpu_op", "aten::mm", at + 1.0, micros / 2.0));
        at += micros;
    }
    format!(r#"{{"traceEvents": [{}]}}"#, events.join(","))
}

fn with_traces() -> Place {
    let place = Place::new();
    // A reader may drop the last step.
    place.write("before.json", trace(&[10.0, 14.0, 7.0, 11.0, 9.0, 10.0]));
    place.write("noisy.json", trace(&[10.3, 7.1, 13.9, 9.6, 11.2, 10.0]));
    place.write("even.json", trace(&[10.0, 10.01, 9.99, 10.0, 10.02, 10.0]));
    place.write("slower.json", trace(&[11.0, 11.01, 10.99, 11.0, 11.02, 11.0]));
    place
}

fn judged(place: &Place, line: &str, code: i32) -> Value {
    let done = place.run(&format!("compare {line} --json"));
    assert_eq!(done.code, Some(code), "{line}\n{}", done.stdout);
    let value: Value = serde_json::from_str(&done.stdout).unwrap();
    value["gates"][0].clone()
}

#[test]
fn a_change_whose_interval_holds_the_limit_is_not_decided_and_that_may_be_a_no() {
    let place = with_traces();
    let gate = judged(&place, "before.json noisy.json --fail-if step>1%", 0);
    assert_eq!(gate["result"], "undecided", "{gate}");
    let interval: Vec<f64> = serde_json::from_value(gate["interval"].clone()).unwrap();
    assert!(interval[0] < 0.01 && interval[1] > 0.01, "{gate}");
    judged(&place, "before.json noisy.json --fail-if step>1% --undecided fail", 1);
    assert_eq!(judged(&place, "before.json noisy.json --fail-if step>500%", 0)["result"], "pass");
    assert_eq!(judged(&place, "even.json slower.json --fail-if step>5%", 1)["result"], "fail");
    assert_eq!(judged(&place, "even.json slower.json --fail-if step>15%", 0)["result"], "pass");
    let text = place.run("compare before.json noisy.json --fail-if step>1%").stdout;
    assert!(text.contains("Gates:\n  not decided: step>1%, ") && text.contains("(95% over steps: "), "{text}");
}

#[test]
fn operators_are_judged_by_their_own_interval_and_unknown_ones_refused() {
    let place = with_traces();
    let gate = judged(&place, "even.json slower.json --fail-if op:aten::mm>5%", 1);
    assert!(gate["interval"][0].as_f64().unwrap() > 0.05, "{gate}");
    assert_eq!(judged(&place, "before.json noisy.json --fail-if op:aten::mm>1%", 0)["result"], "undecided");
    place.refuses(
        "compare before.json noisy.json --fail-if op:aten::nm>1%",
        &["neither trace has an operator `aten::nm`", "aten::mm"],
    );
}

/// Two runs of one command, `1` and `2`.
fn with_runs() -> Place {
    let place = Place::new();
    for folder in ["a", "b"] {
        place.succeeds(&format!("train {SMALL} --num-steps 20 --output-dir {folder}"));
    }
    place
}

#[test]
fn a_regression_is_judged_by_its_interval_too() {
    let place = with_runs();
    let answer = |baseline: u32, run: u32, more: &str| -> (Value, Option<i32>) {
        let done = place.run(&format!("regress --baseline {baseline} {run} --json {more}"));
        (serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {}", done.stderr)), done.code)
    };
    // In one of the two orders the interval reaches above one.
    let reaches = |(value, _): &(Value, Option<i32>)| value["change"]["high"].as_f64().unwrap() > 1.0;
    let (old, new) = if reaches(&answer(1, 2, "")) { (1, 2) } else { (2, 1) };
    let (value, _) = answer(old, new, "");
    let end = |name: &str| 100.0 * (value["change"][name].as_f64().unwrap() - 1.0);
    let inside = (end("low").max(0.0) + end("high")) / 2.0;
    let (undecided, code) = answer(old, new, &format!("--threshold {inside}"));
    assert_eq!((undecided["verdict"].as_str(), code), (Some("undecided"), Some(0)), "{undecided}");
    assert_eq!(answer(old, new, &format!("--threshold {inside} --undecided fail")).1, Some(1));
    let said = place.run(&format!("regress --baseline {old} {new} --threshold {inside}"));
    assert!(said.stdout.starts_with("not decided: ") && said.stderr.contains("--rerun"), "{}", said.stdout);
    assert_eq!(answer(old, new, &format!("--threshold {}", end("high") + 1.0)).1, Some(0));
}

#[test]
fn both_sides_can_be_run_again_in_turns() {
    let place = with_runs();
    let done = place.succeeds("regress --baseline 1 2 --rerun 3 --threshold 100000 --json");
    let value: Value = serde_json::from_str(&done.stdout).unwrap();
    let turns = value["turns"].as_array().unwrap();
    assert_eq!(turns.len(), 3, "{value}");
    let logs = turns
        .iter()
        .map(|turn| (turn["run_seconds"].as_f64().unwrap() / turn["baseline_seconds"].as_f64().unwrap()).ln());
    let ratio = (logs.sum::<f64>() / 3.0).exp();
    assert!((value["change"]["ratio"].as_f64().unwrap() - ratio).abs() < 1e-9, "{value}");
    // Runs of the gate are children, so the newest run is still the one that was judged.
    let runs: Value = serde_json::from_str(&place.succeeds("runs list --json").stdout).unwrap();
    // Turns that other programs disturbed were taken again.
    assert!(runs.as_array().unwrap().len() >= 8, "{runs}");
    assert_eq!(runs[0]["parent"], 2, "{}", runs[0]);
    let text = place.succeeds("regress --baseline 1 --rerun 3 --threshold 100000").stdout;
    assert!(text.contains("run again, alternating, 3 times each") && text.contains("against run 2"), "{text}");

    place.refuses("regress --baseline 1 2 --rerun 2", &["2 is not in 3..=100"]);
    place.refuses("regress --baseline 1 2 --baseline-headroom x", &["--rerun"]);
    place.refuses("regress --baseline 1 2 --rerun --baseline-headroom nowhere", &["there is no such program"]);
    std::fs::remove_file(place.path("a/run.toml")).unwrap();
    place.refuses("regress --baseline 1 2 --rerun", &["run 1 has no run.toml any more"]);
}
