//! Sweeps over batch and sequence: points from plans, fitted growth, what fits, and what memory optimizations would
//! save.

pub mod ranks;
mod savings;

pub use savings::{How, Saving, savings};

use crate::components::largest;
use crate::growth::{class, exponent, exponent_of_measured};
use crate::planning::{MIB, PlannedStep, fits, largest_where};
use headroom_graph::GraphError;
use headroom_graph::cost::Rates;
use headroom_record::memory::peak_to_average;
use headroom_record::scaling::{ComponentGrowth, Growth, Limits, ScalingPoint};
use headroom_record::statistics::Interval;
use headroom_record::study::Components;
use headroom_training::data::BatchShape;
use headroom_training::program::StepConfig;

/// A point before it is measured, with the maximum of each component, which growth is fitted to.
pub struct PlannedPoint {
    pub point: ScalingPoint,
    pub need_bytes: usize,
}

/// Upper limits of the searches for what fits.
pub const LARGEST_BATCH: usize = 1 << 14;
pub const LONGEST_SEQUENCE: usize = 1 << 17;

pub fn plan_point(step: &StepConfig, threads: usize, rates: &Rates) -> Result<PlannedPoint, GraphError> {
    let planned = PlannedStep::new(step, threads)?;
    let peak = planned.need.total() as f64 / MIB;
    let average = planned.need.average as f64 / MIB;
    let BatchShape { batch_size, seq_len } = step.shape;
    let point = ScalingPoint {
        batch_size: batch_size as u64,
        seq_len: seq_len as u64,
        peak_memory_mb: peak,
        avg_memory_mb: average,
        peak_to_average: peak_to_average(peak, average),
        memory_per_token_kb: 1024.0 * peak / (batch_size * seq_len) as f64,
        scaling_factor: 1.0,
        memory_by_component: planned.components(),
        largest_by_component: largest(&planned.training.program),
        predicted_step_seconds: planned.predicted_seconds(rates),
        step_seconds: None,
        step_seconds_low: None,
        step_seconds_high: None,
        samples_per_sec: None,
        tokens_per_sec: None,
        process_peak_memory_mb: None,
        note: None,
    };
    Ok(PlannedPoint { point, need_bytes: planned.need.total() })
}

/// Sets peak memory relative to the first point.
pub fn set_scaling_factors(points: &mut [PlannedPoint]) {
    let Some(first) = points.first().map(|first| first.point.peak_memory_mb) else { return };
    for planned in points {
        planned.point.scaling_factor = planned.point.peak_memory_mb / first;
    }
}

/// Fits the growth of one sweep along its axis.
pub fn growth(points: &[PlannedPoint], axis: fn(&ScalingPoint) -> u64) -> Growth {
    let fit = |value: &dyn Fn(&PlannedPoint) -> f64| {
        let pairs: Vec<(f64, f64)> =
            points.iter().map(|planned| (axis(&planned.point) as f64, value(planned))).collect();
        exponent(&pairs)
    };
    let beyond_fixed = |planned: &PlannedPoint| {
        let components = &planned.point.memory_by_component;
        components.total() - components.fixed() - components.overhead
    };
    let measured: Vec<(f64, f64)> = points
        .iter()
        .filter_map(|planned| planned.point.samples_per_sec.map(|speed| (axis(&planned.point) as f64, speed)))
        .collect();
    // Only times of a race have an interval each.
    let timed: Option<Vec<(f64, Interval)>> = points
        .iter()
        .filter(|planned| planned.point.samples_per_sec.is_some())
        .map(|planned| Some((axis(&planned.point) as f64, speed(&planned.point)?)))
        .collect();
    let speed = timed.and_then(|timed| exponent_of_measured(&timed));
    let names = ["parameters", "activations", "attention"];
    let components = names.map(|name| {
        let size = |planned: &PlannedPoint| part(&planned.point.largest_by_component, name);
        let exponent = fit(&size);
        ComponentGrowth {
            component: name.into(),
            exponent,
            class: class(exponent).into(),
            first_mb: points.first().map_or(0.0, size),
            last_mb: points.last().map_or(0.0, size),
        }
    });
    let exponent_beyond = fit(&beyond_fixed);
    Growth {
        exponent: exponent_beyond,
        class: class(exponent_beyond).into(),
        peak_exponent: fit(&|planned| planned.point.peak_memory_mb),
        speed_exponent: exponent(&measured),
        speed_exponent_low: speed.map(|found| found.low),
        speed_exponent_high: speed.map(|found| found.high),
        // Tiled attention has no quadratic tensors at all.
        components: components.into_iter().filter(|growth| growth.last_mb > 0.0).collect(),
    }
}

/// Samples per second with the interval that follows from the step's.
fn speed(point: &ScalingPoint) -> Option<Interval> {
    let (low, high) = (point.step_seconds_low?, point.step_seconds_high?);
    let at = |seconds: f64| point.batch_size as f64 / seconds;
    (low > 0.0).then(|| Interval { value: at(point.step_seconds.unwrap_or(low)), low: at(high), high: at(low) })
}

/// Parameters with their gradients and optimizer state, attention's quadratic tensors, or everything else.
fn part(components: &Components, name: &str) -> f64 {
    match name {
        "parameters" => components.fixed(),
        "attention" => components.attention,
        _ => components.activations,
    }
}

/// The largest batch at one length and the longest sequence at one batch that fit, found by bisection on the plan.
pub fn limits(
    step: &StepConfig,
    seq_len: usize,
    batch_size: usize,
    threads: usize,
    available: usize,
) -> Result<Limits, GraphError> {
    let fit = |shape: BatchShape| fits(step, shape, threads, available);
    let batch = largest_where(LARGEST_BATCH, |batch_size| fit(BatchShape { batch_size, seq_len }))?;
    let sequence = largest_where(LONGEST_SEQUENCE, |seq_len| fit(BatchShape { batch_size, seq_len }))?;
    Ok(Limits {
        available_mb: available as f64 / MIB,
        largest_batch: batch.map(|batch| batch as u64),
        at_seq_len: seq_len as u64,
        longest_sequence: sequence.map(|sequence| sequence as u64),
        at_batch_size: batch_size as u64,
        batch_searched_to: LARGEST_BATCH as u64,
        sequence_searched_to: LONGEST_SEQUENCE as u64,
    })
}

#[cfg(test)]
mod tests;
