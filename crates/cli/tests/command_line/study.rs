//! `headroom study`: sizes and versions in separate processes, kills, resumes, and runs that cannot fit.

use crate::home::place_with_peaks;
use crate::place::Place;
use headroom_record::provenance::check_provenance;
use serde_json::Value;
use std::fs;
use std::process::Command;

fn study(place: &Place) -> Value {
    place.json("s/study.json")
}

fn statuses(study: &Value) -> Vec<String> {
    let runs = study["runs"].as_array().unwrap().iter();
    runs.map(|run| run["status"].as_str().unwrap().to_string()).collect()
}

/// Whether its process is recorded and the run has begun to write.
fn has_started(place: &Place, index: usize) -> bool {
    let Ok(bytes) = fs::read(place.path("s/study.json")) else { return false };
    let study: Value = serde_json::from_slice(&bytes).unwrap();
    let run = &study["runs"][index];
    let log = run["folder"].as_str().map(|folder| place.path("s").join(folder).join("training_output.log"));
    run["process_id"].is_u64() && log.is_some_and(|log| log.exists())
}

fn kill_process_of(place: &Place, index: usize) {
    let id = study(place)["runs"][index]["process_id"].as_u64().unwrap();
    assert!(Command::new("kill").args(["-9", &id.to_string()]).status().unwrap().success());
}

#[test]
fn every_run_has_its_folder_its_row_and_the_lines_that_the_workshops_loop_greps() {
    let place = place_with_peaks();
    let done = place.succeeds("study nano --versions v1,v2 --num-steps 9 --output-dir s");
    let record = study(&place);
    check_provenance(&record).unwrap();
    assert_eq!(statuses(&record), ["finished", "finished"]);
    for run in record["runs"].as_array().unwrap() {
        for key in ["samples_per_sec", "tokens_per_sec", "step_seconds", "peak_memory_mb", "mfu_percent"] {
            assert!(run[key].as_f64().unwrap() > 0.0, "{key}: {run}");
        }
        assert_eq!((run["parameters"].as_u64(), run["starts"].as_u64()), (Some(202_048), Some(1)));
    }
    for word in ["nano  v1", "nano  v2", "finished", "Where does attention's memory take over?", "half from seq"] {
        assert!(done.stdout.contains(word), "`{word}` is not in\n{}", done.stdout);
    }
    // The workshop's own loop.
    let grepped = place.shell(
        "cd s && for dir in performance_results_*/; do \
           echo $(basename $dir | cut -d_ -f3): \
             $(grep 'Throughput:' $dir/training_output.log | tail -1 | awk '{print $2, $3}') \
             $(grep 'Peak memory usage:' $dir/training_output.log | tail -1 | awk '{print $4, $5}'); done",
    );
    let lines: Vec<&str> = grepped.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{}", grepped.stdout);
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(matches!(words[..], ["nano:", _, "samples/sec", _, "MB"]), "{line}");
    }
    for file in ["s/study.md", "s/study.html"] {
        assert!(String::from_utf8(place.read(file)).unwrap().contains("Study of nano under v1, v2"));
    }
    let runs: Value = serde_json::from_str(&place.succeeds("runs list --json").stdout).unwrap();
    let parents: Vec<Option<i64>> = runs.as_array().unwrap().iter().map(|run| run["parent"].as_i64()).collect();
    assert_eq!(parents, [Some(1), Some(1), None]);
}

