//! `headroom apply RUN`: the patch of a finished run, written without running anything again. `cargo xtask torch` applies
//! the patch of a real search.

use crate::place::{Done, Place};
use serde_json::{Value, json};

const BEFORE: &str = "import torch\nx = 1\n";
const AFTER: &str = "import torch\nx = 2\n";
/// SHA-256 of `BEFORE`.
const MEASURED: &str = "c9243aa7022cc9d5da415b5f3154102616b1691d2da36c7d37d1676ae56458a4";

/// The result of a search in a folder, as `optimize` leaves it, and the script that it belongs to.
pub fn offer_patch(place: &Place, folder: &str, run: Option<i64>) {
    std::fs::create_dir_all(place.path(folder)).unwrap();
    place.write("measured.py", BEFORE);
    let patch = json!({
        "schema_version": 1,
        "run": run,
        "folder": place.path("."),
        "files": [{ "path": "measured.py", "before_sha256": MEASURED, "after": AFTER }],
    });
    place.write(&format!("{folder}/optimize-patch.json"), patch.to_string());
    let record = json!({
        "schema_version": 1,
        "kind": "script",
        "timestamp": "2026-01-01T00:00:00Z",
        "command": ["python", "measured.py"],
        "device": "cpu",
        "torch": "2.9.0",
        "measured_on": "host",
        "baseline_step_seconds": 0.1,
        "timed_steps": 20,
        "baseline_memory_mb": null,
        "own_loss_spread": 0.0,
        "findings": [],
        "remedies": [],
        "kept": ["tf32"],
        "class": "rounding",
        "speedup": 1.5,
        "ci95_low": 1.4,
        "ci95_high": 1.6,
        "rounds": 4,
        "prediction": null,
        "gates": {},
        "patch": {
            "files": ["measured.py"], "by_hand": [], "options": [], "speedup": 1.5, "ci95_low": 1.4, "ci95_high": 1.6,
            "rounds": 4, "applied": false, "note": null,
        },
        "dry_run": false,
        "processes": 12,
        "seconds": 100.0,
        "provenance": {},
    });
    place.write(&format!("{folder}/validation.json"), record.to_string());
}

/// Changes the record of the result.
fn amend(place: &Place, folder: &str, change: impl FnOnce(&mut Value)) {
    let file = format!("{folder}/validation.json");
    let mut record = place.json(&file);
    change(&mut record);
    place.write(&file, record.to_string());
}

fn script(place: &Place) -> String {
    String::from_utf8(place.read("measured.py")).unwrap()
}

#[test]
fn a_patch_is_shown_then_applied_once_and_the_record_says_so() {
    let place = Place::new();
    offer_patch(&place, "runs/optimize-measured", None);
    let shown = place.succeeds("apply runs/optimize-measured --dry-run");
    assert!(shown.stdout.contains("--- a/measured.py\n+++ b/measured.py\n@@ -1,2 +1,2 @@"), "{}", shown.stdout);
    assert!(shown.stdout.contains("-x = 1\n+x = 2\n") && shown.stderr.contains("dry run"), "{}", shown.stderr);
    assert_eq!(script(&place), BEFORE);
    let painted = place.succeeds("apply runs/optimize-measured --dry-run --color always").stdout;
    assert!(painted.contains("\u{1b}[32m+x = 2\u{1b}[0m"), "{painted:?}");
    let done = place.succeeds("apply runs/optimize-measured");
    assert!(
        done.stdout.contains("measured.py") && done.stdout.contains("1.50× as fast (1.40 to 1.60)"),
        "{}",
        done.stdout
    );
    assert_eq!(script(&place), AFTER);
    assert_eq!(place.json("runs/optimize-measured/validation.json")["patch"]["applied"], true);
    let again = place.succeeds("apply runs/optimize-measured");
    assert!(again.stdout.contains("in the files already"), "{}", again.stdout);
}

#[test]
fn sources_that_changed_since_are_left_as_they_are() {
    let place = Place::new();
    offer_patch(&place, "results", None);
    place.write("measured.py", "import torch\nx = 3\n");
    for flags in ["", "--dry-run", "--json"] {
        place.refuses(&format!("apply results {flags}"), &["measured.py has changed since", "help: measure it again"]);
    }
    assert_eq!(script(&place), "import torch\nx = 3\n");
    std::fs::remove_file(place.path("measured.py")).unwrap();
    place.refuses("apply results", &["measured.py"]);
}

#[test]
fn runs_without_a_patch_say_why_there_is_none() {
    let place = Place::new();
    let refuses = |change: fn(&mut Value), words: &[&str]| {
        offer_patch(&place, "results", None);
        std::fs::remove_file(place.path("results/optimize-patch.json")).unwrap();
        amend(&place, "results", change);
        place.refuses("apply results", words);
    };
    refuses(|record| record["patch"] = Value::Null, &["results offers no patch: nothing was kept"]);
    refuses(|record| record["dry_run"] = true.into(), &["it was a dry run", "without --dry-run"]);
    refuses(|record| record["patch"]["note"] = "No patch is offered: it is 0.99×".into(), &["it is 0.99×"]);
    refuses(|record| record["patch"]["by_hand"] = json!(["set num_workers=4"]), &["by hand, set num_workers=4"]);
    offer_patch(&place, "results", None);
    let gate = json!({ "result": "fail", "figure": 2.0, "limit": 1.0, "about": "losses differ", "ci95_low": null, "ci95_high": null });
    amend(&place, "results", |record| record["gates"]["patch_losses"] = gate);
    place.refuses("apply results", &["the gate patch_losses of this run failed (losses differ)"]);
    assert_eq!(script(&place), BEFORE);
}

#[test]
fn what_is_not_such_a_run_is_refused_by_its_name() {
    let place = Place::new();
    place.refuses("apply nobody", &["there is no run `nobody`", "runs list --command optimize"]);
    place.refuses("apply ./nowhere", &["./nowhere holds no result", "help: name the run"]);
    place.succeeds("train --size nano --batch-size 2 --seq-len 16 --num-steps 2 --name mine --output-dir mine");
    place.refuses("apply mine", &["run 1 is a run of `train`, which offers no patch"]);
    offer_patch(&place, "results", None);
    amend(&place, "results", |record| drop(record.as_object_mut().unwrap().remove("kind")));
    place.refuses("apply results", &["is not the result of optimizing a script", "--passes"]);
    place.write("results/validation.json", "{");
    place.refuses("apply results", &["is not valid JSON"]);
}

#[test]
fn a_run_is_found_by_number_and_never_taken_for_a_later_one() {
    let place = Place::new();
    // Ends before its first step, and leaves its row.
    let failed: Done = place.shell("$HEADROOM optimize --output-dir results -- python3 -c pass");
    assert_eq!(failed.code, Some(3), "{}", failed.stderr);
    place.refuses("apply 1", &["the results of run 1 are gone"]);
    offer_patch(&place, "results", Some(2));
    place.refuses("apply 1", &["the results of run 1 were replaced by those of run 2", "headroom apply 2"]);
    offer_patch(&place, "results", Some(1));
    let done: Value = serde_json::from_str(&place.succeeds("apply newest --json").stdout).unwrap();
    assert_eq!((&done["run"], &done["applied"]), (&json!(1), &json!(true)), "{done}");
    assert_eq!(script(&place), AFTER);
}
