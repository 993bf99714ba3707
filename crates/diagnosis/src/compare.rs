//! Two analyses side by side: what changed, how sure that is, and whether it goes beyond a limit.

use std::collections::BTreeMap;

use headroom_record::statistics::{MISSED, student_quantile};
use serde::Serialize;
use thiserror::Error;

use crate::analysis::Analysis;
use crate::measures::per_step::PerStep;

#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub before: String,
    pub after: String,
    pub step: StepChange,
    /// Of the whole: busy share, kernels and launches a step, memory.
    pub figures: Vec<Change>,
    /// Self time a step (device, else host) by operator, and kernel time; the largest change first.
    pub operators: Vec<Change>,
    pub kernels: Vec<Change>,
    pub findings_gone: Vec<String>,
    pub findings_new: Vec<String>,
    /// Traces that are to be read with a reserve.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct StepChange {
    pub before_seconds: f64,
    pub after_seconds: f64,
    /// After over before, less one.
    pub relative: f64,
    /// 95% interval of `relative` over steps (Welch); `None` with fewer than two steps on a side.
    pub interval: Option<[f64; 2]>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Change {
    pub name: String,
    pub unit: Unit,
    pub before: f64,
    pub after: f64,
    pub relative: Option<f64>,
    /// 95% interval of `relative` over steps, where the figure is known for each step.
    pub interval: Option<[f64; 2]>,
}

/// What a figure counts, so that it can be shown as people read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    Seconds,
    Bytes,
    Share,
    Count,
}

const MOST_ROWS: usize = 20;

pub fn compare(before: &Analysis, after: &Analysis) -> Comparison {
    let notes = [before, after].into_iter().flat_map(|analysis| {
        analysis.trust.notes.iter().map(|note| format!("{}: {note}", analysis.trace.name)).collect::<Vec<_>>()
    });
    let notes = differences(before, after).into_iter().chain(notes);
    Comparison {
        before: before.trace.name.clone(),
        after: after.trace.name.clone(),
        step: step_change(&step_seconds(before), &step_seconds(after)),
        figures: figures(before, after),
        operators: changes(&operators(before), &operators(after)),
        kernels: changes(&kernels(before), &kernels(after)),
        findings_gone: missing(before, after),
        findings_new: missing(after, before),
        notes: notes.collect(),
    }
}

/// What makes the two more than a change of the program.
fn differences(before: &Analysis, after: &Analysis) -> Vec<String> {
    let device = |analysis: &Analysis| analysis.trace.device.clone().unwrap_or_else(|| "an unnamed device".into());
    let mut notes = Vec::new();
    if device(before) != device(after) {
        notes.push(format!(
            "the devices differ, {} before and {} after: a change of time may be theirs",
            device(before),
            device(after)
        ));
    }
    let (left, right) = (before.trace.world_size, after.trace.world_size);
    if left != right {
        notes.push(format!("the runs have {left} ranks before and {right} after: a rank's work may differ"));
    }
    notes
}

fn step_seconds(analysis: &Analysis) -> Vec<f64> {
    analysis.steps.list.iter().map(|step| step.seconds).collect()
}

