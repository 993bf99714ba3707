//! `headroom train`: configuration, memory check, run and summary.

pub mod arguments;
mod attribution;
mod checkpoints;
pub mod config_file;
pub mod estimate;
pub mod folder;
mod follow;
mod heartbeat;
mod opening;
pub mod plan;
mod progress;
pub mod request;
mod run_file;
pub mod settings;
mod show_tree;
pub mod start;
mod summary;
mod tensorboard;

pub use arguments::Arguments;

use crate::analyze::existing;
use crate::failure::RunFailed;
use crate::output;
use crate::profile::files::host_name;
use crate::profile::{self, Profiler};
use crate::ranks::{self, RankGroup};
use crate::registry::{self, About, Entry};
use crate::shown::Stream as Format;
use crate::signals::{self, Interrupt};
use anyhow::ensure;
use arguments::{OutputArguments, SpikeChoice};
use checkpoints::Checkpoints;
use config_file::RUN_FILE;
use estimate::Estimate;
use folder::{IfFolderExists, RunFolder};
use headroom_engine::DeviceSpec;
use headroom_engine::machine::LoadWatch;
use headroom_record::atomic::{FileError, write_atomically};
use headroom_record::attribution::AttributionRecord;
use headroom_record::progress::ProgressHeader;
use headroom_record::registry::Headline;
use headroom_record::timestamp::utc_iso;
use headroom_report::attribution as attribution_text;
use headroom_report::training as text;
use headroom_training::checkpoint::Checkpoint;
use headroom_training::data::{Prefetcher, Share};
use headroom_training::guard::OnSpike;
use headroom_training::memory::MemoryNeed;
use headroom_training::patience::{Patience, Verdict};
use headroom_training::persist;
use headroom_training::profile::events_file::EventsAbout;
use headroom_training::program::Keep;
use headroom_training::run::{self as training, End, EvaluationSet, Outcome, RunError, Schedule};
use headroom_training::scales::Rounding;
use headroom_training::trainer::Trainer;
use heartbeat::Heartbeat;
use plan::Planned;
use progress::{Bar, Progress, Speed};
use serde_json::json;
use settings::{Settings, Sources, batches_of};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;
use summary::Ended;
use tensorboard::Events;

const READY: &str = "The machine is ready: device, memory, folder and three steps were tried, nothing was saved\n";

/// `headroom profile`: records and reports everything.
pub fn run_profiled(
    mut arguments: Arguments,
    entry: &mut Entry,
    company: &mut Option<RankGroup>,
) -> anyhow::Result<ExitCode> {
    arguments.profiling.generate_report = true;
    run(arguments, entry, company)
}

