//! Conclusions of a study over sizes: whether speed falls with size, where the device saturates, where attention
//! dominates memory, memory relative to parameters, and which batch to choose.

use crate::growth::{exponent, exponent_of_fit, exponent_of_measured};
use crate::planning::{PlannedStep, fits, largest_where};
use headroom_graph::GraphError;
use headroom_graph::cost::Rates;
use headroom_record::flops::is_possible_mfu;
use headroom_record::statistics::Interval;
use headroom_record::study::{SizeAnalysis, StudyRow, VersionAnalysis};
use headroom_training::data::BatchShape;
use headroom_training::program::StepConfig;

/// A planned size of the study, for questions that need further plans of it.
pub struct Planning<'a> {
    pub step: &'a StepConfig,
    pub threads: usize,
    /// Bytes that a run may use; `None` if unknown.
    pub available: Option<usize>,
    pub rates: Rates,
}

/// At this share of the best utilization a device counts as saturated.
const SATURATED: f64 = 0.9;
/// A batch this close to the best predicted speed is good enough.
const AS_GOOD: f64 = 0.95;
const LONGEST_SEQUENCE: usize = 1 << 16;
const LARGEST_BATCH: usize = 1 << 12;

/// Analyzes the rows of one version, in the order of their sizes.
pub fn version_analysis(version: &str, rows: &[&StudyRow], sizes: Vec<SizeAnalysis>) -> VersionAnalysis {
    let parameters = |row: &StudyRow| row.planned.parameters as f64;
    let over_parameters = |value: fn(&StudyRow) -> Option<f64>| {
        let points: Vec<(f64, f64)> =
            rows.iter().filter_map(|row| value(row).map(|value| (parameters(row), value))).collect();
        exponent(&points)
    };
    // Intervals of the race, if every row that has a speed was in it.
    let speeds: Option<Vec<(&StudyRow, Interval)>> =
        rows.iter().filter(|row| row.measured.samples_per_sec.is_some()).map(|row| Some((*row, speed(row)?))).collect();
    let growth_of_speed = |per_sample: fn(&StudyRow) -> f64| {
        let of = |(row, speed): &(&StudyRow, Interval)| (parameters(row), speed.map(|speed| speed * per_sample(row)));
        exponent_of_measured(&speeds.as_ref()?.iter().map(of).collect::<Vec<_>>())
    };
    let (samples, tokens) = (growth_of_speed(|_| 1.0), growth_of_speed(|row| row.planned.seq_len as f64));
    let planned: Vec<(f64, f64)> = rows.iter().map(|row| (parameters(row), row.planned.planned_memory_mb)).collect();
    let memory = exponent_of_fit(&planned);
    let saturation = Saturation::of(rows);
    let name = |row: Option<&StudyRow>| row.map(|row| row.size.clone());
    VersionAnalysis {
        version: version.into(),
        throughput_exponent: over_parameters(|row| row.measured.samples_per_sec),
        throughput_exponent_low: samples.map(|found| found.low),
        throughput_exponent_high: samples.map(|found| found.high),
        token_exponent: over_parameters(|row| row.measured.tokens_per_sec),
        token_exponent_low: tokens.map(|found| found.low),
        token_exponent_high: tokens.map(|found| found.high),
        saturates_at: name(saturation.at),
        saturates_at_low: name(saturation.at_low),
        saturates_at_high: name(saturation.at_high),
        best_mfu_percent: saturation.best.and_then(|best| best.measured.mfu_percent),
        best_mfu_percent_low: saturation.best.and_then(|best| best.measured.mfu_percent_low),
        best_mfu_percent_high: saturation.best.and_then(|best| best.measured.mfu_percent_high),
        memory_exponent: exponent(&planned),
        memory_exponent_low: memory.map(|found| found.low),
        memory_exponent_high: memory.map(|found| found.high),
        sizes,
    }
}

/// Samples per second with their interval, if the race gave one.
fn speed(row: &StudyRow) -> Option<Interval> {
    let measured = &row.measured;
    Some(Interval {
        value: measured.samples_per_sec?,
        low: measured.samples_per_sec_low?,
        high: measured.samples_per_sec_high?,
    })
}

/// The size from which on the device is well used, and those between which that size lies with certainty.
struct Saturation<'a> {
    best: Option<&'a StudyRow>,
    at: Option<&'a StudyRow>,
    /// The first that may reach the share of the best, and the first that surely does.
    at_low: Option<&'a StudyRow>,
    at_high: Option<&'a StudyRow>,
}

