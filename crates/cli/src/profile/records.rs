//! The records of a profile, made from what was recorded, the plan, and the machine's peaks.

use super::Profiler;
use super::arguments::SortBy;
use crate::train::settings::Settings;
use headroom_diagnosis::bottlenecks::{
    Passes, RanOn, StepFacts, bottlenecks, memory_recommendations, roofline_targets,
};
use headroom_graph::passes::{CHECKPOINT, OFFERED};
use headroom_record::flops::{
    EfficiencyMetrics, FlopsAnalysis, FlopsFacts, FlopsRecord, ModelInfo, PerformanceMetrics, ProfilingConfig,
    StepFlops, workshop_mfu_class,
};
use headroom_record::intensity::{IntensityFacts, IntensityRecord, RooflineMetrics};
use headroom_record::memory::{MemoryFacts, MemoryRecord};
use headroom_record::operators::{OperatorFacts, OperatorRecord, OperatorStats, PlaceStats, StepBreakdown};
use headroom_record::performance::PerformanceRecord;
use headroom_record::provenance::Origin;
use headroom_record::roofline::{DeviceInfo, PerformancePoint, RooflineFacts, RooflinePoint, RooflineRecord};
use headroom_record::timeline::TimelineRecord;
use headroom_training::memory::MemoryNeed;
use headroom_training::profile::Profiled;
use headroom_training::profile::arithmetic::{flops_analysis, intensity_by_operator, time_by_bound};
use headroom_training::profile::memory::{MIB, MemoryFigures, memory_figures, timeline};
use headroom_training::profile::operators::{busy_seconds, by_place, operator_stats, patterns, step_breakdown};
use headroom_training::run::Outcome;

/// Every record of a profile.
pub struct Made {
    pub flops: FlopsRecord,
    pub intensity: IntensityRecord,
    pub roofline: RooflineRecord,
    pub operators: OperatorRecord,
    pub memory: MemoryRecord,
    pub timeline: TimelineRecord,
}

/// What several records are made from.
struct Base<'a> {
    profiler: &'a Profiler,
    profiled: &'a Profiled<'a>,
    settings: &'a Settings,
    outcome: &'a Outcome,
    performance: &'a PerformanceRecord,
    places: Vec<PlaceStats>,
    breakdown: StepBreakdown,
    flops: FlopsAnalysis,
    need: MemoryNeed,
    times: Origin,
}

impl Made {
    pub fn new(
        profiler: &Profiler,
        profiled: &Profiled,
        settings: &Settings,
        outcome: &Outcome,
        performance: &PerformanceRecord,
    ) -> Made {
        let base = Base {
            profiler,
            profiled,
            settings,
            outcome,
            performance,
            places: by_place(profiled),
            breakdown: step_breakdown(profiled),
            flops: flops_analysis(profiled, &settings.model, outcome.steps.len() as u64),
            need: MemoryNeed::of(std::slice::from_ref(&profiled.training.program), settings.threads),
            times: performance.provenance.origin_of("statistics.median").unwrap_or(Origin::Measured),
        };
        let memory = memory_figures(profiled, &base.need);
        let seq_len = settings.shape.seq_len as f64;
        let patterns = patterns(profiled);
        let (list, missing) = passes_of(settings);
        let facts = StepFacts {
            places: &base.places,
            breakdown: base.breakdown,
            launch_seconds: base.breakdown.wall * patterns.launch_overhead_percent / 100.0,
            causal_share: (seq_len + 1.0) / (2.0 * seq_len),
            fragmentation_percent: memory.fragmentation_percent,
            passes: Passes { list: &list, missing: &missing },
            ran_on: if settings.gpu.is_some() { RanOn::Gpu } else { RanOn::Host },
        };
        Made {
            flops: base.flops(),
            intensity: base.intensity(),
            roofline: base.roofline(&facts),
            operators: OperatorRecord::new(OperatorFacts {
                operator_stats: sorted(operator_stats(profiled), profiler.sort_by),
                by_place: base.places.clone(),
                step_breakdown: base.breakdown,
                bottlenecks: bottlenecks(&facts),
                patterns,
                timestamp: performance.timestamp.clone(),
                times: base.times,
            }),
            memory: base.memory(memory, &facts.passes),
            timeline: TimelineRecord::new(timeline(profiled), base.times),
        }
    }
}

