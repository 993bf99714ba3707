//! The figures of a finished run, from its files.

use headroom_graph::cost::Rates;
use headroom_record::intensity::{Bound, INTENSITY_FILE};
use headroom_record::performance::PerformanceRecord;
use headroom_record::reading;
use headroom_record::study::{MeasuredFigures, PlannedFigures};
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

pub fn measured_figures(
    record: &PerformanceRecord,
    planned: &PlannedFigures,
    rates: Rates,
    folder: &Path,
) -> MeasuredFigures {
    let (summary, statistics) = (&record.performance_summary, &record.statistics);
    let tokens = (planned.batch_size * planned.seq_len) as f64;
    let idle_share = 1.0 - summary.device_utilization_percent.unwrap_or(100.0) / 100.0;
    let bound = Bound::of_step(planned.arithmetic_intensity, rates.product_flops / rates.bytes, idle_share);
    MeasuredFigures {
        samples_per_sec: summary.avg_training_speed,
        tokens_per_sec: summary.tokens_per_sec,
        step_seconds: statistics.median,
        step_seconds_low: statistics.ci95_low,
        step_seconds_high: statistics.ci95_high,
        peak_memory_mb: summary.peak_memory_mb,
        avg_memory_mb: summary.avg_memory_mb,
        process_peak_memory_mb: summary.process_peak_memory_mb,
        memory_per_token_kb: summary.peak_memory_mb.map(|mb| 1024.0 * mb / tokens),
        mfu_percent: summary.avg_batch_time.map(|time| 100.0 * planned.flops_per_step / time / rates.product_flops),
        bound: Some(profiled_bound(folder).unwrap_or(bound)),
        final_loss: summary.final_loss,
        ..MeasuredFigures::default()
    }
}

/// The bound from a profile's recorded calls, if there is a profile.
fn profiled_bound(folder: &Path) -> Option<Bound> {
    let text = reading::read(&folder.join(INTENSITY_FILE), reading::RECORD).ok()?;
    let record: Value = serde_json::from_slice(&text).ok()?;
    Bound::deserialize(&record["memory_bound_vs_compute_bound"]).ok()
}
