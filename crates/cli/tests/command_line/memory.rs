//! Memory is planned before a run, matches what the run uses, and a run that cannot fit is refused.

use crate::place::{Done, Place};
use std::time::{Duration, Instant};

/// The bytes in `12.5 MiB`.
fn bytes(text: &str) -> f64 {
    let (number, unit) = text.trim().split_once(' ').unwrap();
    let power = ["B", "KiB", "MiB", "GiB", "TiB"].iter().position(|name| *name == unit).unwrap();
    number.parse::<f64>().unwrap() * 1024f64.powi(power as i32)
}

/// The planned total that is printed before the run, and its parts.
fn planned(done: &Done) -> (f64, Vec<f64>) {
    let line = done.stdout.lines().find_map(|line| line.trim().strip_prefix("memory ")).unwrap();
    let (total, parts) = line.split_once(" planned: ").unwrap();
    let sizes = parts.split(" · ").map(|part| {
        let words: Vec<&str> = part.split(' ').collect();
        bytes(&words[words.len() - 2..].join(" "))
    });
    (bytes(total), sizes.collect())
}

#[test]
fn the_plan_is_printed_adds_up_and_is_what_the_process_then_uses() {
    let place = Place::new();
    for flags in ["--size nano", "--size tiny", "--size tiny --eval-every 2 --eval-batch-size 20"] {
        let line = format!("train {flags} --num-steps 2");
        let done = place.succeeds(&format!("{line} --output-dir o --overwrite"));
        let (total, parts) = planned(&done);
        let sum: f64 = parts.iter().sum();
        assert!((sum / total - 1.0).abs() < 0.02, "{line}: {sum} of parts, {total} in all");
        let record = place.json("o/performance_summary.json");
        let figure = |key: &str| record["performance_summary"][key].as_f64().unwrap();
        let (peak, process) = (figure("peak_memory_mb"), figure("process_peak_memory_mb"));
        assert!((peak * 1024.0 * 1024.0 / total - 1.0).abs() < 0.01, "{line}: {peak} MiB and {total} bytes");
        // The program itself, with its code and tables, takes about 35 MiB in a test build.
        assert!((process - peak).abs() <= 0.15 * peak + 40.0, "{line}: {process} MiB used, {peak} planned");
        assert!(figure("avg_memory_mb") < peak);
    }
}

#[test]
fn a_run_beyond_the_limit_is_refused_with_the_breakdown_and_what_would_fit() {
    let place = Place::new();
    place.refuses(
        "train --size tiny --memory-limit 60MiB",
        &[
            "size tiny needs ",
            "even with the activations of every layer recomputed",
            "60.0 MiB are allowed by --memory-limit",
            "activations",
            "optimizer state",
            "help: --batch-size ",
        ],
    );
    place.refuses("train --size tiny --memory-limit 20MiB", &["--size nano needs", "and fits"]);
    place.refuses("train --size nano --memory-limit 1KiB", &["no model size fits"]);
    place.refuses(
        "train --size nano --memory-limit 20MiB --eval-every 1 --eval-batch-size 64",
        &["training alone fits", "--eval-batch-size"],
    );
}

#[test]
fn layers_are_recomputed_just_enough_to_fit_and_the_losses_stay_the_same() {
    let place = Place::new();
    let run = |limit: &str| {
        place.succeeds(&format!("train --size nano --n-layers 4 --num-steps 3 --output-dir o --overwrite {limit}"))
    };
    let record = |key: &str| place.json("o/performance_summary.json")["performance_summary"][key].as_f64().unwrap();
    let free = run("");
    let (loss, peak) = (record("final_loss"), record("peak_memory_mb"));
    assert!(!free.stdout.contains("recomputed"), "{}", free.stdout);
    let limit = peak - 1.0;
    let limited = run(&format!("--memory-limit {limit}MiB"));
    assert!(limited.stdout.contains("of 4 layers recomputed"), "{}", limited.stdout);
    assert!(record("peak_memory_mb") <= limit);
    assert_eq!(record("final_loss"), loss);
}

#[test]
fn what_is_said_to_fit_does() {
    let place = Place::new();
    let done = place.run("train --size tiny --memory-limit 60MiB");
    let help = done.stderr.lines().find_map(|line| line.trim().strip_prefix("help: ")).unwrap();
    let flags = help.strip_suffix(" fits").unwrap();
    place.succeeds(&format!("train --size tiny --memory-limit 60MiB --num-steps 1 {flags}"));
}

#[test]
fn a_size_beyond_any_machine_is_refused() {
    let place = Place::new();
    place.refuses(
        "train --size very_large --batch-size 512",
        &["size very_large needs", "of this machine's memory are free", "parameters 39.8 GiB", "help:"],
    );
}

#[test]
fn the_null_device_plans_and_predicts_the_largest_size_at_once() {
    let place = Place::new();
    let started = Instant::now();
    let done = place.succeeds("train --device null --size very_large --output-dir o");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert!(planned(&done).0 > 200.0 * 1024f64.powi(3), "{}", done.stdout);
    assert!(done.stdout.contains("10,691,284,992 parameters") && done.stdout.contains("times are predicted"));
    let record = place.json("o/performance_summary.json");
    let figure = |key: &str| record["performance_summary"][key].as_f64();
    assert!(figure("process_peak_memory_mb").unwrap() < 100.0);
    assert!(figure("avg_batch_time").unwrap() > 10.0);
    assert_eq!(figure("final_loss"), None);
    assert_eq!(record["provenance"]["performance_summary"], "computed");
    place.refuses("train --device null --size nano --save ck", &["--save has nothing to save"]);
}

#[test]
fn a_process_without_memory_is_told_so_and_does_not_panic() {
    let place = Place::new();
    // From too little for nearly anything to too little for the plan.
    for kilobytes in [70_000, 120_000, 400_000] {
        let line =
            format!("ulimit -v {kilobytes}; $HEADROOM train --size small --num-steps 1 --threads 2 --output-dir o");
        let done = place.shell(&line);
        assert!(!done.stderr.contains("panicked"), "{line}\n{}", done.stderr);
        assert_eq!(done.code, Some(2), "{line}\n{}", done.stderr);
        assert!(done.stderr.starts_with("error: "), "{line}\n{}", done.stderr);
    }
    place.write("train.py", "import torch\n");
    let done = place.shell("ulimit -v 100000; $HEADROOM lint train.py");
    done.is_error(3, "lint", &["cannot start a thread"]);
}
