//! A part's record sheet: the figures of the table, filled in from run folders.

use super::course::{Figure, PARTS, Step, Unit};
use super::folders;
use anyhow::Context;
use headroom_record::SCHEMA_VERSION;
use headroom_record::workshop::{RecordSheet, SheetFigure, SheetStep};
use headroom_report::numbers::{grouped, rate, seconds};
use serde_json::Value;
use std::path::Path;

pub fn of_part(number: u64, from: Option<&Path>) -> anyhow::Result<RecordSheet> {
    let part = PARTS.iter().find(|part| part.number == number).with_context(|| format!("there is no part {number}"))?;
    let steps = part.steps.iter().map(|step| SheetStep {
        title: step.title.into(),
        command: step.command.into(),
        figures: step.figures.iter().copied().flatten().map(|figure| sheet_figure(step, figure, from)).collect(),
    });
    Ok(RecordSheet { schema_version: SCHEMA_VERSION, part: number, title: part.title.into(), steps: steps.collect() })
}

fn sheet_figure(step: &Step, figure: &Figure, from: Option<&Path>) -> SheetFigure {
    let held = step.run.zip(figure.source);
    let read = || {
        let (run, (file, key, unit)) = held?;
        let record: Value = folders::record(&folders::of_page(from?, run.folder)?, file).ok()?;
        written(folders::value(&record, key)?, unit)
    };
    SheetFigure {
        name: figure.name.into(),
        file: held.map(|(run, (file, ..))| format!("{}/{file}", run.folder)),
        key: held.map(|(_, (_, key, _))| key.into()),
        value: read(),
    }
}

/// The figure as one would write it down; `None` if the run does not have it.
fn written(value: &Value, unit: Unit) -> Option<String> {
    if unit == Unit::Words {
        return value.as_str().map(|words| words.replace('_', " "));
    }
    let number = value.as_f64()?;
    Some(match unit {
        Unit::Count => grouped(value.as_u64()?),
        Unit::Seconds => seconds(number),
        Unit::Mebibytes => format!("{number:.1} MiB"),
        Unit::Percent => format!("{number:.1}%"),
        Unit::Times => format!("{number:.2}×"),
        Unit::Rate => rate(number),
        Unit::Number if number.abs() >= 1e6 => format!("{number:.2e}"),
        Unit::Number if number.abs() >= 100.0 => format!("{number:.1}"),
        Unit::Number | Unit::Words => format!("{number:.4}"),
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
                let kept = step.figures.iter().copied().flatten().any(|figure| figure.source.is_some());
                assert!(step.run.is_some() || !kept, "{}: its figures are in no folder", step.command);
            }
        }
        assert!(of_part(7, None).is_err());
    }
}
