//! Reports on a trace: text for the terminal, Markdown for a file, JSON for programs.

mod answer;
mod counters;
pub(crate) mod facts;
mod html;
mod markdown;
mod queue;
pub(crate) mod ranks;
mod text;
mod verdict;

use headroom_diagnosis::Analysis;
use headroom_diagnosis::finding::Effort;
use headroom_diagnosis::measures::trust::Verdict;
use headroom_diagnosis::roadmap::RoadmapItem;
use headroom_diagnosis::trace_rules::TraceFinding;

use crate::numbers::{counted, grouped};
use crate::table::Table;
use crate::targets;

pub use answer::{Invocation, answer, next_steps};
pub use html::html;
pub(crate) use html::page;
pub(crate) use markdown::findings_section as findings_markdown;
pub use markdown::markdown;
pub use text::everything;

/// The analysis as one JSON object. Figures that the trace makes unreliable are `null`.
pub fn json(analysis: &Analysis) -> String {
    let mut text = serde_json::to_string_pretty(&value(analysis)).unwrap_or_default();
    text.push('\n');
    text
}

/// The same as a JSON value.
pub fn value(analysis: &Analysis) -> serde_json::Value {
    let mut value = serde_json::to_value(analysis).unwrap_or_default();
    if withholds_idle(analysis) {
        value["measures"]["breakdown"] = serde_json::Value::Null;
        value["measures"]["critical_path"] = serde_json::Value::Null;
    }
    value
}

pub(crate) fn withholds_idle(analysis: &Analysis) -> bool {
    analysis.trust.withheld.iter().any(|figure| matches!(*figure, "idle" | "breakdown"))
}

/// The device's name; a trace may contain a device's work without naming it.
pub(crate) fn device_of(analysis: &Analysis) -> &str {
    let unnamed = if analysis.measures.kernels.count > 0 { "a device without a name" } else { "no device" };
    analysis.trace.device.as_deref().unwrap_or(unnamed)
}

/// Whether any operator spent time on a device; if none did, the column would be all zeros.
fn has_device_time(analysis: &Analysis) -> bool {
    analysis.measures.operators.device_self_seconds > 0.0
}

/// Shares of the critical path; `None` if all of it is on the host.
fn critical_path(analysis: &Analysis) -> Option<String> {
    let path = &analysis.measures.critical_path;
    let length = path.host_seconds + path.device_seconds + path.launch_seconds;
    if path.device_seconds <= 0.0 || length <= 0.0 {
        return None;
    }
    let [host, device, launches] =
        [path.host_seconds, path.device_seconds, path.launch_seconds].map(|seconds| percent(seconds / length));
    Some(format!("host {host}, device {device}, launches {launches}"))
}

fn effort(effort: Effort) -> &'static str {
    match effort {
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High => "high",
    }
}

/// The source line with the rules that point to it, or the function as the trace names it.
fn place_of(finding: &TraceFinding) -> Option<String> {
    let Some(place) = &finding.place else {
        return finding.function.as_ref().map(|function| format!("in {function}"));
    };
    let mut codes: Vec<&str> = finding.sources.iter().map(|source| source.code.as_str()).collect();
    codes.sort_unstable();
    codes.dedup();
    let codes = if codes.is_empty() { String::new() } else { format!(" ({})", codes.join(", ")) };
    Some(format!("at {}{codes}", place.shown()))
}

fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent.abs() < 1.0 { format!("{percent:.2}%") } else { format!("{percent:.1}%") }
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.2} ms", 1e3 * seconds)
}

/// The parts of a step with their seconds per step, in the order in which they add up to it.
pub(crate) fn parts(analysis: &Analysis) -> Vec<(&'static str, f64)> {
    let breakdown = &analysis.measures.breakdown;
    let idle = &breakdown.idle;
    let steps = analysis.steps.count();
    let rows = [
        ("compute", breakdown.compute_seconds),
        ("communication, exposed", breakdown.communication_exposed_seconds),
        ("copies and fills, exposed", breakdown.copies_exposed_seconds),
        ("idle: host busy", idle.host_busy_seconds),
        ("idle: launch delay", idle.launch_delay_seconds),
        ("idle: work queued", idle.stalled_seconds),
        ("idle: host waiting", idle.host_waiting_seconds),
        ("idle: data loading", idle.data_loading_seconds),
        ("idle: unknown", idle.unknown_seconds),
    ];
    rows.into_iter().map(|(name, seconds)| (name, seconds / steps)).filter(|(_, seconds)| *seconds > 0.0).collect()
}

/// The parts of a step as a table.
fn part_table(analysis: &Analysis) -> Table {
    let wall = (analysis.measures.breakdown.wall_seconds / analysis.steps.count()).max(f64::MIN_POSITIVE);
    let row = |(name, seconds): (&str, f64)| vec![name.to_string(), milliseconds(seconds), percent(seconds / wall)];
    Table { head: vec!["part", "per step", "share"], rows: parts(analysis).into_iter().map(row).collect() }
}

/// The number of operators on a page.
const MOST_ROWS: usize = 25;

