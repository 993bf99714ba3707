//! Labelled traces: whether the first finding is one that a reader accepts, and which numbers of the table that depends
//! on.
//!
//! A folder's `labels.tsv` has a line for each trace: its path in the folder, and the findings that may come first.
//! `none`: no finding above medium. `cold`: a cold start is reported, and no finding above medium.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use headroom_diagnosis::constants::{Entry, all};
use headroom_diagnosis::finding::Severity;
use headroom_diagnosis::{Analysis, Options, analyze};
use headroom_trace::{Trace, read_file};
use rayon::prelude::*;

/// Where the report goes, and the folder of traces that it is about.
const REPORT: &str = "HEADROOM_TEST_CONSTANTS_REPORT";
const FOLDER: &str = "HEADROOM_TEST_LABELLED_TRACES";
/// The start of the names that are moved; all if not set.
const ONLY: &str = "HEADROOM_TEST_CONSTANTS";

/// A moved number is seen by the whole process: one test at a time.
static TURN: Mutex<()> = Mutex::new(());

struct Labelled {
    name: String,
    accepted: Vec<String>,
    trace: Trace,
}

fn stored() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn labelled(folder: &Path) -> Vec<Labelled> {
    let text = std::fs::read_to_string(folder.join("labels.tsv")).expect("the folder has a labels.tsv");
    let rows = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let row = |line: &str| {
        let mut columns = line.split('\t');
        let (path, accepted) = columns.next().zip(columns.next()).unwrap_or_else(|| panic!("two columns in {line:?}"));
        let trace = read_file(&folder.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        let name = path.rsplit('/').next().unwrap_or(path).to_string();
        Labelled { name, accepted: accepted.split(',').map(str::to_string).collect(), trace }
    };
    rows.map(row).collect()
}

/// The first finding that is more than low, and whether the label accepts what comes first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Verdict {
    first: &'static str,
    is_right: bool,
}

fn verdict(labelled: &Labelled) -> Verdict {
    let analysis = analyze(std::slice::from_ref(&labelled.trace), &Options::default()).expect("there is a trace");
    let first = analysis.findings.first();
    let is_calm = analysis.findings.iter().all(|finding| finding.severity <= Severity::Medium);
    let is_accepted = |accepted: &String| match accepted.as_str() {
        "none" => is_calm,
        "cold" => is_calm && is_said_to_be_cold(&analysis),
        code => first.is_some_and(|finding| finding.code == code),
    };
    let first = first.filter(|finding| finding.severity > Severity::Low).map_or("none", |finding| finding.code);
    Verdict { first, is_right: labelled.accepted.iter().any(is_accepted) }
}

fn is_said_to_be_cold(analysis: &Analysis) -> bool {
    analysis.findings.iter().any(|finding| finding.code == "TR129")
        || analysis.trust.notes.iter().any(|note| note.contains("cold start"))
}

fn verdicts(traces: &[Labelled]) -> Vec<Verdict> {
    traces.par_iter().map(verdict).collect()
}

#[test]
fn first_findings_of_stored_traces_are_those_of_their_labels() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let traces = labelled(&stored());
    let wrong: BTreeMap<&str, Verdict> = traces
        .iter()
        .zip(verdicts(&traces))
        .filter(|(_, verdict)| !verdict.is_right)
        .map(|(trace, verdict)| (trace.name.as_str(), verdict))
        .collect();
    assert!(traces.len() >= 7 && wrong.is_empty(), "{wrong:?}");
}

#[test]
fn a_label_notices_a_trigger_that_is_out_of_place() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let traces = labelled(&stored());
    let launch_bound = all().find(|entry| entry.key() == "TR103.launch-bound-share").expect("is a trigger");
    let moved = launch_bound.with(0.99, || verdicts(&traces));
    assert!(moved.iter().any(|verdict| !verdict.is_right), "{moved:?}");
    assert!(verdicts(&traces).iter().all(|verdict| verdict.is_right), "back in place");
}

#[test]
#[ignore = "takes minutes; `cargo xtask constants` runs it and prints its report"]
fn numbers_that_labels_depend_on_are_reported() {
    let folder = std::env::var_os(FOLDER).map_or_else(stored, PathBuf::from);
    let traces = labelled(&folder);
    let usual = verdicts(&traces);
    let right = usual.iter().filter(|verdict| verdict.is_right).count();
    let mut report = format!("{right} of {} first findings are right\n", traces.len());
    for (trace, verdict) in traces.iter().zip(&usual).filter(|(_, verdict)| !verdict.is_right) {
        let accepted = trace.accepted.join(",");
        writeln!(report, "wrong: {} has {} first, accepted: {accepted}", trace.name, verdict.first).expect("a string");
    }
    let only = std::env::var(ONLY).unwrap_or_default();
    let moved: Vec<&Entry> = all().filter(|entry| entry.key().starts_with(&only)).collect();
    let mut without_effect = 0;
    for entry in &moved {
        let lines = changes(entry, &traces, &usual);
        without_effect += usize::from(lines.is_empty());
        report += &lines;
    }
    writeln!(report, "{without_effect} of {} numbers change no first finding", moved.len()).expect("a string");
    std::fs::write(std::env::var_os(REPORT).expect("the report's path"), report).expect("is written");
}

/// A line for each first finding that changes if the number moves by a third in either direction.
fn changes(entry: &Entry, traces: &[Labelled], usual: &[Verdict]) -> String {
    let mut lines = String::new();
    for factor in [2.0 / 3.0, 4.0 / 3.0] {
        let value = entry.moved(factor);
        let moved = entry.with(value, || verdicts(traces));
        for ((trace, before), after) in traces.iter().zip(usual).zip(&moved).filter(|((_, one), two)| one != two) {
            let means = match (before.is_right, after.is_right) {
                (true, false) => "right becomes wrong",
                (false, true) => "wrong becomes right",
                _ => "as right as before",
            };
            writeln!(
                lines,
                "{}\t{} -> {value:.4}\t{}\t{} -> {}\t{means}",
                entry.key(),
                entry.value,
                trace.name,
                before.first,
                after.first
            )
            .expect("a string");
        }
    }
    lines
}
