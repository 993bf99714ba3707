//! A training run in the terminal: its configuration, its progress and its summary.

use crate::numbers::{bytes, grouped, rate, seconds};
use headroom_record::performance::{Fp8Rounding, PerformanceRecord, PerformanceSummary};
use serde::Serialize;
use std::fmt::Write;

/// The text printed before the first step of a run.
pub struct Opening<'a> {
    /// As people write the name: `LLaMA`.
    pub family: &'a str,
    pub size: &'a str,
    pub version: &'a str,
    /// (part, parameters)
    pub parameters: &'a [(&'a str, u64)],
    /// Lines of (name, value) in the order to show them.
    pub lines: &'a [(&'a str, String)],
}

/// Planned memory in bytes, by category at the peak.
pub struct Memory<'a> {
    pub categories: &'a [(&'a str, u64)],
    pub gaps: u64,
    pub scratch: u64,
    pub total: u64,
}

pub fn opening(about: &Opening) -> String {
    let mut out = String::new();
    let total: u64 = about.parameters.iter().map(|(_, count)| count).sum();
    let _ = writeln!(out, "{} {} · {} · {} parameters", about.family, about.size, about.version, grouped(total));
    let parts: Vec<String> = about
        .parameters
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(part, count)| format!("{part} {}", grouped(*count)))
        .collect();
    let _ = writeln!(out, "  {:<12} {}", "parameters", parts.join(" · "));
    for (name, value) in about.lines {
        let _ = writeln!(out, "  {name:<12} {value}");
    }
    out
}

/// One line: the total, then its parts.
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

/// A node of the model's tree; nodes follow their parent.
#[derive(Clone, Debug, Serialize)]
pub struct TreeLine {
    /// Full path; the prefix shared with the parent is not shown.
    pub name: String,
    pub depth: u64,
    pub parameters: u64,
}

/// The tree, with one line per node, and the number of nodes to choose from.
pub fn tree(nodes: &[TreeLine], choices: &str) -> String {
    let mut lines = vec![];
    for (at, node) in nodes.iter().enumerate() {
        // Whether a later node is another child at this depth.
        let goes_on = |depth: u64| {
            let later = nodes[at + 1..].iter().find(|later| later.depth <= depth);
            later.is_some_and(|later| later.depth == depth)
        };
        let mut text: String = (1..node.depth).map(|depth| if goes_on(depth) { "│  " } else { "   " }).collect();
        if node.depth > 0 {
            text += if goes_on(node.depth) { "├─ " } else { "└─ " };
        }
        let parent = nodes[..at].iter().rev().find(|before| before.depth + 1 == node.depth);
        let below = parent.and_then(|parent| node.name.strip_prefix(&parent.name)?.strip_prefix('.'));
        text += below.unwrap_or(&node.name);
        lines.push((text, grouped(node.parameters)));
    }
    let width =
        |part: fn(&(String, String)) -> &str| lines.iter().map(|line| part(line).chars().count()).max().unwrap_or(0);
    let (left, right) = (width(|line| &line.0), width(|line| &line.1));
    let mut out: String = lines.iter().map(|(text, count)| format!("{text:<left$}  {count:>right$}\n")).collect();
    let _ = writeln!(out, "{choices} to choose from");
    out
}

/// A step in the log.
pub struct StepLine {
    pub step: u64,
    pub last: u64,
    pub loss: Option<f64>,
    pub seconds: f64,
    /// Samples per second since the last line, and since the end of warm-up.
    pub recent: f64,
    pub overall: Option<f64>,
}

pub fn step_line(line: &StepLine) -> String {
    let loss = line.loss.map_or("not computed".to_string(), |loss| format!("{loss:.4}"));
    let overall = line.overall.map_or(String::new(), |speed| format!(", {} overall", rate(speed)));
    format!(
        "Step {}/{}: Loss = {loss}, Time = {:.4} seconds, {} samples/s{overall}",
        line.step,
        line.last,
        line.seconds,
        rate(line.recent)
    )
}

/// The text beside a progress bar, which shows the step itself.
pub fn bar_message(line: &StepLine) -> String {
    let loss = line.loss.map_or("not computed".to_string(), |loss| format!("{loss:.4}"));
    format!("loss {loss} · {} samples/s", rate(line.recent))
}

