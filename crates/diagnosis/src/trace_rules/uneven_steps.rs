//! TR118 uneven-steps: some steps take much longer than the others.

use super::{percent, shown_time};
use crate::finding::Confidence;
use crate::measures::breakdown::LONG_GAP_NANOS;
use crate::measures::data_loading::loading_spans;
use crate::measures::intervals::{Span, covered, gaps};
use crate::simulation::Removal;
use headroom_trace::Category;
use std::collections::BTreeMap;

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR118",
    name: "uneven-steps",
    cause: Cause::UnevenSteps,
    page: include_str!("uneven_steps.md"),
    effort: Effort::Medium,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    if evidence.trust.withheld.contains(&"steady-state") {
        return Vec::new();
    }
    let steps = &evidence.view.steps.list;
    // Waiting for a batch is reported by data-loading, whether even or not.
    let loading = loading_spans(evidence.view);
    let length = |index: usize| {
        let ordered = evidence.view.steps.ordered.get(index).copied().unwrap_or(steps[index].span);
        (steps[index].span.nanos() - covered(&loading, ordered)).max(0)
    };
    let mut lengths: Vec<i64> = (0..steps.len()).map(length).collect();
    lengths.sort_unstable();
    let Some(&median) = lengths.get(lengths.len() / 2) else { return Vec::new() };
    let slow: Vec<usize> = (0..steps.len())
        .filter(|&index| length(index) as f64 > evidence.thresholds.step_spread * median as f64)
        .collect();
    if steps.len() < 4 || slow.is_empty() {
        return Vec::new();
    }
    let lost: i64 = slow.iter().map(|&index| length(index) - median).sum();
    let share = evidence.view.steps.share(lost);
    // A start happens once: one slow step at the beginning does not show how often it recurs.
    let is_start = slow == [0];
    let message = match is_start {
        true => format!(
            "the first of {} steps takes {:.1} times the median: start-up, or a rare event",
            steps.len(),
            length(0) as f64 / median.max(1) as f64
        ),
        false => format!(
            "{} of {} steps take over {:.1} times the median: {} of the total time",
            slow.len(),
            steps.len(),
            evidence.thresholds.step_spread,
            percent(share)
        ),
    };
    let mut found = Found::new(
        Some(share).filter(|_| !is_start),
        message,
        "move checkpoints, logging and evaluation off the training thread, or do them less often",
    );
    found.confidence = Confidence::Medium;
    found.evidence = slow
        .iter()
        .take(3)
        .map(|&index| {
            let length = shown_time(steps[index].seconds);
            format!(
                "{}: {length} instead of {}; {}",
                steps[index].name,
                shown_time(median as f64 / 1e9),
                unusual(evidence, index)
            )
        })
        .collect();
    let stops = slow.iter().flat_map(|&index| unusual_stops(evidence, index, length(index) - median)).collect();
    found.removal = Removal { host: stops, ..Removal::default() };
    vec![found]
}

/// Stalls of the device in a slow step that are too long for launches, the longest first, up to the step's excess over
/// the median: the other steps also have stalls.
fn unusual_stops(evidence: &Evidence, slow: usize, mut excess: i64) -> Vec<Span> {
    let mut stops = gaps(&evidence.view.busy, evidence.view.steps.list[slow].span);
    stops.retain(|gap| gap.nanos() > LONG_GAP_NANOS);
    stops.sort_by_key(|stop| std::cmp::Reverse(stop.nanos()));
    for stop in &mut stops {
        stop.end = stop.end.min(stop.start + excess);
        excess -= stop.nanos();
    }
    stops.retain(|stop| stop.nanos() > 0);
    stops
}

/// The operator or annotation with the largest excess over its time in a typical step.
fn unusual(evidence: &Evidence, slow: usize) -> String {
    let (view, host) = (evidence.view, &evidence.view.trace.host);
    let mut times: BTreeMap<(&str, usize), i64> = BTreeMap::new();
    for at in 0..host.len() {
        let counts = matches!(host.category[at], Category::CpuOp | Category::UserAnnotation | Category::PythonFunction);
        if counts && let Some(step) = view.steps.at_host(host.start[at]) {
            let name = view.host_name(at);
            if !name.starts_with("ProfilerStep") {
                *times.entry((name, step)).or_default() += host.duration[at];
            }
        }
    }
    let others = (view.steps.list.len() - 1).max(1) as i64;
    let mut sums: BTreeMap<&str, (i64, i64)> = BTreeMap::new();
    for ((name, step), nanos) in times {
        let entry = sums.entry(name).or_default();
        match step == slow {
            true => entry.0 += nanos,
            false => entry.1 += nanos / others,
        }
    }
    // The innermost that explains it: the shortest of those within a tenth of the largest excess.
    let most = sums.values().map(|(here, usual)| here - usual).max().unwrap_or(0);
    let near = sums.iter().filter(|(_, (here, usual))| (here - usual) * 10 >= most * 9);
    match near.min_by_key(|(_, (here, _))| *here) {
        Some((name, (here, usual))) if most > 0 => {
            format!(
                "`{name}` takes {} in this step, {} elsewhere",
                shown_time(*here as f64 / 1e9),
                shown_time(*usual as f64 / 1e9)
            )
        }
        _ => "nothing recorded explains it".to_string(),
    }
}
