//! The ladder in short, for the terminal.

use super::tables;
use crate::table::{Table, columns};
use headroom_record::validation::ValidationRecord;
use std::fmt::Write;

/// The first findings; the report has all.
const FINDINGS: usize = 6;

pub fn terminal(record: &ValidationRecord) -> String {
    let facts = &record.facts;
    let mut out = format!("{} · {}\n", tables::title(facts), tables::subtitle(facts));
    let mut section = |title: &str, table: &Table| {
        let _ = write!(out, "\n{title}\n{}", columns(table));
    };
    section("Where Version 1's time goes", &tables::operators(facts));
    let mut findings = without(tables::findings(facts), "evidence");
    findings.rows.truncate(FINDINGS);
    section("What holds Version 1 back, by priority", &findings);
    section("Passes, each on top of those above it: the kept ones first", &tables::passes(facts));
    for note in tables::notes(facts) {
        let _ = writeln!(out, "  {}", note.replace('`', ""));
    }
    let mut section = |title: &str, table: &Table| {
        let _ = write!(out, "\n{title}\n{}", columns(table));
    };
    section("The ladder, against Version 1", &tables::versions(facts));
    let _ = write!(out, "  {}\n  {}\n", tables::one_race(facts), tables::one_step(facts));
    let mut section = |title: &str, table: &Table| {
        let _ = write!(out, "\n{title}\n{}", columns(table));
    };
    if !facts.ablation.is_empty() {
        section("Ablation: all passes, against all but one", &tables::ablation(facts));
    }
    section("Success metrics", &tables::targets(facts));
    section("Gates of what was kept", &without(tables::gates(facts), "limit"));
    out.push('\n');
    for line in tables::summary(facts) {
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