/// Runs the command. `company` is filled where this is one of several ranks; the caller leaves the group with `part`.
pub fn run(mut arguments: Arguments, entry: &mut Entry, company: &mut Option<RankGroup>) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &arguments.profiling.analyze_existing {
        return existing::run(folder, arguments.output.folder());
    }
    *company = ranks::join(&arguments)?;
    let company = company.as_ref();
    if let Some(company) = company {
        arguments.machine.device = ranks::device_of(&arguments.machine.device, &company.launched);
    }
    let started = utc_iso(SystemTime::now());
    let format = arguments.output.shown.format();
    let interrupt = signals::listen(|| output::note("finishing the step (ask again to stop immediately)"))?;
    registry::check_name(arguments.output.name.as_deref())?;
    ensure!(
        !arguments.output.overwrite || arguments.output.folder().is_some() || arguments.output.save.is_some(),
        "--overwrite has nothing to overwrite\n  help: name a folder with --output-dir or --save"
    );
    ensure!(
        arguments.training.on_spike != SpikeChoice::GoBack || arguments.output.save.is_some(),
        "--on-spike go-back has no checkpoint to go back to\n  help: --save DIR --save-every N"
    );

    let (mut settings, sources) = Settings::resolve(&arguments)?;
    if let Some(company) = company {
        ensure!(
            arguments.training.on_spike != SpikeChoice::GoBack,
            "--on-spike go-back is for one rank\n  help: --on-spike stop, and --resume with a lower rate"
        );
        company.agree(&arguments, &settings, &sources)?;
        let share = company.settle(arguments.machine.threads.map(usize::from))?;
        settings = settings.among(company.launched.size, Some((share.ranks, share.sharing)), &arguments);
    } else if let Some(ranks) = arguments.machine.ranks {
        ensure!(
            settings.device == DeviceSpec::Null,
            "--ranks {ranks} plans a run of that many ranks and is for --device null\n  help: mpirun -n {ranks} headroom train \
             starts one"
        );
        settings = settings.among(ranks as usize, None, &arguments);
    } else if settings.passes.asks_for_ranks() {
        output::note("note: passes for several ranks have no effect on one; a launcher such as mpirun starts several");
    }
    if arguments.training.show_tree {
        return show_tree::run(&settings, format);
    }
    // The gradient norm is one of a profile's scalars; an unobserved run does without it.
    let norm = arguments.profiling.is_on() || arguments.output.gradient_norm || arguments.output.tensorboard.is_some();
    let keep = if norm { Keep::GradientNorm } else { Keep::OnlyTheLoss };
    let planned = Planned::new(&settings, &sources, keep)?;
    let need = planned.need;
    // The null device replays the prediction itself.
    let estimate = Some(&planned).filter(|_| settings.device != DeviceSpec::Null);
    let estimate = estimate.and_then(|planned| Estimate::of(&settings, planned));
    let opening = opening::describe(
        &settings,
        &planned,
        estimate.as_ref(),
        estimate::ranks_line(&settings, &planned, company.map(RankGroup::line)),
    );
    if format == Format::Text {
        if arguments.machine.passes.is_none() && settings.resume.is_none() {
            output::note(opening::DEFAULT_PASSES);
        }
        output::text(&opening)?;
    }
    planned.check_memory(&settings)?;
    planned.note_precision(&settings);
    if let Some(company) = company {
        company.agree_on_plan(&planned.training.program.graph)?;
    }
    if let Some(company) = company.filter(|company| company.rank() > 0) {
        return follow::run(&arguments, &settings, sources, planned, &interrupt, company);
    }

    let profiler = Profiler::prepare(&arguments, &settings, &planned, company)?;
    let mut folder = claim_folder(&arguments.output, &settings, &started)?;
    if let Some(company) = company.filter(|_| profiler.is_some()) {
        company.folder(Some(&folder.path))?;
    }
    let mut checkpoints = open_checkpoints(&arguments.output, &settings, &folder, arguments.model.resume.as_deref())?;
    let checkpoints_are_resumed = arguments.output.save.is_none() || arguments.output.save == arguments.model.resume;
    let mut trainer = start::trainer(&arguments, &settings, planned, &interrupt, company)?;
    if let Some(profiler) = &profiler {
        profiler.attach(&mut trainer, &settings);
    }
    let mut input = Input::open(sources, &settings, &trainer)?;
    let config = summary::config_record(&settings, arguments.profiling.enabled(), &started);
    if !arguments.output.validate_setup {
        entry.begin(&About {
            folder: Some(&folder.path),
            size: Some(&settings.size),
            version: Some(&settings.passes.label()),
            configuration: serde_json::to_value(&config.configuration)?,
            device: settings.device.name(),
            machine: &settings.machine.cpu_name,
            threads: settings.threads,
            name: arguments.output.name.as_deref(),
        });
    }
    let config = if arguments.output.redact { config.redact() } else { config };
    folder.begin(&config, &opening, &ProgressHeader::new(summary::times_origin(&settings)))?;
    let run_file = run_file::text(&arguments.given, &settings, arguments.output.redact)?;
    write_atomically(&folder.path.join(RUN_FILE), run_file.as_bytes())?;
    if let Some(config) = &arguments.output.config {
        folder.log(&format!("flags from {}", config.display()));
    }

    let bar = Bar::new(settings.first_step, settings.last_step);
    let steps = (settings.first_step, settings.last_step);
    let predicted = estimate.map(|estimate| estimate.step_seconds);
    let events = arguments.output.tensorboard.as_deref().map(|path| events(path, &arguments, &settings, &need));
    let mut progress = Progress {
        settings: &settings,
        folder: &mut folder,
        checkpoints: checkpoints.as_mut(),
        format,
        warmup_steps: arguments.output.warmup_steps,
        log_interval: arguments.output.log_interval,
        speed: Speed::default(),
        heartbeat: Heartbeat::start(arguments.output.heartbeat, steps, predicted, bar.0.clone()),
        bar,
        events: events.transpose()?,
        patience: patience(&settings, checkpoints_are_resumed),
        verdict: Verdict::NotBetter,
        working_on: None,
        output_error: None,
        spikes: vec![],
        company,
    };
    let schedule = schedule(&arguments, &settings);
    let load = LoadWatch::start();
    let evaluation = input.evaluation.as_ref();
    let mut outcome =
        training::run(&mut trainer, &mut input.training, evaluation, &schedule, &interrupt.stop, &mut progress);
    if arguments.training.on_spike == SpikeChoice::GoBack {
        for _ in 0..MOST_TIMES_BACK {
            let Some(mut again) = go_back(&outcome, &arguments, &mut trainer, &mut progress)? else { break };
            let more = training::run(&mut trainer, &mut again, evaluation, &schedule, &interrupt.stop, &mut progress);
            let from = more.steps.first().map_or(u64::MAX, |record| record.step);
            outcome.steps.retain(|record| record.step < from);
            outcome.steps.extend(more.steps);
            outcome.evaluations.extend(more.evaluations);
            outcome.end = more.end;
        }
    }
    if let Some(company) = company.filter(|_| ends_together(&outcome.end)) {
        if let Some(slow) = company.slowest(outcome.steps.len())? {
            progress.say(&slow);
        }
        company.ended_together();
    }
    // Other ranks on the machine do not count as other programs.
    let other_load = load.filter(|_| company.is_none()).and_then(|load| load.others());
    let spikes = std::mem::take(&mut progress.spikes);
    let printed = progress.finish();
    if matches!(outcome.end, End::Interrupted | End::GivenUp) {
        entry.interrupted();
    }
    if outcome.steps.is_empty() {
        return how_it_ended(outcome.end, trainer.step, checkpoints.as_ref(), &interrupt);
    }

    let ended = Ended {
        outcome: &outcome,
        memory: &need,
        timestamp: &utc_iso(SystemTime::now()),
        profile_dir: folder.path.display().to_string(),
        num_steps: trainer.step,
        warmup_steps: profile::warm_up(&arguments, &settings),
        other_load,
        spikes,
    };
    let written = if arguments.output.validate_setup {
        match format {
            Format::Text => output::text(READY)?,
            Format::Json => output::result(&format!("{}\n", json!({ "ready": true })))?,
        }
        Ok(())
    } else {
        let attribution = attribution::write(&mut trainer, &settings, &folder.path)?;
        let rounding = trainer.rounding();
        let attribution = attribution.as_ref();
        let made = RunResults {
            profiler: profiler.as_ref(),
            trainer: &trainer,
            attribution,
            rounding: rounding.as_ref(),
            command: &arguments.given.command,
        };
        conclude(&mut folder, &settings, &ended, &arguments.output, format, made, entry)
    };
    let code = how_it_ended(outcome.end, trainer.step, checkpoints.as_ref(), &interrupt)?;
    if let Some(copy) = arguments.output.second_folder().filter(|_| profiler.is_some()) {
        profile::files::copy(&folder.path, copy)?;
    }
    written.and(printed.map_err(anyhow::Error::from))?;
    Ok(code)
}

