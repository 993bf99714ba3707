//! The registry through the binary: every run has its row, and `runs` and `regress` read it.

use crate::home::place_with_peaks;
use crate::place::{Place, SMALL};
use crate::small_file_system::SmallFileSystem;
use rusqlite::Connection;
use serde_json::Value;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Instant;

fn runs(place: &Place) -> Vec<Value> {
    serde_json::from_str(&place.succeeds("runs list --json").stdout).unwrap()
}

/// Multiplies a run's recorded step times by a factor.
fn slow_down(place: &Place, run: i64, factor: f64) {
    let database = Connection::open(place.path("home/runs.sqlite")).unwrap();
    let read = |row: &rusqlite::Row| row.get::<_, String>(0);
    let steps = database.query_row("SELECT seconds FROM step_times WHERE run = ?1", [run], read).unwrap();
    let steps: Vec<f64> = serde_json::from_str(&steps).unwrap();
    let slower: Vec<f64> = steps.iter().map(|seconds| seconds * factor).collect();
    let slower = serde_json::to_string(&slower).unwrap();
    database.execute("UPDATE step_times SET seconds = ?2 WHERE run = ?1", (run, slower)).unwrap();
}

#[test]
fn a_run_is_recorded_with_its_folder_figures_and_command_line() {
    let place = Place::new();
    place.succeeds(&format!("train {SMALL} --num-steps 12 --output-dir a --name first"));
    let [run] = &runs(&place)[..] else { panic!("one run") };
    assert_eq!((run["command"].as_str(), run["status"].as_str()), (Some("train"), Some("finished")));
    assert_eq!(
        (run["name"].as_str(), run["version"].as_str(), run["size"].as_str()),
        (Some("first"), Some("v2"), Some("nano"))
    );
    assert!(run["folder"].as_str().unwrap().ends_with("/a"), "{run}");
    assert_eq!(run["configuration"]["batch_size"], 2);
    assert!(run["command_line"].to_string().contains("--num-steps"));
    let summary = place.json("a/performance_summary.json");
    assert_eq!(run["figures"]["step_seconds"], summary["statistics"]["median"]);
    assert_eq!(run["figures"]["peak_memory_mb"], summary["performance_summary"]["peak_memory_mb"]);
    let shown: Value = serde_json::from_str(&place.succeeds("runs show first --json").stdout).unwrap();
    assert_eq!(shown["step_times"].as_array().unwrap().len(), 9);
    assert!(place.succeeds("runs show").stdout.contains("run 1 (first)"));
    place.refuses(&format!("train {SMALL} --name first --output-dir b"), &["the name `first` belongs to run 1"]);
}

#[test]
fn failed_killed_and_interrupted_runs_say_so() {
    let place = Place::new();
    let running = place.start(&format!("train {SMALL} --num-steps 100000 --log-interval 1 --output-dir a"));
    running.has_written(&place.path("a/training_output.log"));
    assert_eq!(runs(&place)[0]["status"], "running");
    running.kill();
    assert_eq!(runs(&place)[0]["status"], "interrupted");
    let running = place.start(&format!("train {SMALL} --num-steps 100000 --log-interval 1 --output-dir b"));
    let log = place.path("b/training_output.log");
    running.waits_until(|| std::fs::read_to_string(&log).is_ok_and(|log| log.contains("Step 2/")));
    running.interrupt();
    assert_eq!(runs(&place)[0]["status"], "interrupted");
    let failed = place.run(&format!("train {SMALL} --num-steps 50 --learning-rate 1e30 --output-dir c"));
    assert_eq!(failed.code, Some(3));
    let newest = &runs(&place)[0];
    assert_eq!(newest["status"], "failed");
    assert!(newest["error"].as_str().unwrap().contains("not finite"), "{newest}");
    assert_eq!(place.succeeds("runs list --status failed --json").objects_in_array(), 1);
}

