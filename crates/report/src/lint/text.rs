//! Findings for the terminal: place, code frame, fix.

use std::fmt::Write;

use headroom_diagnosis::finding::Severity;
use headroom_lint::{Problem, SourceFinding, SourceReport};

use super::{evidence, how_measured, safety_name};
use crate::numbers::counted;

pub fn show(report: &SourceReport) -> String {
    let mut out = String::new();
    for finding in &report.findings {
        show_finding(&mut out, finding);
    }
    out.push_str(&problems(report));
    let _ = writeln!(out, "{}", summary(report));
    out.push_str(&super::coverage::show(report));
    out
}

/// One line for each file that was not read completely.
pub fn problems(report: &SourceReport) -> String {
    let line = |(path, problem): &(String, Problem)| {
        format!("error: {}: not fully read: {}\n", problem.place(path), problem.message)
    };
    report.problems.iter().map(line).collect()
}

/// `5 findings in 1 file: 1 critical, 2 high, 2 medium (unmeasured)`.
pub fn summary(report: &SourceReport) -> String {
    let files = counted(report.files, "file");
    let mut more = String::new();
    if report.suppressed > 0 {
        let _ = write!(more, ", {} silenced", report.suppressed);
    }
    if !report.held_back.is_empty() {
        let _ = write!(more, "; {} more with --pedantic", report.held_back.len());
    }
    let unread = report.problems.len();
    if unread > 0 {
        let _ = write!(more, "; {} not fully read", counted(unread, "file"));
    }
    if report.findings.is_empty() {
        return match report.files.saturating_sub(unread) {
            0 if unread > 0 => format!("no file was fully read{more}"),
            whole => format!("nothing found in {}{more}", counted(whole, "file")),
        };
    }
    let severities = [Severity::Critical, Severity::High, Severity::Medium, Severity::Low];
    let counts = severities
        .map(|severity| (severity, report.findings.iter().filter(|finding| finding.severity == severity).count()));
    let counts: Vec<String> =
        counts.iter().filter(|(_, count)| *count > 0).map(|(severity, count)| format!("{count} {severity}")).collect();
    format!(
        "{} in {files}: {} ({}){more}",
        counted(report.findings.len(), "finding"),
        counts.join(", "),
        how_measured(report)
    )
}

fn show_finding(out: &mut String, finding: &SourceFinding) {
    let place = &finding.place;
    let number = place.line.to_string();
    let gutter = " ".repeat(number.len());
    let _ = writeln!(
        out,
        "{}:{}: {} {} ({}, {})",
        place.shown(),
        place.column,
        finding.code,
        finding.name,
        finding.severity,
        evidence(finding)
    );
    let _ = writeln!(out, "{gutter} |");
    // A tab is one column to us and several to a terminal: it becomes one space in both lines.
    let line = finding.snippet.replace('\t', " ");
    let _ = writeln!(out, "{number} | {line}");
    let start = place.column.saturating_sub(1) as usize;
    let width = line.chars().count();
    let end = if place.end_line == place.line { place.end_column.saturating_sub(1) as usize } else { width };
    let marks = "^".repeat(end.min(width).saturating_sub(start).max(1));
    let _ = writeln!(out, "{gutter} | {}{marks} {}", " ".repeat(start.min(width)), finding.message);
    let _ = writeln!(out, "{gutter} = fix ({}): {}", safety_name(finding.fix.safety), finding.fix.title);
    let _ = writeln!(out);
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn a_finding_is_shown_under_its_line() {
        let shown = show(&report());
        let want = "train.py:12:18: TP101 item-per-step (high, unmeasured)\n   |\n12 |         total += \
            loss.item()\n   |                  ^^^^^^^^^^^ `.item()`";
        assert!(shown.contains(want), "{shown}");
        assert!(shown.ends_with("2 findings in 1 file: 1 high, 1 low (unmeasured)\n"), "{shown}");
    }
}
