//! Checks every format of the report on a made-up record.

use super::*;
use headroom_record::provenance::Provenance;
use headroom_record::script::{PatchRecord, RemedyPrediction, RemedyRow, ScriptFinding};
use headroom_record::validation::GateRecord;

fn row(name: &str, predicted: Option<f64>, saving: Option<f64>, outcome: &str) -> RemedyRow {
    RemedyRow {
        name: name.into(),
        class: "rounding".into(),
        about: format!("what {name} does"),
        answers: vec!["no-tensor-cores".into()],
        predicted_saving_percent: predicted,
        saving_percent: saving,
        speedup: saving.map(|saving| 1.0 / (1.0 - saving / 100.0)),
        ci95_low: saving.map(|_| 1.4),
        ci95_high: saving.map(|_| 1.6),
        rounds: saving.map(|_| 3),
        memory_before_mb: saving.map(|_| 100.0),
        memory_after_mb: saving.map(|_| 80.0),
        warmup_seconds: None,
        compile_seconds: None,
        kept: outcome.starts_with("kept"),
        applies: name != "sdpa",
        was_tried: !outcome.starts_with("not tried"),
        outcome: outcome.into(),
        did: vec!["3 modules switched".into()],
        gates: std::collections::BTreeMap::new(),
    }
}

fn record() -> ScriptRecord {
    let remedies = vec![
        row("tf32", Some(40.0), Some(33.3), "kept: faster"),
        row("compile", None, Some(-4.0), "slower"),
        row("sdpa", None, None, "not tried: it computes no attention"),
    ];
    let gate = GateRecord {
        result: "pass".into(),
        figure: 2e-4,
        limit: 1e-3,
        about: "largest relative difference".into(),
        ci95_low: None,
        ci95_high: None,
    };
    ScriptRecord {
        schema_version: 1,
        kind: "script".into(),
        timestamp: "2026-01-01T00:00:00Z".into(),
        command: vec!["python".into(), "train.py".into()],
        device: "NVIDIA H200".into(),
        torch: "2.9.0".into(),
        measured_on: "device".into(),
        baseline_step_seconds: 0.090,
        timed_steps: 20,
        baseline_memory_mb: Some(100.0),
        own_loss_spread: 0.0,
        own_loss_sources: vec![],
        findings: vec![ScriptFinding {
            code: "TR107".into(),
            name: "no-tensor-cores".into(),
            message: "products without tensor cores".into(),
            percent_of_step: Some(61.0),
            expected_saving_percent: 40.0,
        }],
        prediction: RemedyPrediction::of(&remedies),
        remedies,
        kept: vec!["tf32".into()],
        class: "rounding".into(),
        speedup: 1.5,
        ci95_low: 1.45,
        ci95_high: 1.55,
        rounds: 4,
        proved_as: Some("remedies".into()),
        gates: [("losses".to_string(), gate)].into(),
        patch: Some(PatchRecord {
            files: vec!["train.py".into()],
            by_hand: vec!["give the loader workers".into()],
            options: vec!["--tf32".into(), "True".into()],
            speedup: Some(1.49),
            ci95_low: Some(1.44),
            ci95_high: Some(1.54),
            rounds: 3,
            applied: false,
            note: None,
        }),
        dry_run: false,
        ended: "finished".into(),
        failure: None,
        search: None,
        processes: 17,
        seconds: 123.0,
        provenance: Provenance::default(),
    }
}

#[test]
fn the_terminal_has_findings_remedies_gates_and_the_answer() {
    let shown = terminal(&record());
    for part in [
        "Optimisation of python train.py",
        "1.50× as fast (1.45 to 1.55, 95%, 4 processes of each): 90.00 ms → 60.00 ms per step, by tf32.",
        "at most 2.0e-4 of a loss, where",
        "off by a median of 20% of the saving, over one remedy",
        "tf32     rounding      40.0%     33.3%  1.50× (1.40 to 1.60)    -20%  kept: faster",
        "sdpa    rounding  it computes no attention",
        "The patch, optimize.patch, changes train.py.",
        "1.49× as fast as the unchanged script (1.44 to 1.54, 3 processes)",
        "By hand: give the loader workers",
    ] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    let at = |words: &str| shown.find(words).unwrap();
    assert!(
        at("1.50× as fast") < at("Bottlenecks") && at("Gates") < at("The patch,"),
        "the verdict comes first:\n{shown}"
    );
}