fn claim_folder(flags: &OutputArguments, settings: &Settings, started: &str) -> anyhow::Result<RunFolder> {
    let if_taken = if flags.overwrite { IfFolderExists::Overwrite } else { IfFolderExists::Refuse };
    match flags.folder() {
        Some(path) => RunFolder::claim(path, if_taken),
        None => RunFolder::claim_new(started, &settings.size),
    }
}

fn open_checkpoints(
    flags: &OutputArguments,
    settings: &Settings,
    run_folder: &RunFolder,
    resumed_folder: Option<&Path>,
) -> anyhow::Result<Option<Checkpoints>> {
    let Some(path) = &flags.save else {
        if settings.resume.is_some() && !flags.validate_setup {
            output::note("note: the weights of this run are not saved; --save DIR saves them");
        }
        return Ok(None);
    };
    let keep = NonZeroUsize::new(flags.keep as usize).unwrap_or(NonZeroUsize::MIN);
    let if_taken = if flags.overwrite { IfFolderExists::Overwrite } else { IfFolderExists::Refuse };
    Ok(Some(Checkpoints::open(path, keep, &run_folder.path, resumed_folder, &settings.companions, if_taken)?))
}

/// The evaluations so far. A folder other than the resumed run's has no best checkpoint yet.
fn patience(settings: &Settings, checkpoints_are_resumed: bool) -> Patience {
    match settings.keep_best && !checkpoints_are_resumed {
        true => Patience { best: None, ..settings.patience },
        false => settings.patience,
    }
}

