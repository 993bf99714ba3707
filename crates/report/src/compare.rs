//! Two traces side by side, for people and programs.

use std::fmt::Write as _;

use headroom_diagnosis::compare::{Answer, Change, Comparison, Judged, Unit};

use crate::names;
use crate::numbers::{bytes, grouped, seconds};

pub fn json(comparison: &Comparison) -> String {
    let mut text = serde_json::to_string_pretty(comparison).unwrap_or_default();
    text.push('\n');
    text
}

pub fn text(comparison: &Comparison) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut out, comparison);
    out
}

fn write(out: &mut String, comparison: &Comparison) -> std::fmt::Result {
    writeln!(out, "{} → {}\n", comparison.before, comparison.after)?;
    for note in &comparison.notes {
        writeln!(out, "  caution: {note}")?;
    }
    let step = &comparison.step;
    let interval = match step.interval {
        Some([low, high]) => format!("95% over steps: {} to {}", signed(low), signed(high)),
        None => "no interval: too few steps".to_string(),
    };
    let [before, after] = [step.before_seconds, step.after_seconds].map(seconds);
    let timed = if step.timed_without_profiler { "; timed without the profiler" } else { "" };
    writeln!(out, "step {before} → {after}, {} ({interval}{timed})", signed(step.relative))?;
    for row in &comparison.figures {
        let change = row.relative.map(signed).unwrap_or_else(|| "-".into());
        let interval = row.interval.map(|[low, high]| format!("  ({} to {})", signed(low), signed(high)));
        let name = row.name.replace(" seconds", " time").replace(" bytes", "");
        let [before, after] = [row.before, row.after].map(|value| figure(row.unit, value));
        writeln!(out, "{name:<20} {before:>12} → {after:<12} {change:>8}{}", interval.unwrap_or_default())?;
    }
    table(out, "operator", &comparison.operators)?;
    table(out, "kernel", &comparison.kernels)?;
    for (title, findings) in [("Gone", &comparison.findings_gone), ("New", &comparison.findings_new)] {
        if !findings.is_empty() {
            writeln!(out, "\n{title}:")?;
            findings.iter().try_for_each(|finding| writeln!(out, "  {finding}"))?;
        }
    }
    if !comparison.gates.is_empty() {
        writeln!(out, "\nGates:")?;
        comparison.gates.iter().try_for_each(|gate| writeln!(out, "  {}", gate_line(gate)))?;
    }
    Ok(())
}

/// `not decided: step>1%, +2.2% (95% over steps: -35.0% to +39.0%)`.
fn gate_line(gate: &Judged) -> String {
    let word = match gate.result {
        Answer::Pass => "pass",
        Answer::Fail => "fail",
        Answer::Undecided => "not decided",
    };
    let change = gate.relative.map(|relative| format!(", {}", signed(relative))).unwrap_or_default();
    let about = match (gate.note, gate.interval) {
        (Some(note), _) => format!(" ({note})"),
        (None, Some([low, high])) if low < high => format!(" (95% over steps: {} to {})", signed(low), signed(high)),
        _ => String::new(),
    };
    format!("{word}: {}{change}{about}", gate.limit)
}

/// Names come last, since they are long.
fn table(out: &mut String, title: &str, rows: &[Change]) -> std::fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{:>11} {:>11} {:>9}  {title}, time per step", "before", "after", "change")?;
    for row in rows.iter().take(10) {
        let change = match row.relative {
            None => "new".to_string(),
            Some(_) if row.after == 0.0 => "gone".to_string(),
            Some(relative) => signed(relative),
        };
        let [before, after] =
            [row.before, row.after].map(|time| if time == 0.0 { "–".to_string() } else { seconds(time) });
        writeln!(out, "{before:>11} {after:>11} {change:>9}  {}", names::kernel(&row.name, 120))?;
    }
    Ok(())
}

fn signed(share: f64) -> String {
    format!("{:+.1}%", 100.0 * share)
}

fn figure(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Seconds => seconds(value),
        Unit::Bytes => bytes(value as u64),
        Unit::Share => format!("{:.1}%", 100.0 * value),
        Unit::Count if value.fract() == 0.0 => grouped(value as u64),
        Unit::Count => format!("{value:.1}"),
    }
}
