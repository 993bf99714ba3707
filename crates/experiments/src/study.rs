//! Conclusions of a study over sizes: whether speed falls with size, where the device saturates, where attention
//! dominates memory, memory relative to parameters, and which batch to choose.

use crate::growth::exponent;
use crate::planning::{PlannedStep, fits, largest_where};
use headroom_graph::GraphError;
use headroom_graph::cost::Rates;
use headroom_record::flops::is_possible_mfu;
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
    let used = |row: &StudyRow| row.measured.mfu_percent.filter(|percent| is_possible_mfu(*percent));
    let best = rows.iter().filter_map(|row| used(row)).max_by(f64::total_cmp);
    let saturated = rows.iter().find(|row| used(row).zip(best).is_some_and(|(mfu, best)| mfu >= SATURATED * best));
    VersionAnalysis {
        version: version.into(),
        throughput_exponent: over_parameters(|row| row.measured.samples_per_sec),
        token_exponent: over_parameters(|row| row.measured.tokens_per_sec),
        saturates_at: saturated.map(|row| row.size.clone()),
        best_mfu_percent: best,
        memory_exponent: over_parameters(|row| Some(row.planned.planned_memory_mb)),
        sizes,
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
