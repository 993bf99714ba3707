//! Snapshots of everything found in a made-up trace: each finding's text, cost and saving, and its place in the
//! roadmap.

use std::cell::Cell;
use std::fmt::Write;

use headroom_diagnosis::Analysis;
use headroom_diagnosis::trace_rules::TraceFinding;
use serde_json::Value;

thread_local! {
    static TAKEN: Cell<u32> = const { Cell::new(0) };
}

/// Takes a snapshot of the analysis, named after the test and numbered within it.
pub fn held(analysis: Analysis) -> Analysis {
    let number = TAKEN.with(|taken| taken.replace(taken.get() + 1));
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test").replace("::", "-");
    let mut text = String::new();
    analysis.findings.iter().for_each(|finding| write_finding(&mut text, finding));
    let roadmap = &analysis.roadmap;
    for item in &roadmap.items {
        let shares = [item.additional_share, item.expected_share, item.additional_expected_share];
        let (alone, others) = (shown(item.alone_share), shares.map(|share| format!("{share:.4}")).join(", "));
        writeln!(text, "roadmap {}: {alone}, {others}", item.code).unwrap();
    }
    let (best, expected) = (roadmap.step_seconds_at_best, roadmap.step_seconds_expected);
    writeln!(text, "step {:.6} s, at best {best:.6}, expected {expected:.6}", roadmap.step_seconds_now).unwrap();
    writeln!(text, "{} steps", analysis.steps.list.len()).unwrap();
    let measures = serde_json::to_value(&analysis.measures).expect("is JSON");
    for (name, measure) in measures.as_object().into_iter().flatten() {
        let mut figures = Vec::new();
        add_figures(&mut figures, "", measure);
        if !figures.is_empty() {
            writeln!(text, "{name}: {}", figures.join(", ")).unwrap();
        }
    }
    insta::assert_snapshot!(format!("{test}-{number}"), text);
    analysis
}

fn write_finding(text: &mut String, finding: &TraceFinding) {
    let share = finding.share_of_step.map_or("no share".into(), |share| format!("{share:.4}"));
    let (severity, confidence) = (finding.severity.name(), finding.confidence);
    let (bound, expected) = (shown(finding.saving_bound_share), finding.saving_expected_share);
    writeln!(text, "{} {severity}, {confidence:?}: {share}, saves {expected:.4} to {bound}", finding.code).unwrap();
    writeln!(text, "  {}\n  {}", finding.message, finding.advice).unwrap();
    finding.evidence.iter().for_each(|line| writeln!(text, "  - {line}").unwrap());
}

fn shown(bound: Option<f64>) -> String {
    bound.map_or("no bound".into(), |bound| format!("{bound:.4}"))
}

/// Figures of a measure that are not zero, to four digits; for a list, its length.
fn add_figures(figures: &mut Vec<String>, key: &str, value: &Value) {
    match value {
        Value::Object(entries) => {
            for (name, value) in entries {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                add_figures(figures, &key, value);
            }
        }
        Value::Array(entries) if !entries.is_empty() => figures.push(format!("{key} has {}", entries.len())),
        Value::Number(number) => {
            let number = number.as_f64().expect("is a number");
            if number != 0.0 {
                figures.push(format!("{key} {}", format!("{number:.3e}").parse::<f64>().expect("is a number")));
            }
        }
        _ => {}
    }
}
