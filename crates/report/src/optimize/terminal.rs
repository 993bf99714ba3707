//! The short form of the ladder, for the terminal.

use super::{phase_3, tables};
use crate::table::{Table, columns, without};
use crate::wrap::wrapped;
use headroom_record::validation::ValidationRecord;
use std::fmt::Write;

/// Number of findings shown; the report has all.
const FINDINGS: usize = 6;

pub fn terminal(record: &ValidationRecord) -> String {
    let plain = |text: &str| text.replace('`', "");
    let mut out = wrapped(&format!("{} · {}", tables::title(record), tables::subtitle(record)), "");
    out.push('\n');
    tables::verdict(record).iter().for_each(|line| out += &wrapped(&plain(line), ""));
    let mut section = |title: &str, table: &Table, notes: &[String]| {
        let _ = write!(out, "\n{title}\n{}", columns(table));
        notes.iter().for_each(|note| out += &wrapped(&plain(note), "  "));
    };
    section("The ladder: lists of passes against Version 1", &tables::versions(record), &[]);
    let missed: Vec<String> = record
        .gates
        .iter()
        .filter(|(_, gate)| gate.result != "pass")
        .map(|(name, gate)| format!("{}: {}", name.replace('_', " "), gate.about))
        .collect();
    section("Gates: the checks on what was kept", &without(tables::gates(record), &["meaning"]), &missed);
    let mut findings = without(tables::findings(record), &["evidence"]);
    findings.rows.truncate(FINDINGS);
    section("Bottlenecks of Version 1, by priority", &findings, &[]);
    section("Where Version 1's time goes", &tables::operators(record), &[tables::one_step(record)]);
    let notes: Vec<String> = tables::notes(record).into_iter().chain([tables::one_race(record)]).collect();
    section("Passes, each on top of those above it; first the kept ones", &tables::passes(record), &notes);
    if !record.ablation.is_empty() {
        section("Ablation: all passes, against all but one", &tables::ablation(record), &[]);
    }
    section("Success metrics", &tables::targets(record), &[]);
    if !record.reference_points.is_empty() {
        let notes: Vec<String> = phase_3::few_rounds(record).into_iter().collect();
        section(phase_3::POINTS_TITLE, &phase_3::points(record), &notes);
    }
    if !record.phase_3.is_empty() {
        section(phase_3::TITLE, &phase_3::table(record), &phase_3::notes(record));
    }
    if let Some(by) = tables::messages(record) {
        section(tables::AMONG_RANKS, &tables::among_ranks(record), &[by]);
    }
    let remarks = tables::remarks(record);
    if !remarks.is_empty() {
        out.push('\n');
    }
    remarks.iter().for_each(|line| out += &wrapped(&plain(line), ""));
    out
}
