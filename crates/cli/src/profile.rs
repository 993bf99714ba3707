//! `headroom profile`, and `train` with a profiler on: chosen steps recorded, the whole run folder and the report written.

pub mod arguments;
pub mod files;
pub mod peaks;
mod records;

use crate::output;
use crate::registry::Entry;
use crate::train::plan::Planned;
use crate::train::settings::{DeviceKind, Settings};
use crate::train::{self, Arguments};
use anyhow::ensure;
use headroom_engine::cuda;
use headroom_engine::cuda::health::{Health, Watch};
use headroom_engine::machine::memory_available_bytes;
use headroom_engine::recorder::Timing;
use headroom_record::attribution::AttributionRecord;
use headroom_record::config::ProfilersEnabled;
use headroom_record::performance::{GpuState, HeldBack, PerformanceRecord};
use headroom_trace::DeviceProperties;
use headroom_training::memory::largest_batch_that_fits;
use headroom_training::profile::Profiled;
use headroom_training::profile::device_work::device_work;
use headroom_training::profile::operators::{busy_seconds, fastest_products, step_breakdown};
use headroom_training::recording::Recording;
use headroom_training::run::Outcome;
use headroom_training::trainer::Trainer;
use peaks::Peaks;
use records::Made;
use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;

/// `train` with everything recorded.
pub fn run(mut arguments: Arguments, entry: &mut Entry) -> anyhow::Result<ExitCode> {
    arguments.profiling.generate_report = true;
    train::run(arguments, entry)
}

/// What was decided before the run about its recording.
#[derive(Clone)]
pub struct Profiler {
    enabled: ProfilersEnabled,
    report: bool,
    sort_by: arguments::SortBy,
    steps: RangeInclusive<u64>,
    peaks: Peaks,
    largest_batch: Option<usize>,
    redact: bool,
    /// The GPU, as the trace names it.
    gpu: Option<DeviceProperties>,
    bus: Option<String>,
    /// Clocks and power while the run goes on, or why they are not known.
    watch: Rc<RefCell<Option<Result<Watch, String>>>>,
}

