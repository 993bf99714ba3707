//! Compares two analyses: what changed, how certain that is, and whether it exceeds a limit.

mod alignment;
mod change;
mod findings;
mod limit;

use std::collections::BTreeMap;

use headroom_record::statistics::{Interval, MISSED, StepStatistics, ratio_of, trimmed_difference, trimmed_mean};

use crate::analysis::Analysis;
use crate::constants::compare::STEPS_OF_A_MEDIAN;
use crate::measures::per_step::PerStep;
use crate::retiming::TrueStep;
use alignment::aligned;
pub use alignment::{SiteChange, Status};
pub use change::{Answer, Change, Comparison, Judged, StepChange, Unit};
use findings::finding_changes;
pub use limit::{Limit, LimitError, NoSuchOperator};

const MOST_ROWS: usize = 20;

pub fn compare(before: &Analysis, after: &Analysis) -> Comparison {
    let Figures { rows: figures, withheld, one_sided, notes: missing } = figures(before, after);
    let notes = [before, after].into_iter().flat_map(|analysis| {
        analysis.trust.notes.iter().map(|note| format!("{}: {note}", analysis.trace.name)).collect::<Vec<_>>()
    });
    let notes = differences(before, after).into_iter().chain(missing).chain(notes);
    let are_withheld = |what: &str| [before, after].iter().any(|side| side.trust.withheld.contains(&what));
    let every_operator = match are_withheld("operators") {
        true => Vec::new(),
        false => with_intervals(changes(&operators(before), &operators(after)), before, after),
    };
    let findings = finding_changes(before, after);
    Comparison {
        before: before.trace.name.clone(),
        after: after.trace.name.clone(),
        step: timed_change(&before.true_step, &after.true_step)
            .unwrap_or_else(|| step_change(&step_seconds(before), &step_seconds(after))),
        figures,
        operators: shown(every_operator.clone()),
        kernels: shown(changes(&kernels(before), &kernels(after))),
        changes: if are_withheld("operators") { Vec::new() } else { aligned(before, after) },
        findings_gone: findings.gone,
        findings_new: findings.new,
        findings_grown: findings.grown,
        withheld,
        notes: notes.collect(),
        gates: vec![],
        every_operator,
        one_sided,
    }
}

fn shown(mut rows: Vec<Change>) -> Vec<Change> {
    rows.retain(|row| row.before != row.after);
    rows.truncate(MOST_ROWS);
    rows
}

/// Differences between the two runs besides the change to the program.
fn differences(before: &Analysis, after: &Analysis) -> Vec<String> {
    let device = |analysis: &Analysis| analysis.trace.device.clone().unwrap_or_else(|| "an unnamed device".into());
    let mut notes = Vec::new();
    if device(before) != device(after) {
        notes.push(format!(
            "the devices differ ({} before, {} after), which may explain a change in time",
            device(before),
            device(after)
        ));
    }
    let (left, right) = (before.trace.world_size, after.trace.world_size);
    if left != right {
        notes.push(format!("the runs have {left} ranks before and {right} after, so the work per rank may differ"));
    }
    notes
}

fn step_seconds(analysis: &Analysis) -> Vec<f64> {
    analysis.steps.list.iter().map(|step| step.seconds).collect()
}

fn step_change(before: &[f64], after: &[f64]) -> StepChange {
    let (left, right) = (mean(before), mean(after));
    let relative = |seconds: f64| seconds / left.max(f64::MIN_POSITIVE);
    StepChange {
        before_seconds: left,
        after_seconds: right,
        relative: relative(right - left),
        interval: relative_interval(before, after, relative(right - left)),
        timed_without_profiler: false,
    }
}