#[test]
fn times_are_taken_in_turns_and_have_intervals() {
    let place = place_with_peaks();
    let line = "study nano --batch-size 2 --seq-len 16 --passes v1,v2 --num-steps 12 --output-dir s";
    let done = place.succeeds(line);
    let record = study(&place);
    check_provenance(&record).unwrap();
    for run in record["runs"].as_array().unwrap() {
        // Twelve steps in all: six by itself, one to warm up again, and five turns of one.
        assert_eq!((run["num_steps"].as_u64(), run["steps_per_turn"].as_u64()), (Some(6), Some(1)), "{run}");
        let summary = place.json(&format!("s/{}/performance_summary.json", run["folder"].as_str().unwrap()));
        assert_eq!(summary["training_params"]["num_steps"], 6);
        for key in ["step_seconds", "samples_per_sec", "mfu_percent"] {
            let [low, value, high] = ["_low", "", "_high"].map(|end| run[format!("{key}{end}")].as_f64().unwrap());
            assert!(low <= value && value <= high, "{key}: {low} {value} {high}");
        }
    }
    let race = &record["race"][0];
    assert_eq!(race["members"], serde_json::json!(["nano v1", "nano v2"]));
    let rounds = race["rounds"].as_u64().unwrap();
    assert!((5..=10).contains(&rounds) && race["dropped_rounds"].is_array(), "{race}");
    let compared = &record["comparisons"][0];
    assert!(compared["ci95_low"].as_f64().unwrap() <= compared["step_ratio"].as_f64().unwrap(), "{compared}");
    let first = "nano: Version 1 (v1, the naive graph and the course's baseline), Version 2 (v2)\n";
    assert!(done.stderr.starts_with(first), "{}", done.stderr);
    assert!(done.stderr.contains("timing nano v1, nano v2 in turns"), "{}", done.stderr);
    assert!(!done.stdout.contains("runs followed one another"), "{}", done.stdout);
    let next = done.stdout.split("Next steps:\n").nth(1).unwrap();
    assert!(next.contains("headroom optimize --size nano."), "{next}");
}

#[test]
fn profiles_are_where_the_course_looks_and_where_they_were() {
    let place = place_with_peaks();
    let line = "study nano --batch-size 2 --seq-len 16 --num-steps 10 --enable-profilers --output-dir s";
    let done = place.succeeds(line);
    let first = "nano: Version 2 (v2); --passes v1 runs Version 1, the course's baseline\n";
    assert!(done.stderr.starts_with(first), "{}", done.stderr);
    let run = study(&place)["runs"][0].clone();
    assert_eq!(run["num_steps"], 8, "a profiled run keeps the steps that it records");
    let folder = format!("s/{}", run["folder"].as_str().unwrap());
    let traces = |folder: &str| {
        let names = fs::read_dir(place.path(folder)).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        names.retain(|name| name.ends_with(".pt.trace.json"));
        names.sort();
        names
    };
    let course = format!("{folder}/pytorch_profiles");
    assert_eq!((traces(&course).len(), traces(&course)), (1, traces(&folder)));
    for of in [&folder, &course] {
        place.succeeds(&format!("analyze {of}"));
    }
}

#[test]
fn what_cannot_fit_is_reported_with_its_need_and_the_rest_is_run() {
    let place = place_with_peaks();
    let done = place.succeeds("study nano medium --num-steps 3 --memory-limit 64MiB --output-dir s");
    let record = study(&place);
    assert_eq!(statuses(&record), ["finished", "does_not_fit"]);
    let refused = &record["runs"][1];
    assert!(refused["planned_memory_mb"].as_f64().unwrap() > 9000.0, "{refused}");
    assert!(refused["note"].as_str().unwrap().contains("are allowed by --memory-limit"), "{refused}");
    assert!(refused["folder"].is_null() && refused["predicted_step_seconds"].as_f64().unwrap() > 1.0);
    assert!(done.stdout.contains("medium v2: does not fit"), "{}", done.stdout);
    check_provenance(&record).unwrap();
}

#[test]
fn when_a_run_is_killed_the_next_one_starts() {
    let place = place_with_peaks();
    // A slow first run, so that it is certainly alive when killed.
    let running = place.start("study nano --batch-size 2 --seq-len 16 --versions v1,v2 --num-steps 600 --output-dir s");
    running.waits_until(|| has_started(&place, 0));
    kill_process_of(&place, 0);
    let done = running.ends();
    assert_eq!(done.code, Some(3), "{}", done.stderr);
    assert_eq!(statuses(&study(&place)), ["killed", "finished"]);
    assert!(done.stdout.contains("nano v1: killed"), "{}", done.stdout);
}

