//! The records of a profile: the analysis of its trace under the keys of its files, with facts that only the run knows.

use super::Profiler;
use super::arguments::SortBy;
use crate::train::settings::Settings;
use anyhow::Context;
use headroom_diagnosis::Analysis;
use headroom_record::SCHEMA_VERSION;
use headroom_record::flops::{FlopsRecord, ModelInfo, PerformanceMetrics, ProfilingConfig, StepFlops};
use headroom_record::intensity::IntensityRecord;
use headroom_record::memory::MemoryRecord;
use headroom_record::operators::{OperatorRecord, OperatorStats};
use headroom_record::performance::PerformanceRecord;
use headroom_record::roofline::RooflineRecord;
use headroom_record::timeline::TimelineRecord;
use headroom_training::run::Outcome;

/// Every record of a profile.
pub struct ProfileRecords {
    pub flops: FlopsRecord,
    pub intensity: IntensityRecord,
    pub roofline: RooflineRecord,
    pub operators: OperatorRecord,
    pub memory: MemoryRecord,
    pub timeline: TimelineRecord,
}

impl ProfileRecords {
    pub fn new(
        profiler: &Profiler,
        analysis: &Analysis,
        settings: &Settings,
        outcome: &Outcome,
        performance: &PerformanceRecord,
    ) -> anyhow::Result<ProfileRecords> {
        let run = analysis.run.as_ref().context("the trace of the recorded steps does not say what ran")?;
        let timestamp = performance.timestamp.clone();
        let mut operators = OperatorRecord { timestamp: timestamp.clone(), ..run.operator_analysis.clone() };
        sort(&mut operators.operator_stats, profiler.sort_by);
        Ok(ProfileRecords {
            flops: FlopsRecord {
                schema_version: SCHEMA_VERSION,
                model_info: ModelInfo {
                    total_params: run.header.parameters,
                    trainable_params: run.header.parameters,
                    config: performance.config.clone(),
                },
                profiling_config: ProfilingConfig {
                    batch_size: settings.shape.batch_size as u64,
                    sequence_length: settings.shape.seq_len as u64,
                    gradient_accumulation_steps: settings.optimizer.accumulation as u64,
                    num_steps: outcome.steps.len() as u64,
                    device: performance.system_info.device.clone(),
                },
                performance_metrics: PerformanceMetrics {
                    avg_time_per_step: performance
                        .performance_summary
                        .avg_batch_time
                        .unwrap_or(operators.step_breakdown.wall),
                    throughput_samples_per_sec: performance.performance_summary.avg_training_speed.unwrap_or(0.0),
                    avg_loss: performance.performance_summary.avg_loss,
                    flops_per_sec: run.efficiency_metrics.achieved_flops_per_sec,
                },
                step_by_step_results: step_by_step(outcome, run.flops_analysis.avg_flops_per_step),
                flops_analysis: run.flops_analysis.clone(),
                efficiency_metrics: run.efficiency_metrics.clone(),
                timestamp: timestamp.clone(),
                provenance: FlopsRecord::provenance(run.times(), run.peak_origin()),
            },
            intensity: run.computational_intensity.clone(),
            roofline: RooflineRecord { timestamp, ..run.roofline_data.clone() },
            operators,
            memory: run.memory_analysis.clone(),
            timeline: run.memory_timeline.clone(),
        })
    }
}

fn step_by_step(outcome: &Outcome, flops: u64) -> Vec<StepFlops> {
    let row = |record: &headroom_training::run::CompletedStep| {
        let time = record.times.total.as_secs_f64();
        let flops_per_sec = flops as f64 / time.max(1e-12);
        StepFlops { step: record.step, loss: record.loss.map(f64::from), flops, time, flops_per_sec }
    };
    outcome.steps.iter().map(row).collect()
}

fn sort(rows: &mut [OperatorStats], by: SortBy) {
    match by {
        SortBy::SelfTime => {} // as they come
        SortBy::Count => rows.sort_by_key(|row| std::cmp::Reverse(row.count)),
        SortBy::Flops => rows.sort_by_key(|row| std::cmp::Reverse(row.flops)),
        SortBy::Bytes => rows.sort_by_key(|row| std::cmp::Reverse(row.bytes)),
    }
}
