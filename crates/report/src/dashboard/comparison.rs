//! Two runs or traces side by side.

use headroom_diagnosis::Analysis;
use headroom_diagnosis::compare::{Change, SiteChange, StepChange, compare};
use headroom_record::flops::is_possible_mfu;
use serde::Serialize;

use super::RunRecords;
use crate::numbers::mfu;

/// One side of the comparison, with everything known about it.
pub struct Side<'a> {
    pub id: &'a str,
    pub name: &'a str,
    pub records: Option<&'a RunRecords>,
    pub analysis: Option<&'a Analysis>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Comparison {
    pub before: Named,
    pub after: Named,
    pub notes: Vec<String>,
    /// Change of the recorded steps, with an interval.
    pub step: Option<StepChange>,
    pub figures: Vec<FigureChange>,
    /// Seconds per step.
    pub operators: Vec<Change>,
    pub kernels: Vec<Change>,
    /// By operator at its sizes and place: what grew, the largest growth first, then what shrank.
    pub changes: Vec<SiteChange>,
    pub findings_gone: Vec<String>,
    pub findings_new: Vec<String>,
    pub findings_grown: Vec<String>,
    pub settings: Vec<Setting>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Named {
    pub id: String,
    pub name: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct FigureChange {
    pub name: &'static str,
    pub unit: Unit,
    pub before: Option<f64>,
    pub after: Option<f64>,
    /// After divided by before, minus one.
    pub relative: Option<f64>,
    pub better: Better,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    Seconds,
    Rate,
    Percent,
    Share,
    Bytes,
    Count,
    Plain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Lower,
    Higher,
    Neither,
}

/// A setting in which the two sides differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    pub name: String,
    pub before: String,
    pub after: String,
}

pub fn comparison(before: &Side, after: &Side) -> Comparison {
    let named = |side: &Side| Named { id: side.id.into(), name: side.name.into() };
    let mut impossible = vec![];
    let mut result = Comparison { before: named(before), after: named(after), ..Comparison::default() };
    if let (Some(left), Some(right)) = (before.records, after.records) {
        result.figures.extend(figures_of_runs(left, right));
        result.settings = settings(left, right);
    }
    for side in [before, after] {
        let used = side.records.and_then(|run| Some(run.flops.as_ref()?.efficiency_metrics.mfu_percent));
        if let Some(percent) = used.filter(|percent| !is_possible_mfu(*percent)) {
            impossible.push(format!("MFU of {} is {}.", side.name, mfu(percent, 1)));
        }
    }
    match (before.analysis, after.analysis) {
        (Some(left), Some(right)) => {
            let changes = compare(left, right);
            result.figures.extend(figures_of_traces(left, right));
            result.notes = changes.notes;
            result.step = Some(changes.step);
            result.operators = changes.operators;
            result.kernels = changes.kernels;
            result.changes = changes.changes;
            result.findings_gone = changes.findings_gone;
            result.findings_new = changes.findings_new;
            result.findings_grown = changes.findings_grown;
        }
        _ => result.notes.push("Operators are compared where both have a trace.".into()),
    }
    result.notes.append(&mut impossible);
    result.figures.retain(|figure| figure.before.is_some() || figure.after.is_some());
    result
}

fn change(name: &'static str, unit: Unit, better: Better, before: Option<f64>, after: Option<f64>) -> FigureChange {
    let relative = match (before, after) {
        (Some(before), Some(after)) if before != 0.0 => Some(after / before - 1.0),
        _ => None,
    };
    FigureChange { name, unit, before, after, relative, better }
}

fn figures_of_runs(left: &RunRecords, right: &RunRecords) -> Vec<FigureChange> {
    type Figure = (&'static str, Unit, Better, fn(&RunRecords) -> Option<f64>);
    let list: [Figure; 7] = [
        ("step, median", Unit::Seconds, Better::Lower, |run| run.performance.as_ref()?.statistics.median),
        ("tokens per second", Unit::Rate, Better::Higher, |run| {
            run.performance.as_ref()?.performance_summary.tokens_per_sec
        }),
        ("peak memory", Unit::Bytes, Better::Lower, |run| {
            run.performance.as_ref()?.performance_summary.peak_memory_mb.map(|size| size * 1024.0 * 1024.0)
        }),
        ("MFU", Unit::Percent, Better::Higher, |run| {
            Some(run.flops.as_ref()?.efficiency_metrics.mfu_percent).filter(|percent| is_possible_mfu(*percent))
        }),
        ("kernels per step", Unit::Count, Better::Lower, |run| {
            Some(run.operators.as_ref()?.patterns.kernels_per_step as f64)
        }),
        ("FLOPs per byte", Unit::Plain, Better::Neither, |run| {
            Some(run.intensity.as_ref()?.arithmetic_intensity_flops_per_byte)
        }),
        ("final loss", Unit::Plain, Better::Neither, |run| run.performance.as_ref()?.performance_summary.final_loss),
    ];
    list.into_iter().map(|(name, unit, better, of)| change(name, unit, better, of(left), of(right))).collect()
}

fn figures_of_traces(left: &Analysis, right: &Analysis) -> Vec<FigureChange> {
    type Figure = (&'static str, Unit, Better, fn(&Analysis) -> Option<f64>);
    let list: [Figure; 5] = [
        ("busy in the trace", Unit::Share, Better::Higher, |one| Some(one.measures.breakdown.busy_share)),
        ("device kernels per step", Unit::Count, Better::Lower, |one| {
            Some(one.measures.kernels.per_step).filter(|count| *count > 0.0)
        }),
        ("launches per step", Unit::Count, Better::Lower, |one| {
            Some(one.measures.launches.per_step).filter(|count| *count > 0.0)
        }),
        ("idle per step", Unit::Seconds, Better::Lower, |one| {
            Some(one.measures.breakdown.idle.total_seconds / one.steps.count())
        }),
        ("peak memory in the trace", Unit::Bytes, Better::Lower, |one| {
            Some(one.measures.memory.peak_bytes as f64).filter(|bytes| *bytes > 0.0)
        }),
    ];
    list.into_iter().map(|(name, unit, better, of)| change(name, unit, better, of(left), of(right))).collect()
}

fn settings(left: &RunRecords, right: &RunRecords) -> Vec<Setting> {
    let (Some(left), Some(right)) = (&left.config, &right.config) else { return vec![] };
    let mut rows = vec![
        Setting { name: "size".into(), before: left.size.clone(), after: right.size.clone() },
        Setting { name: "version".into(), before: left.version.clone(), after: right.version.clone() },
    ];
    let entries = |config: &headroom_record::config::Configuration| match serde_json::to_value(config) {
        Ok(serde_json::Value::Object(map)) => map,
        _ => serde_json::Map::new(),
    };
    let after = entries(&right.configuration);
    for (name, before) in entries(&left.configuration) {
        let after = after.get(&name).map(ToString::to_string).unwrap_or_default();
        rows.push(Setting { name: name.replace('_', " "), before: before.to_string(), after });
    }
    rows.retain(|row| row.before != row.after);
    rows
}