impl Profiler {
    /// None where nothing is to be recorded. Looks up or measures the machine's peaks, so that the run itself is left alone.
    pub fn prepare(arguments: &Arguments, settings: &Settings, planned: &Planned) -> anyhow::Result<Option<Profiler>> {
        let flags = &arguments.profiling;
        if !flags.is_on() || arguments.output.validate_setup {
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
            redact: arguments.output.redact,
            gpu: settings.gpu.as_ref().map(properties),
            bus: settings.gpu.as_ref().map(|gpu| gpu.bus.clone()),
            watch: Rc::new(RefCell::new(None)),
        }))
    }

    pub fn attach(&self, trainer: &mut Trainer, settings: &Settings) {
        let accumulation = settings.optimizer.accumulation;
        trainer.recording = Some(Recording::of_steps(self.steps.clone(), &trainer.program().program, accumulation));
        *self.watch.borrow_mut() = self.bus.as_deref().map(Watch::start);
    }

    /// What the recording knows better than the loop's own clock.
    pub fn amend(&self, record: &mut PerformanceRecord, trainer: &Trainer, settings: &Settings) {
        let watched = self.watch.take();
        let Some(profiled) = self.profiled(trainer, settings) else { return };
        let notes = &mut record.profiler_config.recording;
        notes.extend(how_timed(&profiled));
        notes.extend(trainer.device.recording_notes());
        match watched.map(|watch| watch.map(Watch::end)) {
            Some(Ok(Some(health))) => *record = record.clone().with_gpu_state(state_of(&health)),
            Some(Ok(None)) => notes.push("clocks and power are not known: NVML gave no sample".into()),
            Some(Err(why)) => notes.push(format!("clocks and power are not known: {why}")),
            None => {}
        }
        record.profiler_config.profile_steps = profiled.recorded_steps() as u64;
        let breakdown = step_breakdown(&profiled);
        let summary = &mut record.performance_summary;
        summary.device_utilization_percent = Some(100.0 * busy_seconds(&profiled) / breakdown.wall);
        summary.profiling_overhead_percent = profiled.recording.turns().overhead_percent();
        let interval = profiled.recording.turns().overhead_interval();
        summary.profiling_overhead_ci95_low = interval.map(|(low, _)| low);
        summary.profiling_overhead_ci95_high = interval.map(|(_, high)| high);
    }

    /// Writes every file that was asked for, and the headline figures into the run's row; returns what the terminal shows.
    pub fn write(
        &self,
        folder: &Path,
        settings: &Settings,
        trainer: &Trainer,
        (outcome, performance, attribution): (&Outcome, &PerformanceRecord, Option<&AttributionRecord>),
        entry: &mut Entry,
    ) -> anyhow::Result<String> {
        let Some(profiled) = self.profiled(trainer, settings) else {
            return Ok("nothing was recorded: the run ended before its first recorded step\n".into());
        };
        let peaks = match trainer.device.computes() {
            true => self.peaks.clone().raised_by(fastest_products(&profiled), settings.threads),
            false => self.peaks.clone(),
        };
        let profiled = Profiled { rates: peaks.rates, ..profiled };
        let profiler = Profiler { peaks, ..self.clone() };
        let made = Made::new(&profiler, &profiled, settings, outcome, performance);
        entry.amend(|figures| {
            figures.mfu_percent = Some(made.flops.efficiency_metrics.mfu_percent);
            figures.bound = Some(made.intensity.memory_bound_vs_compute_bound.name().into());
        });
        files::write_all(&profiler, folder, &profiled, &made, settings, (outcome, performance, attribution))
    }

    fn profiled<'a>(&self, trainer: &'a Trainer, settings: &Settings) -> Option<Profiled<'a>> {
        let recording = trainer.recording.as_ref().filter(|recording| !recording.steps().is_empty())?;
        let accumulation = settings.optimizer.accumulation;
        Some(Profiled { training: trainer.program(), recording, rates: self.peaks.rates, accumulation })
    }
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

/// In a person's words; nothing on a CPU, where there is one way only.
fn how_timed(profiled: &Profiled) -> Option<String> {
    let work = device_work(profiled)?;
    let (steps, launches) = (profiled.recorded_steps().max(1), work.launches);
    let how = match profiled.recording.timing() {
        Timing::ReplayedKernels => "replayed as in the rest of the run",
        _ => "launched call by call as in the rest of the run",
    };
    Some(format!(
        "kernels timed by the GPU itself (CUPTI) in {steps} steps, {how}: {} kernels and {} calls of the driver that queue \
         work a step, each step waited for",
        work.kernels / steps,
        launches / steps
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

/// Steps that count for nothing: those asked for, and on a GPU those in which it captures its steps and tries how to replay
/// them, where the run is long enough for both.
pub fn warm_up(arguments: &Arguments, settings: &Settings) -> u64 {
    const SETTLING: u64 = 16;
    let after = (settings.last_step - settings.first_step).saturating_sub(arguments.profiling.profile_steps);
    let settling = if matches!(settings.device, DeviceKind::Cuda(_)) { SETTLING.min(after) } else { 0 };
    arguments.output.warmup_steps.max(settling)
}

/// After the warm-up, and never the first step where the run has another.
fn recorded_steps(arguments: &Arguments, settings: &Settings) -> anyhow::Result<RangeInclusive<u64>> {
    let (before, last) = (settings.first_step, settings.last_step);
    let skipped = warm_up(arguments, settings).max(1).min((last - before).saturating_sub(1));
    let first = arguments.profiling.flops_profile_step.unwrap_or(before + skipped + 1);
    ensure!(
        (before + 1..=last).contains(&first),
        "--flops-profile-step {first} is not a step of this run\n  help: it takes steps {} to {last}",
        before + 1
    );
    Ok(first..=last.min(first + arguments.profiling.profile_steps - 1))
}
