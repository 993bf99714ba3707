//! The training script before and after its fix: everything that must be reported, and nothing beyond what may be.

use headroom_lint::fix::Safety;
use headroom_lint::{Input, Selection, SourceReport, lint, repair};
use serde_json::Value;

const SLOW: &str = include_str!("data/slow_train.py");
const FIXED: &str = include_str!("data/fixed_train.py");

fn input(text: &str) -> Input {
    Input { path: "train.py".to_string(), bytes: text.as_bytes().to_vec() }
}

fn found(report: &SourceReport) -> Vec<(String, u64)> {
    report.findings.iter().map(|finding| (finding.code.to_string(), u64::from(finding.place.line))).collect()
}

fn check(script: &str, expected: &str) {
    let expected: Value = serde_json::from_str(expected).expect("valid JSON");
    let listed = |key: &str| -> Vec<(String, u64)> {
        let entries = expected[key].as_array().cloned().unwrap_or_default();
        let entry = |entry: &Value| {
            (entry["code"].as_str().unwrap_or_default().to_string(), entry["line"].as_u64().unwrap_or(0))
        };
        entries.iter().map(entry).collect()
    };
    let found = found(&lint(&[input(script)], &Selection::default()));
    for must in listed("must") {
        assert!(found.contains(&must), "{must:?} is missing from {found:?}");
    }
    for one in &found {
        assert!(listed("must").contains(one) || listed("may").contains(one), "{one:?} must not be reported");
    }
}

#[test]
fn the_slow_script_has_its_faults_reported() {
    check(SLOW, include_str!("data/slow_expected.json"));
}

#[test]
fn the_fixed_script_has_none() {
    check(FIXED, include_str!("data/fixed_expected.json"));
}

#[test]
fn after_all_fixes_the_faults_of_the_slow_script_are_gone() {
    let codes = ["TP101", "TP107", "TP201", "TP301", "TP302", "TP303"].map(str::to_string);
    let selection = Selection::new(&codes, &[]).expect("known codes");
    let repairs = repair(&[input(SLOW)], &selection, Safety::Unsafe);
    let left: Vec<&str> = repairs.remaining.findings.iter().map(|finding| finding.code).collect();
    assert!(left.is_empty(), "{left:?}");
    let after = &repairs.files[0].after;
    for piece in
        ["total_loss += loss.detach()", "shuffle=True, pin_memory=True", "non_blocking=True", "torch._foreach_norm"]
    {
        assert!(after.contains(piece), "{piece} is missing from\n{after}");
    }
    // Untouched text keeps every character.
    assert!(after.starts_with("\"\"\"A training script as people write it in a hurry."));
}

#[test]
fn safe_fixes_alone_leave_the_slow_script_as_it_is() {
    let repairs = repair(&[input(SLOW)], &Selection::default(), Safety::Safe);
    assert!(repairs.files.is_empty(), "{:?}", repairs.applied);
}
