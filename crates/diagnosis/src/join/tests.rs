//! Trace findings joined with those of the script.

use super::*;
use crate::finding::{Confidence, Effort};
use crate::trace_rules::Found;
use headroom_lint::{Projects, Selection, lint};

/// Lint reports the norms of line 12 (TP107) and the loss of line 14 (TP101), and holds back the loader of line 8
/// (TP301).
const SCRIPT: &str = "\
import torch
from torch import nn
from torch.utils.data import DataLoader

def train(dataset):
    model = nn.Linear(4, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for x in DataLoader(dataset, batch_size=8):
        loss = model(x.cuda()).sum()
        loss.backward()
        for p in model.parameters():
            p.grad.norm().item()
        optimizer.step()
        print(loss.item())

train(range(100))
";

const TRAIN: &str = "train.py(5): train";
const ITEM: &str = "<built-in method item of Tensor object>";

fn inputs() -> [Input; 1] {
    [Input { path: "work/train.py".into(), bytes: SCRIPT.into() }]
}

fn report() -> SourceReport {
    lint(&inputs(), &Selection::default())
}

/// A script with as many lines before its function `train`, which reads a value on its second line.
fn script(path: &str, before: usize) -> Input {
    let text = format!("{}def train(loss):\n    print(loss.item())\n", "import torch\n".repeat(before));
    Input { path: path.into(), bytes: text.into_bytes() }
}

/// Where a wait in this function is placed among scripts of the same name.
fn placed(function: &str, inputs: &[Input]) -> Option<(String, u32)> {
    placed_of(function, inputs, &Projects::of_all(inputs))
}

fn placed_of(function: &str, inputs: &[Input], projects: &Projects) -> Option<(String, u32)> {
    let mut findings = [finding(Cause::HostSync, Some(function), Some(ITEM), 1.0, 1)];
    join(&mut findings, &lint(inputs, &Selection::default()), inputs, projects);
    findings[0].place.as_ref().map(|place| (place.file.clone(), place.line))
}

#[test]
fn of_scripts_with_one_name_the_one_of_the_traced_folder_is_meant() {
    let inputs = [script("repo/old/train.py", 1), script("repo/new/train.py", 20)];
    let place = |file: &str, line| Some((file.to_string(), line));
    assert_eq!(placed("/elsewhere/repo/new/train.py(21): train", &inputs), place("repo/new/train.py", 22));
    assert_eq!(placed("new/train.py(2): train", &inputs), place("repo/new/train.py", 22), "the folder counts first");
    assert_eq!(placed("D:\\repo\\old\\train.py(2): train", &inputs), place("repo/old/train.py", 3));
}

#[test]
fn of_equally_near_scripts_the_one_with_the_function_is_meant() {
    let inputs = [script("repo/old/train.py", 1), script("repo/new/train.py", 20)];
    let place = |file: &str, line| Some((file.to_string(), line));
    assert_eq!(placed("train.py(21): train", &inputs), place("repo/new/train.py", 22));
    assert_eq!(placed("train.py(7): train", &inputs), None, "either may be meant");
    assert_eq!(placed("train.py(2): train", &[script("a/train.py", 1), script("b/train.py", 1)]), None);
    let other = Input { path: "repo/b/train.py".into(), bytes: b"def evaluate():\n    pass\n".to_vec() };
    assert_eq!(placed("train.py(7): train", &[other, script("repo/a/train.py", 1)]), place("repo/a/train.py", 3));
}

#[test]
fn of_scripts_that_are_alike_the_one_that_was_asked_about_is_meant() {
    let inputs = [script("a/train.py", 1), script("b/train.py", 1)];
    let mut projects = Projects::of_all(&inputs);
    projects.belongings[0].asked = false;
    let place = Some(("b/train.py".to_string(), 3));
    assert_eq!(placed_of("slow/train.py(2): train", &inputs, &projects), place);
    // A folder that the trace names counts more than a question.
    assert_eq!(placed_of("a/train.py(2): train", &inputs, &projects), Some(("a/train.py".to_string(), 3)));
}

#[test]
fn a_finding_about_a_whole_script_takes_nothing_from_a_namesake() {
    let named = |path: &str| Input { path: path.into(), bytes: SCRIPT.into() };
    let inputs = [named("repo/old/train.py"), named("repo/work/train.py")];
    let in_function = finding(Cause::HostSync, Some("work/train.py(5): train"), Some(ITEM), 1.0, 1);
    let mut findings = [finding(Cause::DataLoading, None, None, 1.0, 1), in_function];
    join(&mut findings, &lint(&inputs, &Selection::default()), &inputs, &Projects::of_all(&inputs));
    let places: Vec<&str> = findings[0].sources.iter().map(|source| source.place.file.as_str()).collect();
    assert_eq!(places, ["repo/work/train.py"]);
}

/// A finding of `cause` that happens `per_step` times, in a function and through a call if given.
fn finding(cause: Cause, function: Option<&str>, through: Option<&str>, per_step: f64, first: i64) -> TraceFinding {
    let mut found = Found::new(Some(0.2), "costs".into(), "do less");
    (found.per_step, found.first) = (per_step, first);
    (found.function, found.through) = (function.map(str::to_string), through.map(str::to_string));
    TraceFinding {
        code: "TR101",
        name: "host-sync",
        cause,
        severity: Severity::Low,
        share_of_step: Some(0.2),
        saving_bound_share: None,
        saving_expected_share: 0.0,
        message: found.message.clone(),
        function: function.map(str::to_string),
        place: None,
        sources: Vec::new(),
        evidence: Vec::new(),
        advice: found.advice.clone(),
        effort: Effort::Low,
        confidence: Confidence::High,
        found,
    }
}

/// The line and the agreeing codes of each finding.
fn joined(findings: &mut [TraceFinding]) -> Vec<(Option<u32>, Vec<String>)> {
    join(findings, &report(), &inputs(), &Projects::of_all(&inputs()));
    let codes = |finding: &TraceFinding| finding.sources.iter().map(|source| source.code.clone()).collect();
    findings.iter().map(|finding| (finding.place.as_ref().map(|place| place.line), codes(finding))).collect()
}

fn at(line: u32, codes: &[&str]) -> (Option<u32>, Vec<String>) {
    (Some(line), codes.iter().map(|code| code.to_string()).collect())
}

#[test]
fn a_wait_per_parameter_meets_the_loop_and_one_per_step_the_loss() {
    let per_step = |often: f64, first: i64| finding(Cause::HostSync, Some(TRAIN), Some(ITEM), often, first);
    let wanted = [at(12, &["TP107"]), at(14, &["TP101"])];
    assert_eq!(joined(&mut [per_step(2.0, 1), per_step(1.0, 2)]), wanted);
    // Matched by how often they happen, whichever came first.
    assert_eq!(joined(&mut [per_step(50.0, 2), per_step(1.0, 1)]), wanted);
    assert_eq!(joined(&mut [per_step(1.0, 1)]), [at(14, &["TP101"])]);
    // Both happen once: the first to happen takes the suspicion that fits, the other takes what is left.
    assert_eq!(joined(&mut [per_step(1.0, 2), per_step(1.0, 1)]), wanted);
}

#[test]
fn something_inside_torch_is_placed_at_its_call_and_agrees_with_no_line() {
    let inside = finding(Cause::HostSync, Some(TRAIN), Some("torch/_tensor.py(860): norm"), 50.0, 1);
    assert_eq!(joined(&mut [inside]), [at(12, &[])]);
    // The function does not make this call, so its place is unknown.
    let elsewhere = finding(Cause::HostSync, Some(TRAIN), Some("torch/_tensor.py(860): tolist"), 50.0, 1);
    assert_eq!(joined(&mut [elsewhere]), [(None, Vec::new())]);
}

#[test]
fn another_file_function_or_cause_does_not_agree() {
    let others = [
        finding(Cause::HostSync, Some("other.py(5): train"), Some(ITEM), 1.0, 1),
        finding(Cause::HostSync, Some("train.py(5): evaluate"), Some(ITEM), 1.0, 1),
        finding(Cause::ConstantRebuilt, Some("train.py(5): evaluate"), Some(ITEM), 1.0, 1),
        finding(Cause::HostSync, Some("a module without a place"), Some(ITEM), 1.0, 1),
    ];
    for other in others {
        assert_eq!(joined(&mut [other.clone()]), [(None, Vec::new())], "{:?}", other.function);
    }
    // Folders may differ: the run may have happened elsewhere.
    let moved = finding(Cause::HostSync, Some("/elsewhere/src/train.py(5): train"), Some(ITEM), 1.0, 1);
    assert_eq!(joined(&mut [moved]), [at(14, &["TP101"])]);
    let windows = finding(Cause::HostSync, Some("C:\\src\\train.py(5): train"), Some(ITEM), 1.0, 1);
    assert_eq!(joined(&mut [windows]), [at(14, &["TP101"])]);
}

#[test]
fn a_finding_about_the_whole_script_takes_what_lint_says_of_its_cause() {
    let whole = finding(Cause::DataLoading, None, None, 1.0, 1);
    let in_function = finding(Cause::DataLoading, Some("other.py(1): fetch"), None, 1.0, 1);
    let found = joined(&mut [in_function.clone(), whole]);
    assert_eq!(found, [(None, Vec::new()), at(8, &["TP301"])]);
    // If no finding is about the whole script, the first of the cause takes it.
    assert_eq!(joined(&mut [in_function]), [at(8, &["TP301"])]);
    // A wait without a function is also about the whole script.
    let wait = finding(Cause::HostSync, None, None, 1.0, 1);
    assert_eq!(joined(&mut [wait]), [at(12, &["TP107", "TP101"])]);
}

#[test]
fn source_findings_get_what_the_trace_measured_and_come_by_their_share() {
    let mut report = report();
    let shown = report.findings.len();
    let mut findings = [
        finding(Cause::HostSync, Some(TRAIN), Some(ITEM), 50.0, 1),
        finding(Cause::HostSync, Some(TRAIN), Some(ITEM), 1.0, 2),
        finding(Cause::DataLoading, None, None, 1.0, 3),
    ];
    for (finding, share) in findings.iter_mut().zip([Some(0.05), Some(0.3), None]) {
        finding.share_of_step = share;
    }
    join(&mut findings, &report, &inputs(), &Projects::of_all(&inputs()));
    measure(&mut report, &findings);
    // The loader's finding was held back, and is shown because the trace agrees.
    assert_eq!(report.findings.len(), shown + 1);
    assert!(report.held_back.iter().all(|one| one.code != "TP301" && one.measured.is_none()));
    assert!(report.held_back.iter().any(|one| one.code == "TP404"));
    let rows: Vec<_> = report
        .findings
        .iter()
        .map(|one| {
            (one.code, one.severity, one.measured.as_ref().map(|measured| (measured.share_of_step, measured.lines)))
        })
        .collect();
    let wanted = [
        ("TP101", Severity::Critical, Some((Some(0.3), 1))),
        ("TP107", Severity::Medium, Some((Some(0.05), 1))),
        ("TP301", Severity::Low, Some((None, 1))),
    ];
    assert_eq!(rows, wanted);
}

#[test]
fn one_cost_on_several_lines_says_so_and_changes_no_severity() {
    let mut report = report();
    let before: Vec<Severity> = report.findings.iter().map(|one| one.severity).collect();
    let mut findings = [finding(Cause::HostSync, None, None, 1.0, 1)];
    findings[0].share_of_step = Some(0.9);
    join(&mut findings, &report, &inputs(), &Projects::of_all(&inputs()));
    measure(&mut report, &findings);
    let lines: Vec<usize> =
        report.findings.iter().filter_map(|one| one.measured.as_ref()).map(|one| one.lines).collect();
    assert_eq!(lines, [2, 2]);
    assert_eq!(report.findings.iter().map(|one| one.severity).collect::<Vec<_>>(), before);
}
