//! The ladder as Markdown.

use super::tables;
use crate::table::{markdown_list as list, markdown_table as table};
use headroom_record::validation::ValidationRecord;
use std::fmt::Write;

pub fn markdown(record: &ValidationRecord) -> String {
    let facts = &record.facts;
    let mut out = format!("# {}\n\n{}\n\n", tables::title(facts), tables::subtitle(facts));
    out += &(tables::summary(facts).join("\n\n") + "\n");
    let mut section = |title: &str, content: String| {
        let _ = write!(out, "\n## {title}\n\n{content}");
    };
    section("Where Version 1's time goes", table(&tables::operators(facts)) + &line(&tables::one_step(facts)));
    section("Findings by priority", table(&tables::findings(facts)) + UPPER_BOUNDS);
    let notes = tables::notes(facts);
    let notes = if notes.is_empty() { String::new() } else { format!("\n{}", list(&notes)) };
    section("Passes, each on top of those above it: the kept ones first", table(&tables::passes(facts)) + &notes);
    section("The ladder, against Version 1", table(&tables::versions(facts)) + &line(&tables::one_race(facts)));
    if !facts.ablation.is_empty() {
        section("Ablation: all passes, against all but one", table(&tables::ablation(facts)));
    }
    let quadrant = |(title, items): &(&str, Vec<String>)| {
        format!("**{title}**\n\n{}", if items.is_empty() { "- none\n".into() } else { list(items) })
    };
    section("Impact against effort", tables::matrix(facts).iter().map(quadrant).collect::<Vec<_>>().join("\n"));
    section("Roadmap", table(&tables::roadmap(facts)));
    section("Success metrics", table(&tables::targets(facts)));
    let growth = tables::growth(facts).map_or(String::new(), |line| format!("\n{line}\n"));
    section("Memory over the length of the sequence", table(&tables::lengths(facts)) + &growth);
    section("Gates of what was kept", table(&tables::gates(facts)));
    out
}

fn line(text: &str) -> String {
    format!("\n{text}\n")
}

const UPPER_BOUNDS: &str =
    "\n\"At most\" is the step's speed-up if the finding fell to the machine's roof: a bound, not a promise.\n";