fn operator_table(analysis: &Analysis) -> Table {
    let (steps, device) = (analysis.steps.count(), has_device_time(analysis));
    let time = |seconds: f64| milliseconds(seconds / steps);
    let head = match device {
        true => {
            vec!["operator", "calls", "device, self", "device, total", "host, self", "host, total", "share", "target"]
        }
        false => vec!["operator", "calls", "host, self", "host, total", "share", "target"],
    };
    let rows = analysis.measures.operators.rows.iter().take(MOST_ROWS).map(|row| {
        let mut cells = vec![format!("`{}`", row.name), grouped(row.calls)];
        if device {
            cells.extend([time(row.device_self_seconds), time(row.device_total_seconds)]);
        }
        cells.extend([time(row.host_self_seconds), time(row.host_total_seconds), percent(row.share)]);
        cells.push(targets::of_operator(analysis, &row.name));
        cells
    });
    Table { head, rows: rows.collect() }
}

fn roadmap_table(analysis: &Analysis) -> Table {
    let row = |(number, item): (usize, &RoadmapItem)| {
        let [expected, additional] = [item.expected_share, item.additional_share].map(percent);
        let alone = item.alone_share.map_or("–".into(), percent);
        let (number, name) = ((number + 1).to_string(), format!("{} {}", item.code, item.name));
        vec![number, name, expected, alone, additional, effort(item.effort).into(), item.advice.clone()]
    };
    let head = vec!["", "fix", "saves alone", "at most", "after those above, at most", "effort", "do"];
    Table { head, rows: analysis.roadmap.items.iter().enumerate().map(row).collect() }
}

/// `1 step`, `3 steps`.
pub(crate) fn counted_steps(analysis: &Analysis) -> String {
    counted(analysis.steps.list.len(), "step")
}

/// The total of all roadmap rows, in a sentence.
fn together(analysis: &Analysis) -> String {
    let roadmap = &analysis.roadmap;
    format!(
        "Together: {} expected, from {} to {} per step; at most {}, to no less than {}.",
        percent(roadmap.total_saving_expected_share),
        milliseconds(roadmap.step_seconds_now),
        milliseconds(roadmap.step_seconds_expected),
        percent(roadmap.total_saving_bound_share),
        milliseconds(roadmap.step_seconds_at_best)
    )
}

/// Shown instead of findings if there are none. A trace that cannot be trusted proves nothing, not even that all is
/// well.
pub(crate) fn no_findings(analysis: &Analysis) -> &'static str {
    match analysis.trust.verdict {
        Verdict::Broken => "No finding can be made from this trace.",
        Verdict::Limited | Verdict::Sound => "No finding: nothing stands out in this trace.",
    }
}

/// A replayed step that differs by less from the timed one is called the same.
const SAME_STEP: f64 = 0.01;

/// The step without the profiler's cost: measured, given or estimated.
pub(crate) fn true_step(analysis: &Analysis) -> String {
    let step = &analysis.true_step;
    let [seconds, lower, upper] = [step.seconds, step.lower_seconds, step.upper_seconds].map(milliseconds);
    let recorded = milliseconds(step.recorded_seconds);
    let misses = (step.played_seconds / step.seconds.max(f64::MIN_POSITIVE) - 1.0).abs() > SAME_STEP;
    let of = match misses {
        true => format!("the replayed step, {}", milliseconds(step.played_seconds)),
        false => "the former".to_string(),
    };
    match step.from {
        "measured" => format!(
            "without the profiler a step takes {seconds} ({lower} to {upper}, {} steps), with it {recorded}: all shares are of {of}",
            step.timed_steps
        ),
        "given" => format!("without the profiler a step takes {seconds}, with it {recorded}: all shares are of {of}"),
        "estimated" => format!(
            "without the profiler a step may take {lower} to {upper}: all shares are of the recorded {recorded}"
        ),
        _ => format!("as recorded: {recorded}"),
    }
}

pub(crate) fn how_steps_were_found(analysis: &Analysis) -> &'static str {
    use headroom_diagnosis::measures::steps::{FoundBy, MeasuredOn};
    match (analysis.steps.found_by, analysis.steps.measured_on) {
        (FoundBy::ProfilerMarks, MeasuredOn::Host) => "by the profiler's marks",
        (FoundBy::ProfilerMarks, MeasuredOn::Device) => "by the profiler's marks, measured on the device's timeline",
        (FoundBy::Annotations, MeasuredOn::Host) => "by the framework's annotations",
        (FoundBy::Annotations, MeasuredOn::Device) => {
            "by the framework's annotations, measured on the device's timeline"
        }
        (FoundBy::OptimizerSpans, MeasuredOn::Host) => "by the optimizer's spans, because there are no marks",
        (FoundBy::OptimizerSpans, MeasuredOn::Device) => {
            "by the optimizer's spans, because there are no marks, measured on the device's timeline"
        }
        (FoundBy::Period, _) => "by the period of the work, because there are no marks and no optimizer spans",
        (FoundBy::WholeTrace, _) => "no steps were found: the whole trace is one window",
    }
}