/// The workshop's summary, plus figures that it leaves out.
pub fn summary(record: &PerformanceRecord) -> String {
    let summary = &record.performance_summary;
    let statistics = &record.statistics;
    let rule = "=".repeat(60);
    let mut out = format!("{rule}\nPerformance Summary:\n{rule}\n");
    if record.is_predicted() {
        out += "Nothing was computed: times are predicted, memory is planned.\n";
    }
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
            _ if record.is_predicted() => format!("{median:.4} seconds (predicted)"),
            (Some(low), Some(high)) => format!("{median:.4} seconds (95% between {low:.4} and {high:.4})"),
            _ => format!("{median:.4} seconds"),
        }),
    );
    line("Training speed:", summary.avg_training_speed.map(|speed| format!("{} samples/sec", rate(speed))));
    let throughput = |(samples, tokens)| format!("{} samples/sec ({} tokens/sec)", rate(samples), rate(tokens));
    line("Throughput:", summary.avg_training_speed.zip(summary.tokens_per_sec).map(throughput));
    let utilisation = |share: f64| format!("{share:.1}% (share of the time in which a kernel or an operator runs)");
    line("Device utilisation:", summary.device_utilization_percent.map(utilisation));
    line("Peak memory usage:", peak_memory(record));
    line("Avg time per forward:", in_seconds(summary.avg_forward_time));
    line("Avg time per backward:", in_seconds(summary.avg_backward_time));
    line("Avg time per optimizer:", in_seconds(summary.avg_optimizer_time));
    line("Avg time per data wait and copy:", summary.avg_data_time.map(seconds));
    line("Final loss:", summary.final_loss.map(|loss| format!("{loss:.4}")));
    line("Loss floor:", floor(summary));
    line("Rounded to eight bits:", record.fp8.as_ref().map(rounding));
    record.warnings.iter().for_each(|warning| line("Warning:", Some(warning.clone())));
    let _ = writeln!(out, "{rule}");
    out
}

fn rounding(of: &Fp8Rounding) -> String {
    let most = of.most_saturated.as_ref().map_or(String::new(), |name| format!(", most of them in {name}"));
    format!(
        "{} tensors; {} values beyond the largest number{most}; scales out of range: {}",
        of.scaled_tensors, of.saturated_values, of.scales_out_of_range
    )
}

/// The planned peak, which is what the arena uses, and the peak that the system reports for the whole process.
fn peak_memory(record: &PerformanceRecord) -> Option<String> {
    let planned = record.performance_summary.peak_memory_mb?;
    Some(match record.performance_summary.process_peak_memory_mb {
        Some(process) if !record.is_predicted() => {
            format!("{planned:.0} MB (as planned; {process:.0} MB with everything else in the process)")
        }
        _ => format!("{planned:.0} MB (planned)"),
    })
}

/// The loss floor set by the data's own randomness, and how close to it the run ended.
fn floor(summary: &PerformanceSummary) -> Option<String> {
    let floor = summary.loss_floor?;
    let came = match summary.final_loss.map(|loss| loss - floor) {
        Some(above) if above >= 0.0 => format!("; the last step came within {above:.4} of it"),
        Some(above) => format!("; the last step is {:.4} below it, by the luck of its batch", -above),
        None => String::new(),
    };
    Some(format!("{floor:.4} nats, the data's entropy{came}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(loss: Option<f64>, overall: Option<f64>) -> StepLine {
        StepLine { step: 10, last: 50, loss, seconds: 0.03, recent: 256.0, overall }
    }

    #[test]
    fn a_step_is_one_line_with_both_speeds_once_both_are_known() {
        assert_eq!(
            step_line(&line(Some(6.91234), Some(250.04))),
            "Step 10/50: Loss = 6.9123, Time = 0.0300 seconds, 256.0 samples/s, 250.0 overall"
        );
        assert_eq!(
            step_line(&line(None, None)),
            "Step 10/50: Loss = not computed, Time = 0.0300 seconds, 256.0 samples/s"
        );
    }

    #[test]
    fn a_tree_is_drawn_with_its_branches() {
        let line = |depth: u64, name: &str| TreeLine { name: name.into(), depth, parameters: 1000 * (4 - depth) };
        let nodes = [
            line(0, "model"),
            line(1, "embed_tokens"),
            line(1, "layers.0"),
            line(2, "layers.0.mlp"),
            line(3, "layers.0.mlp.up_proj"),
            line(3, "layers.0.mlp.c_fc.bias"),
            line(1, "norm"),
        ];
        let wanted = "model               4,000\n\
                      ├─ embed_tokens     3,000\n\
                      ├─ layers.0         3,000\n\
                      │  └─ mlp           2,000\n\
                      │     ├─ up_proj    1,000\n\
                      │     └─ c_fc.bias  1,000\n\
                      └─ norm             3,000\n\
                      4 leaves to choose from\n";
        assert_eq!(tree(&nodes, "4 leaves"), wanted);
    }

    #[test]
    fn memory_names_only_what_is_there() {
        let about = Memory {
            categories: &[("parameters", 2048), ("gradients", 0), ("optimizer_state", 4096)],
            gaps: 0,
            scratch: 512,
            total: 6656,
        };
        assert_eq!(
            memory(&about),
            "6.5 KiB planned: parameters 2.0 KiB · optimizer state 4.0 KiB · kernel scratch 512 B"
        );
    }
}
