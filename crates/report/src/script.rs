//! The report on optimising a PyTorch script: for the terminal, as Markdown, and as one HTML page.

mod tables;

use crate::page::{self, Page};
use crate::saving_plot::{Row, savings};
use crate::svg::escape;
use crate::table::{Table, columns, markdown_list, markdown_table};
use headroom_record::script::ScriptRecord;
use std::fmt::Write;

pub use tables::gate_figure;

/// Findings shown on the terminal; the page has all.
const FINDINGS: usize = 5;

/// Title, table and notes below it.
type Part = (&'static str, Table, Vec<String>);

fn parts(record: &ScriptRecord) -> Vec<Part> {
    let mut parts = vec![];
    if !record.findings.is_empty() {
        parts.push(("Bottlenecks, by priority", tables::findings(record), vec![]));
    }
    let title = match record.dry_run {
        true => "Remedies that would be tried, best predicted first",
        false => "Remedies, each on top of those kept above it",
    };
    let remedies = tables::remedies(record);
    if !remedies.rows.is_empty() || record.ended == "finished" {
        parts.push((title, remedies, tables::below_remedies(record)));
    }
    let not_tried = tables::not_tried(record);
    if !not_tried.rows.is_empty() {
        parts.push(("Remedies that do not apply", not_tried, vec![]));
    }
    if !record.gates.is_empty() {
        parts.push(("Gates: the checks on what was kept", tables::gates(record), vec![]));
    }
    parts
}

/// The verdict, its evidence, and the patch in words; the patch itself comes below.
pub fn terminal(record: &ScriptRecord) -> String {
    let mut out = format!("{} · {}\n\n", tables::title(record), tables::subtitle(record));
    for line in tables::summary(record) {
        let _ = writeln!(out, "{}", line.replace('`', ""));
    }
    for (title, mut table, below) in parts(record) {
        if table.head.contains(&"finding") {
            table.rows.truncate(FINDINGS);
        }
        let _ = write!(out, "\n{title}\n{}", columns(&table));
        for line in below {
            let _ = writeln!(out, "  {}", line.replace('`', ""));
        }
    }
    let patch = tables::patch(record);
    if !patch.is_empty() {
        out.push('\n');
    }
    for line in patch {
        let _ = writeln!(out, "{}", line.replace('`', ""));
    }
    out
}

/// `difference` is the patch as text, if there is one.
pub fn markdown(record: &ScriptRecord, difference: &str) -> String {
    let mut out = format!("# {}\n\n{}\n\n", tables::title(record), tables::subtitle(record));
    out += &(tables::summary(record).join("\n\n") + "\n");
    for (title, table, below) in parts(record) {
        let _ = write!(out, "\n## {title}\n\n{}", markdown_table(&table));
        if !below.is_empty() {
            let _ = write!(out, "\n{}", markdown_list(&below));
        }
    }
    let patch = tables::patch(record);
    if !patch.is_empty() {
        let _ = write!(out, "\n## The patch\n\n{}\n", patch.join("\n\n"));
    }
    if !difference.is_empty() {
        // A longer fence than any inside the patch.
        let _ = write!(out, "\n````diff\n{difference}````\n");
    }
    out
}

pub fn html(record: &ScriptRecord, difference: &str) -> String {
    let mut page = Page::new(&tables::title(record), &tables::subtitle(record));
    page.section("Summary", &page::list(&tables::summary(record)));
    for (title, table, below) in parts(record) {
        let plot = match table.head.contains(&"measured") && !table.rows.is_empty() {
            true => format!("<figure>{}{LEGEND}</figure>", plot(record)),
            false => String::new(),
        };
        let below = if below.is_empty() { String::new() } else { page::list(&below) };
        page.section(title, &(plot + &page::table(&table, "") + &below));
    }
    let patch = tables::patch(record);
    if !patch.is_empty() || !difference.is_empty() {
        let difference = match difference.is_empty() {
            true => String::new(),
            false => format!("<pre><code>{}</code></pre>\n", escape(difference)),
        };
        page.section("The patch", &(page::list(&patch) + &difference));
    }
    page.finish()
}

/// One row per remedy that was measured.
fn plot(record: &ScriptRecord) -> String {
    let rows = record.remedies.iter().filter_map(|row| {
        let saving = row.saving_percent?;
        let tip = format!("{}\nmeasured {saving:.1}%\n{}", row.name, row.outcome);
        Some(Row { name: row.name.clone(), predicted: row.predicted_saving_percent, saving, interval: None, tip })
    });
    savings("Predicted and measured saving of every remedy", 190.0, &rows.collect::<Vec<_>>())
}

const LEGEND: &str = "<figcaption class=\"legend\"><span><i class=\"predicted\"></i>predicted, before it ran</span> \
    <span><i class=\"measured\"></i>measured</span> Percent of the unchanged script's step that a remedy saves beyond \
    those kept before it.</figcaption>";

#[cfg(test)]
mod tests;