fn events(folder: &Path, arguments: &Arguments, settings: &Settings, need: &MemoryNeed) -> Result<Events, FileError> {
    const MIB: f64 = 1024.0 * 1024.0;
    let host = if arguments.output.redact { "host".into() } else { host_name() };
    let about = EventsAbout {
        started: 0.0,
        samples_per_step: settings.samples_per_step(),
        seq_len: settings.shape.seq_len,
        peak_memory_mb: need.peak.total() as f64 / MIB,
        reserved_memory_mb: need.total() as f64 / MIB,
    };
    Events::create(folder, &host, about)
}

/// Prefetched batches, and those that every evaluation uses.
struct Input {
    training: Prefetcher,
    evaluation: Option<EvaluationSet>,
}

impl Input {
    fn open(sources: Sources, settings: &Settings, trainer: &Trainer) -> anyhow::Result<Input> {
        let read = |source| EvaluationSet::read(source, batches_of(source, settings.eval_batches));
        Ok(Input {
            evaluation: sources.evaluation.as_ref().map(read).transpose()?,
            training: Prefetcher::of_rank(
                sources.training,
                trainer.next_sample,
                trainer.ranks.as_ref().map_or(Share::WHOLE, |ranks| Share { rank: ranks.rank(), ranks: ranks.size() }),
            )?,
        })
    }
}

/// How often a run may go back before it ends, and the factor on the learning rate each time.
const MOST_TIMES_BACK: usize = 3;
const LOWER_RATE: f64 = 0.5;

/// Goes back after a loss spike: loads the last checkpoint, lowers the learning rate, and reads the data again from
/// there.
fn go_back(
    outcome: &Outcome,
    arguments: &Arguments,
    trainer: &mut Trainer,
    progress: &mut Progress,
) -> anyhow::Result<Option<Prefetcher>> {
    let (End::Failed(RunError::Diverged(_)), Some(folder)) = (&outcome.end, &arguments.output.save) else {
        return Ok(None);
    };
    let Ok(checkpoint) = Checkpoint::open(folder) else { return Ok(None) };
    persist::load_all(trainer, &checkpoint)?;
    trainer.next_sample = checkpoint.next_sample()?;
    trainer.scale_rate(LOWER_RATE);
    progress.rolled_back(trainer.step, LOWER_RATE);
    let (_, sources) = Settings::resolve(arguments)?;
    Ok(Some(Prefetcher::start(sources.training, trainer.next_sample)?))
}

fn on_spike(arguments: &Arguments) -> OnSpike {
    if arguments.training.on_spike == SpikeChoice::Tell { OnSpike::Tell } else { OnSpike::End }
}

fn schedule(arguments: &Arguments, settings: &Settings) -> Schedule {
    let flags = &arguments.output;
    Schedule {
        on_spike: on_spike(arguments),
        last_step: settings.last_step,
        log_interval: flags.log_interval,
        accumulation: settings.optimizer.accumulation,
        evaluate_every: settings.eval_every,
        save_every: flags.save_every.unwrap_or(0),
    }
}

/// GEMM shapes and the algorithm chosen for each by measurement, on a device that chooses.
const CHOICES_FILE: &str = "products.txt";

