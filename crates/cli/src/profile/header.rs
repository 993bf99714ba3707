//! Facts about the run for the header of its trace.

use super::Profiler;
use super::peaks::Peaks;
use crate::train::settings::Settings;
use headroom_graph::passes::CHECKPOINT;
use headroom_record::performance::PerformanceRecord;
use headroom_record::provenance::Origin;
use headroom_trace::RunHeader;
use headroom_trace::run::{PassesHeader, PeaksHeader, RunSteps};
use headroom_training::profile::{Profiled, run_header};
use headroom_training::program::passes_that_apply;
use headroom_training::run::Outcome;

pub fn of_run(
    profiler: &Profiler,
    profiled: &Profiled,
    settings: &Settings,
    (outcome, record): (&Outcome, &PerformanceRecord),
) -> RunHeader {
    let mut header = run_header(profiled, &settings.model, &profiler.need);
    let system = &record.system_info;
    header.device = system.gpu_name.clone().unwrap_or_else(|| system.cpu_name.clone());
    header.model = format!("{} {} {}", settings.model.family.name, settings.size, record.version);
    header.precision = settings.precision.name().into();
    header.passes = passes(settings);
    header.peaks = peaks(&profiler.peaks);
    header.plan.largest_batch_that_fits = profiler.largest_batch.map(|batch| batch as u64);
    header.run = RunSteps {
        steps: outcome.steps.len() as u64,
        mean_step_seconds: record.performance_summary.avg_batch_time,
        times_are_computed: record.provenance.origin_of("statistics.median") == Some(Origin::Computed),
    };
    header.profiling_overhead_percent = profiled.recording.turns().overhead_percent();
    header
}

/// The header for a rank that writes no record of its own.
pub fn of_rank(profiler: &Profiler, profiled: &Profiled, settings: &Settings, outcome: &Outcome) -> RunHeader {
    let mut header = run_header(profiled, &settings.model, &profiler.need);
    header.device = settings.gpu.as_ref().map_or(&settings.machine.cpu_name, |gpu| &gpu.name).clone();
    header.model = format!("{} {} {}", settings.model.family.name, settings.size, settings.version());
    header.precision = settings.precision.name().into();
    header.passes = passes(settings);
    header.peaks = peaks(&profiler.peaks);
    let seconds = outcome.steps.iter().map(|record| record.times.total.as_secs_f64()).sum::<f64>();
    let steps = outcome.steps.len();
    header.run = RunSteps {
        steps: steps as u64,
        mean_step_seconds: (steps > 0).then(|| seconds / steps as f64),
        times_are_computed: false,
    };
    header.profiling_overhead_percent = profiled.recording.turns().overhead_percent();
    header
}

pub fn peaks(peaks: &Peaks) -> PeaksHeader {
    PeaksHeader {
        product_flops: peaks.rates.product_flops,
        precision: peaks.precision.name().into(),
        memory_bandwidth_bytes: peaks.rates.bytes,
        call_seconds: peaks.rates.call_seconds,
        source: peaks.source.clone(),
        assumed: peaks.origin == Origin::Assumed,
        datasheet_flops: peaks.datasheet.as_ref().map(|stated| stated.flops),
        datasheet_source: peaks.datasheet.as_ref().map(|stated| stated.source.clone()),
    }
}

/// The run's pass list as `--passes` takes it, and the other passes that would find something to do.
fn passes(settings: &Settings) -> PassesHeader {
    let passes = &settings.passes;
    let label = passes.label();
    let list = if matches!(label.as_str(), "v1" | "v2" | "all") { label } else { label.replace('+', ",") };
    let offered = passes_that_apply(&settings.model).unwrap_or_default();
    let mut missing: Vec<String> =
        offered.into_iter().filter(|name| !passes.contains(name)).map(String::from).collect();
    if !passes.asks_for_checkpoint() {
        missing.push(CHECKPOINT.into());
    }
    PassesHeader { list, missing }
}
