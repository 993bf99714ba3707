//! Findings for the terminal: place, code frame, what to do.

use std::fmt::Write;

use headroom_diagnosis::finding::Severity;
use headroom_diagnosis::source::{SourceFinding, SourceReport};

use super::{evidence, how_measured, safety_name};

pub fn show(report: &SourceReport) -> String {
    let mut out = String::new();
    for finding in &report.findings {
        show_finding(&mut out, finding);
    }
    for (path, problem) in &report.problems {
        let _ = writeln!(out, "note: {path}:{}: not read whole: {}", problem.line, problem.message);
    }
    let _ = writeln!(out, "{}", summary(report));
    out.push_str(&super::coverage::show(report));
    out
}

/// `5 findings in 1 file: 1 critical, 2 high, 2 medium (unmeasured)`.
fn summary(report: &SourceReport) -> String {
    let files = if report.files == 1 { "1 file".to_string() } else { format!("{} files", report.files) };
    let silenced = if report.suppressed == 0 { String::new() } else { format!(", {} silenced", report.suppressed) };
    if report.findings.is_empty() {
        return format!("nothing found in {files}{silenced}");
    }
    let severities = [Severity::Critical, Severity::High, Severity::Medium, Severity::Low];
    let counts = severities
        .map(|severity| (severity, report.findings.iter().filter(|finding| finding.severity == severity).count()));
    let counts: Vec<String> =
        counts.iter().filter(|(_, count)| *count > 0).map(|(severity, count)| format!("{count} {severity}")).collect();
    let word = if report.findings.len() == 1 { "finding" } else { "findings" };
    format!("{} {word} in {files}: {} ({}){silenced}", report.findings.len(), counts.join(", "), how_measured(report))
}

fn show_finding(out: &mut String, finding: &SourceFinding) {
    let place = &finding.place;
    let number = place.line.to_string();
    let gutter = " ".repeat(number.len());
    let _ = writeln!(
        out,
        "{}:{}:{}: {} {} ({}, {})",
        place.file,
        place.line,
        place.column,
        finding.code,
        finding.name,
        finding.severity,
        evidence(finding)
    );
    let _ = writeln!(out, "{gutter} |");
    // Tabs are one column to us and several to a terminal: both lines get the same number of spaces.
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
        let want = "train.py:12:18: TP101 item-per-step (high, unmeasured)\n   |\n12 |         total += loss.item()\n   |                  ^^^^^^^^^^^ `.item()`";
        assert!(shown.contains(want), "{shown}");
        assert!(shown.ends_with("2 findings in 1 file: 1 high, 1 low (unmeasured)\n"), "{shown}");
    }
}
