//! The optimisation ladder as text: for the terminal and as Markdown.

use headroom_record::validation::{ValidationRecord, ValidationRow};
use std::fmt::Write;

/// The tables, the roadmap and the gates, as Markdown that also reads well in a terminal.
pub fn markdown(record: &ValidationRecord) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "# Optimisation of {} ({} × {} tokens)\n", record.size, record.batch_size, record.seq_len);
    let _ = writeln!(out, "{} · {} threads · {}\n", record.device, record.threads, record.timestamp);
    let _ = writeln!(out, "Version 1 takes {:.2} ms a step. Where they go:\n", record.baseline_step_seconds * 1e3);
    let total: f64 = record.baseline_by_op.iter().map(|op| op.seconds).sum();
    let _ = writeln!(out, "| operator | ms | share |\n|---|---:|---:|");
    for op in record.baseline_by_op.iter().take(10) {
        let _ = writeln!(out, "| {} | {:.2} | {:.1}% |", op.op, op.seconds * 1e3, 100.0 * op.seconds / total);
    }
    let _ = writeln!(out, "\n## Passes, best predicted first\n");
    rows(&mut out, &record.passes);
    for row in record.passes.iter() {
        if let Some(note) = &row.note {
            let _ = writeln!(out, "\n- {}: {note}", row.name);
        }
    }
    let _ = writeln!(out, "\n## The ladder, against Version 1\n");
    rows(&mut out, &record.versions);
    let _ = writeln!(out, "\n## Impact and effort\n");
    matrix(&mut out, record);
    let _ = writeln!(out, "\n## Gates of the kept list\n");
    let _ = writeln!(out, "| gate | result | figure | limit | |\n|---|---|---:|---:|---|");
    for (name, gate) in &record.gates {
        let _ = writeln!(
            out,
            "| {name} | {} | {} | {} | {} |",
            gate.result,
            figure(gate.figure),
            figure(gate.limit),
            gate.about
        );
    }
    let kept = if record.kept.is_empty() { "none".into() } else { record.kept.join(",") };
    let _ = writeln!(out, "\nKept: `--passes {kept}`");
    out
}

fn rows(out: &mut String, rows: &[ValidationRow]) {
    let _ = writeln!(out, "| | predicted | measured (95%) | memory MiB | kernels | loss, gradients off by | |");
    let _ = writeln!(out, "|---|---:|---:|---:|---:|---:|---|");
    for row in rows {
        let predicted = row.predicted_speedup.map_or("".into(), |speedup| format!("{speedup:.2}×"));
        let off = match (row.loss_difference, row.gradient_difference) {
            (Some(loss), Some(gradients)) => format!("{loss:.0e}, {gradients:.0e}"),
            _ => String::new(),
        };
        let _ = writeln!(
            out,
            "| {} | {predicted} | {:.2}× ({:.2} to {:.2}) | {:.0} → {:.0} | {} → {} | {off} | {} |",
            row.name,
            row.measured_speedup,
            row.measured_ci95_low,
            row.measured_ci95_high,
            row.memory_before_mb,
            row.memory_after_mb,
            row.kernels_before,
            row.kernels_after,
            if row.kept { "kept" } else { "not kept" },
        );
    }
}

/// High impact is a measured saving of 5% of the step or more, or of 10% of its memory.
fn matrix(out: &mut String, record: &ValidationRecord) {
    let high = |row: &&ValidationRow| row.measured_speedup >= 1.05 || row.memory_after_mb <= 0.9 * row.memory_before_mb;
    let names = |impact: bool, effort: &[&str]| -> String {
        let chosen = record.passes.iter().filter(|row| high(row) == impact && effort.contains(&row.effort.as_str()));
        let list: Vec<&str> = chosen.map(|row| row.name.as_str()).collect();
        if list.is_empty() { "–".into() } else { list.join(", ") }
    };
    let _ = writeln!(out, "| | low effort | medium or high effort |\n|---|---|---|");
    let _ = writeln!(out, "| high impact | {} | {} |", names(true, &["low"]), names(true, &["medium", "high"]));
    let _ = writeln!(out, "| low impact | {} | {} |", names(false, &["low"]), names(false, &["medium", "high"]));
}

fn figure(figure: f64) -> String {
    match figure.abs() {
        0.0 => "0".into(),
        size if size >= 1e6 => format!("{:.1} MiB", figure / (1024.0 * 1024.0)),
        size if size >= 10.0 => format!("{figure:.0}"),
        size if size >= 0.01 => format!("{figure:.3}"),
        _ => format!("{figure:.1e}"),
    }
}
