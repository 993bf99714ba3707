//! Findings as JSON, in the shape that programs rely on.

use headroom_lint::SourceReport;
use serde_json::{Value, json};

use super::UNMEASURED;

pub fn show(report: &SourceReport) -> String {
    let findings: Vec<Value> = report
        .findings
        .iter()
        .map(|finding| {
            json!({
                "code": finding.code,
                "name": finding.name,
                "severity": finding.severity,
                "message": finding.message,
                "place": finding.place,
                "fix": finding.fix,
                "evidence": finding.measured.as_ref().map_or(json!(UNMEASURED), |measured| json!(measured)),
                "cause": finding.cause,
                "confidence": finding.confidence,
                "effort": finding.effort,
                "pedantic": finding.pedantic,
                "function": finding.function,
                "calls_per_step": finding.calls_per_step,
                "operators": finding.operators,
                "pedantic": finding.pedantic,
            })
        })
        .collect();
    let problems: Vec<Value> = report
        .problems
        .iter()
        .map(|(file, problem)| {
            let mut shown = json!({"file": file, "line": problem.line, "message": problem.message});
            if let Some(cell) = problem.cell {
                shown["cell"] = cell.into();
            }
            shown
        })
        .collect();
    let whole = json!({
        "files": report.files,
        "findings": findings,
        "problems": problems,
        "suppressed": report.suppressed,
        "held_back": report.held_back.len(),
    });
    format!("{whole:#}\n")
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn the_keys_programs_rely_on_are_there() {
        let shown: Value = serde_json::from_str(&show(&report())).expect("valid JSON");
        assert_eq!(shown["files"], 1);
        let finding = &shown["findings"][1];
        assert_eq!(finding["code"], "TP101");
        assert_eq!(finding["name"], "item-per-step");
        assert_eq!(finding["severity"], "high");
        assert_eq!(finding["evidence"], "unmeasured");
        assert_eq!(
            finding["place"],
            json!({"file": "train.py", "line": 12, "column": 18, "end_line": 12, "end_column": 29})
        );
        assert_eq!(finding["fix"]["safety"], "unsafe");
        assert!(finding["message"].as_str().is_some_and(|message| !message.is_empty()));
    }
}