/// The change of the steps that ran before a profiler was attached, if both recordings timed some: their medians need
/// no replay. The medians' intervals combine into one for the ratio.
fn timed_change(before: &TrueStep, after: &TrueStep) -> Option<StepChange> {
    let is_timed = |step: &TrueStep| step.from == "measured" && step.seconds > 0.0;
    if !is_timed(before) || !is_timed(after) {
        return None;
    }
    let interval = ratio_of(&statistics(after), &statistics(before));
    Some(StepChange {
        before_seconds: before.seconds,
        after_seconds: after.seconds,
        relative: after.seconds / before.seconds - 1.0,
        interval: interval.map(|ratio| [ratio.low - 1.0, ratio.high - 1.0]),
        timed_without_profiler: true,
    })
}

/// With fewer steps, the stated bounds of the median are not a 95% interval.
fn statistics(step: &TrueStep) -> StepStatistics {
    let has_interval = step.timed_steps >= STEPS_OF_A_MEDIAN.get();
    StepStatistics {
        steps: step.timed_steps as u64,
        median: Some(step.seconds),
        ci95_low: has_interval.then_some(step.lower_seconds),
        ci95_high: has_interval.then_some(step.upper_seconds),
        ..StepStatistics::default()
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// 95% interval of a relative change, from the values of each step. Steps that were disturbed move neither end far, but
/// they move `stated`, the change of the means, which the interval is widened to hold.
fn relative_interval(before: &[f64], after: &[f64], stated: f64) -> Option<[f64; 2]> {
    let middle = trimmed_mean(before, MISSED).value;
    let Interval { low, high, .. } = trimmed_difference(after, before).filter(|_| middle != 0.0)?;
    // No figure here falls below zero.
    Some([(low / middle).min(stated), (high / middle).max(stated)].map(|end| end.max(-1.0)))
}

/// Whether a trace has a figure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Yes,
    NotRecorded,
    Withheld,
}

struct Figure {
    name: &'static str,
    unit: Unit,
    of: fn(&Analysis) -> f64,
    of_each_step: Option<fn(&Analysis) -> Vec<f64>>,
    is_known: fn(&Analysis) -> Known,
}

const FIGURES: [Figure; 6] = [
    Figure {
        name: "busy share",
        unit: Unit::Share,
        of: |analysis| analysis.measures.breakdown.busy_share,
        of_each_step: Some(|analysis| each(analysis, |step| step.busy_seconds / step.seconds.max(f64::MIN_POSITIVE))),
        is_known: idle_is_known,
    },
    Figure {
        name: "kernels per step",
        unit: Unit::Count,
        of: |analysis| analysis.measures.kernels.per_step,
        of_each_step: Some(|analysis| each(analysis, |step| step.kernels as f64)),
        is_known: device_is_known,
    },
    Figure {
        name: "launches per step",
        unit: Unit::Count,
        of: |analysis| analysis.measures.launches.per_step,
        of_each_step: None,
        is_known: device_is_known,
    },
    Figure {
        name: "device seconds per step",
        unit: Unit::Seconds,
        of: |analysis| analysis.measures.operators.device_self_seconds / analysis.steps.count(),
        of_each_step: Some(device_seconds),
        is_known: device_is_known,
    },
    Figure {
        name: "idle seconds per step",
        unit: Unit::Seconds,
        of: |analysis| analysis.measures.breakdown.idle.total_seconds / analysis.steps.count(),
        of_each_step: Some(|analysis| each(analysis, |step| step.seconds - step.busy_seconds)),
        is_known: idle_is_known,
    },
    Figure {
        name: "peak memory bytes",
        unit: Unit::Bytes,
        of: |analysis| analysis.measures.memory.peak_bytes as f64,
        of_each_step: None,
        is_known: |analysis| if analysis.measures.memory.peak_bytes > 0 { Known::Yes } else { Known::NotRecorded },
    },
];

fn idle_is_known(analysis: &Analysis) -> Known {
    let withheld = &analysis.trust.withheld;
    if withheld.iter().any(|figure| matches!(*figure, "idle" | "breakdown")) { Known::Withheld } else { Known::Yes }
}

fn device_is_known(analysis: &Analysis) -> Known {
    if analysis.measures.kernels.count > 0 { Known::Yes } else { Known::NotRecorded }
}

#[derive(Default)]
struct Figures {
    rows: Vec<Change>,
    withheld: Vec<&'static str>,
    one_sided: Vec<&'static str>,
    notes: Vec<String>,
}

fn figures(before: &Analysis, after: &Analysis) -> Figures {
    let mut found = Figures::default();
    // Where work runs on the host, steps have no busy time of their own.
    let on_device = before.measures.per_step.iter().chain(&after.measures.per_step).all(|step| step.kernels > 0);
    for figure in &FIGURES {
        let name = figure.name;
        let readable = name.trim_end_matches(" bytes").replace(" seconds", " time");
        match ((figure.is_known)(before), (figure.is_known)(after)) {
            (Known::Withheld, _) | (_, Known::Withheld) => {
                found.withheld.push(name);
                continue;
            }
            (Known::NotRecorded, Known::NotRecorded) => continue,
            (Known::NotRecorded, _) => {
                found.notes.push(format!("{readable} is recorded only after, so it is not compared"))
            }
            (_, Known::NotRecorded) => {
                found.notes.push(format!("{readable} is recorded only before, so it is not compared"))
            }
            (Known::Yes, Known::Yes) => {
                let row = change(name, figure.unit, (figure.of)(before), (figure.of)(after));
                let [left, right] =
                    [before, after].map(|side| figure.of_each_step.map(|each| each(side)).unwrap_or_default());
                let interval = row.relative.and_then(|stated| relative_interval(&left, &right, stated));
                // A figure that is zero on both sides says nothing.
                if row.before != 0.0 || row.after != 0.0 {
                    found.rows.push(Change { interval: interval.filter(|_| on_device), ..row });
                }
                continue;
            }
        }
        found.one_sided.push(name);
    }
    if !found.withheld.is_empty() {
        found.notes.push(format!("withheld, because a trace does not show it: {}", found.withheld.join(", ")));
    }
    found
}

fn each(analysis: &Analysis, of: impl Fn(&PerStep) -> f64) -> Vec<f64> {
    analysis.measures.per_step.iter().map(of).collect()
}

/// Time of all operators together, in each step.
fn device_seconds(analysis: &Analysis) -> Vec<f64> {
    let rows = &analysis.measures.operators.rows;
    let of_step = |step: usize| rows.iter().filter_map(|row| row.device_seconds_by_step.get(step)).sum();
    (0..analysis.steps.list.len()).map(of_step).collect()
}

fn change(name: &str, unit: Unit, before: f64, after: f64) -> Change {
    let relative = (before != 0.0).then(|| after / before - 1.0);
    Change { name: name.to_string(), unit, before, after, relative, interval: None }
}

fn operators(analysis: &Analysis) -> BTreeMap<&str, f64> {
    let on_device = analysis.measures.operators.device_self_seconds > 0.0;
    let rows = analysis.measures.operators.rows.iter();
    rows.map(|row| {
        let seconds = if on_device { row.device_self_seconds } else { row.host_self_seconds };
        (row.name.as_str(), seconds / analysis.steps.count())
    })
    .collect()
}

fn kernels(analysis: &Analysis) -> BTreeMap<&str, f64> {
    let rows = analysis.measures.kernels.rows.iter();
    rows.map(|row| (row.name.as_str(), row.seconds / analysis.steps.count())).collect()
}

fn changes(before: &BTreeMap<&str, f64>, after: &BTreeMap<&str, f64>) -> Vec<Change> {
    let mut names: Vec<&str> = before.keys().chain(after.keys()).copied().collect();
    names.sort_unstable();
    names.dedup();
    let value = |side: &BTreeMap<&str, f64>, name: &str| side.get(name).copied().unwrap_or(0.0);
    let mut rows: Vec<Change> =
        names.iter().map(|name| change(name, Unit::Seconds, value(before, name), value(after, name))).collect();
    rows.sort_by(|left, right| {
        let size = |row: &Change| (row.after - row.before).abs();
        size(right).total_cmp(&size(left)).then(left.name.cmp(&right.name))
    });
    rows
}

/// Adds the 95% interval of each operator's change, over its time in each step.
fn with_intervals(rows: Vec<Change>, before: &Analysis, after: &Analysis) -> Vec<Change> {
    let [left, right] = [before, after].map(seconds_by_step);
    let zeros = |analysis: &Analysis| vec![0.0; analysis.steps.list.len()];
    let of = |side: &BTreeMap<&str, &[f64]>, name: &str, analysis: &Analysis| {
        side.get(name).map_or_else(|| zeros(analysis), |seconds| seconds.to_vec())
    };
    let row = |row: Change| {
        let (old, new) = (of(&left, &row.name, before), of(&right, &row.name, after));
        let interval = row.relative.and_then(|stated| relative_interval(&old, &new, stated));
        Change { interval, ..row }
    };
    rows.into_iter().map(row).collect()
}

fn seconds_by_step(analysis: &Analysis) -> BTreeMap<&str, &[f64]> {
    let on_device = analysis.measures.operators.device_self_seconds > 0.0;
    let rows = analysis.measures.operators.rows.iter();
    rows.map(|row| {
        let seconds = if on_device { &row.device_seconds_by_step } else { &row.host_seconds_by_step };
        (row.name.as_str(), seconds.as_slice())
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_within_the_spread_of_steps_has_an_interval_around_zero() {
        let change = step_change(&[1.0, 1.2, 0.8, 1.0], &[1.1, 0.9, 1.0, 1.1]);
        let [low, high] = change.interval.expect("there are steps enough");
        assert!(low < 0.0 && high > 0.0, "{low} {high}");
        let change = step_change(&[1.0, 1.01, 0.99], &[2.0, 2.01, 1.99]);
        let [low, high] = change.interval.expect("there are steps enough");
        assert!(low > 0.9 && high < 1.1, "{low} {high}");
        assert!(step_change(&[1.0], &[2.0]).interval.is_none());
    }

    #[test]
    fn one_disturbed_step_does_not_hide_a_change() {
        let steady: Vec<f64> = (0..15).map(|step| 1.0 + 0.001 * f64::from(step % 3)).collect();
        let mut slower: Vec<f64> = steady.iter().map(|seconds| 1.2 * seconds).collect();
        slower[7] = 9.0;
        let change = step_change(&steady, &slower);
        let [low, high] = change.interval.expect("there are steps enough");
        assert!(low > 0.19 && low < 0.21, "{low} to {high}");
        assert!(change.relative > 0.5 && high >= change.relative, "the mean is moved and stated: {change:?}");
    }

    #[test]
    fn steps_timed_without_a_profiler_are_compared_where_both_recordings_have_them() {
        let timed = |seconds: f64, steps: usize| TrueStep {
            from: "measured",
            seconds,
            lower_seconds: 0.9 * seconds,
            upper_seconds: 1.1 * seconds,
            timed_steps: steps,
            // In the replay, it seems unchanged.
            played_seconds: 0.055,
            ..TrueStep::default()
        };
        let change = timed_change(&timed(0.055, 8), &timed(0.044, 8)).expect("both are timed");
        assert!(change.timed_without_profiler);
        assert!((change.relative + 0.2).abs() < 1e-9, "{change:?}");
        let [low, high] = change.interval.expect("eight steps bound a median");
        assert!(low > -0.33 && low < -0.29 && high > -0.08 && high < -0.06, "{change:?}");
        assert!(timed_change(&timed(0.055, 5), &timed(0.044, 8)).expect("timed").interval.is_none());
        let estimated = TrueStep { from: "estimated", ..timed(0.055, 0) };
        assert!(timed_change(&timed(0.055, 8), &estimated).is_none());
    }
}
