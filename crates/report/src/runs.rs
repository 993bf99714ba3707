//! The registry of runs as text: lists, one run, several side by side, CSV, and the verdict of a gate.

mod csv;
mod regression;

pub use csv::csv;
pub use regression::{Regression, Turn, change_text, regression};

use crate::numbers::{grouped, mfu, mfu_cell, rate, seconds};
use crate::table::{Align, text_table};
use headroom_record::registry::{RunRow, RunStatus};
use serde_json::Value;
use std::fmt::Write;

/// One line per run, in the given order.
pub fn list(runs: &[RunRow]) -> String {
    if runs.is_empty() {
        return "no recorded run matches\n".into();
    }
    let columns = [
        ("run", Align::Right),
        ("name", Align::Left),
        ("started", Align::Left),
        ("command", Align::Left),
        ("size", Align::Left),
        ("passes", Align::Left),
        ("status", Align::Left),
        ("samples/s", Align::Right),
        ("step", Align::Right),
        ("MiB", Align::Right),
        ("MFU", Align::Right),
        ("loss", Align::Right),
    ];
    let rows: Vec<Vec<String>> = runs.iter().map(line).collect();
    text_table(&columns, &rows)
}

fn line(run: &RunRow) -> Vec<String> {
    let figures = &run.figures;
    let predicted = if figures.measured || figures.step_seconds.is_none() { "" } else { "~" };
    let optional = |text: Option<String>| text.unwrap_or_default();
    vec![
        run.id.to_string(),
        optional(run.name.clone()),
        run.start.started.replace('T', " ").trim_end_matches('Z').to_string(),
        run.start.command.clone(),
        optional(run.start.size.clone()),
        optional(run.start.version.as_deref().map(short_version)),
        run.status.name().into(),
        optional(figures.samples_per_sec.map(|speed| format!("{predicted}{}", rate(speed)))),
        optional(figures.step_seconds.map(|time| format!("{predicted}{}", seconds(time)))),
        optional(figures.peak_memory_mb.map(|mb| format!("{mb:.0}"))),
        // A table has no room for the reason, which `runs show` gives.
        optional(figures.mfu_percent.map(mfu_cell)),
        optional(figures.final_loss.map(|loss| format!("{loss:.4}"))),
    ]
}

/// Shortens a long list of passes to its length; `show` prints all of it.
pub fn short_version(version: &str) -> String {
    match version.split(['+', ',']).count() {
        passes if passes > 2 && version.len() > 24 => format!("{passes} passes"),
        _ => version.into(),
    }
}

/// Everything about one run.
pub fn show(run: &RunRow) -> String {
    let mut out = format!("run {}{}\n", run.id, run.name.as_ref().map_or(String::new(), |name| format!(" ({name})")));
    let mut line = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(out, "  {key:<16} {value}");
        }
    };
    let start = &run.start;
    let status = match (run.status, &run.error) {
        (RunStatus::Finished, _) | (_, None) => run.status.name().to_string(),
        (_, Some(error)) => format!("{}: {}", run.status.name(), error.replace('\n', "\n                   ")),
    };
    line("status", Some(status));
    line("started", Some(start.started.clone()));
    line("ended", run.ended.clone());
    line("part of run", start.parent.map(|id| id.to_string()));
    line("command", Some(start.command_line.join(" ")));
    line("in", start.directory.clone());
    line("folder", start.folder.clone());
    line("size", start.size.clone());
    line("passes", start.version.clone());
    for (key, value) in start.configuration.as_object().into_iter().flatten() {
        line(key, setting(value));
    }
    line("machine", Some(format!("{}, {} threads, device {}", start.machine, start.threads, start.device)));
    line("headroom", Some(start.headroom_version.clone()));
    for (name, value) in figures(run) {
        line(name, value);
    }
    out
}

