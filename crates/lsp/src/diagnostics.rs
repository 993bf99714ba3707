//! Findings as a client shows them in the text.

use headroom_lint::finding::Severity;
use headroom_lint::{Problem, SourceFinding};
use lsp_types::{Diagnostic, DiagnosticSeverity, NumberOrString, Position, Range, Uri};

use crate::checked::Checked;
use crate::documents::Documents;
use crate::text::{Encoding, Text};

const SOURCE: &str = "headroom";

/// The diagnostics of every text of a unit, including empty lists, so that old ones are cleared.
pub fn of_unit(
    documents: &Documents,
    unit: &Uri,
    checked: &Checked,
    encoding: Encoding,
) -> Vec<(Uri, Vec<Diagnostic>)> {
    let mut all: Vec<(Uri, Vec<Diagnostic>)> =
        documents.parts(unit).into_iter().map(|part| (part, Vec::new())).collect();
    let mut add = |cell: Option<u32>, make: &dyn Fn(&Text) -> Diagnostic| {
        let Some((part, document)) = documents.part(unit, cell) else { return };
        if let Some((_, list)) = all.iter_mut().find(|(uri, _)| uri == part) {
            list.push(make(&document.text));
        }
    };
    for finding in &checked.findings {
        add(finding.place.cell, &|text| of_finding(finding, text, encoding));
    }
    if let Some(problem) = &checked.problem {
        add(problem.cell, &|text| of_problem(problem, text, encoding));
    }
    all
}

pub fn of_finding(finding: &SourceFinding, text: &Text, encoding: Encoding) -> Diagnostic {
    let measured = finding.measured.as_ref().map(|measured| format!(" ({})", measured.shown())).unwrap_or_default();
    Diagnostic {
        range: range(finding, text, encoding),
        severity: Some(severity(finding.severity)),
        code: Some(NumberOrString::String(finding.code.to_string())),
        source: Some(SOURCE.to_string()),
        message: format!("{}{measured}\nFix: {}", finding.message, finding.fix.title),
        ..Diagnostic::default()
    }
}

pub fn range(finding: &SourceFinding, text: &Text, encoding: Encoding) -> Range {
    let place = &finding.place;
    Range::new(
        text.position_of_place(place.line, place.column, encoding),
        text.position_of_place(place.end_line, place.end_column, encoding),
    )
}

/// Nothing found here is wrong, only slow: the error severity is left to other tools.
fn severity(severity: Severity) -> DiagnosticSeverity {
    match severity {
        Severity::Critical | Severity::High => DiagnosticSeverity::WARNING,
        Severity::Medium => DiagnosticSeverity::INFORMATION,
        Severity::Low => DiagnosticSeverity::HINT,
    }
}

/// Says only that findings may be missing; the Python language server reports what is wrong with the text.
fn of_problem(problem: &Problem, text: &Text, encoding: Encoding) -> Diagnostic {
    let line = problem.line.saturating_sub(1);
    Diagnostic {
        range: Range::new(Position::new(line, 0), text.end_of_line(line, encoding)),
        severity: Some(DiagnosticSeverity::INFORMATION),
        source: Some(SOURCE.to_string()),
        message: format!("not fully read, findings may be missing: {}", problem.message),
        ..Diagnostic::default()
    }
}