#[test]
fn old_many_and_large_runs_are_pruned_oldest_first_and_named_ones_stay() {
    let place = Place::new();
    for run in 1..=5 {
        let name = if run == 2 { "--name wanted" } else { "" };
        place.succeeds(&format!("train {SMALL} --num-steps 2 --output-dir r{run} {name}"));
    }
    let ids = |line: &str| -> Vec<i64> {
        let told: Value = serde_json::from_str(&place.succeeds(line).stdout).unwrap();
        serde_json::from_value(told["forgotten"].clone()).unwrap()
    };
    assert_eq!(ids("runs prune --keep 3 --dry-run --json"), [1]);
    assert_eq!(ids("runs prune --keep 0 --dry-run --json"), [1, 3, 4, 5]);
    assert_eq!(ids("runs prune --older-than 1d --dry-run --json"), [] as [i64; 0]);
    assert_eq!(ids("runs prune --max-size 1TB --dry-run --json"), [] as [i64; 0]);
    assert_eq!(ids("runs prune --max-size 1k --dry-run --json"), [1, 3, 4, 5]);
    assert_eq!((runs(&place).len(), place.path("r1/config.json").exists()), (5, true), "a dry run removes nothing");
    let database = Connection::open(place.path("home/runs.sqlite")).unwrap();
    database.execute("UPDATE runs SET started = '2020-01-01T00:00:00Z' WHERE id IN (2, 3)", []).unwrap();
    place.write("r3/mine.txt", "the user's");
    assert_eq!(ids("runs prune --older-than 30d --json"), [3]);
    assert!(place.path("r3/mine.txt").exists() && !place.path("r3/config.json").exists(), "only the run's own files");
    let size: u64 = ["config.json", "performance_summary.json", "training_output.log", "progress.jsonl"]
        .iter()
        .filter_map(|file| Some(std::fs::metadata(place.path(&format!("r5/{file}"))).ok()?.len()))
        .sum();
    assert!(size > 1000, "{size}");
    // Room for two and a half: the wanted one, the newest, and not the others.
    assert_eq!(ids(&format!("runs prune --max-size {} --json", size * 5 / 2)), [1, 4]);
    assert!(!place.path("r1").exists() && place.path("r5/config.json").exists() && place.path("r2").exists());
    assert_eq!(ids("runs prune --keep 0 --json"), [5]);
    assert_eq!(runs(&place)[0]["name"], "wanted");
    place.refuses("runs prune", &["nothing says which runs to remove", "--older-than 30d"]);
    place.refuses("runs prune --older-than 3y", &["`3y` is not an age"]);
}

#[test]
fn runs_at_the_same_time_are_all_recorded() {
    let place = Place::new();
    let running: Vec<_> =
        (0..10).map(|run| place.start(&format!("train {SMALL} --num-steps 5 --output-dir r{run}"))).collect();
    for run in running {
        assert_eq!(run.ends().code, Some(0));
    }
    let runs = runs(&place);
    assert_eq!(runs.len(), 10);
    assert!(runs.iter().all(|run| run["status"] == "finished"), "{runs:?}");
}

#[test]
fn kills_at_any_moment_leave_the_registry_whole_and_what_was_finished_in_it() {
    let place = Place::new();
    let began = Instant::now();
    place.succeeds(&format!("train {SMALL} --num-steps 2 --output-dir first"));
    let usual = began.elapsed();
    let mut finished = 1;
    for run in 0..24 {
        let mut running = place.command(&format!("train {SMALL} --num-steps 2 --output-dir r{run}"));
        let mut running = running.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // From before the first write to after the last.
        sleep(usual.mul_f64(f64::from(run) / 20.0));
        let _ = running.kill();
        finished += usize::from(running.wait().unwrap().success());
    }
    let database = Connection::open(place.path("home/runs.sqlite")).unwrap();
    let whole: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(whole, "ok");
    let runs = runs(&place);
    let with = |status: &str| runs.iter().filter(|run| run["status"] == status).count();
    // A kill between the end of the row and the end of the process counts as finished too.
    assert!(with("finished") >= finished && with("running") == 0, "{finished} of {runs:?}");
    assert!(runs.iter().filter(|run| run["status"] == "finished").all(|run| run["figures"]["steps"] == 2));
    place.succeeds(&format!("train {SMALL} --num-steps 2 --output-dir last"));
    assert!(place.succeeds("runs show").stdout.contains("finished"));
}

#[test]
fn a_damaged_registry_is_said_with_what_to_do_and_runs_go_on() {
    let place = Place::new();
    place.succeeds(&format!("train {SMALL} --num-steps 2 --output-dir a"));
    let whole = place.read("home/runs.sqlite");
    let page = whole.len() / 2;
    let middle = [&whole[..page / 2], &vec![0xA5; page], &whole[page / 2 + page..]].concat();
    for (damage, bytes) in
        [("other", b"not a database ".repeat(600)), ("middle", middle), ("cut", whole[..page].to_vec())]
    {
        place.write("home/runs.sqlite", &bytes);
        let _ = std::fs::remove_file(place.path("home/runs.sqlite-wal"));
        let done = place.succeeds(&format!("train {SMALL} --num-steps 2 --output-dir {damage}"));
        assert!(place.path(&format!("{damage}/performance_summary.json")).exists());
        assert!(done.stderr.contains("warning: the run continues"), "{damage}: {}", done.stderr);
        let listed = place.run("runs list");
        listed.is_error(2, "runs list", &["cannot use the registry of runs", "it is damaged: move it away"]);
    }
    std::fs::rename(place.path("home/runs.sqlite"), place.path("home/damaged.sqlite")).unwrap();
    place.succeeds(&format!("train {SMALL} --num-steps 2 --output-dir b"));
    assert_eq!(runs(&place).len(), 1);
}