#[test]
fn a_study_killed_in_the_middle_is_completed_with_nothing_run_twice() {
    let place = place_with_peaks();
    let running =
        place.start("study nano --batch-size 2 --seq-len 16 --versions v1,v2,all --num-steps 300 --output-dir s");
    running.waits_until(|| has_started(&place, 1));
    let before = study(&place);
    running.kill();
    assert_eq!(statuses(&before), ["finished", "running", "pending"]);
    let first = format!("s/{}/performance_summary.json", before["runs"][0]["folder"].as_str().unwrap());
    let (kept, changed) = (place.read(&first), fs::metadata(place.path(&first)).unwrap().modified().unwrap());

    place.succeeds("study nano --versions v1,v2,all --num-steps 300 --output-dir s --resume");
    let after = study(&place);
    assert_eq!(statuses(&after), ["finished", "finished", "finished"]);
    assert_eq!(place.read(&first), kept);
    assert_eq!(fs::metadata(place.path(&first)).unwrap().modified().unwrap(), changed);
    // The process of the second run survived the study's kill, and its results were adopted.
    let starts: Vec<u64> = (0..3).map(|run| after["runs"][run]["starts"].as_u64().unwrap()).collect();
    assert_eq!(starts, [1, 1, 1]);
    let runs: Value = serde_json::from_str(&place.succeeds("runs list --command train --json").stdout).unwrap();
    assert_eq!(runs.as_array().unwrap().len(), 3);
    place.refuses("study --resume", &["there is no unfinished study under runs/"]);
}

#[test]
fn a_run_that_died_with_its_study_is_the_only_one_to_start_again() {
    let place = place_with_peaks();
    let running = place.start("study nano --batch-size 2 --seq-len 16 --versions v1,v2 --num-steps 500 --output-dir s");
    running.waits_until(|| has_started(&place, 1));
    let orphan = study(&place)["runs"][1]["process_id"].as_u64().unwrap();
    running.kill();
    assert!(Command::new("kill").args(["-9", &orphan.to_string()]).status().unwrap().success());
    place.succeeds("study --resume --output-dir s");
    let after = study(&place);
    assert_eq!(statuses(&after), ["finished", "finished"]);
    let starts: Vec<u64> = (0..2).map(|run| after["runs"][run]["starts"].as_u64().unwrap()).collect();
    assert_eq!(starts, [1, 2]);
    let left = place.succeeds("runs list --status interrupted --json");
    let left: Value = serde_json::from_str(&left.stdout).unwrap();
    // The study itself and the run that died with it.
    assert_eq!(left.as_array().unwrap().len(), 2, "{left}");
}

#[test]
fn a_request_to_end_ends_the_run_in_progress_too_however_often_it_comes() {
    let place = place_with_peaks();
    let running = place.start("study nano --versions v1,v2 --num-steps 100000 --output-dir s");
    running.waits_until(|| has_started(&place, 0));
    let child = study(&place)["runs"][0]["process_id"].as_u64().unwrap();
    // As `timeout` does: the process, then its group.
    let done = running.terminate_twice();
    assert_eq!(done.code, Some(143), "{}", done.stderr);
    assert!(done.stderr.contains("interrupted; finished runs are saved"), "{}", done.stderr);
    assert!(!place.path(&format!("/proc/{child}")).exists(), "process {child} was left behind");
    assert_eq!(statuses(&study(&place)), ["pending", "pending"]);
}

#[test]
fn the_null_device_says_what_every_size_would_need() {
    let place = place_with_peaks();
    let done = place.succeeds("study all --device null --versions v1 --num-steps 3 --output-dir s --json");
    let record: Value = serde_json::from_str(&done.stdout).unwrap();
    check_provenance(&record).unwrap();
    assert_eq!(record["runs"].as_array().unwrap().len(), 5);
    assert_eq!(record["provenance"]["runs.step_seconds"], "computed");
    let large = &record["runs"][4];
    assert_eq!((large["size"].as_str(), large["parameters"].as_u64()), (Some("very_large"), Some(10_691_284_992)));
    assert!(large["planned_memory_mb"].as_f64().unwrap() > 200_000.0);
}

#[test]
fn bad_input_is_refused_before_anything_runs() {
    let place = place_with_peaks();
    place.refuses("study huge", &["there is no size `huge`", "very_large"]);
    place.refuses("study nano --versions v9", &["v9"]);
    place.refuses("study nano --seq-len 0", &["--seq-len is 0"]);
    place.refuses("study nano --device tpu", &["there is no device `tpu`"]);
    place.refuses("study nano --memory-limit lots", &["--memory-limit lots"]);
    place.refuses("study --resume --output-dir none", &["none"]);
    place.succeeds("study nano --num-steps 2 --output-dir s");
    place.refuses("study nano --num-steps 2 --output-dir s", &["already holds a study", "--resume"]);
    place.refuses("study tiny --resume --output-dir s", &["was started with other sizes"]);
    place.write("s/study.json", "{}");
    place.refuses("study --resume --output-dir s", &["is not a study"]);
}
