//! The tables of a study.

use crate::numbers::{grouped, mfu_cell, rate, seconds};
use crate::table::Table;
use headroom_record::study::{StudyRecord, StudyRow};

pub fn runs(record: &StudyRecord) -> Table {
    Table {
        head: vec![
            "size",
            "version",
            "parameters",
            "batch",
            "seq",
            "samples/s",
            "tokens/s",
            "step",
            "95%",
            "peak MiB",
            "avg MiB",
            "KiB/token",
            "× first",
            "MFU",
            "bound",
            "status",
        ],
        rows: record.runs.iter().map(run).collect(),
    }
}

fn run(row: &StudyRow) -> Vec<String> {
    let (planned, measured) = (&row.planned, &row.measured);
    let or_empty = |text: Option<String>| text.unwrap_or_default();
    vec![
        row.size.clone(),
        row.version.clone(),
        grouped(planned.parameters),
        planned.batch_size.to_string(),
        planned.seq_len.to_string(),
        or_empty(measured.samples_per_sec.map(rate)),
        or_empty(measured.tokens_per_sec.map(|tokens| grouped(tokens.round() as u64))),
        or_empty(measured.step_seconds.map(seconds)),
        or_empty(
            measured
                .step_seconds_low
                .zip(measured.step_seconds_high)
                .map(|(low, high)| format!("{} to {}", seconds(low), seconds(high))),
        ),
        format!("{:.0}", measured.peak_memory_mb.unwrap_or(planned.planned_memory_mb)),
        or_empty(measured.avg_memory_mb.map(|mb| format!("{mb:.0}"))),
        or_empty(measured.memory_per_token_kb.map(|kb| format!("{kb:.0}"))),
        or_empty(measured.scaling_factor.map(|factor| format!("{factor:.1}"))),
        or_empty(measured.mfu_percent.map(mfu_cell)),
        or_empty(measured.bound.map(|bound| bound.word().to_string())),
        row.status.name().into(),
    ]
}

pub fn memory(record: &StudyRecord) -> Table {
    let cell = |size: f64| format!("{size:.1}");
    let row = |row: &StudyRow| {
        let mut cells = vec![row.size.clone(), row.version.clone()];
        cells.extend(row.planned.memory_by_component.entries().map(|(_, size)| cell(size)));
        cells.push(cell(row.planned.planned_memory_mb));
        cells.push(format!("{:.1}", row.planned.memory_over_parameters));
        cells
    };
    Table {
        head: vec![
            "MiB",
            "version",
            "parameters",
            "gradients",
            "optimizer",
            "activations",
            "attention",
            "temporaries",
            "overhead",
            "total",
            "× parameters",
        ],
        rows: record.runs.iter().map(row).collect(),
    }
}
