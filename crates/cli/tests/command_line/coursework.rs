//! `headroom workshop`: sheets are filled from runs, and marks depend on the records, whatever the folders are called.

use crate::home::place_with_peaks;
use crate::place::Place;
use serde_json::Value;
use std::fs;

const PLAIN: &str = "train --size tiny --passes v1 --num-steps 20";
const BASELINE: &str = "profile --size tiny --passes v1 --num-steps 20 --output-dir runs/baseline";

/// The two runs of part 1 that are compared.
fn place_of_a_student() -> Place {
    let place = place_with_peaks();
    place.succeeds(&format!("{PLAIN} --output-dir runs/plain"));
    place.succeeds(BASELINE);
    place
}

/// The marks of one run of a part, found by the folder's name on the page.
fn marks(place: &Place, folder: &str, part: usize, run: &str) -> (Option<i32>, Value) {
    let done = place.run(&format!("workshop check {folder} --json"));
    let marks: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|error| panic!("{error}: {}", done.stderr));
    let parts = marks["parts"].as_array().unwrap();
    let part = parts.iter().find(|entry| entry["part"] == part).unwrap();
    let found = part["runs"].as_array().unwrap().iter().find(|entry| entry["folder"] == run).unwrap();
    (done.code, found.clone())
}

/// Names of the failed checks, with reasons.
fn failures(run: &Value) -> Vec<String> {
    let failed = run["checks"].as_array().unwrap().iter().filter(|check| check["passed"] == false);
    failed.map(|check| format!("{}: {}", check["name"].as_str().unwrap(), check["note"].as_str().unwrap())).collect()
}

fn edit(place: &Place, file: &str, change: impl FnOnce(&mut Value)) {
    let mut record = place.json(file);
    change(&mut record);
    place.write(file, record.to_string());
}

/// One place for all four, since its runs take most of the time. The last one moves runs.
#[test]
fn runs_of_a_student_fill_a_sheet_and_give_marks() {
    let place = place_of_a_student();
    sheet_is_filled_from_the_runs_that_are_there(&place);
    parts_for_one_kind_of_machine_count_on_that_machine(&place);
    figures_that_were_changed_by_hand_do_not_agree(&place);
    marks_follow_from_the_records_of_a_folder(&place);
}

fn marks_follow_from_the_records_of_a_folder(place: &Place) {
    for folder in [".", "runs"] {
        let done = place.succeeds(&format!("workshop check {folder}"));
        for line in [
            "Part 1, Baseline: 9 of 17 points",
            "ok    complete: 20 steps on cpu",
            "ok    as asked: tiny, --passes v1, 20 steps",
            "ok    report: report.html",
            "ok    agrees: final losses",
            "not there: headroom study tiny small",
            "nothing wrong",
        ] {
            assert!(done.stdout.contains(line), "{line}\n{}", done.stdout);
        }
    }
    let alone = place.succeeds("workshop check runs/baseline").stdout;
    assert!(alone.contains("Part 1, Baseline: 4 of 4 points\n  runs/baseline"), "{alone}");

    // A run is found under another name, and the right name alone proves nothing.
    fs::rename(place.path("runs/plain"), place.path("runs/mine")).unwrap();
    let (code, found) = marks(place, ".", 1, "runs/plain");
    assert_eq!((code, found["found"].as_str(), failures(&found)), (Some(0), Some("runs/mine"), vec![]));
    place.succeeds("train --size nano --passes v2 --num-steps 12 --output-dir runs/plain");
    let (code, found) = marks(place, ".", 1, "runs/plain");
    assert_eq!(code, Some(1));
    let failed = failures(&found).join("\n");
    for words in ["as asked: size nano, not tiny", "passes fuse-qkv", "batch 8 × 64, not 8 × 128", "12 steps, not 20"]
    {
        assert!(failed.contains(words), "{words}: {failed}");
    }
    assert!(!failed.contains("figures agree"), "{failed}");
    place.refuses("workshop check home", &["holds no run of the workshop"]);
    place.refuses("workshop check nowhere", &["is not a folder"]);
    place.refuses("workshop sheet 7", &["7 is not in 0..=6"]);
}

