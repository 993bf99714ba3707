//! Phase 3 of the workshop's roadmap as rows: mixed precision, activation checkpointing and memory layout, with its
//! reference points.

use super::validation_record::gate;
use headroom_engine::Target;
use headroom_experiments::ladder::{Checkpointing, Ladder, LayoutFacts, Point};
use headroom_graph::passes::{CHECKPOINT, PassList};
use headroom_record::phase_3::{PhaseThreeRow, ReferencePoint};
use headroom_record::precisions::{PrecisionRow, PrecisionsRecord};

const MIB: f64 = 1024.0 * 1024.0;

/// A lower ratio is a slowdown.
const NO_SLOWER: f64 = 0.99;

/// Whether a proved precision may become part of the recommendation (`--allow precision`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precisions {
    Reported,
    Kept,
}

pub fn rows(ladder: &Ladder, tried: Option<&PrecisionsRecord>, precisions: Precisions) -> Vec<PhaseThreeRow> {
    let mut rows: Vec<PhaseThreeRow> = match tried {
        Some(record) => record.precisions.iter().map(|row| precision(row, &record.precision, precisions)).collect(),
        None => vec![],
    };
    if rows.is_empty() {
        rows.push(PhaseThreeRow {
            name: "mixed precision".into(),
            verdict: "not tried".into(),
            note: Some(
                "No other precision was asked for, or the device has kernels for none: see --precisions.".into(),
            ),
            ..PhaseThreeRow::default()
        });
    }
    rows.push(checkpointing(&ladder.checkpointing, &ladder.kept));
    rows.push(layout(&ladder.layout));
    rows
}

/// The row of a precision. `fastest` is the precision proved last.
fn precision(row: &PrecisionRow, fastest: &str, precisions: Precisions) -> PhaseThreeRow {
    let missed: Vec<String> = row
        .gates
        .iter()
        .filter(|(_, gate)| gate.result != "pass")
        .map(|(name, gate)| format!("{} {}", name.replace('_', " "), gate.result))
        .collect();
    let is_fastest = row.proved && row.precision == fastest;
    let (kept, verdict) = match precisions {
        _ if !row.proved => (false, format!("not proved: {}", missed.join(", "))),
        _ if !is_fastest => (false, format!("proved, but {fastest} is faster")),
        Precisions::Kept => (true, "kept: faster".into()),
        Precisions::Reported => (false, "proved, not kept: --allow precision keeps it".into()),
    };
    PhaseThreeRow {
        name: format!("mixed precision {}", row.precision),
        flag: Some(format!("--precision {}", row.precision)),
        over: Some(format!("the kept list in {}", row.over)),
        predicted_speedup: Some(row.predicted_speedup),
        measured_speedup: Some(row.measured_speedup),
        measured_ci95_low: Some(row.measured_ci95_low),
        measured_ci95_high: Some(row.measured_ci95_high),
        rounds: row.rounds,
        memory_before_mb: Some(row.memory_before_mb),
        memory_after_mb: Some(row.memory_after_mb),
        loss_difference: row.loss_difference,
        gradient_difference: row.gradient_difference,
        kept,
        verdict,
        gates: row.gates.clone(),
        note: None,
    }
}

fn checkpointing(of: &Checkpointing, list: &PassList) -> PhaseThreeRow {
    let is_exact =
        of.gates.iter().filter(|gate| !["memory", "throughput"].contains(&gate.name)).all(|gate| gate.passed());
    let (before, after) = of.memory;
    let (kept, verdict) = match of.measured {
        _ if !is_exact => (false, "not exact"),
        _ if after >= before => (false, "not less memory"),
        measured if measured.low >= NO_SLOWER => (true, "kept: less memory"),
        measured if measured.high < 1.0 => (false, "less memory, slower"),
        _ => (false, "less memory, speed undecided"),
    };
    let passes = if list.names().is_empty() { "none".into() } else { list.names().join(",") };
    PhaseThreeRow {
        name: "activation checkpointing".into(),
        flag: Some(format!("--passes {passes},+{CHECKPOINT}")),
        over: Some("the kept list".into()),
        predicted_speedup: Some(of.predicted),
        measured_speedup: Some(of.measured.ratio),
        measured_ci95_low: Some(of.measured.low),
        measured_ci95_high: Some(of.measured.high),
        rounds: of.measured.rounds as u64,
        memory_before_mb: Some(before as f64 / MIB),
        memory_after_mb: Some(after as f64 / MIB),
        loss_difference: Some(of.loss_difference),
        gradient_difference: Some(of.gradient_difference),
        kept,
        verdict: verdict.into(),
        gates: of.gates.iter().map(gate).collect(),
        note: Some(format!(
            "The activations of all {} layers are computed again in the backward pass: {} kernels instead of {}. `train` does \
             this by itself where a model does not fit.",
            of.layers, of.kernels.1, of.kernels.0
        )),
    }
}

