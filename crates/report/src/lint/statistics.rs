//! The number of findings per rule.

use std::collections::BTreeMap;
use std::fmt::Write;

use headroom_diagnosis::finding::Severity;
use headroom_lint::SourceReport;
use headroom_lint::fix::Safety;
use serde_json::{Value, json};

use super::text::{problems, summary};

#[derive(Default)]
struct Row {
    code: &'static str,
    name: &'static str,
    severity: Option<Severity>,
    count: usize,
    safe: usize,
    by_unsafe: usize,
}

/// One line per rule, the most frequent first, with the number of its findings that can be fixed.
pub fn show(report: &SourceReport) -> String {
    let mut out = String::new();
    let rows = rows(report);
    let widest = rows.iter().map(|row| row.count.to_string().len()).max().unwrap_or(0);
    for row in &rows {
        let _ = write!(out, "{:>widest$}  {}  {}", row.count, row.code, row.name);
        let _ = match (row.safe, row.by_unsafe) {
            (0, 0) => writeln!(out),
            (safe, 0) => writeln!(out, " ({safe} by --fix)"),
            (0, by_unsafe) => writeln!(out, " ({by_unsafe} by --unsafe-fixes)"),
            (safe, by_unsafe) => writeln!(out, " ({safe} by --fix, {by_unsafe} by --unsafe-fixes)"),
        };
    }
    out.push_str(&problems(report));
    let _ = writeln!(out, "{}", summary(report));
    out
}

/// The same as a list of objects.
pub fn show_as_json(report: &SourceReport) -> String {
    let row = |row: Row| {
        json!({
            "code": row.code,
            "name": row.name,
            "severity": row.severity,
            "count": row.count,
            "fixable": row.safe,
            "fixable_unsafe": row.by_unsafe,
        })
    };
    let rows: Vec<Value> = rows(report).into_iter().map(row).collect();
    format!("{:#}\n", json!(rows))
}

fn rows(report: &SourceReport) -> Vec<Row> {
    let mut by_code: BTreeMap<&str, Row> = BTreeMap::new();
    for finding in &report.findings {
        let row = by_code.entry(finding.code).or_default();
        (row.code, row.name) = (finding.code, finding.name);
        row.severity = row.severity.max(Some(finding.severity));
        row.count += 1;
        row.safe += usize::from(finding.fix.safety == Safety::Safe);
        row.by_unsafe += usize::from(finding.fix.safety == Safety::Unsafe);
    }
    let mut rows: Vec<Row> = by_code.into_values().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.count));
    rows
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn rules_are_counted_with_their_fixes() {
        let mut report = report();
        report.findings.push(report.findings[1].clone());
        let shown = show(&report);
        assert!(shown.starts_with("2  TP101  item-per-step (2 by --unsafe-fixes)\n1  TP605  "), "{shown}");
        let rows: Value = serde_json::from_str(&show_as_json(&report)).expect("valid JSON");
        assert_eq!((rows[0]["code"].as_str(), rows[0]["count"].as_u64()), (Some("TP101"), Some(2)));
        assert_eq!(rows[0]["fixable_unsafe"], 2);
    }
}
