//! The tables of a sweep.

use crate::numbers::{rate, seconds};
use crate::table::Table;
use headroom_record::scaling::{Optimization, ScalingPoint, ScalingRecord};

pub fn points(points: &[ScalingPoint]) -> Table {
    Table {
        head: vec![
            "batch",
            "seq",
            "peak MiB",
            "avg MiB",
            "peak/avg",
            "× first",
            "KiB/token",
            "attention MiB, at most",
            "step",
            "samples/s",
            "process MiB",
            "",
        ],
        rows: points.iter().map(point).collect(),
    }
}

fn point(point: &ScalingPoint) -> Vec<String> {
    let or_empty = |text: Option<String>| text.unwrap_or_default();
    vec![
        point.batch_size.to_string(),
        point.seq_len.to_string(),
        format!("{:.1}", point.peak_memory_mb),
        format!("{:.1}", point.avg_memory_mb),
        format!("{:.2}", point.peak_to_average),
        format!("{:.2}", point.scaling_factor),
        format!("{:.1}", point.memory_per_token_kb),
        format!("{:.1}", point.largest_by_component.attention),
        or_empty(point.step_seconds.map(seconds)),
        or_empty(point.samples_per_sec.map(rate)),
        or_empty(point.process_peak_memory_mb.map(|mb| format!("{mb:.0}"))),
        or_empty(point.note.as_ref().map(|note| note.lines().next().unwrap_or_default().to_string())),
    ]
}

pub fn growth(record: &ScalingRecord) -> Table {
    let exponent = |exponent: Option<f64>| exponent.map_or("-".into(), |exponent| format!("{exponent:.2}"));
    let mut rows = vec![];
    for (axis, growth) in [("batch", &record.batch_scaling), ("sequence", &record.sequence_scaling)] {
        for part in &growth.components {
            rows.push(vec![
                axis.into(),
                part.component.clone(),
                format!("{:.1}", part.first_mb),
                format!("{:.1}", part.last_mb),
                exponent(part.exponent),
                part.class.clone(),
            ]);
        }
        rows.push(vec![
            axis.into(),
            "everything not fixed".into(),
            String::new(),
            String::new(),
            exponent(growth.exponent),
            growth.class.clone(),
        ]);
    }
    Table { head: vec!["over", "component", "first MiB", "last MiB", "exponent", "growth"], rows }
}

pub fn optimizations(record: &ScalingRecord) -> Table {
    Table {
        head: vec!["optimisation", "planned MiB", "saves MiB", "saves", "measured MiB", "step", "how"],
        rows: record.optimizations.iter().map(optimization).collect(),
    }
}

fn optimization(row: &Optimization) -> Vec<String> {
    let measured = match (row.measured_before_mb, row.measured_after_mb) {
        (Some(before), Some(after)) => format!("{before:.0} → {after:.0}"),
        // GPU memory is not part of the process size that the system reports.
        _ if row.step_ratio.is_some() => "time only".into(),
        _ => "not run".into(),
    };
    let how = match (&row.flags, &row.note) {
        (_, Some(note)) => note.lines().next().unwrap_or_default().to_string(),
        (Some(flags), None) => format!("`{flags}`"),
        (None, None) => String::new(),
    };
    vec![
        row.name.clone(),
        format!("{:.1}", row.predicted_memory_mb),
        format!("{:.1}", row.saved_mb),
        format!("{:.1}%", row.saved_percent),
        measured,
        row.step_words().unwrap_or_default(),
        how,
    ]
}
