//! Phase 3 of the workshop's roadmap and its reference points, for every format of the report.

use crate::numbers::times;
use crate::table::Table;
use headroom_record::phase_3::{PhaseThreeRow, ReferencePoint};
use headroom_record::validation::ValidationRecord;

pub const TITLE: &str = "Phase 3, on top of the kept list: mixed precision, checkpointing, layout";

pub const POINTS_TITLE: &str = "Throughput at the reference points";

pub const POINTS_NOTE: &str = "Every list takes its turn in every round, and a round counts the better of two steps. The first \
    shape was timed in the race of all lists, the second (twice the batch and length) in a shorter one. Intervals are of 95%.";

pub fn table(record: &ValidationRecord) -> Table {
    let row = |row: &PhaseThreeRow| {
        let interval = row.measured_ci95_low.zip(row.measured_ci95_high);
        let memory = row.memory_before_mb.zip(row.memory_after_mb);
        let difference = row.loss_difference.zip(row.gradient_difference);
        vec![
            row.name.clone(),
            row.predicted_speedup.map_or(String::new(), times),
            row.measured_speedup.map_or(String::new(), times),
            interval.map_or(String::new(), |(low, high)| format!("{low:.2} to {high:.2}")),
            memory.map_or(String::new(), |(before, after)| format!("{before:.0} → {after:.0}")),
            difference.map_or(String::new(), |(loss, gradient)| format!("{:.0e}", loss.max(gradient))),
            row.verdict.clone(),
        ]
    };
    let head = vec!["rung", "predicted", "measured", "95%", "memory, MiB", "difference", "verdict"];
    Table { head, rows: record.phase_3.iter().map(row).collect() }
}

/// Reasons and advice below the table.
pub fn notes(record: &ValidationRecord) -> Vec<String> {
    let mut notes: Vec<String> =
        record.phase_3.iter().filter_map(|row| Some(format!("{}: {}", row.name, row.note.as_ref()?))).collect();
    if record.phase_3.iter().any(|row| row.loss_difference.is_some()) {
        notes.push(
            "Difference: the larger of loss and gradients, relative to Version 1 in single precision. Each rung has gates of its \
             own in validation.json; those of a precision allow what that precision states."
                .into(),
        );
    }
    notes
}

/// The kept rungs in a sentence; `None` if none is kept.
pub fn summary(record: &ValidationRecord) -> Option<String> {
    let kept: Vec<String> = record
        .phase_3
        .iter()
        .filter(|row| row.kept)
        .filter_map(|row| Some(format!("`{}` ({})", row.flag.as_ref()?, times(row.measured_speedup?))))
        .collect();
    (!kept.is_empty()).then(|| format!("Phase 3 adds {}, on top of the kept list.", kept.join(" and ")))
}

/// Rows of the roadmap's third phase: rung, predicted, measured, verdict.
pub fn roadmap(record: &ValidationRecord) -> Vec<[String; 4]> {
    let row = |row: &PhaseThreeRow| {
        let mark = if row.kept { "[x]" } else { "[ ]" };
        let cell = |speedup: Option<f64>| speedup.map_or(String::new(), times);
        [format!("{mark} {}", row.name), cell(row.predicted_speedup), cell(row.measured_speedup), row.verdict.clone()]
    };
    record.phase_3.iter().map(row).collect()
}

/// Predicted and measured speed-up of the kept rungs together.
pub fn kept_speedup(record: &ValidationRecord) -> (f64, f64) {
    let kept = record.phase_3.iter().filter(|row| row.kept);
    kept.fold((1.0, 1.0), |(predicted, measured), row| {
        (predicted * row.predicted_speedup.unwrap_or(1.0), measured * row.measured_speedup.unwrap_or(1.0))
    })
}

/// Rounds below which a throughput is only indicative.
const ENOUGH_ROUNDS: u64 = 9;

/// Says which points had few rounds.
pub fn few_rounds(record: &ValidationRecord) -> Option<String> {
    let few = record.reference_points.iter().any(|point| point.rounds < ENOUGH_ROUNDS);
    few.then(|| {
        format!("Rows of fewer than {ENOUGH_ROUNDS} rounds are indicative; a longer `--time-limit` gives them more.")
    })
}

pub fn points(record: &ValidationRecord) -> Table {
    let row = |point: &ReferencePoint| {
        vec![
            format!("{} × {}", point.batch_size, point.seq_len),
            point.name.clone(),
            format!("{} samples/s", rate(point.samples_per_sec)),
            format!("{} to {}", rate(point.ci95_low), rate(point.ci95_high)),
            times(point.speedup),
            format!("{:.2} to {:.2}", point.speedup_ci95_low, point.speedup_ci95_high),
            point.rounds.to_string(),
        ]
    };
    let head = vec!["batch × sequence", "list", "throughput", "95%", "over Version 1", "95% ", "rounds"];
    Table { head, rows: record.reference_points.iter().map(row).collect() }
}

fn rate(samples: f64) -> String {
    let digits = if samples >= 100.0 {
        0
    } else if samples >= 10.0 {
        1
    } else {
        2
    };
    format!("{samples:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimize::{html, markdown, terminal};

    fn record(kept: bool) -> ValidationRecord {
        let text = include_str!("../../tests/data/validation.json");
        let mut record: ValidationRecord = serde_json::from_str(text).unwrap();
        let tried = PhaseThreeRow {
            name: "mixed precision bf16".into(),
            flag: Some("--precision bf16".into()),
            predicted_speedup: Some(1.5),
            measured_speedup: Some(1.25),
            measured_ci95_low: Some(1.2),
            measured_ci95_high: Some(1.3),
            loss_difference: Some(1e-4),
            gradient_difference: Some(3e-3),
            memory_before_mb: Some(10.0),
            memory_after_mb: Some(9.0),
            kept,
            verdict: "a verdict".into(),
            ..PhaseThreeRow::default()
        };
        let fixed = PhaseThreeRow {
            name: "memory layout".into(),
            verdict: "not a choice".into(),
            note: Some("The plan fixes it.".into()),
            ..PhaseThreeRow::default()
        };
        record.phase_3 = vec![tried, fixed];
        record.reference_points = vec![ReferencePoint {
            batch_size: 8,
            seq_len: 128,
            name: "v2".into(),
            passes: vec![],
            samples_per_sec: 61.25,
            ci95_low: 59.0,
            ci95_high: 123.4,
            speedup: 1.5,
            speedup_ci95_low: 1.4,
            speedup_ci95_high: 1.6,
            rounds: 8,
        }];
        record
    }

    #[test]
    fn every_form_has_both_tables() {
        let record = record(false);
        for text in [terminal(&record), markdown(&record), html(&record, None)] {
            for wanted in
                [TITLE, POINTS_TITLE, "mixed precision bf16", "3e-3", "The plan fixes it.", "61.2 samples/s", "8 × 128"]
            {
                assert!(text.contains(wanted), "`{wanted}` is not in\n{text}");
            }
        }
    }

    #[test]
    fn only_kept_rungs_are_recommended_and_multiplied() {
        assert_eq!(summary(&record(false)), None);
        assert_eq!(kept_speedup(&record(false)), (1.0, 1.0));
        let kept = record(true);
        assert_eq!(kept_speedup(&kept), (1.5, 1.25));
        assert_eq!(summary(&kept).unwrap(), "Phase 3 adds `--precision bf16` (1.25×), on top of the kept list.");
        assert!(roadmap(&kept)[0][0].starts_with("[x]") && roadmap(&kept)[1][0].starts_with("[ ]"));
        assert!(markdown(&kept).contains("computed: the kept list times Phase 3"));
    }
}
