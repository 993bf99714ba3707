//! The answer about one unit: findings, measured costs, and what could not be read.

use headroom_diagnosis::join::{join, measure};
use headroom_diagnosis::trace_rules::TraceFinding;
use headroom_lint::finding::percent_of_step;
use headroom_lint::{Measured, Problem, SourceFinding, SourceReport};

use crate::workspace::Question;

/// Runs the rules on a question.
pub type Lint = dyn Fn(&Question) -> SourceReport + Send;

#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// In the order of the text.
    pub findings: Vec<SourceFinding>,
    pub hints: Vec<Hint>,
    /// Why the text was not fully read.
    pub problem: Option<Problem>,
}

/// A measured cost, beside its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    pub cell: Option<u32>,
    /// From 1.
    pub line: u32,
    pub label: String,
    pub tooltip: String,
}

impl Checked {
    pub fn new(question: &Question, lint: &Lint, traces: Option<&[TraceFinding]>) -> Checked {
        let mut report = lint(question);
        let mut hints = Vec::new();
        if let Some(traces) = traces {
            let mut measured = traces.to_vec();
            join(&mut measured, &report, question.inputs, question.projects);
            measure(&mut report, &measured);
            hints = hints_of(&report.findings, &measured, question.path);
        }
        let mut findings = report.findings;
        findings.sort_by_key(|one| (one.place.cell, one.place.line, one.place.column, one.code));
        let problem = report.problems.into_iter().find(|(path, _)| path == question.path).map(|(_, problem)| problem);
        Checked { findings, hints, problem }
    }
}

/// The costs of lines with a finding, and of lines that only the trace reports.
fn hints_of(findings: &[SourceFinding], traces: &[TraceFinding], path: &str) -> Vec<Hint> {
    let mut hints: Vec<Hint> = Vec::new();
    let mut add = |cell: Option<u32>, line: u32, measured: &Measured| {
        if let Some(label) = label(measured) {
            let tooltip = format!("{} {}: {}", measured.code, measured.name, measured.message);
            let hint = Hint { cell, line, label, tooltip };
            if !hints.contains(&hint) {
                hints.push(hint);
            }
        }
    };
    for finding in findings {
        if let Some(measured) = &finding.measured {
            add(finding.place.cell, finding.place.line, measured);
        }
    }
    for finding in traces.iter().filter(|finding| finding.sources.is_empty()) {
        if let Some(place) = finding.place.as_ref().filter(|place| place.file == path) {
            let TraceFinding { code, name, share_of_step, message, .. } = finding.clone();
            add(place.cell, place.line, &Measured { code, name, share_of_step, lines: 1, message });
        }
    }
    hints.sort_by_key(|hint| (hint.cell, hint.line));
    hints
}

/// `12.4% of the step, measured`; `None` if the trace measured no time.
fn label(measured: &Measured) -> Option<String> {
    let share = percent_of_step(measured.share_of_step?);
    Some(match measured.lines {
        0 | 1 => format!("{share}, measured"),
        lines => format!("one of {lines} lines behind {share}, measured"),
    })
}
