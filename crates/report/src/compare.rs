//! Two traces side by side, for people and programs.

use std::fmt::Write as _;

use headroom_diagnosis::compare::{Change, Comparison};

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
        writeln!(out, "  reserve: {note}")?;
    }
    let step = &comparison.step;
    let interval = match step.interval {
        Some([low, high]) => format!("95%: {} to {}", signed(low), signed(high)),
        None => "no interval: too few steps".to_string(),
    };
    writeln!(
        out,
        "step {:.2} ms → {:.2} ms, {} ({interval})",
        1e3 * step.before_seconds,
        1e3 * step.after_seconds,
        signed(step.relative)
    )?;
    for row in &comparison.figures {
        let change = row.relative.map(signed).unwrap_or_else(|| "-".into());
        writeln!(out, "{:<24} {:>16} → {:<16} {change}", row.name, figure(row.before), figure(row.after))?;
    }
    table(out, "operator", &comparison.operators)?;
    table(out, "kernel", &comparison.kernels)?;
    for (title, findings) in [("Gone", &comparison.findings_gone), ("New", &comparison.findings_new)] {
        if !findings.is_empty() {
            writeln!(out, "\n{title}:")?;
            findings.iter().try_for_each(|finding| writeln!(out, "  {finding}"))?;
        }
    }
    Ok(())
}

fn table(out: &mut String, title: &str, rows: &[Change]) -> std::fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{title:<60} {:>11} {:>11} {:>9}", "before", "after", "change")?;
    for row in rows.iter().take(10) {
        let name: String = row.name.chars().take(60).collect();
        let change = row.relative.map(signed).unwrap_or_else(|| "new".into());
        let milliseconds = |seconds: f64| format!("{:.3} ms", 1e3 * seconds);
        writeln!(out, "{name:<60} {:>11} {:>11} {change:>9}", milliseconds(row.before), milliseconds(row.after))?;
    }
    Ok(())
}

fn signed(share: f64) -> String {
    format!("{:+.1}%", 100.0 * share)
}

fn figure(value: f64) -> String {
    if value >= 1000.0 { format!("{value:.0}") } else { format!("{value:.4}") }
}
