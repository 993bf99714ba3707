//! The bottleneck report's habits compared with their remedies, as text and as Markdown.

use crate::numbers::{grouped, rate, seconds};
use crate::table::{Table, columns, markdown_table};
use headroom_record::k1_speed::{K1SpeedRecord, K1SpeedRow};

pub fn terminal(record: &K1SpeedRecord) -> String {
    format!("{TITLE}\n{}\n\n{}\n{}", subtitle(record), columns(&rows(record)), columns(&shown(record)))
        + &format!("\n{}\n", conclusion(record))
}

pub fn markdown(record: &K1SpeedRecord) -> String {
    format!("# {TITLE}\n\n{}\n\n{READING}\n\n{}", subtitle(record), markdown_table(&rows(record)))
        + &format!("\n## Displayed speed\n\n{}\n{}\n", markdown_table(&shown(record)), conclusion(record))
        + "\nEvery figure with its provenance: `k1-speed.json`.\n"
}

const TITLE: &str = "The bottleneck report's speed claims on K-1's tree";

const READING: &str = "Both ways alternate in blocks of ten steps on the same machine; the interval holds the ratio \
    with 95% confidence. Hoped: the gain that the report expects of the remedy, on a T4 and in PyTorch.";

fn subtitle(record: &K1SpeedRecord) -> String {
    format!(
        "{} parameters in {} nodes · batches of {} × {} · {} · {}, {} threads · {} · {} in total",
        grouped(record.parameters),
        record.nodes,
        record.batch_size,
        record.seq_len,
        record.version,
        record.machine,
        record.threads,
        record.timestamp,
        seconds(record.total_seconds)
    )
}

fn rows(record: &K1SpeedRecord) -> Table {
    let row = |row: &K1SpeedRow| {
        vec![
            row.habit.clone(),
            row.remedy.clone(),
            row.hoped.clone(),
            format!("{:.3}×", row.speedup),
            format!("{:.3} to {:.3}", row.ci95_low, row.ci95_high),
            row.rounds.to_string(),
        ]
    };
    Table {
        head: vec!["habit", "remedy", "hoped", "measured", "95%", "rounds"],
        rows: record.rows.iter().map(row).collect(),
    }
}

fn shown(record: &K1SpeedRecord) -> Table {
    let shown = &record.shown;
    let speeds = shown.cumulative_steps_per_sec.iter().zip(&shown.window_steps_per_sec);
    let row = |(after, (cumulative, window)): (&u64, (&f64, &f64))| {
        let under = 100.0 * (1.0 - cumulative / window.max(1e-12));
        vec![after.to_string(), rate(*cumulative), rate(*window), format!("{under:+.1}%")]
    };
    Table {
        head: vec!["after steps", "cumulative steps/s", "steps/s of the last 10", "hidden by the average"],
        rows: shown.after.iter().zip(speeds).map(row).collect(),
    }
}

fn conclusion(record: &K1SpeedRecord) -> String {
    let first = seconds(record.shown.first_step_seconds);
    let Some(all) = record.rows.last() else { return String::new() };
    format!(
        "The report hopes for 3-5x from all remedies together; here the habits that concern steps cost {:.2}× \
         together. The first step took {first}, and a cumulative average never forgets it.",
        all.speedup
    )
}
