//! The short form of the ladder, for the terminal.

use super::{phase_3, tables};
use crate::table::{Table, columns};
use headroom_record::validation::ValidationRecord;
use std::fmt::Write;

/// Number of findings shown; the report has all.
const FINDINGS: usize = 6;

pub fn terminal(record: &ValidationRecord) -> String {
    let mut out = format!("{} · {}\n", tables::title(record), tables::subtitle(record));
    let mut section = |title: &str, table: &Table| {
        let _ = write!(out, "\n{title}\n{}", columns(table));
    };
    section("Where Version 1's time goes", &tables::operators(record));
    let mut findings = without(tables::findings(record), "evidence");
    findings.rows.truncate(FINDINGS);
    section("Bottlenecks of Version 1, by priority", &findings);
    section("Passes, each on top of those above it; first those kept in the recommended list", &tables::passes(record));
    for note in tables::notes(record) {
        let _ = writeln!(out, "  {}", note.replace('`', ""));
    }
    let mut section = |title: &str, table: &Table| {
        let _ = write!(out, "\n{title}\n{}", columns(table));
    };
    section("The ladder: lists of passes against Version 1", &tables::versions(record));
    let _ = write!(out, "  {}\n  {}\n", tables::one_race(record), tables::one_step(record));
    let mut section = |title: &str, table: &Table| {
        let _ = write!(out, "\n{title}\n{}", columns(table));
    };
    if !record.ablation.is_empty() {
        section("Ablation: all passes, against all but one", &tables::ablation(record));
    }
    section("Success metrics", &tables::targets(record));
    if !record.reference_points.is_empty() {
        section(phase_3::POINTS_TITLE, &phase_3::points(record));
    }
    if !record.phase_3.is_empty() {
        section(phase_3::TITLE, &phase_3::table(record));
        for note in phase_3::notes(record) {
            let _ = writeln!(out, "  {}", note.replace('`', ""));
        }
    }
    let mut section = |title: &str, table: &Table| {
        let _ = write!(out, "\n{title}\n{}", columns(table));
    };
    section("Gates: the checks on what was kept", &without(tables::gates(record), "limit"));
    if let Some(by) = tables::messages(record) {
        section(tables::AMONG_RANKS, &tables::among_ranks(record));
        let _ = writeln!(out, "  {by}");
    }
    out.push('\n');
    for line in tables::summary(record) {
        let _ = writeln!(out, "{}", line.replace('`', ""));
    }
    out
}

fn without(mut table: Table, column: &str) -> Table {
    if let Some(at) = table.head.iter().position(|head| *head == column) {
        table.head.remove(at);
        table.rows.iter_mut().for_each(|row| drop(row.remove(at)));
    }
    table
}
