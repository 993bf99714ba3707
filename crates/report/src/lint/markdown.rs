//! Findings as a report: summary, findings by severity with location, cause, before and after, evidence; what remains;
//! how to verify.

use std::fmt::Write;

use headroom_diagnosis::finding::Severity;
use headroom_lint::fix::Safety;
use headroom_lint::{SourceFinding, SourceReport};

use super::{UNMEASURED, evidence, how_measured, safety_name};
use crate::numbers::counted;

pub fn show(report: &SourceReport) -> String {
    let mut out = String::from("# Bottleneck report\n\n## Summary\n\n");
    let paths = places(report);
    let _ = writeln!(
        out,
        "{} in {}. {}\n",
        counted(report.findings.len(), "finding"),
        counted(report.files, "file"),
        match how_measured(report).as_str() {
            UNMEASURED => format!("No trace was given: every finding is {UNMEASURED}."),
            measured => format!("With a trace: {measured}."),
        }
    );
    if !report.findings.is_empty() {
        out.push_str("| severity | findings | can be fixed by `--fix` | with `--unsafe-fixes` |\n|---|---|---|---|\n");
        for severity in [Severity::Critical, Severity::High, Severity::Medium, Severity::Low] {
            let of: Vec<&SourceFinding> =
                report.findings.iter().filter(|finding| finding.severity == severity).collect();
            if !of.is_empty() {
                let count = |safety| of.iter().filter(|finding| finding.fix.safety == safety).count();
                let _ = writeln!(
                    out,
                    "| {severity} | {} | {} | {} |",
                    of.len(),
                    count(Safety::Safe),
                    count(Safety::Unsafe)
                );
            }
        }
        out.push('\n');
    }
    out.push_str("## Findings\n\n");
    if report.findings.is_empty() {
        out.push_str("None.\n\n");
    }
    let mut number = 0;
    for severity in [Severity::Critical, Severity::High, Severity::Medium, Severity::Low] {
        for finding in report.findings.iter().filter(|finding| finding.severity == severity) {
            number += 1;
            show_finding(&mut out, number, finding);
        }
    }
    show_rest(&mut out, report);
    out.push_str("## How to verify\n\n```bash\n");
    let _ = writeln!(out, "headroom lint {paths} --fix --unsafe-fixes --diff   # preview of the changes");
    out.push_str("headroom record -- python <script>                      # a trace before and after\n");
    let _ = writeln!(out, "headroom analyze <trace> --source {paths}          # the cost of each finding");
    out.push_str("headroom compare <before> <after>                       # whether it helped\n```\n");
    out
}

fn show_finding(out: &mut String, number: usize, finding: &SourceFinding) {
    let place = &finding.place;
    let _ = writeln!(out, "### {number}. {} {} ({})\n", finding.code, finding.name, finding.severity);
    let _ = writeln!(out, "**Location:** `{}` in `{}`\n", place.shown(), finding.function);
    let _ = writeln!(out, "**Root cause:** {}\n", finding.message);
    let _ = writeln!(out, "**Fix ({}):** {}\n", safety_name(finding.fix.safety), finding.fix.title);
    match &finding.fix.preview {
        Some(preview) => {
            let _ = writeln!(out, "Before:\n\n{}\nAfter:\n\n{}", fenced(&preview.before), fenced(&preview.after));
        }
        None => {
            let _ = writeln!(out, "{}", fenced(finding.snippet.trim()));
        }
    }
    let _ = writeln!(out, "**Evidence:** {}\n", evidence(finding));
    if let Some(measured) = &finding.measured {
        let _ = writeln!(out, "{}\n", measured.message);
    }
}

/// A fenced block that no backticks inside it can end.
fn fenced(code: &str) -> String {
    let mut fence = "```".to_string();
    while code.contains(&fence) {
        fence.push('`');
    }
    format!("{fence}python\n{}\n{fence}\n", code.trim_end())
}

fn show_rest(out: &mut String, report: &SourceReport) {
    out.push_str("## Remaining\n\n");
    let by_hand: Vec<&SourceFinding> =
        report.findings.iter().filter(|finding| finding.fix.safety == Safety::Shown).collect();
    for finding in &by_hand {
        let _ = writeln!(out, "- `{}` {}: by hand, {}", finding.place.shown(), finding.code, finding.fix.title);
    }
    for (path, problem) in &report.problems {
        let _ = writeln!(out, "- `{}` not fully read: {}", problem.place(path), problem.message);
    }
    if !report.held_back.is_empty() {
        let count = counted(report.held_back.len(), "finding");
        let _ = writeln!(out, "- {count} seldom worth a change: `--pedantic` shows them");
    }
    if report.suppressed > 0 {
        let _ = writeln!(out, "- {} silenced by comments", counted(report.suppressed, "finding"));
    }
    if by_hand.is_empty() && report.problems.is_empty() && report.suppressed == 0 {
        out.push_str("Nothing that the rules know about.\n");
    }
    out.push('\n');
}

/// The files with findings, for the commands below.
fn places(report: &SourceReport) -> String {
    let mut files: Vec<&str> = report.findings.iter().map(|finding| finding.place.file.as_str()).collect();
    files.dedup();
    if files.is_empty() || files.len() > 3 { ".".to_string() } else { files.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn the_report_has_its_parts_in_order() {
        let shown = show(&report());
        let parts = [
            "# Bottleneck report",
            "## Summary",
            "| high | 1 | 0 | 1 |",
            "## Findings",
            "### 1. TP101 item-per-step (high)",
            "**Location:** `train.py:12` in `train`",
            "**Root cause:**",
            "Before:",
            "total += loss.item()",
            "After:",
            "total += loss.detach().float()",
            "**Evidence:** unmeasured",
            "## Remaining",
            "## How to verify",
        ];
        let mut at = 0;
        for part in parts {
            let found = shown[at..].find(part);
            assert!(found.is_some(), "{part} is missing or out of order in\n{shown}");
            at += found.unwrap_or(0);
        }
    }

    #[test]
    fn no_gain_is_claimed() {
        let shown = show(&report()).to_lowercase();
        for word in ["speedup", "speed-up", "faster", "expected gain"] {
            assert!(!shown.contains(word), "{word}");
        }
    }
}
