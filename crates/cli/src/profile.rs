//! `headroom profile`, and `train` with a profiler on: records selected steps, and writes the whole run folder and the
//! report.

pub mod arguments;
pub mod files;
mod header;
pub mod peaks;
mod records;

use crate::output;
use crate::ranks::RankGroup;
use crate::registry::Entry;
use crate::train::arguments::Arguments;
use crate::train::plan::Planned;
use crate::train::settings::Settings;
use anyhow::{Context, ensure};
use headroom_diagnosis::measures::calls::Calls;
use headroom_diagnosis::measures::view::View;
use headroom_diagnosis::{Analysis, Options, analyze};
use headroom_engine::DeviceSpec;
use headroom_engine::cuda;
use headroom_engine::cuda::health::{Health, Watch};
use headroom_engine::machine::memory_available_bytes;
use headroom_record::attribution::AttributionRecord;
use headroom_record::config::ProfilersEnabled;
use headroom_record::performance::{GpuState, HeldBack, PerformanceRecord};
use headroom_trace::run::Timing;
use headroom_trace::{DeviceProperties, Distributed};
use headroom_training::memory::{MemoryNeed, largest_batch_that_fits};
use headroom_training::profile::Profiled;
use headroom_training::profile::trace_file::{TraceAbout, alone, trace};
use headroom_training::recording::Recording;
use headroom_training::run::Outcome;
use headroom_training::trainer::Trainer;
use peaks::Peaks;
use records::ProfileRecords;
use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::path::Path;
use std::rc::Rc;

/// Recording options, decided before the run.
#[derive(Clone)]
pub struct Profiler {
    enabled: ProfilersEnabled,
    report: bool,
    sort_by: arguments::SortBy,
    steps: RangeInclusive<u64>,
    peaks: Peaks,
    largest_batch: Option<usize>,
    /// The memory of the whole run, with its evaluations.
    need: MemoryNeed,
    redact: bool,
    /// The GPU, as the trace names it.
    gpu: Option<DeviceProperties>,
    bus: Option<String>,
    /// This process among those that train together.
    distributed: Distributed,
    /// Clocks and power during the run, or why they are unknown.
    watch: Rc<RefCell<Option<Result<Watch, String>>>>,
}

impl Profiler {
    /// Looks up or measures the machine's peaks before the run, so as not to disturb it. Returns `None` if nothing is
    /// to be recorded.
    pub fn prepare(
        arguments: &Arguments,
        settings: &Settings,
        planned: &Planned,
        company: Option<&RankGroup>,
    ) -> anyhow::Result<Option<Profiler>> {
        let flags = &arguments.profiling;
        if !Profiler::is_wanted(arguments) {
            return Ok(None);
        }
        let steps = recorded_steps(arguments, settings)?;
        let free = match &settings.gpu {
            Some(gpu) => Some(gpu.free_bytes),
            None => memory_available_bytes().map(|bytes| bytes as usize),
        };
        let available = settings.memory_limit.or(free);
        let step = settings.step(planned.recomputed_layers);
        let fits = |bytes| largest_batch_that_fits(&step, settings.threads, bytes);
        output::note(&format!("Profiling enabled: steps {}-{}", steps.start(), steps.end()));
        Ok(Some(Profiler {
            enabled: flags.enabled(),
            report: flags.generate_report,
            sort_by: flags.sort_by,
            steps,
            peaks: Peaks::find(settings)?,
            largest_batch: available.map(fits).transpose()?.flatten(),
            need: planned.need,
            redact: arguments.output.redact,
            gpu: settings.gpu.as_ref().map(properties),
            bus: settings.gpu.as_ref().map(|gpu| gpu.bus.clone()),
            watch: Rc::new(RefCell::new(None)),
            distributed: company.map_or_else(alone, |company| company.distributed(settings.device)),
        }))
    }

    pub fn is_wanted(arguments: &Arguments) -> bool {
        arguments.profiling.is_on() && !arguments.output.validate_setup
    }

    pub fn attach(&self, trainer: &mut Trainer, settings: &Settings) {
        let accumulation = settings.optimizer.accumulation;
        trainer.recording = Some(Recording::of_steps(self.steps.clone(), &trainer.program().program, accumulation));
        *self.watch.borrow_mut() = self.bus.as_deref().map(Watch::start);
    }