/// A setting as people write it; `None` if it was left open.
fn setting(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => return None,
        Value::String(text) => text.clone(),
        Value::Array(elements) => elements.iter().filter_map(setting).collect::<Vec<_>>().join(", "),
        other => other.as_u64().map_or_else(|| other.to_string(), grouped),
    })
}

/// Runs side by side, with the change from the first to the last where there are two.
pub fn compare(runs: &[RunRow], step_change: Option<&str>) -> String {
    let mut columns = vec![("", Align::Left)];
    let heads: Vec<String> = runs
        .iter()
        .map(|run| match &run.name {
            Some(name) => format!("{} ({name})", run.id),
            None => run.id.to_string(),
        })
        .collect();
    columns.extend(heads.iter().map(|head| (head.as_str(), Align::Right)));
    let mut rows = vec![];
    let mut row = |name: &str, values: Vec<Option<String>>| {
        if values.iter().any(Option::is_some) {
            let cells = values.into_iter().map(|value| value.unwrap_or_else(|| "–".into()));
            rows.push(std::iter::once(name.to_string()).chain(cells).collect());
        }
    };
    let of = |value: fn(&RunRow) -> Option<String>| runs.iter().map(value).collect::<Vec<_>>();
    row("command", of(|run| Some(run.start.command.clone())));
    row("size", of(|run| run.start.size.clone()));
    row("passes", of(|run| run.start.version.as_deref().map(short_version)));
    row("device", of(|run| Some(format!("{}, {} threads", run.start.device, run.start.threads))));
    row("started", of(|run| Some(run.start.started.clone())));
    row("headroom", of(|run| Some(run.start.headroom_version.clone())));
    let tables: Vec<Vec<(&str, Option<String>)>> = runs.iter().map(figures).collect();
    for (index, (name, _)) in tables.first().into_iter().flatten().enumerate() {
        row(name, tables.iter().map(|table| table[index].1.clone()).collect());
    }
    let mut out = text_table(&columns, &rows);
    for key in different_settings(runs) {
        let _ = writeln!(out, "different: {key}");
    }
    if let Some(change) = step_change {
        let _ = writeln!(out, "{change}");
    }
    out
}

/// `batch_size 8, 16` for every setting in which the runs differ.
pub fn different_settings(runs: &[RunRow]) -> Vec<String> {
    let Some(first) = runs.first() else { return vec![] };
    let keys = first.start.configuration.as_object().into_iter().flatten().map(|(key, _)| key);
    keys.filter_map(|key| {
        let values: Vec<String> = runs.iter().map(|run| run.start.configuration[key].to_string()).collect();
        values.iter().any(|value| *value != values[0]).then(|| format!("{key} {}", values.join(", ")))
    })
    .collect()
}

fn figures(run: &RunRow) -> Vec<(&'static str, Option<String>)> {
    let figures = &run.figures;
    let step = figures.step_seconds.map(|median| match (figures.step_seconds_low, figures.step_seconds_high) {
        _ if run.is_predicted() => format!("{} (predicted)", seconds(median)),
        (Some(low), Some(high)) => format!("{} ({} to {})", seconds(median), seconds(low), seconds(high)),
        _ => seconds(median),
    });
    vec![
        ("parameters", figures.parameters.map(grouped)),
        ("steps", figures.steps.map(grouped)),
        ("samples/s", figures.samples_per_sec.map(rate)),
        ("tokens/s", figures.tokens_per_sec.map(rate)),
        ("step (95%)", step),
        ("peak memory", figures.peak_memory_mb.map(|mb| format!("{mb:.1} MiB"))),
        ("average memory", figures.avg_memory_mb.map(|mb| format!("{mb:.1} MiB"))),
        ("MFU", figures.mfu_percent.map(|percent| mfu(percent, 1))),
        ("bound", figures.bound.map(|bound| bound.name().replace('_', " "))),
        ("final loss", figures.final_loss.map(|loss| format!("{loss:.4}"))),
        ("speed-up over v1", figures.speedup.map(|speedup| format!("{speedup:.2}×"))),
    ]
}