/// The memory layout, which offers no choice to measure: the row says so, with the reason.
fn layout(of: &LayoutFacts) -> PhaseThreeRow {
    let placed = match of.target {
        Target::Cpu => {
            "Every value lies by itself, its rows without gaps, and GEMMs pack their operands as they read them."
        }
        Target::Cuda => "Operands of fused GEMMs lie side by side, every other value by itself.",
    };
    PhaseThreeRow {
        name: "memory layout".into(),
        verdict: "not a choice: the plan fixes it".into(),
        note: Some(format!(
            "{placed} GEMMs read an operand transposed in place. {} of the kept list's {} calls only copy a tensor into another \
             layout.",
            of.rearranging, of.calls
        )),
        ..PhaseThreeRow::default()
    }
}

pub fn points(points: &[Point]) -> Vec<ReferencePoint> {
    let row = |point: &Point| {
        let samples = |seconds: f64| (point.shape.batch_size as f64 / seconds).min(f64::MAX);
        ReferencePoint {
            batch_size: point.shape.batch_size as u64,
            seq_len: point.shape.seq_len as u64,
            name: point.name.into(),
            passes: point.list.names().iter().map(|name| name.to_string()).collect(),
            samples_per_sec: samples(point.seconds.value),
            ci95_low: samples(point.seconds.high),
            ci95_high: samples(point.seconds.low),
            speedup: point.speedup.ratio,
            speedup_ci95_low: point.speedup.low,
            speedup_ci95_high: point.speedup.high,
            rounds: point.speedup.rounds as u64,
        }
    };
    points.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_experiments::gates;
    use headroom_experiments::turns::Speedup;

    fn proved(precision: &str, proved: bool) -> PrecisionRow {
        let limit = if proved { 1.0 } else { 0.0 };
        PrecisionRow {
            precision: precision.into(),
            over: "fp32".into(),
            predicted_speedup: 1.5,
            measured_speedup: 1.4,
            measured_ci95_low: 1.3,
            measured_ci95_high: 1.5,
            rounds: 8,
            memory_before_mb: 2.0,
            memory_after_mb: 2.0,
            proved,
            loss_difference: Some(1e-3),
            gradient_difference: Some(1e-2),
            gates: [gate(&gates::against_single("gradients", "of any gradient", 0.5, limit))].into(),
        }
    }

    #[test]
    fn a_proved_precision_is_kept_only_where_that_was_allowed() {
        let verdict = |row: &PrecisionRow, fastest: &str, allowed| {
            let row = precision(row, fastest, allowed);
            (row.kept, row.verdict)
        };
        let (kept, said) = verdict(&proved("bf16", true), "bf16", Precisions::Reported);
        assert!(!kept && said.contains("--allow precision"), "{said}");
        assert_eq!(verdict(&proved("bf16", true), "bf16", Precisions::Kept), (true, "kept: faster".into()));
        assert_eq!(
            verdict(&proved("tf32", true), "bf16", Precisions::Kept),
            (false, "proved, but bf16 is faster".into())
        );
        let unproved = verdict(&proved("bf16", false), "fp32", Precisions::Kept);
        assert_eq!(unproved, (false, "not proved: gradients fail".into()));
    }

    fn recomputed((low, high): (f64, f64), memory: (usize, usize), accuracy: f64) -> Checkpointing {
        let measured = Speedup { ratio: (low + high) / 2.0, low, high, rounds: 8 };
        Checkpointing {
            layers: 4,
            predicted: 0.8,
            measured,
            memory,
            kernels: (70, 100),
            loss_difference: 0.0,
            gradient_difference: accuracy,
            gates: vec![
                gates::accuracy(&[(0.0, accuracy)], 1e-5, "8 × 128"),
                gates::memory_over(memory, 1.0, "the kept list"),
                gates::throughput_over(&measured, "the kept list"),
            ],
        }
    }

    #[test]
    fn checkpointing_is_kept_only_where_it_costs_no_time() {
        let check = |interval, memory, accuracy, wanted: (bool, &str)| {
            let row = checkpointing(&recomputed(interval, memory, accuracy), &PassList::version_2());
            assert_eq!((row.kept, row.verdict.as_str()), wanted);
            assert!(row.flag.unwrap().ends_with(",+checkpoint"));
        };
        check((0.7, 0.8), (100, 60), 0.0, (false, "less memory, slower"));
        check((0.9, 1.1), (100, 60), 0.0, (false, "less memory, speed undecided"));
        check((0.995, 1.005), (100, 60), 0.0, (true, "kept: less memory"));
        check((0.995, 1.005), (100, 100), 0.0, (false, "not less memory"));
        check((1.1, 1.2), (100, 60), 1e-3, (false, "not exact"));
    }

    #[test]
    fn a_layout_that_is_fixed_is_not_measured() {
        let row = layout(&LayoutFacts { target: Target::Cpu, calls: 72, rearranging: 0 });
        assert_eq!((row.measured_speedup, row.kept, row.gates.len()), (None, false, 0));
        assert!(row.note.unwrap().contains("0 of the kept list's 72 calls"));
    }
}
