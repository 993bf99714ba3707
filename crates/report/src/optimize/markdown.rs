//! The ladder as Markdown.

use super::{phase_3, tables};
use crate::table::{markdown_list as list, markdown_table as table};
use headroom_record::validation::ValidationRecord;
use std::fmt::Write;

pub fn markdown(record: &ValidationRecord) -> String {
    let mut out = format!("# {}\n\n{}\n\n", tables::title(record), tables::subtitle(record));
    out += &(tables::summary(record).join("\n\n") + "\n");
    let mut section = |title: &str, content: String| {
        let _ = write!(out, "\n## {title}\n\n{content}");
    };
    section("Where Version 1's time goes", table(&tables::operators(record)) + &line(&tables::one_step(record)));
    section("Findings by priority", table(&tables::findings(record)) + UPPER_BOUNDS);
    let notes = tables::notes(record);
    let notes = if notes.is_empty() { String::new() } else { format!("\n{}", list(&notes)) };
    section(
        "Passes, each on top of those above it; first those kept in the recommended list",
        table(&tables::passes(record)) + &notes,
    );
    section(
        "The ladder: lists of passes against Version 1",
        table(&tables::versions(record)) + &line(&tables::one_race(record)),
    );
    if !record.ablation.is_empty() {
        section("Ablation: all passes, against all but one", table(&tables::ablation(record)));
    }
    let quadrant = |(title, items): &(&str, Vec<String>)| {
        format!("**{title}**\n\n{}", if items.is_empty() { "- none\n".into() } else { list(items) })
    };
    let quadrants = tables::matrix(record).iter().map(quadrant).collect::<Vec<_>>().join("\n");
    section(tables::MATRIX, quadrants + &line(tables::MATRIX_NOTE));
    section("Roadmap", table(&tables::roadmap(record)));
    section("Success metrics", table(&tables::targets(record)));
    if !record.reference_points.is_empty() {
        let few = phase_3::few_rounds(record).map_or(String::new(), |few| line(&few));
        section(phase_3::POINTS_TITLE, table(&phase_3::points(record)) + &line(phase_3::POINTS_NOTE) + &few);
    }
    if !record.phase_3.is_empty() {
        section(phase_3::TITLE, format!("{}\n{}", table(&phase_3::table(record)), list(&phase_3::notes(record))));
    }
    let growth = tables::growth(record).map_or(String::new(), |line| format!("\n{line}\n"));
    section("Memory against sequence length", table(&tables::lengths(record)) + &growth);
    section("Gates: the checks on what was kept", table(&tables::gates(record)));
    if let Some(by) = tables::messages(record) {
        section(tables::AMONG_RANKS, table(&tables::among_ranks(record)) + &line(&by));
    }
    out
}

fn line(text: &str) -> String {
    format!("\n{text}\n")
}

const UPPER_BOUNDS: &str = "\n\"At most\" is the step's speed-up if the finding's operators ran at the machine's roof: \
    a bound, not a promise.\n";
