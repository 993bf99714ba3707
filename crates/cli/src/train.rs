//! `headroom train`: configuration, memory check, the run, and its summary.

mod arguments;
mod folder;
mod observer;
mod settings;
mod summary;

pub use arguments::Arguments;

use crate::failure::RunFailed;
use crate::kept;
use anyhow::{Context, bail, ensure};
use folder::{IfTaken, RunFolder};
use headroom_engine::cpu::isa::Isa;
use headroom_engine::cpu::{Cpu, Reductions};
use headroom_engine::machine::memory_available_bytes;
use headroom_engine::null::Null;
use headroom_engine::peaks::ASSUMED_RATES;
use headroom_engine::{Device, Program};
use headroom_graph::Category;
use headroom_graph::cost::Rates;
use headroom_record::atomic::write_json;
use headroom_record::config::CONFIG_FILE;
use headroom_record::performance::PERFORMANCE_FILE;
use headroom_record::timestamp::utc_iso;
use headroom_report::numbers::bytes;
use headroom_report::training::{self as text, Memory, Opening};
use headroom_training::checkpoint::Saver;
use headroom_training::data::Prefetcher;
use headroom_training::memory::{MemoryNeed, largest_that_fits};
use headroom_training::persist::{self, Notes};
use headroom_training::program::{Keep, evaluation_program, kernels, training_program};
use headroom_training::run::{self as training, End, EvaluationSet, Schedule};
use headroom_training::trainer::Trainer;
use observer::{Saving, Show};
use serde_json::json;
use settings::{DeviceKind, Settings};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the command's result, and its progress")]
pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let started = utc_iso(SystemTime::now());
    let (settings, sources) = Settings::resolve(&arguments)?;
    let last = if arguments.output.validate_setup { 3 } else { arguments.training.num_steps };
    check_folders(&arguments, &settings)?;
    let at = settings.resume.as_ref().map(|checkpoint| checkpoint.state().map(|state| state.step)).transpose()?;
    if let Some(done) = at.filter(|done| *done >= last) {
        bail!("the checkpoint stands at step {done} already\n  help: --num-steps says at which step the run ends");
    }

    let program = training_program(&settings.model, settings.shape, &settings.optimizer, Keep::OnlyTheLoss)?;
    let evaluation = match &sources.evaluation {
        Some(source) => Some(evaluation_program(&settings.model, source.shape(), &program.program)?),
        None => None,
    };
    let mut programs = vec![program.program.clone()];
    programs.extend(evaluation.iter().map(|evaluation| evaluation.program.clone()));
    let need = MemoryNeed::of(&programs, settings.threads);
    let opening = opening(&settings, &programs[0], &need, last);
    if !arguments.output.json {
        print!("{opening}");
    }
    if settings.device == DeviceKind::Cpu {
        check_memory(&settings, &need)?;
    }

    let if_taken = if arguments.output.overwrite { IfTaken::Overwrite } else { IfTaken::Refuse };
    let mut folder = RunFolder::claim(arguments.output.output_dir.as_deref(), &started, &settings.size, if_taken)?;
    opening.lines().for_each(|line| folder.log(line));
    let config = summary::config_record(&settings, last, &started);
    let config = if arguments.output.redact { config.redact() } else { config };
    write_json(&folder.path.join(CONFIG_FILE), &config)?;
    let keep = NonZeroUsize::new(arguments.output.keep as usize).unwrap_or(NonZeroUsize::MIN);
    let mut saver = arguments.output.save.as_deref().map(|path| Saver::open(path, keep)).transpose()?;

    let device = build_device(&arguments, &settings, &programs)?;
    drop(programs);
    let mut trainer = Trainer::new(device, &settings.model, program, evaluation, settings.optimizer);
    load_weights(&mut trainer, &settings)?;
    let set = match &sources.evaluation {
        Some(source) => Some(EvaluationSet::read(source, arguments.data.eval_batches as usize)?),
        None => None,
    };
    let stop = stop_on_interrupt()?;
    let accumulation = settings.optimizer.accumulation;
    let kept = settings.kept();
    let mut data = Prefetcher::start(sources.training, trainer.step * accumulation as u64)?;
    let saving = saver.as_mut().map(|saver| Saving {
        saver,
        notes: Notes {
            model: &settings.model,
            seq_len: settings.shape.seq_len,
            optimizer: &settings.optimizer,
            seed: settings.seed,
            data: &settings.data_description,
            extra: &kept,
        },
        shown: arguments.output.save.as_deref().unwrap_or(Path::new("")).display().to_string(),
    });
    let schedule = Schedule {
        last_step: last,
        log_interval: arguments.output.log_interval,
        accumulation,
        evaluate_every: arguments.data.eval_every,
        save_every: arguments.output.save_every.unwrap_or(0),
    };
    let samples_a_step = settings.shape.batch_size * accumulation;
    let warmup_steps = arguments.output.warmup_steps;
    let mut show =
        Show::new(Some(&mut folder), saving, arguments.output.json, (trainer.step, last), samples_a_step, warmup_steps);
    let outcome = training::run(&mut trainer, &mut data, set.as_ref(), &schedule, &stop, &mut show);
    show.finish();
    drop(show);

    let ended = summary::Ended {
        outcome: &outcome,
        memory: &need,
        timestamp: &utc_iso(SystemTime::now()),
        profile_dir: folder.path.display().to_string(),
        num_steps: trainer.step,
        warmup_steps,
    };
    let record = summary::performance_record(&settings, &ended);
    let record = if arguments.output.redact { record.redact() } else { record };
    let shown = text::summary(&record);
    shown.lines().for_each(|line| folder.log(line));
    folder.finish_log()?;
    write_json(&folder.path.join(PERFORMANCE_FILE), &record)?;
    if arguments.output.json {
        println!("{}", json!({ "summary": record }));
    } else {
        print!("{shown}");
    }
    eprintln!("run folder: {}", folder.path.display());
    match outcome.end {
        End::Finished if arguments.output.validate_setup => {
            eprintln!("the machine is ready: device, memory, folder and three steps were tried");
        }
        End::Finished => {}
        End::Interrupted => eprintln!("interrupted: step {} was finished, the summary covers it", trainer.step),
        End::Failed(training::RunError::Checkpoint(error)) => return Err(error.into()),
        End::Failed(training::RunError::Data(error)) => return Err(error.into()),
        End::Failed(error) => return Err(RunFailed(error.to_string()).into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses what cannot be before anything is made: folders that would be mixed up, saving what is not computed.
fn check_folders(arguments: &Arguments, settings: &Settings) -> anyhow::Result<()> {
    let Some(save) = &arguments.output.save else { return Ok(()) };
    ensure!(settings.device != DeviceKind::Null, "--save has nothing to save: --device null computes nothing");
    let same = arguments.output.output_dir.as_deref().is_some_and(|folder| is_same_folder(folder, save));
    ensure!(
        !same,
        "--save and --output-dir are the same folder, and both hold a config.json\n  help: name two folders"
    );
    Ok(())
}

fn is_same_folder(left: &Path, right: &Path) -> bool {
    let absolute = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).ok();
    absolute(left).is_some() && absolute(left) == absolute(right)
}

fn opening(settings: &Settings, program: &Program, need: &MemoryNeed, last: u64) -> String {
    let model = &settings.model;
    let count = model.parameters();
    let parameters = [
        ("embedding", count.embedding),
        ("attention", count.attention),
        ("feed-forward", count.feed_forward),
        ("norms", count.norms),
        ("head", count.head),
    ];
    let device = match settings.device {
        DeviceKind::Cpu => {
            format!("cpu, {} threads, {}: {}", settings.threads, Isa::detect(), settings.machine.cpu_name)
        }
        DeviceKind::Null => "null: nothing is computed, times are predicted".into(),
    };
    let kernels = kernels(program).map(|(phase, count)| format!("{count} {phase}")).join(", ");
    let tied = if model.tied { ", tied" } else { "" };
    let heads = format!("{} heads of {}, {} key-value", model.n_heads, model.head_dim, model.n_kv_heads);
    let configuration = [
        (
            "model",
            format!(
                "hidden {}, {} layers, {heads}, feed-forward {}, vocabulary {}{tied}",
                model.hidden_dim, model.n_layers, model.intermediate_dim, model.vocab_size
            ),
        ),
        ("batch", batch_line(settings)),
        ("steps", format!("to {last}, learning rate {}", settings.optimizer.learning_rate)),
        ("data", settings.data_description.clone()),
        ("kernels", format!("{kernels} a step")),
        ("device", device),
    ];
    let categories = Category::ALL.map(|category| (category.name(), need.peak.get(category) as u64));
    text::opening(&Opening {
        size: &settings.size,
        version: "Version 1 (naive graph), fp32",
        parameters: &parameters,
        settings: &configuration,
        memory: Memory {
            categories: &categories,
            gaps: need.gaps as u64,
            scratch: need.scratch as u64,
            total: need.total() as u64,
        },
    })
}

fn batch_line(settings: &Settings) -> String {
    let shape = settings.shape;
    let accumulated = match settings.optimizer.accumulation {
        1 => String::new(),
        steps => format!(", {steps} of them a step"),
    };
    format!("{} × {} tokens{accumulated}", shape.batch_size, shape.seq_len)
}

/// Refuses a run that cannot fit, with what it needs and what would fit.
fn check_memory(settings: &Settings, need: &MemoryNeed) -> anyhow::Result<()> {
    let free = memory_available_bytes().map(|bytes| bytes as usize);
    let (available, whose) = match (settings.memory_limit, free) {
        (Some(limit), Some(free)) if free < limit => (free, "the machine has free"),
        (Some(limit), _) => (limit, "--memory-limit allows"),
        (None, Some(free)) => (free, "the machine has free"),
        (None, None) => return Ok(()),
    };
    if need.total() <= available {
        return Ok(());
    }
    let parts: Vec<String> = Category::ALL
        .iter()
        .map(|category| format!("{} {}", category.name().replace('_', " "), bytes(need.peak.get(*category) as u64)))
        .collect();
    let fits = largest_that_fits(&settings.model, settings.shape, &settings.optimizer, settings.threads, available)?;
    let help = match fits {
        Some(shape) => format!("--batch-size {} --seq-len {} fits", shape.batch_size, shape.seq_len),
        None => "weights, gradients and moments alone do not fit: choose a smaller --size".into(),
    };
    bail!(
        "size {} needs {} on the CPU, and {whose} {}\n  {} (batch {} × seq {}, fp32, Version 1)\n  help: {help}",
        settings.size,
        bytes(need.total() as u64),
        bytes(available as u64),
        parts.join(", "),
        settings.shape.batch_size,
        settings.shape.seq_len,
    )
}

fn build_device(arguments: &Arguments, settings: &Settings, programs: &[Program]) -> anyhow::Result<Box<dyn Device>> {
    let reductions = if arguments.machine.no_deterministic { Reductions::OneAThread } else { Reductions::Fixed };
    Ok(match settings.device {
        DeviceKind::Cpu => Box::new(Cpu::new(settings.threads, Isa::detect(), reductions, programs)?),
        DeviceKind::Null => Box::new(Null::new(rates(settings), programs)),
    })
}

/// The measured peaks of this machine, or assumed ones, said so.
#[expect(clippy::print_stderr, reason = "a note beside the result")]
fn rates(settings: &Settings) -> Rates {
    match kept::load_device(&settings.machine.cpu_name) {
        Some(record) => Rates {
            product_flops: record.gemm("fp32").unwrap_or(ASSUMED_RATES.product_flops),
            bytes: record.memory_bandwidth_bytes,
            call_seconds: record.call_seconds,
        },
        None => {
            eprintln!("note: times are predicted with assumed peaks; `headroom device` measures this machine's");
            ASSUMED_RATES
        }
    }
}

#[expect(clippy::print_stderr, reason = "a note beside the result")]
fn load_weights(trainer: &mut Trainer, settings: &Settings) -> anyhow::Result<()> {
    if !trainer.device.computes() {
        return Ok(());
    }
    if let Some(checkpoint) = &settings.resume {
        persist::load_all(trainer, checkpoint)?;
        let state = checkpoint.state()?;
        if state.data != settings.data_description {
            eprintln!("note: the checkpoint was trained on other data ({})", state.data);
        }
    } else if let Some(checkpoint) = &settings.init_from {
        persist::load_weights(trainer, checkpoint)?;
    } else {
        trainer.draw_weights(settings.seed);
    }
    Ok(())
}

/// Set by Ctrl-C or a request to terminate: the step is finished, then the run ends in order. A second one ends it at once.
fn stop_on_interrupt() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    ctrlc::set_handler(move || {
        if seen.swap(true, Ordering::Relaxed) {
            std::process::abort();
        }
    })
    .context("cannot listen for Ctrl-C")?;
    Ok(stop)
}
