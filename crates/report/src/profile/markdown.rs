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
    let notes = noted(&tables::target_note(profile)) + &noted(tables::ROOF_NOTE);
    section("Top operators by self time", &(table(&tables::top_operators(profile)) + &notes));
    section("Patterns", &table(&tables::patterns(profile)));
    section("Memory", &format!("{}\n{}", table(&tables::memory(profile)), list(&tables::memory_notes(profile))));
    section("Bottlenecks", &bottlenecks(profile));
    section("Impact against effort", &(matrix(profile) + &noted(tables::EFFORT_NOTE)));
    section("Furthest from the roof", &table(&tables::targets(profile)));
    section("The original course's classes", &(table(&tables::workshop_classes(profile)) + &noted(tables::CLASS_NOTE)));
    if let Some(nodes) = tables::nodes(profile) {
        section(tables::NODES, &table(&nodes));
    }
    if let Some(record) = profile.about.and_then(|about| about.attribution) {
        section("Updated nodes", &attribution::markdown(record));
    }
    out += &crate::analyze::findings_markdown(profile.analysis);
    out += "\nPlots: `report.html`. Every figure with its provenance: the JSON files beside this report.\n";
    out
}

fn noted(note: &str) -> String {
    format!("\n{note}\n")
}

fn bottlenecks(profile: &Profile) -> String {
    let (ranked, rest) = (tables::bottlenecks(profile), tables::without_remedy(profile));
    let mut out = match ranked.rows.is_empty() {
        true => format!("{}\n", tables::NO_PRIORITY),
        false => table(&ranked) + &noted(tables::RANKING_NOTE) + &noted(tables::BOUND_NOTE),
    };
    if !rest.rows.is_empty() {
        out += &format!("\n{}:\n\n{}", tables::NO_FLAG, table(&rest));
    }
    out
}

fn matrix(profile: &Profile) -> String {
    let quadrant = |(title, rows): &(&str, Vec<&headroom_record::operators::BottleneckCategory>)| {
        let named: Vec<String> = rows.iter().map(|row| format!("{}: {}", row.category, row.remedy)).collect();
        let named = if named.is_empty() { "- none\n".into() } else { list(&named) };
        format!("**{title}**\n\n{named}")
    };
    tables::matrix(profile).iter().map(quadrant).collect::<Vec<_>>().join("\n")
}
