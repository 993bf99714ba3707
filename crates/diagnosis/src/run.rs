//! The figures of a headroom run, from its trace: everything that a profile's JSON files and pages show.

mod arithmetic;
pub mod kinds;
mod memory;
mod operators;
pub mod passes;

use headroom_record::flops::{EfficiencyMetrics, FlopsAnalysis, workshop_mfu_class};
use headroom_record::intensity::{IntensityRecord, RooflineMetrics};
use headroom_record::memory::MemoryRecord;
use headroom_record::operators::OperatorRecord;
use headroom_record::provenance::Origin;
use headroom_record::roofline::{DeviceInfo, PerformancePoint, RooflinePoint, RooflineRecord};
use headroom_record::timeline::TimelineRecord;
use headroom_trace::run::{RunHeader, Timing};
use serde::Serialize;

use crate::measures::Measures;
use crate::measures::calls::Calls;
use crate::measures::view::View;
use passes::{Passes, StepFacts, bottlenecks, roofline_targets, target};

/// The `run` object of `analyze --format json`; each record is also a file of the run folder.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunFigures {
    pub flops_analysis: FlopsAnalysis,
    pub efficiency_metrics: EfficiencyMetrics,
    pub computational_intensity: IntensityRecord,
    pub roofline_data: RooflineRecord,
    pub operator_analysis: OperatorRecord,
    pub memory_analysis: MemoryRecord,
    #[serde(skip)]
    pub memory_timeline: TimelineRecord,
    #[serde(skip)]
    pub header: RunHeader,
}

impl RunFigures {
    pub fn times(&self) -> Origin {
        times(&self.header)
    }

    pub fn peak_origin(&self) -> Origin {
        peak_origin(&self.header)
    }

    /// The step as passes see it.
    pub fn step_facts(&self) -> StepFacts<'_> {
        let operators = &self.operator_analysis;
        let seq_len = (self.header.shape.seq_len as f64).max(1.0);
        StepFacts {
            places: &operators.by_place,
            breakdown: operators.step_breakdown,
            launch_seconds: operators.step_breakdown.wall * operators.patterns.launch_overhead_percent / 100.0,
            causal_share: (seq_len + 1.0) / (2.0 * seq_len),
            fragmentation_percent: self.memory_analysis.fragmentation_percent,
            passes: passes_of(&self.header),
            instrumentation: &self.header.instrumentation,
            has_gpu: self.header.timing != Timing::HostClock,
        }
    }
}

fn times(header: &RunHeader) -> Origin {
    if header.run.times_are_computed { Origin::Computed } else { Origin::Measured }
}

fn peak_origin(header: &RunHeader) -> Origin {
    if header.peaks.assumed { Origin::Assumed } else { Origin::Measured }
}

fn passes_of(header: &RunHeader) -> Passes<'_> {
    Passes { list: &header.passes.list, missing: &header.passes.missing }
}

