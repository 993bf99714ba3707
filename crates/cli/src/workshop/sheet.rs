//! A part's record sheet: the figures of the table, filled in from run folders.

use super::course::{Document, Figure, PARTS, Step, Unit};
use super::folders;
use crate::analyze;
use anyhow::Context;
use headroom_diagnosis::compare::compare;
use headroom_record::SCHEMA_VERSION;
use headroom_record::workshop::{RecordSheet, SheetFigure, SheetStep};
use headroom_report::numbers::{grouped, rate, seconds};
use headroom_trace::GzipRatio;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

pub fn of_part(number: u64, from: Option<&Path>) -> anyhow::Result<RecordSheet> {
    let part = PARTS.iter().find(|part| part.number == number).with_context(|| format!("there is no part {number}"))?;
    let mut documents = Documents { root: from, read: BTreeMap::new() };
    let steps = part.steps.iter().map(|step| SheetStep {
        title: step.title.into(),
        command: step.command.into(),
        figures: step.figures.iter().copied().flatten().map(|figure| documents.figure(step, figure)).collect(),
    });
    let steps = steps.collect();
    Ok(RecordSheet { schema_version: SCHEMA_VERSION, part: number, title: part.title.into(), steps })
}

/// Documents of the runs below a folder, each read once: several figures stand in one.
struct Documents<'a> {
    root: Option<&'a Path>,
    read: BTreeMap<(Document, &'static str), Option<Value>>,
}

impl Documents<'_> {
    fn figure(&mut self, step: &Step, figure: &Figure) -> SheetFigure {
        let folder = step.run.map_or("", |run| run.folder);
        let value = figure.source.and_then(|(document, key, unit)| {
            let root = self.root?;
            let read = || read(document, folder, root);
            let held = self.read.entry((document, folder)).or_insert_with(read);
            written(folders::value(held.as_ref()?, key)?, unit)
        });
        SheetFigure {
            name: figure.name.into(),
            file: figure.source.map(|(document, ..)| match document {
                Document::File(file) => format!("{folder}/{file}"),
                Document::Reader => "your answer".to_string(),
                Document::Analysis => format!("headroom analyze --json {folder}"),
                Document::Comparison(before, after) => format!("headroom compare --json {before} {after}"),
            }),
            key: figure.source.map(|(_, key, _)| key.to_string()).filter(|key| !key.is_empty()),
            value,
        }
    }
}

/// `None` where the folder does not hold it, or does not hold it whole.
fn read(document: Document, folder: &str, root: &Path) -> Option<Value> {
    let analysis = |folder: &str| analyze::of_one_run(&folders::of_page(root, folder)?, GzipRatio::Usual).ok();
    match document {
        Document::File(file) => folders::record(&folders::of_page(root, folder)?, file).ok(),
        Document::Reader => None,
        Document::Analysis => serde_json::to_value(analysis(folder)?).ok(),
        Document::Comparison(before, after) => {
            serde_json::to_value(compare(&analysis(before)?, &analysis(after)?)).ok()
        }
    }
}

/// The figure as one would write it down; `None` if the run does not have it.
fn written(value: &Value, unit: Unit) -> Option<String> {
    match unit {
        Unit::Words => return value.as_str().map(|words| words.replace('_', " ")),
        Unit::Entries => return value.as_array().map(|list| list.len().to_string()),
        _ => {}
    }
    let number = value.as_f64()?;
    Some(match unit {
        Unit::Count => grouped(value.as_u64()?),
        Unit::Seconds => seconds(number),
        Unit::Mebibytes => format!("{number:.1} MiB"),
        Unit::Percent => format!("{number:.1}%"),
        Unit::Share => format!("{:.1}%", 100.0 * number),
        Unit::Change => format!("{:+.1}%", 100.0 * number),
        Unit::Times => format!("{number:.2}×"),
        Unit::Rate => rate(number),
        Unit::Number if number.abs() >= 1e6 => format!("{number:.2e}"),
        Unit::Number if number.abs() >= 100.0 => format!("{number:.1}"),
        Unit::Number | Unit::Words | Unit::Entries => format!("{number:.4}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn figures_are_written_with_their_units() {
        for (value, unit, want) in [
            (json!(2_873_600), Unit::Count, "2,873,600"),
            (json!(0.0125), Unit::Seconds, "12.50 ms"),
            (json!(122.25), Unit::Mebibytes, "122.2 MiB"),
            (json!(1.234), Unit::Times, "1.23×"),
            (json!(32.154), Unit::Rate, "32.2"),
            (json!(6.957_015), Unit::Number, "6.9570"),
            (json!("memory_bound"), Unit::Words, "memory bound"),
            (json!(0.267), Unit::Share, "26.7%"),
            (json!(-0.445), Unit::Change, "-44.5%"),
            (json!(["one", "two"]), Unit::Entries, "2"),
        ] {
            assert_eq!(written(&value, unit).as_deref(), Some(want));
        }
        assert_eq!(written(&json!(null), Unit::Percent), None);
    }

    #[test]
    fn every_part_has_a_sheet_and_every_kept_figure_a_run() {
        for part in PARTS {
            let sheet = of_part(part.number, None).unwrap();
            assert!(!sheet.steps.is_empty(), "part {}", part.number);
            for step in part.steps {
                let of_a_run = |figure: &Figure| {
                    let of_none = |document| matches!(document, Document::Comparison(..) | Document::Reader);
                    figure.source.is_some_and(|(document, ..)| !of_none(document))
                };
                let kept = step.figures.iter().copied().flatten().any(of_a_run);
                assert!(step.run.is_some() || !kept, "{}: its figures are in no folder", step.command);
            }
        }
        assert!(of_part(7, None).is_err());
    }
}