    /// Analyses the trace of the recorded steps; `None` if the run ended before the first of them. Raises the machine's
    /// peak if the run's own GEMMs were faster.
    pub fn analyse(
        &self,
        (outcome, record): (&Outcome, &PerformanceRecord),
        trainer: &Trainer,
        settings: &Settings,
    ) -> anyhow::Result<Option<Analysed>> {
        let accumulation = settings.optimizer.accumulation;
        let Some(recording) = trainer.recording.as_ref().filter(|recording| !recording.steps().is_empty()) else {
            return Ok(None);
        };
        let profiled = Profiled { training: trainer.program(), recording, accumulation };
        let mut about = TraceAbout {
            process: std::process::id(),
            name: self.trace_name(recording),
            headroom: header::of_run(self, &profiled, settings, (outcome, record)),
            device: self.gpu.clone(),
            distributed: self.distributed.clone(),
        };
        let mut trace = trace(&profiled, &about)?;
        if trainer.device.computes()
            && let Some(calls) = Calls::new(&View::new(&trace))
        {
            let raised = self.peaks.clone().raised_by(calls.fastest_products(), settings.threads);
            about.headroom.peaks = header::peaks(&raised);
            trace.header.headroom = Some(about.headroom.clone());
        }
        let analysis = analyze(&[trace], &Options::default()).context("the recorded steps left no trace")?;
        Ok(Some(Analysed { about, analysis }))
    }

    /// The workshop's name for a trace of these steps.
    fn trace_name(&self, recording: &Recording) -> String {
        let last = recording.steps().last().map_or(0, |step| step.step);
        format!("trace_step_{}_{last}.json", self.steps.start())
    }

    /// Replaces figures that the recording knows better than the loop's own clock.
    pub fn amend(&self, record: &mut PerformanceRecord, trainer: &Trainer, analysed: Option<&Analysed>) {
        let watched = self.watch.take();
        let (Some(Analysed { analysis, .. }), Some(recording)) = (analysed, &trainer.recording) else { return };
        let notes = &mut record.profiler_config.recording;
        notes.extend(how_timed(analysis));
        notes.extend(trainer.device.recording_notes());
        match watched.map(|watch| watch.map(Watch::end)) {
            Some(Ok(Some(health))) => *record = record.clone().with_gpu_state(state_of(&health)),
            Some(Ok(None)) => notes.push("clocks and power are unknown: NVML gave no sample".into()),
            Some(Err(why)) => notes.push(format!("clocks and power are unknown: {why}")),
            None => {}
        }
        record.profiler_config.profile_steps = analysis.steps.list.len() as u64;
        let summary = &mut record.performance_summary;
        summary.device_utilization_percent = Some(100.0 * analysis.measures.breakdown.busy_share);
        summary.profiling_overhead_percent = recording.turns().overhead_percent();
        let interval = recording.turns().overhead_interval();
        summary.profiling_overhead_ci95_low = interval.map(|(low, _)| low);
        summary.profiling_overhead_ci95_high = interval.map(|(_, high)| high);
    }

    /// Writes the trace of a rank other than 0 into rank 0's folder, under the name that readers of multi-rank folders
    /// expect.
    pub fn write_trace_alone(
        &self,
        folder: &Path,
        outcome: &Outcome,
        trainer: &Trainer,
        settings: &Settings,
    ) -> anyhow::Result<()> {
        let Some(recording) = trainer.recording.as_ref().filter(|recording| !recording.steps().is_empty()) else {
            return Ok(());
        };
        let profiled =
            Profiled { training: trainer.program(), recording, accumulation: settings.optimizer.accumulation };
        let about = TraceAbout {
            process: std::process::id(),
            name: self.trace_name(recording),
            headroom: header::of_rank(self, &profiled, settings, outcome),
            device: self.gpu.clone(),
            distributed: self.distributed.clone(),
        };
        files::write_trace_alone(folder, &profiled, about, self.redact)
    }

