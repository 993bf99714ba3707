//! Precisions as rungs of the ladder, for every format of the report.

use super::tables::{gate_figure, times};
use crate::table::{Table, columns, markdown_table};
use headroom_record::precisions::{PrecisionRow, PrecisionsRecord};

pub const TITLE: &str = "Precisions, each against the fastest one proved before it";

pub fn table(record: &PrecisionsRecord) -> Table {
    let row = |row: &PrecisionRow| {
        let figure = |name: &str| {
            row.gates.get(name).map_or(String::new(), |gate| {
                format!("{} of {}", gate_figure(name, gate.figure), gate_figure(name, gate.limit))
            })
        };
        vec![
            row.precision.clone(),
            row.over.clone(),
            times(row.predicted_speedup),
            times(row.measured_speedup),
            format!("{:.2} to {:.2}", row.measured_ci95_low, row.measured_ci95_high),
            format!("{:.0} → {:.0}", row.memory_before_mb, row.memory_after_mb),
            figure("gradients"),
            figure("final_loss"),
            verdict(row),
        ]
    };
    let head =
        vec!["precision", "over", "predicted", "measured", "95%", "memory, MiB", "gradients", "final loss", "verdict"];
    Table { head, rows: record.precisions.iter().map(row).collect() }
}

/// `proved`, or the gates that failed.
fn verdict(row: &PrecisionRow) -> String {
    let missed: Vec<String> = row
        .gates
        .iter()
        .filter(|(_, gate)| gate.result != "pass")
        .map(|(name, gate)| format!("{} {}", name.replace('_', " "), gate.result))
        .collect();
    if row.proved { "proved".into() } else { format!("not proved: {}", missed.join(", ")) }
}

pub fn summary(record: &PrecisionsRecord) -> String {
    let Some(_) = record.precisions.iter().find(|row| row.proved) else {
        return "No other precision was proved: `--precision auto` takes fp32 for this size on this machine.".into();
    };
    format!(
        "Proved for this size on this machine: `--precision {}`, {} the speed of fp32 with the same passes. `--precision auto` \
         takes it from now on.",
        record.precision,
        times(record.speedup())
    )
}

pub fn terminal(record: &PrecisionsRecord) -> String {
    format!("\n{TITLE}\n{}\n{}\n", columns(&table(record)), summary(record).replace('`', ""))
}

pub fn markdown(record: &PrecisionsRecord) -> String {
    format!("\n## {TITLE}\n\n{}\n{}\n", markdown_table(&table(record)), summary(record))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_record::provenance::Provenance;
    use headroom_record::validation::GateRecord;

    fn record(result: &str) -> PrecisionsRecord {
        let gate = |result: &str, figure: f64, limit: f64| GateRecord {
            result: result.into(),
            figure,
            limit,
            about: String::new(),
            ci95_low: None,
            ci95_high: None,
        };
        let proved = result == "pass";
        PrecisionsRecord {
            schema_version: headroom_record::SCHEMA_VERSION,
            provenance: Provenance::default(),
            timestamp: "2026-11-15T02:10:00Z".into(),
            device: "a GPU".into(),
            kernels: "cafe".into(),
            size: "medium".into(),
            model: "1024 wide".into(),
            batch_size: 16,
            seq_len: 512,
            passes: vec![],
            precision: if proved { "fp8" } else { "fp32" }.into(),
            precisions: vec![PrecisionRow {
                precision: "fp8".into(),
                over: "fp32".into(),
                predicted_speedup: 2.0,
                measured_speedup: 1.5,
                measured_ci95_low: 1.4,
                measured_ci95_high: 1.6,
                rounds: 8,
                memory_before_mb: 20.0,
                memory_after_mb: 10.0,
                proved,
                loss_difference: None,
                gradient_difference: None,
                gates: [
                    ("gradients".to_string(), gate(result, 0.12, 0.2)),
                    ("memory".to_string(), gate("pass", 0.5, 1.0)),
                ]
                .into(),
            }],
        }
    }

    #[test]
    fn a_rung_is_told_with_the_gate_that_it_missed() {
        let proved = record("pass");
        for text in [terminal(&proved), markdown(&proved)] {
            assert!(text.contains("1.50×") && text.contains("1.2e-1 of 2.0e-1") && text.contains("auto"), "{text}");
            assert!(text.contains("proved") && !text.contains("not proved"), "{text}");
        }
        let text = terminal(&record("fail"));
        assert!(text.contains("not proved: gradients fail") && text.contains("takes fp32"), "{text}");
    }
}
