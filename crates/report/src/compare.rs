//! Two traces side by side, for people and programs.

use std::fmt::Write as _;

use headroom_diagnosis::compare::{Answer, Change, Comparison, Judged, SiteChange, Status, Unit};

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
    let step = &comparison.step;
    let interval = match step.interval {
        Some([low, high]) => format!("95% over steps: {} to {}", signed(low), signed(high)),
        None => "no interval: too few steps".to_string(),
    };
    let [before, after] = [step.before_seconds, step.after_seconds].map(seconds);
    let timed = if step.timed_without_profiler { "; timed without the profiler" } else { "" };
    writeln!(out, "step {before} → {after}, {} ({interval}{timed})", signed(step.relative))?;
    sites(out, comparison)?;
    if !comparison.notes.is_empty() {
        writeln!(out, "\nCaution:")?;
        comparison.notes.iter().try_for_each(|note| writeln!(out, "  - {note}"))?;
    }
    writeln!(out)?;
    for row in &comparison.figures {
        let change = row.relative.map(signed).unwrap_or_else(|| "-".into());
        let interval = row.interval.map(|[low, high]| format!("  ({} to {})", signed(low), signed(high)));
        let name = row.name.replace(" seconds", " time").replace(" bytes", "");
        let [before, after] = [row.before, row.after].map(|value| figure(row.unit, value));
        writeln!(out, "{name:<20} {before:>12} → {after:<12} {change:>8}{}", interval.unwrap_or_default())?;
    }
    table(out, "operator", &comparison.operators)?;
    table(out, "kernel", &comparison.kernels)?;
    let lists = [
        ("Findings that grew", &comparison.findings_grown),
        ("New findings", &comparison.findings_new),
        ("Findings that are gone", &comparison.findings_gone),
    ];
    for (title, findings) in lists {
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

/// Lines of what grew, and of what shrank.
const MOST_SITES: usize = 6;

fn sites(out: &mut String, comparison: &Comparison) -> std::fmt::Result {
    let (grew, shrank): (Vec<&SiteChange>, Vec<&SiteChange>) =
        comparison.changes.iter().partition(|row| row.growth_seconds > 0.0);
    for (title, rows) in [("Grew most, per step", grew), ("Shrank most, per step", shrank)] {
        if !rows.is_empty() {
            writeln!(out, "\n{title}:")?;
            rows.iter().take(MOST_SITES).try_for_each(|row| writeln!(out, "  {}", site(row)))?;
        }
    }
    Ok(())
}

/// `+3.92 ms on the device: aten::mm [[1024,256],[256,256]] in train.py(19): forward (1.96 ms → 5.88 ms)`.
fn site(row: &SiteChange) -> String {
    let on_device = row.device_seconds_after - row.device_seconds_before;
    let on_host = row.host_seconds_after - row.host_seconds_before;
    // The larger change of the two that has the direction of the whole.
    let has_direction = |change: f64| change * row.growth_seconds > 0.0;
    let is_device = has_direction(on_device) && (on_device.abs() >= on_host.abs() || !has_direction(on_host));
    let (change, before, after, where_) = match is_device {
        true => (on_device, row.device_seconds_before, row.device_seconds_after, "device"),
        false => (on_host, row.host_seconds_before, row.host_seconds_after, "host"),
    };
    let says_sizes = row.input_dims.contains(|letter: char| letter.is_ascii_digit());
    let sizes = match (&row.input_dims_before, row.input_dims.as_str()) {
        _ if !says_sizes => String::new(),
        (None, sizes) => format!(" {}", shortened(sizes)),
        (Some(before), sizes) => format!(" {} → {}", shortened(before), shortened(sizes)),
    };
    let place = if row.place.is_empty() { String::new() } else { format!(" in {}", row.place) };
    let times = match row.status {
        Status::New => "new".to_string(),
        Status::Gone => "gone".to_string(),
        _ => format!("{} → {}", seconds(before), seconds(after)),
    };
    let count = |calls: f64| if calls.fract() == 0.0 { format!("{calls}") } else { format!("{calls:.1}") };
    let calls = match (row.calls_before, row.calls_after) {
        (before, after) if before == after => String::new(),
        (before, after) if before == 0.0 || after == 0.0 => format!(", {}×", count(before + after)),
        (before, after) => format!(", {}× → {}×", count(before), count(after)),
    };
    let doubt = if row.is_clear { "" } else { "; within the spread of the steps" };
    let sign = if change < 0.0 { "-" } else { "+" };
    let size = seconds(change.abs());
    let name = names::kernel(&row.name, 100);
    format!("{sign}{size} {where_}: {name}{sizes}{place} ({times}{calls}{doubt})")
}

/// Without the scalars at the end, which have no sizes.
fn shortened(sizes: &str) -> String {
    let mut sizes = sizes.to_string();
    while let Some(start) = sizes.strip_suffix(",[]]") {
        sizes = format!("{start}]");
    }
    names::shortened(&sizes, 60)
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
    // Growth stands above shrinkage.
    let mut rows: Vec<&Change> = rows.iter().take(10).collect();
    rows.sort_by(|left, right| {
        let growth = |row: &Change| row.after - row.before;
        let shrinks = |row: &Change| growth(row) < 0.0;
        let by_size = growth(right).abs().total_cmp(&growth(left).abs());
        shrinks(left).cmp(&shrinks(right)).then(by_size)
    });
    for row in rows {
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
