//! The report as Markdown.

use super::Profile;
use super::tables;
use crate::attribution;
use crate::table::{markdown_list as list, markdown_table as table};
use std::fmt::Write;

pub fn markdown(profile: &Profile) -> String {
    let mut out = format!("# {}\n\n{}\n", tables::title(profile), tables::subtitle(profile));
    let mut section = |title: &str, content: &str| {
        let _ = write!(out, "\n## {title}\n\n{content}");
    };
    section("Summary", &table(&tables::summary(profile)));
    section("Where a step goes", &table(&tables::breakdown(profile)));
    section("Top operators by self time", &(table(&tables::top_operators(profile)) + ROOF_NOTE));
    section("Patterns", &table(&tables::patterns(profile)));
    section("Memory", &format!("{}\n{}", table(&tables::memory(profile)), list(&tables::memory_notes(profile))));
    section("Bottlenecks", &(table(&tables::bottlenecks(profile)) + BOUND_NOTE));
    section("Impact against effort", &matrix(profile));
    section("Furthest from the roof", &table(&tables::targets(profile)));
    section("The workshop's classes", &(table(&tables::workshop_classes(profile)) + CLASS_NOTE));
    if let Some(record) = profile.attribution {
        section("What was updated", &attribution::markdown(record));
    }
    out += "\nPlots: `report.html`. Every figure with its provenance: the JSON files beside this report.\n";
    out
}

const ROOF_NOTE: &str = "\nBytes count every input once and every output once. Above 100% of its roof an operator found its data in a cache.\n";
const BOUND_NOTE: &str =
    "\nSpeed-ups are upper bounds from measured times and the machine's roofs, computed, not promised.\n";
const CLASS_NOTE: &str =
    "\nFixed thresholds of the workshop, shown beside; this report goes by the machine's own ridge point.\n";

fn matrix(profile: &Profile) -> String {
    let quadrant = |(title, rows): &(&str, Vec<&headroom_record::operators::BottleneckCategory>)| {
        let named: Vec<String> = rows.iter().map(|row| format!("{}: {}", row.category, row.remedy)).collect();
        let named = if named.is_empty() { "- none\n".into() } else { list(&named) };
        format!("**{title}**\n\n{named}")
    };
    tables::matrix(profile).iter().map(quadrant).collect::<Vec<_>>().join("\n")
}