impl<'a> Saturation<'a> {
    fn of(rows: &[&'a StudyRow]) -> Saturation<'a> {
        let used: Vec<(&StudyRow, f64)> = rows
            .iter()
            .filter_map(|row| Some((*row, row.measured.mfu_percent.filter(|percent| is_possible_mfu(*percent))?)))
            .collect();
        let best = used.iter().copied().max_by(|left, right| left.1.total_cmp(&right.1)).map(|(row, _)| row);
        let first = |of: fn(&StudyRow) -> Option<f64>, than: Option<f64>| {
            let than = SATURATED * than?;
            used.iter().map(|(row, _)| *row).find(|row| of(row).is_some_and(|percent| percent >= than))
        };
        let of_best = |of: fn(&StudyRow) -> Option<f64>| best.and_then(of);
        let low: fn(&StudyRow) -> Option<f64> = |row| row.measured.mfu_percent_low;
        let high: fn(&StudyRow) -> Option<f64> = |row| row.measured.mfu_percent_high;
        let all_known = used.iter().all(|(row, _)| low(row).is_some() && high(row).is_some());
        Saturation {
            best,
            at: first(|row| row.measured.mfu_percent, of_best(|row| row.measured.mfu_percent)),
            at_low: first(high, of_best(low)).filter(|_| all_known),
            // The best one reaches its own share, however wide its interval.
            at_high: first(low, of_best(high)).or(best).filter(|_| all_known),
        }
    }
}

pub fn size_analysis(row: &StudyRow, planning: &Planning) -> Result<SizeAnalysis, GraphError> {
    let components = &row.planned.memory_by_component;
    Ok(SizeAnalysis {
        size: row.size.clone(),
        memory_over_parameters: row.planned.memory_over_parameters,
        attention_share_percent: 100.0 * components.attention / components.total().max(f64::MIN_POSITIVE),
        attention_takes_over_at: attention_takes_over_at(planning)?,
        best_batch: best_batch(planning)?.map(|batch| batch as u64),
        largest_batch_that_fits: largest_batch(planning)?.map(|batch| batch as u64),
    })
}

/// The shortest sequence at which attention's quadratic tensors are at least half of the peak, at the size's own batch.
fn attention_takes_over_at(planning: &Planning) -> Result<Option<u64>, GraphError> {
    let rules = |seq_len: usize| -> Result<bool, GraphError> {
        let shape = BatchShape { seq_len, ..planning.step.shape };
        if planning.step.model.validate(shape.batch_size, seq_len).is_err() {
            return Ok(true);
        }
        let components =
            PlannedStep::new(&StepConfig { shape, ..planning.step.clone() }, planning.threads)?.components();
        Ok(2.0 * components.attention >= components.total())
    };
    let has_squares = {
        let planned = PlannedStep::new(planning.step, planning.threads)?;
        planned.components().attention > 0.0
    };
    if !has_squares {
        return Ok(None);
    }
    let last_without = largest_where(LONGEST_SEQUENCE, |seq_len| rules(seq_len).map(|rules| !rules))?;
    Ok(match last_without {
        None => Some(1),
        Some(LONGEST_SEQUENCE) => None,
        Some(last) => Some(last as u64 + 1),
    })
}

fn largest_batch(planning: &Planning) -> Result<Option<usize>, GraphError> {
    let Some(available) = planning.available else { return Ok(None) };
    largest_where(LARGEST_BATCH, |batch_size| {
        fits(planning.step, BatchShape { batch_size, ..planning.step.shape }, planning.threads, available)
    })
}

/// The smallest power of two within 5% of the best predicted samples per second among those that fit: beyond it, more
/// memory gains nothing.
fn best_batch(planning: &Planning) -> Result<Option<usize>, GraphError> {
    let mut speeds = vec![];
    for power in 0..9 {
        let batch_size = 1 << power;
        let shape = BatchShape { batch_size, ..planning.step.shape };
        if planning.step.model.validate(batch_size, shape.seq_len).is_err() {
            break;
        }
        let planned = PlannedStep::new(&StepConfig { shape, ..planning.step.clone() }, planning.threads)?;
        if planning.available.is_some_and(|available| planned.need.total() > available) {
            break;
        }
        speeds.push((batch_size, batch_size as f64 / planned.predicted_seconds(&planning.rates)));
    }
    let best = speeds.iter().map(|(_, speed)| *speed).fold(0.0, f64::max);
    Ok(speeds.into_iter().find(|(_, speed)| *speed >= AS_GOOD * best).map(|(batch, _)| batch))
}

#[cfg(test)]
mod tests;
