//! Tables below the findings: operators with their shapes, roofline, waits, copies.

use headroom_diagnosis::Analysis;
use headroom_diagnosis::measures::operators::OperatorRow;
use headroom_diagnosis::measures::sequences::SequenceRow;
use headroom_diagnosis::measures::shapes::ShapeRow;
use headroom_record::intensity::Bound;

use super::super::{MOST_ROWS, has_device_time, milliseconds, operator_table, percent};
use crate::names::{self, shortened};
use crate::numbers::{grouped, metric};
use crate::page::{kernel_cell, note, table};
use crate::svg::escape;
use crate::table::Table;
use crate::targets;

pub(super) fn operators(analysis: &Analysis) -> String {
    let about = note("Times per step. Self: without the operators that it calls. Share: of all self time.");
    let target = note(&targets::note(analysis));
    table(&operator_table(analysis), "") + &about + &target + &shapes(analysis)
}

/// Operators that ran with several shapes, each shape with its share of the time; collapsed, because it is long.
fn shapes(analysis: &Analysis) -> String {
    let (steps, device) = (analysis.steps.count(), has_device_time(analysis));
    let several = analysis.measures.operators.rows.iter().take(MOST_ROWS).filter(|row| row.shapes.len() > 1).take(10);
    let row = |row: &OperatorRow| {
        let cells = row.shapes.iter().map(|shape| {
            let seconds = if device { shape.device_self_seconds } else { shape.host_self_seconds };
            let dims = format!("`{}`", shortened(&shape.input_dims, 90));
            vec![format!("`{}`", row.name), dims, grouped(shape.calls), milliseconds(seconds / steps)]
        });
        cells.collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = several.flat_map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let table = table(&Table { head: vec!["operator", "input sizes", "calls", "self, per step"], rows }, "");
    format!("<details><summary>By input shape</summary>{table}</details>\n")
}

/// Achieved speed of GEMMs, convolutions and attention for each of their shapes.
pub(super) fn efficiency(analysis: &Analysis) -> String {
    let (rows, steps) = (&analysis.measures.roofline.by_shape, analysis.steps.count());
    let cells = |row: &ShapeRow| {
        vec![
            row.kind.to_string(),
            format!("`{}`", row.name),
            format!("`{}`", shortened(&row.input_dims, 70)),
            row.precision.to_string(),
            grouped(row.calls),
            milliseconds(row.seconds / steps),
            percent(row.share),
            metric(row.flops / row.seconds.max(f64::MIN_POSITIVE), "FLOP/s"),
            row.percent_of_roof.map(|percent| format!("{percent:.1}%")).unwrap_or_else(|| "-".into()),
        ]
    };
    let rows: Vec<Vec<String>> = rows.iter().take(MOST_ROWS).map(cells).collect();
    if rows.is_empty() {
        return String::new();
    }
    let head =
        vec!["kind", "operator", "input sizes", "type", "calls", "per step", "share of time", "rate", "share of roof"];
    table(&Table { head, rows }, "")
        + &note(
            "The roof is the shortest time that the device's peaks allow for the shape, limited by arithmetic or by memory.",
        )
}

/// Kernels that repeatedly follow each other and could be one kernel.
pub(super) fn sequences(analysis: &Analysis) -> String {
    let steps = analysis.steps.count();
    let cells = |row: &SequenceRow| {
        let names: Vec<String> = row.kernels.iter().map(|name| format!("`{}`", names::kernel(name, 50))).collect();
        vec![
            names.join(" → "),
            format!("{:.0}", row.times_per_step),
            milliseconds(row.seconds_per_step),
            percent(row.share),
        ]
    };
    let rows: Vec<Vec<String>> = analysis.measures.sequences.iter().map(cells).collect();
    if rows.is_empty() || steps == 0.0 {
        return String::new();
    }
    let head = vec!["kernel sequence", "times per step", "total per step", "share of kernel time"];
    let table = table(&Table { head, rows }, "");
    format!("<details><summary>Sequences of kernels that repeat</summary>{table}</details>\n")
}

pub(super) fn roofline(analysis: &Analysis) -> String {
    let (roofline, steps) = (&analysis.measures.roofline, analysis.steps.count());
    if roofline.rows.is_empty() {
        return String::new();
    }
    let has_peak = roofline.peak_flops_per_second.is_some();
    let rows = roofline.rows.iter().take(15).map(|row| {
        let mut cells = vec![
            format!("`{}`", row.name),
            grouped(row.calls),
            metric(row.flops / steps, "FLOP"),
            format!("{:.1}", row.intensity),
            milliseconds(row.seconds / steps),
        ];
        if has_peak {
            let percent = format!("{:.0}%", row.percent_of_roof);
            cells.extend([
                milliseconds(row.roof_seconds / steps),
                percent,
                row.bound.map_or("unknown", Bound::word).into(),
            ]);
        }
        cells
    });
    let mut head = vec!["operator", "calls", "work per step", "FLOPs per byte", "time per step"];
    if has_peak {
        head.extend(["least time at the peaks", "share of roof", "bound by"]);
    }
    let about = match (&roofline.peak_source, roofline.peak_flops_per_second, roofline.peak_bytes_per_second) {
        (Some(source), Some(flops), Some(bytes)) => {
            format!("Peaks: {} and {} ({source}).", metric(flops, "FLOP/s"), metric(bytes, "B/s"))
        }
        _ => "No peaks are known for this device, so no roof is shown.".to_string(),
    };
    table(&Table { head, rows: rows.collect() }, "") + &note(&about)
}

pub(super) fn waits(analysis: &Analysis) -> String {
    let rows: Vec<Vec<String>> = analysis
        .measures
        .synchronisation
        .groups
        .iter()
        .take(15)
        .map(|row| {
            let micros = |seconds: f64| format!("{:.1} µs", 1e6 * seconds / row.calls.max(1) as f64);
            vec![
                format!("`{}`", row.what),
                row.after.as_ref().map(|after| format!("`{after}`")).unwrap_or_default(),
                row.function.as_ref().map(|function| format!("`{}`", shortened(function, 80))).unwrap_or_default(),
                format!("{:.1}", row.per_step),
                micros(row.wait_seconds),
                micros(row.cost_seconds),
                percent(row.share_of_steps),
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = vec!["call", "after", "in", "per step", "wait, each", "cost, each", "share of step"];
    table(&Table { head, rows }, "")
}

pub(super) fn copies(analysis: &Analysis) -> String {
    let steps = analysis.steps.count();
    let rows: Vec<Vec<String>> = analysis
        .measures
        .copies
        .rows
        .iter()
        .map(|row| {
            vec![
                format!("`{}`", row.name),
                format!("{:.1}", row.count as f64 / steps),
                format!("{:.2} MB", row.bytes as f64 / 1e6 / steps),
                format!("{:.1} GB/s", row.gigabytes_per_second),
                milliseconds(row.device_seconds / steps),
                milliseconds(row.exposed_seconds / steps),
                if row.pageable { "pageable" } else { "" }.to_string(),
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = vec!["copy", "per step", "bytes per step", "speed", "time per step", "exposed", ""];
    table(&Table { head, rows }, "")
}

/// Kernels on the critical path.
pub(super) fn path(analysis: &Analysis) -> String {
    let path = &analysis.measures.critical_path;
    if path.kernels.is_empty() {
        return String::new();
    }
    let steps = analysis.steps.count();
    let row = |row: &headroom_diagnosis::measures::critical_path::PathRow| {
        vec![kernel_cell(&row.name, 100), milliseconds(row.seconds / steps)]
    };
    let rows = path.kernels.iter().take(10).map(row).collect();
    let shares = super::super::critical_path(analysis).unwrap_or_default();
    format!("<p>{}</p>", escape(&shares)) + &table(&Table { head: vec!["kernel on the path", "per step"], rows }, "")
}