    /// Writes every requested file, and the headline figures into the run's row; returns the text for the terminal.
    pub fn write(
        &self,
        folder: &Path,
        settings: &Settings,
        trainer: &Trainer,
        (outcome, performance, attribution): (&Outcome, &PerformanceRecord, Option<&AttributionRecord>),
        analysed: Option<&Analysed>,
        entry: &mut Entry,
    ) -> anyhow::Result<String> {
        let (Some(analysed), Some(recording)) = (analysed, &trainer.recording) else {
            return Ok("nothing was recorded: the run ended before its first recorded step\n".into());
        };
        let made = ProfileRecords::new(self, &analysed.analysis, settings, outcome, performance)?;
        entry.amend(|figures| {
            figures.mfu_percent = Some(made.flops.efficiency_metrics.mfu_percent);
            figures.bound = Some(made.intensity.memory_bound_vs_compute_bound);
        });
        let accumulation = settings.optimizer.accumulation;
        let profiled = Profiled { training: trainer.program(), recording, accumulation };
        files::write_all(self, folder, &profiled, (analysed, &made), settings, (outcome, performance, attribution))
    }
}

/// The recorded steps as every reader of their trace sees them.
pub struct Analysed {
    about: TraceAbout,
    analysis: Analysis,
}

fn properties(gpu: &cuda::Facts) -> DeviceProperties {
    DeviceProperties {
        id: 0,
        name: gpu.name.clone(),
        memory_bytes: gpu.total_bytes as u64,
        compute_major: gpu.capability.0,
        compute_minor: gpu.capability.1,
        multiprocessors: gpu.multiprocessors,
    }
}

/// How kernels were timed, in words; `None` on a CPU, where there is only one way.
fn how_timed(analysis: &Analysis) -> Option<String> {
    let how = match analysis.run.as_ref()?.header.timing {
        Timing::ReplayedKernels => "replayed as in the rest of the run",
        Timing::Kernels => "launched call by call as in the rest of the run",
        Timing::HostClock | Timing::DeviceEvents => return None,
    };
    let (steps, launches) = (analysis.steps.count(), &analysis.measures.launches);
    Some(format!(
        "kernels timed by the GPU itself (CUPTI) in {steps:.0} steps, {how}: {:.0} kernels and {:.0} driver calls that queue work \
         per step, with a wait after each step",
        analysis.measures.kernels.per_step,
        (launches.count + launches.graph_launches) as f64 / steps
    ))
}

fn state_of(health: &Health) -> GpuState {
    let held_back = |(reason, share): &(&'static str, f64)| HeldBack {
        reason: reason.to_string(),
        percent_of_samples: 100.0 * share,
    };
    GpuState {
        samples: health.samples as u64,
        sm_clock_mhz_median: health.multiprocessor_megahertz_median,
        sm_clock_mhz_least: health.multiprocessor_megahertz_least,
        sm_clock_mhz_most: health.multiprocessor_megahertz_most,
        memory_clock_mhz_median: health.memory_megahertz_median,
        power_watts_median: health.watts_median,
        power_watts_most: health.watts_most,
        power_watts_limit: health.watts_limit,
        temperature_celsius_most: health.celsius_most,
        held_back_by: health.held_back_by.iter().map(held_back).collect(),
    }
}

/// Steps in which a GPU captures its steps and tries ways to replay them, and in which the host warms up.
const SETTLING: u64 = 16;

/// Steps that are not counted: the requested ones, and those in which a GPU that replays its steps settles.
pub fn warm_up(arguments: &Arguments, settings: &Settings) -> u64 {
    let settling = if settings.passes.replays() { settling(arguments, settings) } else { 0 };
    arguments.output.warmup_steps.max(settling)
}

/// Zero on a CPU, which has nothing to settle; fewer if the run is too short for the recorded steps as well.
fn settling(arguments: &Arguments, settings: &Settings) -> u64 {
    let after = (settings.last_step - settings.first_step).saturating_sub(arguments.profiling.profile_steps);
    if matches!(settings.device, DeviceSpec::Cuda(_)) { SETTLING.min(after) } else { 0 }
}

/// The steps to record: after the warm-up, and never the first step if the run has another.
fn recorded_steps(arguments: &Arguments, settings: &Settings) -> anyhow::Result<RangeInclusive<u64>> {
    let (before, last) = (settings.first_step, settings.last_step);
    let warm = warm_up(arguments, settings).max(settling(arguments, settings));
    let skipped = warm.max(1).min((last - before).saturating_sub(1));
    let first = arguments.profiling.flops_profile_step.unwrap_or(before + skipped + 1);
    ensure!(
        (before + 1..=last).contains(&first),
        "--flops-profile-step {first} is not a step of this run\n  help: choose from steps {} to {last}",
        before + 1
    );
    Ok(first..=last.min(first + arguments.profiling.profile_steps - 1))
}