fn figures_that_were_changed_by_hand_do_not_agree(place: &Place) {
    let file = |name: &str| format!("runs/baseline/{name}");
    let kept = |name: &str| (file(name), place.read(&file(name)));
    let check = |changed: &str, change: &dyn Fn(&mut Value), words: &str| {
        let (path, before) = kept(changed);
        edit(place, &path, change);
        let (code, found) = marks(place, ".", 1, "runs/baseline");
        let failed = failures(&found).join("\n");
        assert!(code == Some(1) && failed.contains(words), "{words}: {failed}");
        place.write(&path, before);
    };
    let summary = "performance_summary.json";
    check(summary, &|record| record["performance_summary"]["final_loss"] = 8.0.into(), "the loss rose");
    check(summary, &|record| record["performance_summary"]["final_loss"] = 1.0.into(), "below the data's entropy");
    check(summary, &|record| record["performance_summary"]["final_loss"] = Value::Null, "not a number");
    check(summary, &|record| record["performance_summary"]["avg_training_speed"] = 900.0.into(), "samples per second");
    check(summary, &|record| record["training_params"]["batch_size"] = 4.into(), "are not of one run");
    check(summary, &|record| record["statistics"] = Value::Null, "complete: performance_summary.json does not read");
    check(
        "config.json",
        &|record| record["configuration"]["parameters"] = 5.into(),
        "parameters, and the size tiny has",
    );
    let operators = "operator_analysis.json";
    check(operators, &|record| record["patterns"]["kernels_per_step"] = 12.into(), "kernels are listed");
    check(operators, &|record| record["step_breakdown"]["wall"] = 99.0.into(), "times by part");
    check("flops_profile.json", &|record| record["flops_analysis"]["forward_flops"] = 1.into(), "FLOPs by phase");
    check("memory_analysis.json", &|record| record["peak_memory_mb"] = 900.0.into(), "memory by category");
    let (report, before) = kept("report.html");
    fs::remove_file(place.path(&report)).unwrap();
    let (_, found) = marks(place, ".", 1, "runs/baseline");
    assert_eq!(failures(&found), ["report: report.html is missing or empty"]);
    place.write(&report, before);

    let plain = "runs/plain/performance_summary.json";
    let before = place.read(plain);
    edit(place, plain, |record| record["performance_summary"]["final_loss"] = 6.9.into());
    let (_, found) = marks(place, ".", 1, "runs/plain and runs/baseline");
    assert!(failures(&found)[0].contains("not the same model"), "{found}");
    place.write(plain, before);
}

fn sheet_is_filled_from_the_runs_that_are_there(place: &Place) {
    let empty = place.succeeds("workshop sheet 1").stdout;
    assert!(empty.contains("| kernels per step |  |"), "{empty}");
    place.succeeds("workshop sheet 1 --from . --output sheet.md");
    let filled = String::from_utf8(place.read("sheet.md")).unwrap();
    let row = "| kernels per step | 244 | `patterns.kernels_per_step` in `runs/baseline/operator_analysis.json` |";
    assert!(filled.contains(row), "{filled}");
    assert!(filled.contains("| small: samples per second |  |"), "a run that is not there leaves its figures empty");
    let loss = place.json("runs/plain/performance_summary.json")["performance_summary"]["final_loss"].as_f64().unwrap();
    assert!(filled.contains(&format!("| final loss | {loss:.4} |")), "{filled}");
    place.refuses("workshop sheet 1 --from nowhere", &["is not a folder"]);
    place.refuses("workshop sheet 1 --output runs", &["is a folder"]);
}

/// A script's trace is read, whatever is next to it, and one of our own runs is not mistaken for one.
#[test]
fn a_recording_is_known_by_its_trace() {
    let place = place_with_peaks();
    for (name, part) in [("runs/torch-before", "slow"), ("runs/torch-after", "fixed")] {
        fs::create_dir_all(place.path(name)).unwrap();
        let from = format!("{}/../trace/tests/data/{part}.pt.trace.json.gz", env!("CARGO_MANIFEST_DIR"));
        fs::copy(from, place.path(name).join("host.pt.trace.json.gz")).unwrap();
    }
    let (code, found) = marks(&place, ".", 6, "runs/torch-before");
    assert_eq!((code, failures(&found), found["checks"].as_array().unwrap().len()), (Some(0), vec![], 4));
    place.succeeds("profile --size nano --num-steps 9 --output-dir runs/torch-fixed");
    let (code, found) = marks(&place, ".", 6, "runs/torch-fixed");
    assert!(code == Some(1) && failures(&found)[0].contains("headroom's own"), "{found}");
    fs::create_dir_all(place.path("runs/torch-optimize")).unwrap();
    let (_, found) = marks(&place, ".", 6, "runs/torch-optimize");
    assert_eq!(failures(&found), ["complete: there is no validation.json: the run did not come to its end"]);
}

