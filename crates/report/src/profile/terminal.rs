//! The short form of the report, for the terminal.

use super::Profile;
use super::tables;
use crate::numbers::seconds;
use crate::table::{Table, columns, without};
use crate::targets;
use std::fmt::Write;

const TOP: usize = 10;
const BAR: usize = 24;

pub fn terminal(profile: &Profile, files: &[String]) -> String {
    let (first, last) = profile.steps();
    let mut out = format!("\n{}, steps {first} to {last}\n", tables::title(profile));
    for row in tables::summary(profile).rows {
        let _ = writeln!(out, "  {:<12} {:<18} {}", row[0], row[1], row[2]);
    }
    out += "\nWhere a step goes\n";
    let breakdown = &profile.run.operator_analysis.step_breakdown;
    for (name, time) in breakdown.parts() {
        let share = (time / breakdown.wall).max(0.0);
        let bar = "█".repeat((share * BAR as f64).round() as usize);
        let _ = writeln!(out, "  {name:<20} {:>10} {:>6.2}% {bar}", seconds(time), 100.0 * share);
    }
    let _ = writeln!(out, "  {:<20} {:>10} 100.00%", "the whole step", seconds(breakdown.wall));
    let _ = write!(out, "\nTop operators by self time\n{}", columns(&top(profile)));
    let _ = writeln!(out, "  {}", tables::target_note(profile));
    let _ = write!(out, "\nPatterns\n{}", columns(&headless(tables::patterns(profile))));
    let ranked = bottlenecks(profile);
    let _ = match ranked.rows.is_empty() {
        true => writeln!(out, "\nBottlenecks by priority\n  {}", tables::NO_PRIORITY),
        false => writeln!(out, "\nBottlenecks by priority\n{}  {}", columns(&ranked), tables::RANKING_NOTE),
    };
    let rest = without(tables::without_remedy(profile), &["evidence"]);
    if !rest.rows.is_empty() {
        let _ = write!(out, "\n{}\n{}", tables::NO_FLAG, columns(&rest));
    }
    out += "\nMemory\n";
    for note in tables::memory_notes(profile) {
        let _ = writeln!(out, "  {note}");
    }
    let _ = writeln!(out, "\nProfile files generated:\n  {}", files.join("\n  "));
    out
}

fn headless(mut table: Table) -> Table {
    table.head.clear();
    table
}

/// The course's columns (device time, host time, calls, target), then share, roof and operator.
fn top(profile: &Profile) -> Table {
    let rows = profile.run.operator_analysis.by_place.iter().take(TOP).map(|place| {
        let roof = format!("{:.0}%", place.percent_of_roof);
        vec![
            seconds(place.time),
            format!("{:.1}%", place.percent_of_step),
            seconds(place.host_time),
            place.count.to_string(),
            roof,
            targets::of_place(place),
            place.label(),
        ]
    });
    let head =
        vec!["device time", "share", "host time", "calls", "share of roof", "target", "operator · where · phase"];
    Table { head, rows: rows.collect() }
}

/// Evidence and difficulty are only in the full report.
fn bottlenecks(profile: &Profile) -> Table {
    without(tables::bottlenecks(profile), &["difficulty", "evidence"])
}