pub fn run_figures(view: &View, calls: &Calls, measures: &Measures) -> RunFigures {
    let header = calls.header;
    let (times, peak) = (times(header), peak_origin(header));
    let breakdown = operators::step_breakdown(view, calls);
    let places = operators::by_place(view, calls, breakdown.wall);
    let flops_analysis = arithmetic::flops_analysis(view, calls);
    let efficiency_metrics = efficiency(header, &flops_analysis, breakdown.wall);
    let computational_intensity = {
        let bytes: f64 = places.iter().map(|place| place.bytes as f64).sum();
        let executed = flops_analysis.executed_flops_per_step as f64;
        let wall = breakdown.wall.max(f64::MIN_POSITIVE);
        let rates = RooflineMetrics {
            peak_flops: header.peaks.product_flops,
            peak_memory_bandwidth: header.peaks.memory_bandwidth_bytes,
            achieved_flops: executed / wall,
            achieved_bandwidth: bytes / wall,
        };
        let idle_percent = 100.0 * (1.0 - measures.breakdown.busy_share).max(0.0);
        let mut record = IntensityRecord::new(executed / bytes.max(1.0), idle_percent, rates, times, peak);
        record.time_by_bound = arithmetic::time_by_bound(&places, wall);
        record.by_op = arithmetic::intensity_by_operator(calls);
        record
    };
    let memory_analysis = memory::memory_record(calls, &passes_of(header));
    let operator_analysis = OperatorRecord {
        schema_version: headroom_record::SCHEMA_VERSION,
        operator_stats: operators::operator_stats(view, calls, measures),
        by_place: places,
        step_breakdown: breakdown,
        bottlenecks: Default::default(),
        patterns: operators::patterns(view, calls, measures, &breakdown),
        timestamp: String::new(),
        provenance: OperatorRecord::provenance(times),
    };
    let mut figures = RunFigures {
        memory_timeline: memory::timeline_record(view, calls, times),
        roofline_data: roofline(header, &efficiency_metrics, &computational_intensity),
        flops_analysis,
        efficiency_metrics,
        computational_intensity,
        operator_analysis,
        memory_analysis,
        header: header.clone(),
    };
    let facts = figures.step_facts();
    let (found, targets) = (bottlenecks(&facts), roofline_targets(&facts));
    let by_place: Vec<_> = facts.places.iter().map(|place| target(place, &facts)).collect();
    for (place, (time, passes)) in figures.operator_analysis.by_place.iter_mut().zip(by_place) {
        (place.target_time, place.target_passes) = (time, passes);
    }
    figures.operator_analysis.bottlenecks = found;
    figures.roofline_data.optimization_targets = targets;
    figures.roofline_data.points = points(&figures.operator_analysis);
    figures
}

/// Efficiency relative to the peak of the run's precision, over the mean step of the whole run.
fn efficiency(header: &RunHeader, flops: &FlopsAnalysis, recorded_step: f64) -> EfficiencyMetrics {
    let peaks = &header.peaks;
    let step = header.run.mean_step_seconds.unwrap_or(recorded_step).max(f64::MIN_POSITIVE);
    let achieved = flops.avg_flops_per_step as f64 / step;
    let mfu_percent = 100.0 * flops.needed_flops_per_step as f64 / step / peaks.product_flops;
    EfficiencyMetrics {
        mfu_percent,
        hfu_percent: 100.0 * achieved / peaks.product_flops,
        achieved_flops_per_sec: achieved,
        device_peak_flops: peaks.product_flops,
        device_peak_source: peaks.source.clone(),
        datasheet_peak_flops: peaks.datasheet_flops,
        datasheet_peak_source: peaks.datasheet_source.clone(),
        mfu_of_datasheet_percent: peaks.datasheet_flops.map(|flops| mfu_percent * peaks.product_flops / flops),
        efficiency_ratio: achieved / peaks.product_flops,
        workshop_class: workshop_mfu_class(mfu_percent).into(),
    }
}

/// The roofline without points and targets, which come from the operators.
fn roofline(header: &RunHeader, efficiency: &EfficiencyMetrics, intensity: &IntensityRecord) -> RooflineRecord {
    RooflineRecord {
        schema_version: headroom_record::SCHEMA_VERSION,
        model_name: header.model.clone(),
        timestamp: String::new(),
        device_info: DeviceInfo {
            name: header.device.clone(),
            peak_flops: header.peaks.product_flops,
            peak_memory_bandwidth: header.peaks.memory_bandwidth_bytes,
        },
        performance_point: PerformancePoint {
            arithmetic_intensity: intensity.arithmetic_intensity_flops_per_byte,
            achieved_performance: efficiency.achieved_flops_per_sec,
            mfu_percent: efficiency.mfu_percent,
        },
        points: vec![],
        optimization_targets: vec![],
        provenance: RooflineRecord::provenance(times(header), peak_origin(header)),
    }
}

/// One point per place; data movement has no arithmetic to plot.
fn points(operators: &OperatorRecord) -> Vec<RooflinePoint> {
    let places = operators.by_place.iter().filter(|place| place.flops > 0);
    let point = |place: &headroom_record::operators::PlaceStats| RooflinePoint {
        name: place.label(),
        arithmetic_intensity: place.intensity,
        achieved_performance: place.flops as f64 / place.time.max(1e-12),
        time: place.time,
        percent_of_roof: place.percent_of_roof,
    };
    places.map(point).collect()
}
