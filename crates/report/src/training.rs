//! A training run in the terminal: its configuration, its progress and its summary.

use crate::numbers::{bytes, grouped, seconds};
use headroom_record::performance::{PerformanceRecord, PerformanceSummary};
use std::fmt::Write;

/// What is said before the first step.
pub struct Opening<'a> {
    pub size: &'a str,
    pub version: &'a str,
    /// (part, parameters)
    pub parameters: &'a [(&'a str, u64)],
    /// Lines of (name, value) in the order to show them.
    pub settings: &'a [(&'a str, String)],
    pub memory: Memory<'a>,
}

/// Planned memory in bytes, by category at the fullest moment.
pub struct Memory<'a> {
    pub categories: &'a [(&'a str, u64)],
    pub gaps: u64,
    pub scratch: u64,
    pub total: u64,
}

pub fn opening(about: &Opening) -> String {
    let mut out = String::new();
    let total: u64 = about.parameters.iter().map(|(_, count)| count).sum();
    let _ = writeln!(out, "LLaMA {} · {} · {} parameters", about.size, about.version, grouped(total));
    let parts: Vec<String> = about
        .parameters
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(part, count)| format!("{part} {}", grouped(*count)))
        .collect();
    let _ = writeln!(out, "  {:<12} {}", "parameters", parts.join(" · "));
    for (name, value) in about.settings {
        let _ = writeln!(out, "  {name:<12} {value}");
    }
    let _ = writeln!(out, "  {:<12} {}", "memory", memory(&about.memory));
    out
}

/// One line: the total, then what it is made of.
pub fn memory(memory: &Memory) -> String {
    let mut parts: Vec<String> = memory
        .categories
        .iter()
        .filter(|(_, size)| *size > 0)
        .map(|(name, size)| format!("{} {}", name.replace('_', " "), bytes(*size)))
        .collect();
    for (name, size) in [("gaps", memory.gaps), ("kernel scratch", memory.scratch)] {
        if size > 0 {
            parts.push(format!("{name} {}", bytes(size)));
        }
    }
    format!("{} planned: {}", bytes(memory.total), parts.join(" · "))
}

/// A step in the log.
pub struct StepLine {
    pub step: u64,
    pub last: u64,
    pub loss: Option<f64>,
    pub seconds: f64,
    /// Samples a second since the last line, and since the end of warm-up.
    pub recent: f64,
    pub overall: Option<f64>,
}

pub fn step_line(line: &StepLine) -> String {
    let loss = line.loss.map_or("not computed".to_string(), |loss| format!("{loss:.4}"));
    let overall = line.overall.map_or(String::new(), |speed| format!(", {speed:.1} overall"));
    format!(
        "Step {}/{}: Loss = {loss}, Time = {:.4} seconds, {:.1} samples/s{overall}",
        line.step, line.last, line.seconds, line.recent
    )
}

/// The workshop's summary, with what it leaves out.
pub fn summary(record: &PerformanceRecord) -> String {
    let summary = &record.performance_summary;
    let statistics = &record.statistics;
    let rule = "=".repeat(60);
    let mut out = format!("{rule}\nPerformance Summary:\n{rule}\n");
    let mut line = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(out, "{name} {value}");
        }
    };
    let in_seconds = |time: Option<f64>| time.map(|time| format!("{time:.4} seconds"));
    line("Average time per step:", in_seconds(summary.avg_batch_time));
    line(
        "Median time per step:",
        statistics.median.map(|median| match (statistics.ci95_low, statistics.ci95_high) {
            (Some(low), Some(high)) => format!("{median:.4} seconds (95% within {low:.4} to {high:.4})"),
            _ => format!("{median:.4} seconds"),
        }),
    );
    line("Training speed:", summary.avg_training_speed.map(|speed| format!("{speed:.1} samples/sec")));
    line("Throughput:", summary.tokens_per_sec.map(|speed| format!("{speed:.0} tokens/sec")));
    line("Peak memory usage:", summary.peak_memory_mb.map(|size| format!("{size:.0} MB")));
    line("Avg time per forward:", in_seconds(summary.avg_forward_time));
    line("Avg time per backward:", in_seconds(summary.avg_backward_time));
    line("Avg time per optimizer:", in_seconds(summary.avg_optimizer_time));
    line("Avg time per data wait:", summary.avg_data_time.map(seconds));
    line("Final loss:", summary.final_loss.map(|loss| format!("{loss:.4}")));
    line("Loss floor:", floor(summary));
    let _ = writeln!(out, "{rule}");
    out
}

/// The floor that the data's own randomness sets, and how far above it the run ended.
fn floor(summary: &PerformanceSummary) -> Option<String> {
    let floor = summary.loss_floor?;
    Some(match summary.final_loss {
        Some(loss) => format!("{floor:.4} nats (the data's entropy); the last step is {:.4} above it", loss - floor),
        None => format!("{floor:.4} nats (the data's entropy)"),
    })
}
