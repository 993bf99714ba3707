//! `headroom profile`, and `train` with a profiler on: chosen steps recorded, the whole run folder and the report written.

pub mod arguments;
pub mod files;
pub mod peaks;
mod records;

use crate::output;
use crate::registry::Entry;
use crate::train::plan::Planned;
use crate::train::settings::Settings;
use crate::train::{self, Arguments};
use anyhow::ensure;
use headroom_engine::machine::memory_available_bytes;
use headroom_record::config::ProfilersEnabled;
use headroom_record::intensity::Bound;
use headroom_record::performance::PerformanceRecord;
use headroom_training::memory::largest_batch_that_fits;
use headroom_training::profile::Profiled;
use headroom_training::profile::operators::{by_place, step_breakdown};
use headroom_training::recording::{Recording, calls_a_step};
use headroom_training::run::Outcome;
use headroom_training::trainer::Trainer;
use peaks::Peaks;
use records::Made;
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::ExitCode;

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
}

impl Profiler {
    /// None where nothing is to be recorded. Looks up or measures the machine's peaks, so that the run itself is left alone.
    pub fn prepare(arguments: &Arguments, settings: &Settings, planned: &Planned) -> anyhow::Result<Option<Profiler>> {
        let flags = &arguments.profiling;
        if !flags.is_on() || arguments.output.validate_setup {
            return Ok(None);
        }
        let steps = recorded_steps(arguments, settings)?;
        let free = memory_available_bytes().map(|bytes| bytes as usize);
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
        }))
    }

    pub fn attach(&self, trainer: &mut Trainer, settings: &Settings) {
        let accumulation = settings.optimizer.accumulation;
        let calls = calls_a_step(&trainer.program().program, accumulation);
        trainer.recording = Some(Recording::of_steps(self.steps.clone(), calls, accumulation));
    }

    /// What the recording knows better than the loop's own clock.
    pub fn amend(&self, record: &mut PerformanceRecord, trainer: &Trainer, settings: &Settings) {
        let Some(profiled) = self.profiled(trainer, settings) else { return };
        record.profiler_config.profile_steps = profiled.recorded_steps() as u64;
        let breakdown = step_breakdown(&profiled);
        let summary = &mut record.performance_summary;
        summary.device_utilization_percent = Some(100.0 * breakdown.operators() / breakdown.wall);
        summary.profiling_overhead_percent = profiled.recording.turns().overhead_percent();
    }

    /// Writes every file that was asked for, and the headline figures into the run's row; returns what the terminal shows.
    pub fn write(
        &self,
        folder: &Path,
        settings: &Settings,
        trainer: &Trainer,
        outcome: &Outcome,
        performance: &PerformanceRecord,
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
        files::write_all(&profiler, folder, &profiled, &made, settings, outcome, performance)
    }

    fn profiled<'a>(&self, trainer: &'a Trainer, settings: &Settings) -> Option<Profiled<'a>> {
        let recording = trainer.recording.as_ref().filter(|recording| !recording.steps().is_empty())?;
        let accumulation = settings.optimizer.accumulation;
        Some(Profiled { training: trainer.program(), recording, rates: self.peaks.rates, accumulation })
    }
}

/// FLOPs a second of the place that came to most, in products.
fn fastest_products(profiled: &Profiled) -> f64 {
    let products = by_place(profiled).into_iter().filter(|place| place.bound == Bound::ComputeBound);
    products.map(|place| place.flops as f64 / place.time.max(f64::MIN_POSITIVE)).fold(0.0, f64::max)
}

/// After the warm-up, and never the first step where the run has another.
fn recorded_steps(arguments: &Arguments, settings: &Settings) -> anyhow::Result<RangeInclusive<u64>> {
    let (before, last) = (settings.first_step, settings.last_step);
    let skipped = arguments.output.warmup_steps.max(1).min((last - before).saturating_sub(1));
    let first = arguments.profiling.flops_profile_step.unwrap_or(before + skipped + 1);
    ensure!(
        (before + 1..=last).contains(&first),
        "--flops-profile-step {first} is not a step of this run\n  help: it takes steps {} to {last}",
        before + 1
    );
    Ok(first..=last.min(first + arguments.profiling.profile_steps - 1))
}