#[test]
fn a_home_without_room_or_that_takes_no_changes_costs_the_record_and_not_the_run() {
    let place = Place::new();
    // Nobody can create a folder here, not even root.
    let nowhere =
        place.shell(&format!("HEADROOM_HOME=/proc/headroom $HEADROOM train {SMALL} --num-steps 2 --output-dir a"));
    assert_eq!(nowhere.code, Some(0), "{}", nowhere.stderr);
    assert!(nowhere.stderr.contains("warning: the run continues"), "{}", nowhere.stderr);
    std::fs::create_dir(place.path("home")).unwrap();
    let Some(home) = SmallFileSystem::mount(&place.path("small"), "512k") else {
        eprintln!("SKIPPED: a small file system cannot be mounted here (it needs root)");
        return;
    };
    let small = |line: &str| place.shell(&format!("HEADROOM_HOME=small $HEADROOM {line}"));
    let before = small(&format!("train {SMALL} --num-steps 2 --output-dir b"));
    assert!(before.code == Some(0) && !before.stderr.contains("warning"), "{}", before.stderr);
    let filled = place.shell("cat /dev/zero > small/fill 2> /dev/null; stat --format=%a --file-system small");
    assert_eq!(filled.stdout.trim(), "0");
    let full = small(&format!("train {SMALL} --num-steps 2 --output-dir c"));
    assert_eq!(full.code, Some(0), "{}", full.stderr);
    assert!(full.stderr.contains("warning: the run continues"), "{}", full.stderr);
    assert!(place.path("c/performance_summary.json").exists());
    std::fs::remove_file(place.path("small/fill")).unwrap();
    // With room again, the next reader merges the log into the database and removes the log.
    assert_eq!(small("runs list").code, Some(0));
    assert!(!place.path("small/runs.sqlite-wal").exists());
    home.allow_no_changes();
    let read_only = small(&format!("train {SMALL} --num-steps 2 --output-dir d"));
    assert_eq!(read_only.code, Some(0), "{}", read_only.stderr);
    assert!(read_only.stderr.contains("set HEADROOM_HOME to a folder that can be written"), "{}", read_only.stderr);
    let listed = small("runs list");
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    assert!(listed.stdout.contains("finished"), "{}", listed.stdout);
}

#[test]
fn a_registry_that_cannot_be_written_is_a_warning_and_no_failure() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("home/runs.sqlite")).unwrap();
    let done = place.succeeds(&format!("train {SMALL} --num-steps 3 --output-dir a"));
    assert!(done.stderr.contains("warning: the run continues"), "{}", done.stderr);
    assert!(place.path("a/performance_summary.json").exists());
    let asked = place.run("runs list");
    asked.is_error(2, "runs list", &["cannot use the registry of runs"]);
}

#[test]
fn regress_answers_by_its_exit_code() {
    let place = Place::new();
    for folder in ["a", "b"] {
        place.succeeds(&format!("train {SMALL} --num-steps 40 --output-dir {folder}"));
    }
    place.succeeds("runs name 1 main");
    // Runs on a busy machine differ; with this threshold these two do not.
    place.succeeds("regress --baseline main --threshold 900");
    slow_down(&place, 2, 10_000.0);
    let slower = place.run("regress --baseline main newest --threshold 900");
    assert_eq!(slower.code, Some(1), "{}{}", slower.stdout, slower.stderr);
    assert!(slower.stdout.starts_with("regression: steps are slower"), "{}", slower.stdout);
    let json: Value = serde_json::from_str(&place.run("regress --baseline main 2 --json").stdout).unwrap();
    assert_eq!(json["verdict"], "regression");
    // The other way round it is faster.
    assert!(place.succeeds("regress --baseline 2 1").stdout.contains("no regression: steps are faster"));

    place.refuses("regress --baseline none", &["there is no run `none`"]);
    place.refuses("regress --baseline main --threshold -1", &["--threshold is -1"]);
    place.succeeds("train --size nano --batch-size 4 --seq-len 16 --num-steps 40 --output-dir c");
    place.refuses("regress --baseline main", &["cannot be compared", "batch_size 2, 4"]);
    place.succeeds(&format!("train {SMALL} --num-steps 4 --output-dir d"));
    place.refuses("regress --baseline main 4", &["has 1 steps after its warm-up"]);
}