fn step_change(before: &[f64], after: &[f64]) -> StepChange {
    let (left, right) = (mean(before), mean(after));
    let relative = |seconds: f64| seconds / left.max(f64::MIN_POSITIVE);
    let interval = welch(before, after).map(|half| [relative(right - left - half), relative(right - left + half)]);
    StepChange { before_seconds: left, after_seconds: right, relative: relative(right - left), interval }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Half of the 95% interval of the difference of two means.
fn welch(before: &[f64], after: &[f64]) -> Option<f64> {
    let variance_of_mean = |values: &[f64]| {
        let mean = mean(values);
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        (values.len() > 1).then(|| squares / (values.len() - 1) as f64 / values.len() as f64)
    };
    let (left, right) = (variance_of_mean(before)?, variance_of_mean(after)?);
    let sum = left + right;
    if sum == 0.0 {
        return Some(0.0);
    }
    let freedom = sum * sum
        / (left * left / (before.len() - 1) as f64 + right * right / (after.len() - 1) as f64).max(f64::MIN_POSITIVE);
    Some(student_quantile(1.0 - MISSED / 2.0, freedom) * sum.sqrt())
}

fn figures(before: &Analysis, after: &Analysis) -> Vec<Change> {
    type Figure = (&'static str, Unit, fn(&Analysis) -> f64, Option<fn(&PerStep) -> f64>);
    let figures: [Figure; 6] = [
        (
            "busy share",
            Unit::Share,
            |analysis| analysis.measures.breakdown.busy_share,
            Some(|step| step.busy_seconds / step.seconds.max(f64::MIN_POSITIVE)),
        ),
        (
            "kernels a step",
            Unit::Count,
            |analysis| analysis.measures.kernels.per_step,
            Some(|step| step.kernels as f64),
        ),
        ("launches a step", Unit::Count, |analysis| analysis.measures.launches.per_step, None),
        (
            "device seconds a step",
            Unit::Seconds,
            |analysis| analysis.measures.operators.device_self_seconds / analysis.steps.count(),
            None,
        ),
        (
            "idle seconds a step",
            Unit::Seconds,
            |analysis| analysis.measures.breakdown.idle.total_seconds / analysis.steps.count(),
            Some(|step| step.seconds - step.busy_seconds),
        ),
        ("peak memory bytes", Unit::Bytes, |analysis| analysis.measures.memory.peak_bytes as f64, None),
    ];
    let row = |(name, unit, of, each): Figure| {
        let steps = |analysis: &Analysis| -> Vec<f64> {
            each.map(|each| analysis.measures.per_step.iter().map(each).collect()).unwrap_or_default()
        };
        let (left, right) = (steps(before), steps(after));
        let middle = mean(&left);
        // Where work runs on the host, no step is known by its busy time.
        let on_device = before.measures.per_step.iter().chain(&after.measures.per_step).all(|step| step.kernels > 0);
        let half = welch(&left, &right).filter(|_| middle != 0.0 && on_device);
        let interval = half.map(|half| [-half, half].map(|side| (mean(&right) - middle + side) / middle));
        Change { interval, ..change(name, unit, of(before), of(after)) }
    };
    // A figure that neither side has (kernels on a host) says nothing.
    figures.into_iter().map(row).filter(|row| row.before != 0.0 || row.after != 0.0).collect()
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
    rows.retain(|row| row.before != row.after);
    rows.sort_by(|left, right| {
        let size = |row: &Change| (row.after - row.before).abs();
        size(right).total_cmp(&size(left)).then(left.name.cmp(&right.name))
    });
    rows.truncate(MOST_ROWS);
    rows
}

/// Findings of `one` that `other` does not have, by code and message's subject.
fn missing(one: &Analysis, other: &Analysis) -> Vec<String> {
    let key = |finding: &crate::trace_rules::TraceFinding| {
        let subject = finding.message.split(['`']).nth(1).unwrap_or_default().to_string();
        (finding.code, subject)
    };
    let theirs: Vec<_> = other.findings.iter().map(key).collect();
    let gone = one.findings.iter().filter(|finding| !theirs.contains(&key(finding)));
    gone.map(|finding| format!("{} {}: {}", finding.code, finding.name, finding.message)).collect()
}

/// A limit on a change: `step>5%` fails when the step grew by more than 5%.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    pub text: String,
    figure: String,
    grows: bool,
    share: f64,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "--fail-if {text}: not a limit\n  help: FIGURE>N% or FIGURE<-N% with step, memory, kernels, launches, device, idle, busy or \
     op:NAME, for instance \"step>5%\""
)]
pub struct LimitError {
    pub text: String,
}

const FIGURES: &[(&str, &str)] = &[
    ("memory", "peak memory bytes"),
    ("kernels", "kernels a step"),
    ("launches", "launches a step"),
    ("device", "device seconds a step"),
    ("idle", "idle seconds a step"),
    ("busy", "busy share"),
];

impl std::str::FromStr for Limit {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Limit, LimitError> {
        let error = || LimitError { text: text.to_string() };
        let place = text.find(['>', '<']).ok_or_else(error)?;
        let figure = text[..place].trim().to_string();
        let number = text[place + 1..].trim().strip_suffix('%').ok_or_else(error)?.trim();
        let percent: f64 = number.parse().map_err(|_| error())?;
        let is_known = figure == "step"
            || figure.strip_prefix("op:").is_some_and(|name| !name.is_empty())
            || FIGURES.iter().any(|(name, _)| *name == figure);
        if !is_known || !percent.is_finite() {
            return Err(error());
        }
        Ok(Limit { text: text.to_string(), figure, grows: text.as_bytes()[place] == b'>', share: percent / 100.0 })
    }
}

impl Limit {
    /// The relative change that goes beyond the limit, if it does.
    pub fn exceeded(&self, comparison: &Comparison) -> Option<f64> {
        let relative = if self.figure == "step" {
            Some(comparison.step.relative)
        } else if let Some(name) = self.figure.strip_prefix("op:") {
            comparison
                .operators
                .iter()
                .find(|row| row.name == name)
                .and_then(|row| row.relative.or(Some(f64::INFINITY)))
        } else {
            let name = FIGURES.iter().find(|(short, _)| *short == self.figure).map(|(_, long)| *long)?;
            comparison.figures.iter().find(|row| row.name == name).and_then(|row| row.relative)
        }?;
        let beyond = if self.grows { relative > self.share } else { relative < self.share };
        beyond.then_some(relative)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_names_a_figure_and_a_share() {
        let limit: Limit = "step>5%".parse().expect("is a limit");
        assert_eq!((limit.figure.as_str(), limit.grows, limit.share), ("step", true, 0.05));
        assert!("op:aten::mm > 10 %".parse::<Limit>().is_ok());
        for wrong in ["step", "step>5", "speed>5%", "step>x%", ">5%", "op:>5%", "step>inf%"] {
            assert!(wrong.parse::<Limit>().is_err(), "{wrong}");
        }
    }

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
}