/// Results of a run besides its outcome.
#[derive(Clone, Copy)]
struct RunResults<'a> {
    profiler: Option<&'a Profiler>,
    trainer: &'a Trainer,
    attribution: Option<&'a AttributionRecord>,
    rounding: Option<&'a Rounding>,
    /// `train` or `profile`.
    command: &'a str,
}

/// Writes and prints the summary.
fn conclude(
    folder: &mut RunFolder,
    settings: &Settings,
    ended: &Ended,
    flags: &OutputArguments,
    format: Format,
    made: RunResults,
    entry: &mut Entry,
) -> anyhow::Result<()> {
    let RunResults { profiler, trainer, attribution, rounding, .. } = made;
    let mut analysed = None;
    let mut record = summary::performance_record(settings, ended);
    if let Some(rounding) = rounding {
        record = record.with_fp8(summary::rounding(rounding));
    }
    if let Some(profiler) = profiler {
        analysed = profiler.analyse((ended.outcome, &record), trainer, settings)?;
        profiler.amend(&mut record, trainer, analysed.as_ref());
    }
    entry.figures(Headline::of(&record, settings.model.parameters().total()));
    entry.step_seconds(&ended.counted_seconds());
    let record = if flags.redact { record.redact() } else { record };
    let shown = attribution.map_or(String::new(), attribution_text::terminal) + &text::summary(&record);
    let kept = folder.finish(&record, &shown);
    match format {
        Format::Text => output::text(&shown)?,
        Format::Json => output::result(&format!("{}\n", json!({ "summary": record })))?,
    }
    kept?;
    // Two runs give the same bytes if they made the same choices, so these are recorded.
    let choices = trainer.device.notes();
    if !choices.is_empty() {
        write_atomically(&folder.path.join(CHOICES_FILE), (choices.join("\n") + "\n").as_bytes())?;
    }
    if let Some(profiler) = profiler {
        let shown = profiler.write(
            &folder.path,
            settings,
            trainer,
            (ended.outcome, &record, attribution),
            analysed.as_ref(),
            entry,
        )?;
        if format == Format::Text {
            output::text(&shown)?;
        }
    }
    let number = entry.id().map_or(String::new(), |id| format!(" (run {id})"));
    output::note(&format!("run folder: {}{number}", folder.path.display()));
    if format == Format::Text {
        let run_file = folder.path.join(RUN_FILE);
        output::note(&format!("run again: headroom {} --config {}", made.command, run_file.display()));
    }
    Ok(())
}

/// Whether all ranks reach this end at the same place.
fn ends_together(end: &End) -> bool {
    !matches!(end, End::Failed(error) if !error.is_agreed())
}

fn how_it_ended(
    end: End,
    step: u64,
    checkpoints: Option<&Checkpoints>,
    interrupt: &Interrupt,
) -> anyhow::Result<ExitCode> {
    let saved = match checkpoints {
        Some(checkpoints) => format!("saved; --resume {} continues from it", checkpoints.folder.display()),
        None => "not saved: --save DIR saves a checkpoint".into(),
    };
    let and = if checkpoints.is_some() { "and" } else { "but" };
    match end {
        End::Finished | End::StoppedEarly => return Ok(ExitCode::SUCCESS),
        End::Interrupted => output::note(&format!("interrupted: step {step} was finished {and} {saved}")),
        End::GivenUp if checkpoints.is_some_and(Checkpoints::has_saved) || (checkpoints.is_none() && step > 0) => {
            output::note(&format!("interrupted: step {} was abandoned; step {step} is {saved}", step + 1));
        }
        End::GivenUp => output::note(&format!("interrupted: step {} was abandoned; nothing is saved", step + 1)),
        End::Failed(RunError::Data(error)) => return Err(error.into()),
        End::Failed(error @ RunError::OtherRank { .. }) => return Err(error.into()),
        // Saving was checked before and possible; a change since then is not a fault of the input.
        End::Failed(error) => return Err(RunFailed(error.to_string()).into()),
    }
    Ok(interrupt.exit_code())
}