#[test]
fn what_is_kept_for_memory_alone_is_not_called_faster() {
    let mut record = ScriptRecord { speedup: 1.02, ci95_low: 0.99, ci95_high: 1.06, ..record() };
    record
        .remedies
        .iter_mut()
        .filter(|row| row.kept)
        .for_each(|row| row.outcome = "kept: as fast, in less memory".into());
    let shown = terminal(&record);
    assert!(shown.contains("As fast, in less memory of the device: 1.02× (0.99 to 1.06, 95%"), "{shown}");
    assert!(!shown.contains("1.02× as fast"), "{shown}");
}

#[test]
fn the_headline_is_the_patchs_own_figure_where_there_is_a_patch() {
    let shown = terminal(&ScriptRecord { proved_as: Some("patch".into()), ..record() });
    assert!(shown.contains("(1.45 to 1.55, 95%, 4 processes of each, patched and unchanged in turns)"), "{shown}");
    assert!(!shown.contains("Applied to a copy"), "{shown}");
}

#[test]
fn a_script_with_nothing_to_gain_is_told_so() {
    let nothing = ScriptRecord { kept: vec![], speedup: 1.0, ..record() };
    assert!(terminal(&nothing).contains("Nothing to gain: the unchanged script takes 90.00 ms per step"));
    let mut noisy = nothing.clone();
    noisy.remedies.iter_mut().for_each(|row| row.ci95_high = Some(1.21));
    assert!(terminal(&noisy).contains("faster beyond the noise, which may hide up to 1.21×."), "{}", terminal(&noisy));
    let dry = ScriptRecord { dry_run: true, ..record() };
    let shown = terminal(&dry);
    assert!(shown.contains("this was a dry run") && shown.contains("what tf32 does"), "{shown}");
}

#[test]
fn page_and_markdown_hold_the_patch_as_text() {
    let difference = "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-x = '<a>'\n+x = 2\n";
    let page = html(&record(), difference);
    assert!(page.contains("-x = &#39;&lt;a&gt;&#39;") || page.contains("-x = '&lt;a&gt;'"), "{page}");
    assert!(page.contains("class=\"predicted\"") && page.contains("Savings are shares"));
    let text = markdown(&record(), difference);
    assert!(text.contains("````diff\n--- a/train.py") && text.contains("## The patch"), "{text}");
}

#[test]
fn a_search_that_was_interrupted_or_failed_says_so_first() {
    let shown = terminal(&ScriptRecord { ended: "interrupted".into(), ..record() });
    let first = shown.lines().nth(2).unwrap();
    assert_eq!(
        first,
        "Interrupted after 123 s: what was kept by then is proved, and the other remedies are not decided."
    );
    assert!(shown.contains("1.50× as fast"), "{shown}");
    let nothing = ScriptRecord { kept: vec![], remedies: vec![], ..record() };
    let shown = terminal(&ScriptRecord { ended: "interrupted".into(), ..nothing.clone() });
    assert!(shown.contains("before anything was proved") && !shown.contains("Remedies"), "{shown}");
    assert!(!shown.contains("Nothing to gain"), "{shown}");
    let failed = ScriptRecord { ended: "failed".into(), failure: Some("it ended with 1".into()), ..nothing };
    let shown = terminal(&failed);
    assert!(shown.contains("The search failed: it ended with 1") && shown.contains("no-tensor-cores"), "{shown}");
    assert!(markdown(&failed, "").contains("The search failed: it ended with 1"));
}

#[test]
fn a_remedy_that_found_no_time_is_listed_with_those_that_apply() {
    let mut late = record();
    late.remedies[1].was_tried = false;
    late.remedies[1].outcome = "not tried: too little time was left for it".into();
    let shown = terminal(&late);
    let (applying, others) = shown.split_once("Remedies that do not apply").unwrap();
    assert!(applying.contains("too little time was left") && !others.contains("compile"), "{shown}");
}
