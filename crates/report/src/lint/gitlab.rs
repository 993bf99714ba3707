//! Findings as a GitLab code quality report.

use headroom_diagnosis::finding::{Place, Severity};
use headroom_lint::SourceReport;
use serde_json::{Value, json};
use std::collections::HashMap;

use super::evidence;

/// The findings, and the files that were not read completely.
pub fn show(report: &SourceReport) -> String {
    // GitLab matches findings across commits by a fingerprint that must not depend on the line, so similar findings are
    // numbered.
    let mut alike: HashMap<String, usize> = HashMap::new();
    let mut numbered = |key: String| {
        let count = alike.entry(key.clone()).or_default();
        *count += 1;
        format!("{key}:{count}")
    };
    let findings = report.findings.iter().map(|finding| {
        let severity = match finding.severity {
            Severity::Critical => "critical",
            Severity::High => "major",
            Severity::Medium => "minor",
            Severity::Low => "info",
        };
        let Place { file, line, end_line, .. } = &finding.place;
        json!({
            "description": format!("{}{} ({}). {}", in_cell(finding.place.cell), finding.message, evidence(finding), finding.fix.title),
            "check_name": format!("{} {}", finding.code, finding.name),
            "fingerprint": numbered(format!("{}:{file}:{}", finding.code, finding.function)),
            "severity": severity,
            "location": { "path": file, "lines": { "begin": line, "end": end_line } },
        })
    });
    let mut entries: Vec<Value> = findings.collect();
    for (path, problem) in &report.problems {
        entries.push(json!({
            "description": format!("{}not fully read: {}", in_cell(problem.cell), problem.message),
            "check_name": "not fully read",
            "fingerprint": numbered(format!("unread:{path}")),
            "severity": "blocker",
            "location": { "path": path, "lines": { "begin": problem.line.max(1) } },
        }));
    }
    format!("{:#}\n", Value::Array(entries))
}

/// The format has no field for cells: lines count within the cell.
fn in_cell(cell: Option<u32>) -> String {
    cell.map_or_else(String::new, |cell| format!("cell {cell}: "))
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    fn shown(report: &SourceReport) -> Vec<Value> {
        serde_json::from_str(&show(report)).expect("a list")
    }

    #[test]
    fn a_finding_has_every_field_that_gitlab_asks_for() {
        let entries = shown(&report());
        let entry = entries.iter().find(|entry| entry["check_name"] == "TP101 item-per-step").expect("it is found");
        assert_eq!(entry["location"], json!({ "path": "train.py", "lines": { "begin": 12, "end": 12 } }));
        assert_eq!(entry["severity"], "major");
        for field in ["description", "fingerprint"] {
            assert!(entry[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {entry}");
        }
    }

    #[test]
    fn fingerprints_differ_and_stay_when_lines_move() {
        let mut twice = report();
        twice.findings.extend(report().findings);
        let fingerprints = |report: &SourceReport| -> Vec<String> {
            shown(report).iter().map(|entry| entry["fingerprint"].as_str().unwrap_or_default().to_string()).collect()
        };
        let before = fingerprints(&twice);
        let different: std::collections::BTreeSet<&String> = before.iter().collect();
        assert_eq!(different.len(), before.len(), "{before:?}");
        twice.findings.iter_mut().for_each(|finding| finding.place.line += 7);
        assert_eq!(fingerprints(&twice), before);
    }
}