#[test]
fn a_predicted_run_is_never_judged() {
    let place = Place::new();
    place.succeeds(&format!("train {SMALL} --num-steps 12 --output-dir a --name main"));
    let predicted = format!("train {SMALL} --num-steps 12 --device null");
    place.succeeds(&format!("{predicted} --output-dir p"));
    place.refuses("regress --baseline main", &["no finished run with measured steps", "--device null"]);
    place.succeeds(&format!("train {SMALL} --num-steps 12 --output-dir b"));
    place.succeeds(&format!("{predicted} --output-dir q"));
    let newest = place.run("regress --baseline main --threshold 100000 --json");
    let answer: Value = serde_json::from_str(&newest.stdout).unwrap_or_else(|_| panic!("{}", newest.stderr));
    assert_eq!(answer["run"]["id"], 3, "{answer}");
    let words = ["run 2 computed nothing (--device null)", "times are predicted", "help: choose a measured run"];
    for line in [
        "regress --baseline main 2",
        "regress --baseline main 2 --even-if-different",
        "regress --baseline main 2 --even-if-different --rerun 3",
        "regress --baseline 2 main",
        "regress --baseline 2 4 --rerun 3",
    ] {
        place.refuses(line, &words);
    }
}

#[test]
fn a_predicted_step_has_no_interval() {
    let place = place_with_peaks();
    let line = "--size nano --num-steps 12 --device null";
    let done = place.succeeds(&format!("train {line} --output-dir a"));
    let median = done.stdout.lines().find(|line| line.starts_with("Median time per step:")).unwrap();
    assert!(median.ends_with("seconds (predicted)"), "{median}");
    place.succeeds(&format!("profile {line} --passes v1 --output-dir b"));
    for folder in ["a", "b"] {
        let statistics = place.json(&format!("{folder}/performance_summary.json"))["statistics"].clone();
        assert!(statistics["median"].is_f64(), "{statistics}");
        assert!(statistics["ci95_low"].is_null() && statistics["ci95_high"].is_null(), "{statistics}");
    }
    let report = String::from_utf8(place.read("b/report.md")).unwrap();
    let step = report.lines().find(|line| line.starts_with("| Step |")).unwrap();
    assert!(step.ends_with("| predicted |"), "{step}");
    let study = place.succeeds("study nano --versions v1,v2 --device null --num-steps 12 --output-dir s").stdout;
    assert!(study.contains("the time per step of v1 (predicted);"), "{study}");
    let shown = [study, report, place.succeeds("runs show 1").stdout, place.succeeds("runs compare 1 2").stdout];
    for text in shown {
        assert!(!text.contains("95% between") && !text.contains("(95%: "), "{text}");
    }
    assert!(place.succeeds("runs show 1").stdout.contains("(predicted)"));
}

#[test]
fn memory_that_grows_is_a_regression_where_asked() {
    let place = Place::new();
    for passes in ["v2", "v1"] {
        place.succeeds(&format!("train --size nano --num-steps 12 --passes {passes} --output-dir {passes}"));
    }
    place.succeeds("regress --baseline 1 2 --threshold 9000");
    let more = place.run("regress --baseline 1 2 --threshold 9000 --max-memory-growth 0");
    assert_eq!(more.code, Some(1), "{}", more.stdout);
    assert!(more.stdout.contains("more memory than the baseline") && more.stdout.contains("passes v2 → v1"));
}

#[test]
fn a_deleted_run_leaves_its_files_unless_told_and_never_takes_others() {
    let place = Place::new();
    for folder in ["a", "b", "c"] {
        place.succeeds(&format!("train {SMALL} --num-steps 2 --output-dir {folder}"));
    }
    place.succeeds("runs delete 1");
    assert!(place.path("a/config.json").exists());
    place.write("b/notes.txt", "mine");
    place.succeeds("runs delete 2 3 --with-folder");
    assert_eq!(place.names(), ["a", "b"]);
    assert_eq!(std::fs::read_dir(place.path("b")).unwrap().count(), 1);
    assert!(runs(&place).is_empty());
    place.refuses("runs delete 2", &["there is no run `2`"]);
}

#[test]
fn runs_are_exported_and_compared() {
    let place = Place::new();
    for passes in ["v1", "v2"] {
        place.succeeds(&format!("train {SMALL} --num-steps 12 --passes {passes} --output-dir {passes}"));
    }
    let csv = place.succeeds("runs export --format csv --output runs.csv");
    assert!(csv.stderr.contains("2 runs written"));
    let csv = String::from_utf8(place.read("runs.csv")).unwrap();
    assert_eq!(csv.lines().count(), 3);
    assert!(csv.starts_with("id,name,status,"), "{csv}");
    let redacted = place.succeeds("runs export --redact").stdout;
    assert!(!redacted.contains(&place.path("v1").display().to_string()));
    let compared = place.succeeds("runs compare 1 2").stdout;
    assert!(compared.contains("step (95%)") && compared.contains("95%:"), "{compared}");
    place.refuses("runs compare 1", &[]);
}
