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

/// The memory line that the null device plans on two threads.
fn memory_line(place: &Place, size: &str, passes: &str) -> String {
    let line = format!("train --device null --threads 2 --size {size} --passes {passes} --num-steps 1");
    let done = place.succeeds(&format!("{line} --output-dir o --overwrite"));
    let line = done.stdout.lines().map(str::trim).find_map(|line| line.strip_prefix("memory ")).unwrap();
    line.trim().to_string()
}

fn document(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Cells of the rows whose first cell is a size.
fn rows_of_sizes(page: &str) -> Vec<Vec<&str>> {
    let sizes = ["nano", "tiny", "small", "medium", "large", "very_large"];
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let rows = rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    rows.filter(|cells| sizes.contains(&cells[0])).collect()
}

#[test]
fn the_documented_memory_is_what_the_program_plans() {
    let place = Place::new();
    let page = document("docs/train.md");
    let rows = rows_of_sizes(&page);
    assert_eq!(rows.len(), 6, "{rows:?}");
    for cells in rows {
        let (planned, documented) = (memory_line(&place, cells[0], "v2"), cells[cells.len() - 1]);
        assert!(planned.starts_with(&format!("{documented} planned: ")), "docs/train.md: {cells:?}, planned {planned}");
    }
    let readme = document("README.md");
    let shown = readme.lines().find(|line| line.contains(" planned: ")).unwrap();
    let shown = shown.trim().strip_prefix("memory ").unwrap().trim();
    let planned = memory_line(&place, "nano", "v2");
    assert!(planned.starts_with(shown.trim_end_matches('…')), "README.md: {shown}, planned {planned}");
    let decision = document("docs/decisions/0008-arena-largest-first.md");
    let totals: Vec<(&str, &str, &str)> = rows_of_sizes(&decision)
        .iter()
        .flat_map(|cells| {
            ["none", "v2", "all"].iter().zip(&cells[1..]).map(|(passes, cell)| (cells[0], *passes, *cell))
        })
        .filter_map(|(size, passes, cell)| Some((size, passes, cell.split_once(" of ")?.1)))
        .collect();
    assert!(totals.len() >= 7, "{totals:?}");
    for (size, passes, total) in totals {
        let planned = memory_line(&place, size, passes);
        assert!(planned.starts_with(&format!("{total} planned: ")), "0008: {size} {passes} {total}, planned {planned}");
    }
    let study = document("docs/experiments.md");
    let shown = study.lines().find(|line| line.starts_with("[1/4] tiny v1")).and_then(|line| line.split(", ").nth(1));
    let planned = memory_line(&place, "tiny", "v1");
    assert!(planned.starts_with(shown.unwrap()), "docs/experiments.md: {shown:?}, planned {planned}");
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
    for kilobytes in [95_000, 120_000, 400_000] {
        let line =
            format!("ulimit -v {kilobytes}; $HEADROOM train --size small --num-steps 1 --threads 2 --output-dir o");
        let done = place.shell(&line);
        assert!(!done.stderr.contains("panicked"), "{line}\n{}", done.stderr);
        assert_eq!(done.code, Some(2), "{line}\n{}", done.stderr);
        assert!(done.stderr.lines().any(|line| line.starts_with("error: ")), "{line}\n{}", done.stderr);
    }
    place.write("train.py", "import torch\n");
    let done = place.shell("ulimit -v 100000; $HEADROOM lint train.py");
    done.is_error(3, "lint", &["cannot start a thread"]);
}