/// Runs required on one kind of machine count there, and elsewhere only if they were made.
fn parts_for_one_kind_of_machine_count_on_that_machine(place: &Place) {
    let folders = || place.succeeds("workshop check .").stdout;
    let before = folders();
    assert!(before.contains("runs/limited") && !before.contains("runs/medium"), "{before}");
    let plain = "runs/plain/performance_summary.json";
    let record = place.read(plain);
    edit(place, plain, |record| record["system_info"]["device"] = "cuda".into());
    let after = folders();
    assert!(!after.contains("runs/limited") && after.contains("runs/medium"), "{after}");
    place.write(plain, record);
}

/// The experiments of the other parts at toy size: complete, but not of the required size.
#[test]
fn experiments_are_judged_by_their_own_records() {
    let place = place_with_peaks();
    let runs = [
        (
            "study nano --versions v1 --num-steps 4 --output-dir runs/sizes",
            1,
            "as asked: without the sizes tiny, small",
        ),
        (
            "scale --size nano --passes v1 --batch 2,4 --seq 16,32 --plan-only --output-dir runs/scaling",
            2,
            "as asked: size nano",
        ),
        (
            "optimize --size nano --batch-size 2 --seq-len 16 --rounds 4 --time 1 --curve-steps 2 --min-speedup 0.001 \
             --precisions none --output-dir runs/optimize",
            4,
            "as asked: size nano, not tiny",
        ),
        ("k1 --size nano --sources 1 --steps 2 --seeds 2 --eval-batches 1 --output-dir runs/k1", 5, ""),
    ];
    for (line, part, wrong) in runs {
        let done = place.run(line);
        assert!(matches!(done.code, Some(0 | 1)), "{line}\n{}", done.stderr);
        let folder = line.split(' ').next_back().unwrap();
        let (_, found) = marks(&place, ".", part, folder);
        let failed = failures(&found);
        // The gates of a toy ladder may fail, which is separate from the size.
        let failed: Vec<&String> = failed.iter().filter(|line| !line.starts_with("figures agree")).collect();
        match wrong {
            "" => assert_eq!(failed, [] as [&String; 0], "{line}"),
            words => assert!(failed.len() == 1 && failed[0].contains(words), "{line}: {failed:?}"),
        }
    }
    let wrong = |file: &str, part: usize, change: &dyn Fn(&mut Value), words: &str| {
        let before = place.read(file);
        edit(&place, file, change);
        let (_, found) = marks(&place, ".", part, file.rsplit_once('/').unwrap().0);
        let failed = failures(&found).join("\n");
        assert!(failed.contains(words), "{words}: {failed}");
        place.write(file, before);
    };
    let study = "runs/sizes/study.json";
    wrong(study, 1, &|record| record["runs"][0]["status"] = "failed".into(), "complete: nano v1 is failed");
    wrong(study, 1, &|record| record["runs"][0]["planned_memory_mb"] = 1.0.into(), "nano v1: components");
    wrong(study, 1, &|record| record["runs"][0]["samples_per_sec"] = Value::Null, "nano v1: samples per second");
    let sweep = "runs/scaling/scaling.json";
    wrong(sweep, 2, &|record| record["batch_points"][1]["peak_memory_mb"] = 0.1.into(), "memory falls along the batch");
    wrong(sweep, 2, &|record| record["sequence_points"][1]["scaling_factor"] = 9.0.into(), "sequence: ");
    let ladder = "runs/optimize/validation.json";
    wrong(ladder, 4, &|record| record["gates"]["accuracy"]["result"] = "fail".into(), "the gate accuracy fails");
    wrong(ladder, 4, &|record| record["passes"] = Value::Array(vec![]), "no pass was measured");
    let rules = "runs/k1/k1.json";
    wrong(rules, 5, &|record| record["runs"][0]["complete"] = false.into(), "did not reach their budget");
    wrong(rules, 5, &|record| record["runs"][0]["loss"] = 0.1.into(), "below the sources' entropy");
}