/// The run's list as `--passes` takes it, and what is offered beside it.
fn passes_of(settings: &Settings) -> (String, Vec<&'static str>) {
    let passes = &settings.passes;
    let label = passes.label();
    let list = if matches!(label.as_str(), "v1" | "v2" | "all") { label } else { label.replace('+', ",") };
    let mut missing: Vec<&str> =
        OFFERED.iter().map(|offered| offered.name).filter(|name| !passes.contains(name)).collect();
    if !passes.asks_for_checkpoint() {
        missing.push(CHECKPOINT);
    }
    (list, missing)
}

fn sorted(mut rows: Vec<OperatorStats>, by: SortBy) -> Vec<OperatorStats> {
    match by {
        SortBy::SelfTime => {} // as they come
        SortBy::Count => rows.sort_by_key(|row| std::cmp::Reverse(row.count)),
        SortBy::Flops => rows.sort_by_key(|row| std::cmp::Reverse(row.flops)),
        SortBy::Bytes => rows.sort_by_key(|row| std::cmp::Reverse(row.bytes)),
    }
    rows
}

impl Base<'_> {
    /// Mean seconds of a step over the whole run, warm-up excluded.
    fn step_seconds(&self) -> f64 {
        self.performance.performance_summary.avg_batch_time.unwrap_or(self.breakdown.wall).max(f64::MIN_POSITIVE)
    }

    fn achieved(&self) -> f64 {
        self.flops.avg_flops_per_step as f64 / self.step_seconds()
    }

    fn mfu_percent(&self) -> f64 {
        100.0 * self.flops.needed_flops_per_step as f64 / self.step_seconds() / self.profiler.peaks.rates.product_flops
    }

    fn flops(&self) -> FlopsRecord {
        let summary = &self.performance.performance_summary;
        let (peak, mfu_percent, achieved) =
            (self.profiler.peaks.rates.product_flops, self.mfu_percent(), self.achieved());
        let parameters = self.settings.model.parameters().total();
        let datasheet = self.profiler.peaks.datasheet.as_ref();
        let a_step = self.flops.avg_flops_per_step;
        let steps = self.outcome.steps.iter().map(|record| {
            let time = record.times.total.as_secs_f64();
            let loss = record.loss.map(f64::from);
            StepFlops { step: record.step, loss, flops: a_step, time, flops_per_sec: a_step as f64 / time.max(1e-12) }
        });
        FlopsRecord::new(FlopsFacts {
            model_info: ModelInfo {
                total_params: parameters,
                trainable_params: parameters,
                config: self.performance.config.clone(),
            },
            profiling_config: ProfilingConfig {
                batch_size: self.settings.shape.batch_size as u64,
                sequence_length: self.settings.shape.seq_len as u64,
                gradient_accumulation_steps: self.profiled.accumulation as u64,
                num_steps: self.outcome.steps.len() as u64,
                device: self.performance.system_info.device.clone(),
            },
            flops_analysis: self.flops.clone(),
            performance_metrics: PerformanceMetrics {
                avg_time_per_step: self.step_seconds(),
                throughput_samples_per_sec: summary.avg_training_speed.unwrap_or(0.0),
                avg_loss: summary.avg_loss,
                flops_per_sec: achieved,
            },
            efficiency_metrics: EfficiencyMetrics {
                mfu_percent,
                hfu_percent: 100.0 * achieved / peak,
                achieved_flops_per_sec: achieved,
                device_peak_flops: peak,
                device_peak_source: self.profiler.peaks.source.clone(),
                datasheet_peak_flops: datasheet.map(|part| part.flops),
                datasheet_peak_source: datasheet.map(|part| part.source.clone()),
                mfu_of_datasheet_percent: datasheet.map(|part| mfu_percent * peak / part.flops),
                efficiency_ratio: achieved / peak,
                workshop_class: workshop_mfu_class(mfu_percent).into(),
            },
            step_by_step_results: steps.collect(),
            timestamp: self.performance.timestamp.clone(),
            times: self.times,
            peak: self.profiler.peaks.origin,
        })
    }

    fn bytes_a_step(&self) -> f64 {
        self.places.iter().map(|place| place.bytes as f64).sum()
    }

    fn intensity(&self) -> IntensityRecord {
        let rates = self.profiler.peaks.rates;
        let wall = self.breakdown.wall.max(f64::MIN_POSITIVE);
        let executed = self.flops.executed_flops_per_step as f64;
        IntensityRecord::new(IntensityFacts {
            intensity: executed / self.bytes_a_step().max(1.0),
            idle_percent: 100.0 * (wall - busy_seconds(self.profiled)).max(0.0) / wall,
            time_by_bound: time_by_bound(self.profiled, &self.places),
            roofline_metrics: RooflineMetrics {
                peak_flops: rates.product_flops,
                peak_memory_bandwidth: rates.bytes,
                achieved_flops: executed / wall,
                achieved_bandwidth: self.bytes_a_step() / wall,
            },
            by_op: intensity_by_operator(self.profiled),
            times: self.times,
            peak: self.profiler.peaks.origin,
        })
    }

    fn roofline(&self, facts: &StepFacts) -> RooflineRecord {
        let rates = self.profiler.peaks.rates;
        let point = |place: &PlaceStats| RooflinePoint {
            name: place.label(),
            arithmetic_intensity: place.intensity,
            achieved_performance: place.flops as f64 / place.time.max(1e-12),
            time: place.time,
            percent_of_roof: place.percent_of_roof,
        };
        RooflineRecord::new(RooflineFacts {
            model_name: format!("llama {} {}", self.settings.size, self.performance.version),
            timestamp: self.performance.timestamp.clone(),
            device_info: DeviceInfo {
                name: {
                    let system = &self.performance.system_info;
                    system.gpu_name.clone().unwrap_or_else(|| system.cpu_name.clone())
                },
                peak_flops: rates.product_flops,
                peak_memory_bandwidth: rates.bytes,
            },
            performance_point: PerformancePoint {
                arithmetic_intensity: self.flops.executed_flops_per_step as f64 / self.bytes_a_step().max(1.0),
                achieved_performance: self.achieved(),
                mfu_percent: self.mfu_percent(),
            },
            // Moves of data have no arithmetic to plot.
            points: self.places.iter().filter(|place| place.flops > 0).map(point).collect(),
            optimization_targets: roofline_targets(facts),
            times: self.times,
            peak: self.profiler.peaks.origin,
        })
    }

    fn memory(&self, figures: MemoryFigures, passes: &Passes) -> MemoryRecord {
        let [at_forward_mb, at_backward_mb, at_optimizer_mb] = figures.at_phase_mb;
        let peak_memory_mb = figures.peak.total();
        let recommendations =
            memory_recommendations(&figures.live_at_peak, figures.peak.activations, peak_memory_mb, passes);
        MemoryRecord::new(MemoryFacts {
            peak_memory_mb,
            avg_memory_mb: figures.average_mb,
            fragmentation_percent: figures.fragmentation_percent,
            peak_phase: figures.peak_phase.into(),
            peak_operator: figures.peak_operator,
            at_forward_mb,
            at_backward_mb,
            at_optimizer_mb,
            reserved_memory_mb: self.need.total() as f64 / MIB,
            scratch_memory_mb: self.need.scratch as f64 / MIB,
            allocations: figures.allocations,
            largest_tensor: figures.largest,
            by_category: figures.peak,
            peak_memory_events: figures.events,
            live_at_peak: figures.live_at_peak,
            total_memory_allocated: figures.total_allocated,
            largest_batch_that_fits: self.profiler.largest_batch.map(|batch| batch as u64),
            memory_efficiency_recommendations: recommendations,
            times: self.times,
        })
    }
}
