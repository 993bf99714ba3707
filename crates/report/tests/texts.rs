//! Snapshots of the complete text that every command prints, from stored inputs. A changed word changes a snapshot:
//! review the diff before accepting it (`INSTA_UPDATE=always cargo nextest run -p headroom-report --test texts`).

use headroom_diagnosis::{Analysis, Options, analyze};
use headroom_lint::{Input, Selection, lint};
use headroom_record::attribution::{AttributionRecord, StepChoice};
use headroom_record::study::StudyRecord;
use headroom_record::validation::ValidationRecord;
use headroom_report as report;
use insta::assert_snapshot;
use serde::de::DeserializeOwned;
use std::fs;
use std::path::{Path, PathBuf};

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// A file of an earlier measured run.
fn stored<Record: DeserializeOwned>(path: &str) -> Record {
    serde_json::from_slice(&fs::read(crates().join(path)).unwrap()).unwrap()
}

/// Analyses a stored trace of a headroom run.
fn analysis(trace: &str) -> Analysis {
    let path = crates().join("diagnosis/tests/data/runs").join(trace);
    analyze(&[headroom_trace::read_file(&path).unwrap()], &Options::default()).unwrap()
}

const GPU_TRACE: &str = "h200-nano-v1-fp32/trace_step_17_18.json.gz";
const CPU_TRACE: &str = "cpu-nano-v2/trace_step_4_6.json.gz";

#[test]
fn analyze_of_a_gpu() {
    let analysis = analysis(GPU_TRACE);
    let typed = report::analyze::Invocation { traces: "trace_step_17_18.json.gz".into(), ..Default::default() };
    assert_snapshot!(report::analyze::answer(&analysis) + &report::analyze::next_steps(&analysis, &typed));
}

#[test]
fn analyze_verbose_of_a_gpu() {
    assert_snapshot!(report::analyze::everything(&analysis(GPU_TRACE)));
}

#[test]
fn profile_on_a_cpu() {
    let analysis = analysis(CPU_TRACE);
    let profile = report::profile::Profile::of(&analysis, None).unwrap();
    assert_snapshot!(report::profile::terminal(&profile, &["report.html".into()]));
}

#[test]
fn compare_of_two_traces() {
    let (before, after) = (analysis(CPU_TRACE), analysis("cpu-tiny-all/trace_step_4_6.json.gz"));
    assert_snapshot!(report::compare::text(&headroom_diagnosis::compare::compare(&before, &after)));
}

#[test]
fn optimize_of_nano() {
    assert_snapshot!(report::optimize::terminal(&stored("report/tests/data/validation.json")));
}

#[test]
fn mfu_beyond_the_peak_is_not_shown_as_a_figure() {
    let mut record: ValidationRecord = stored("report/tests/data/validation.json");
    record.targets.mfu_percent_after = 4.2e6;
    for text in [
        report::optimize::terminal(&record),
        report::optimize::markdown(&record),
        report::optimize::html(&record, None),
    ] {
        assert!(text.contains("MFU is impossible (4.2e6%: more than the peak"), "{text}");
        assert!(!text.contains("4200000.0%"), "{text}");
    }
    let mut record: StudyRecord = stored("report/tests/data/study.json");
    record.runs[3].measured.mfu_percent = Some(4.2e6);
    for text in [report::study::terminal(&record), report::study::markdown(&record), report::study::html(&record)] {
        assert!(text.contains("unknown: MFU of tiny is impossible (4.2e6%"), "{text}");
        assert!(!text.contains("4200000.0%"), "{text}");
    }
}

/// Measured while other programs ran: the peak is doubtful, and intervals are wide.
#[test]
fn study_of_two_sizes() {
    assert_snapshot!(report::study::terminal(&stored("report/tests/data/study.json")));
}

#[test]
fn scale_of_nano() {
    assert_snapshot!(report::scale::terminal(&stored("report/tests/data/scaling.json")));
}

#[test]
fn k1_of_nano() {
    assert_snapshot!(report::k1::terminal(&stored("../docs/benchmarks/k1.json")));
}

#[test]
fn k1_of_a_tree() {
    assert_snapshot!(report::k1_tree::terminal(&stored("../docs/benchmarks/k1-tree.json")));
}

#[test]
fn k1_speed_of_a_tree() {
    assert_snapshot!(report::k1_speed::terminal(&stored("../docs/benchmarks/k1-speed.json")));
}

#[test]
fn lint_of_a_slow_script() {
    let bytes = fs::read(crates().join("lint/tests/data/slow_train.py")).unwrap();
    let inputs = [Input { path: "train.py".into(), bytes }];
    assert_snapshot!(report::lint::text(&lint(&inputs, &Selection::default())));
}

#[test]
fn attribution_of_a_run_that_chooses() {
    let choice = |step: u64| StepChoice { step, shares: vec![1.0, 0.0, 0.15], norms: vec![3.0, 4.0, 1.0] };
    let record = AttributionRecord {
        update: "path".into(),
        seed: 42,
        nodes: ["embed_tokens", "lm_head", "norm"].map(String::from).to_vec(),
        parameters: vec![1000, 100, 10],
        total_steps: 3,
        updates: vec![3, 0, 3],
        updated_parameters: 3030,
        ..AttributionRecord::default()
    };
    let choices: Vec<StepChoice> = (1..=3).map(choice).collect();
    assert_snapshot!(report::attribution::terminal(&record.with_choices(&choices, &[0.5, 0.0, 0.125])));
}
