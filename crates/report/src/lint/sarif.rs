//! Findings as SARIF 2.1.0, with their rules and applicable fixes.

use headroom_diagnosis::finding::{Place, Severity};
use headroom_lint::rules::RULES;
use headroom_lint::{SourceFinding, SourceReport};
use serde_json::{Value, json};

use super::{evidence, safety_name};

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// A `data:` URI that describes the tool, as the log embeds the rules' pages: the project has no public address.
const INFORMATION: &str = concat!(
    "data:text/plain,headroom%20",
    env!("CARGO_PKG_VERSION"),
    "%20lint%3A%20bottlenecks%20in%20PyTorch%20training%20scripts.%20%60headroom%20explain%20CODE%60%20shows%20a%20rule."
);

pub fn show(report: &SourceReport) -> String {
    let rules: Vec<Value> = RULES
        .iter()
        .map(|rule| {
            json!({
                "id": rule.code,
                "name": rule.name,
                "shortDescription": {"text": first_paragraph(rule.page)},
                "help": {"text": rule.page, "markdown": rule.page},
                "defaultConfiguration": {"level": level(rule.severity)},
            })
        })
        .collect();
    let results: Vec<Value> = report.findings.iter().map(result).collect();
    let notifications: Vec<Value> = report
        .problems
        .iter()
        .map(|(file, problem)| {
            json!({
                "level": "error",
                "message": {"text": format!("not fully read: {}", problem.message)},
                "locations": [{"physicalLocation": {
                    "artifactLocation": {"uri": uri(file)},
                    "region": {"startLine": problem.line.max(1)},
                }, "logicalLocations": cell_location(problem.cell)}],
            })
        })
        .collect();
    let whole = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "headroom",
                "informationUri": INFORMATION,
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "columnKind": "unicodeCodePoints",
            "invocations": [{"executionSuccessful": report.problems.is_empty(), "toolExecutionNotifications": notifications}],
            "results": results,
        }],
    });
    format!("{whole:#}\n")
}

fn result(finding: &SourceFinding) -> Value {
    let index = RULES.iter().position(|rule| rule.code == finding.code).unwrap_or_default();
    let mut logical = vec![json!({"fullyQualifiedName": finding.function, "kind": "function"})];
    logical.extend(cell_location(finding.place.cell));
    let mut result = json!({
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": level(finding.severity),
        "message": {"text": format!("{} ({})", finding.message, evidence(finding))},
        "locations": [{
            "physicalLocation": {
                "artifactLocation": {"uri": uri(&finding.place.file)},
                "region": region(&finding.place),
            },
            "logicalLocations": logical,
        }],
        "properties": {
            "severity": finding.severity,
            "confidence": finding.confidence,
            "fixSafety": safety_name(finding.fix.safety),
        },
    });
    // A cell's byte offsets are not those of the notebook's JSON, so its fixes cannot be expressed here.
    if !finding.fix.edits.is_empty() && finding.place.cell.is_none() {
        let replacements: Vec<Value> = finding
            .fix
            .edits
            .iter()
            .map(|edit| {
                let (start, end) = (u32::from(edit.range.start()), u32::from(edit.range.end()));
                json!({
                    "deletedRegion": {"byteOffset": start, "byteLength": end - start},
                    "insertedContent": {"text": edit.text},
                })
            })
            .collect();
        result["fixes"] = json!([{
            "description": {"text": finding.fix.title},
            "artifactChanges": [{
                "artifactLocation": {"uri": uri(&finding.place.file)},
                "replacements": replacements,
            }],
        }]);
    }
    result
}

/// SARIF counts a notebook's lines in its JSON; ours count within the cell named here.
fn cell_location(cell: Option<u32>) -> Vec<Value> {
    cell.map(|cell| json!({"name": format!("cell {cell}"), "kind": "element"})).into_iter().collect()
}

fn region(place: &Place) -> Value {
    json!({
        "startLine": place.line,
        "startColumn": place.column,
        "endLine": place.end_line,
        "endColumn": place.end_column,
    })
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Critical | Severity::High => "error",
        Severity::Medium => "warning",
        Severity::Low => "note",
    }
}

/// A path as a relative URI reference: only characters that a URI cannot hold are escaped.
fn uri(path: &str) -> String {
    let mut out = String::new();
    for byte in path.trim_start_matches("./").replace('\\', "/").bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' | b'~' | b'+' | b'@' | b'=' => {
                out.push(byte as char);
            }
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

/// The page's first paragraph after its title.
fn first_paragraph(page: &str) -> String {
    let mut lines = page.lines().skip_while(|line| line.starts_with('#') || line.trim().is_empty());
    let paragraph: Vec<&str> = lines.by_ref().take_while(|line| !line.trim().is_empty()).collect();
    paragraph.join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn a_result_names_its_rule_place_and_fix() {
        let shown: Value = serde_json::from_str(&show(&report())).expect("valid JSON");
        assert_eq!(shown["version"], "2.1.0");
        let run = &shown["runs"][0];
        let result = &run["results"][1];
        assert_eq!(result["ruleId"], "TP101");
        let index = result["ruleIndex"].as_u64().expect("an index") as usize;
        assert_eq!(run["tool"]["driver"]["rules"][index]["id"], "TP101");
        assert_eq!(result["locations"][0]["physicalLocation"]["region"]["startLine"], 12);
        let replacement = &result["fixes"][0]["artifactChanges"][0]["replacements"][0];
        assert_eq!(replacement["insertedContent"]["text"], "loss.detach().float()");
    }

    #[test]
    fn paths_become_references() {
        assert_eq!(uri("./a b/c.py"), "a%20b/c.py");
    }
}
