//! `headroom eval`: measures how well a checkpoint predicts data, and says whether it was trained on it.

mod trained_on;

use crate::failure::RunFailed;
use crate::shown::{Plain, Shown};
use crate::tokenizer::{OwnTokenizer, TextTokens, TokenizerChoice};
use crate::train::settings::{Resumed, corpus_settings};
use crate::train::start;
use crate::{memory_size, output};
use anyhow::{Context, bail, ensure};
use headroom_engine::machine::{Machine, memory_available_bytes};
use headroom_engine::{DeviceSpec, cuda};
use headroom_graph::Precision;
use headroom_graph::passes::PassList;
use headroom_report::evaluation::{Evaluation, text};
use headroom_report::numbers::bytes;
use headroom_training::checkpoint::{Checkpoint, STATE_FILE};
use headroom_training::data::{BatchShape, CorpusSettings, DataError, DataSpec, Part, Source, SourceSettings, Split};
use headroom_training::evaluator::Evaluator;
use headroom_training::memory::MemoryNeed;
use headroom_training::models::{ModelConfig, Size};
use headroom_training::optimizer::OptimizerConfig;
use headroom_training::program::{StepConfig, forward_program};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Measure how well a checkpoint predicts data: loss, perplexity, bits per byte.
#[derive(clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct Arguments {
    /// A checkpoint of `train --save`, or a Hugging Face folder
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// Data to read, as for `train` [default: the held-out part of the checkpoint's training data]
    #[arg(long)]
    data: Option<String>,
    /// A Hugging Face tokenizer.json for text, or bytes: a token is a byte [default: the model's own; bytes if there is none]
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<TokenizerChoice>,
    /// Column of JSONL files that holds the text [default: text]
    #[arg(long, value_name = "NAME")]
    text_column: Option<String>,
    /// Share at the end of the data to read [default: the share that training held out; all of any other data]
    #[arg(long, value_name = "SHARE")]
    held_out: Option<f64>,
    /// Batches to read [default: all; 4 from a generator]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    batches: Option<u64>,
    /// [default: as in the checkpoint's run, else 8]
    #[arg(long, value_name = "N")]
    batch_size: Option<usize>,
    /// [default: as in the checkpoint's run, else 128]
    #[arg(long, value_name = "N")]
    seq_len: Option<usize>,
    /// cpu, cuda or cuda:N
    #[arg(long, default_value = "cpu")]
    device: String,
    /// [default: as in the checkpoint's run, else fp32]
    #[arg(long)]
    precision: Option<Precision>,
    /// [default: as in the checkpoint's run, else v2]
    #[arg(long, allow_hyphen_values = true)]
    passes: Option<String>,
    /// [default: the physical cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Memory limit for the plan, such as 4GiB [default: the free memory]
    #[arg(long, value_name = "SIZE")]
    memory_limit: Option<String>,
    #[command(flatten)]
    shown: Shown<Plain>,
}

const BATCHES_OF_A_GENERATOR: u64 = 4;
const USUAL_SHAPE: BatchShape = BatchShape { batch_size: 8, seq_len: 128 };

/// Interval between signs of life.
const SIGNS: Duration = Duration::from_secs(10);

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let device: DeviceSpec = arguments.device.parse()?;
    ensure!(
        device != DeviceSpec::Null,
        "--device null computes nothing, so there is no loss\n  help: --device cpu or cuda"
    );
    let checkpoint = Checkpoint::open(&arguments.from)?;
    // A Hugging Face folder has no state, and does not say how it was trained.
    let state = match arguments.from.join(STATE_FILE).exists() {
        true => Some(checkpoint.state()?),
        false => None,
    };
    let before = state.map(Resumed::of).transpose()?.unwrap_or_default();
    let model = checkpoint.config().model.clone();
    let step = StepConfig {
        shape: shape(&arguments, &before, &model),
        optimizer: OptimizerConfig::default(),
        passes: PassList::parse(&arguments.passes.clone().or(before.passes.clone()).unwrap_or("v2".into()))
            .map_err(anyhow::Error::msg)?,
        recomputed_layers: 0,
        precision: precision(&arguments, &before, device)?,
        target: device.target(),
        model,
    };
    step.model.validate(step.shape.batch_size, step.shape.seq_len)?;
    let seed = state.map_or(42, |state| state.seed);
    let Chosen { source, part } = choose(
        &arguments,
        &before,
        OwnTokenizer::of(&checkpoint),
        &SourceSettings { split: Split::Evaluation, ..SourceSettings::new(step.shape, step.model.vocab_size, seed) },
    )?;
    let shape = source.shape();
    step.model.validate(shape.batch_size, shape.seq_len)?;

    let program = forward_program(&step, shape)?;
    let programs = [program.program.clone()];
    let threads = arguments.threads.map_or_else(|| Machine::detect().cores, usize::from);
    check_memory(&arguments, device, MemoryNeed::of(&programs, threads).total())?;
    let opened = device.open(&start::opening(threads), &programs)?;
    let mut evaluator = Evaluator::new(opened, &step.model, program, &checkpoint)?;

    let batches = arguments.batches.or(source.windows_per_epoch().is_none().then_some(BATCHES_OF_A_GENERATOR));
    let started = Instant::now();
    let mut last_sign = started;
    let done = evaluator.evaluate(&source, batches, |windows| {
        if last_sign.elapsed() > SIGNS {
            last_sign = Instant::now();
            output::note(&format!("{windows} windows evaluated"));
        }
    })?;
    if !done.loss.is_finite() {
        return Err(RunFailed(format!("the loss is {} on {}", done.loss, source.description())).into());
    }
    let all = source.windows_per_epoch();
    let part = match all {
        Some(all) if done.windows < all => format!("{part}, {} of its {all} windows", done.windows),
        _ => part,
    };
    let bytes_per_token = source.bytes_per_token();
    let size = Size::of(&step.model).map_or("custom", |size| size.name);
    let evaluation = Evaluation {
        model: format!("{} {size}", step.model.family.title),
        step: state.map(|state| state.step),
        data: source.description(),
        part,
        loss: done.loss,
        perplexity: done.loss.exp(),
        bits_per_byte: bytes_per_token.map(|bytes| done.loss / std::f64::consts::LN_2 / bytes),
        bytes_per_token,
        tokens: done.windows * shape.seq_len as u64,
        windows: done.windows,
        seq_len: shape.seq_len as u64,
        device: device.name().into(),
        precision: step.precision.to_string(),
        seconds: started.elapsed().as_secs_f64(),
    };
    arguments.shown.print(&evaluation, text)?;
    Ok(ExitCode::SUCCESS)
}

fn shape(arguments: &Arguments, before: &Resumed, model: &ModelConfig) -> BatchShape {
    BatchShape {
        batch_size: arguments.batch_size.or(before.batch_size).unwrap_or(USUAL_SHAPE.batch_size),
        seq_len: arguments.seq_len.or(before.seq_len).unwrap_or(USUAL_SHAPE.seq_len.min(model.longest())),
    }
}

fn precision(arguments: &Arguments, before: &Resumed, device: DeviceSpec) -> anyhow::Result<Precision> {
    let noted: Option<Precision> = before.precision.as_deref().map(str::parse).transpose()?;
    let precision = arguments.precision.or(noted).unwrap_or_default();
    let has: Vec<&str> = device.precisions().iter().map(|precision| precision.name()).collect();
    ensure!(
        has.contains(&precision.name()),
        "--precision {precision} has no kernels on {}\n  help: --precision {}",
        device.name(),
        has.join(" or ")
    );
    Ok(precision)
}

/// The source to read, and a description of the part that is read.
struct Chosen {
    source: Source,
    part: String,
}

fn choose(
    arguments: &Arguments,
    before: &Resumed,
    tokenizer: OwnTokenizer,
    asked: &SourceSettings,
) -> anyhow::Result<Chosen> {
    let data = arguments.data.clone().or(before.data.clone()).with_context(|| {
        format!("{} does not say what it was trained on\n  help: name the data with --data", arguments.from.display())
    })?;
    let own = before.data.as_deref().is_some_and(|trained| trained_on::is_same(&data, trained));
    let spec = DataSpec::parse(&data)?;
    let tokens = TextTokens::choose(arguments.tokenizer.as_ref(), Some(tokenizer));
    if tokens.is_asked() && !spec.is_text() {
        return Err(DataError::TokenizerWithoutText(spec.to_string()).into());
    }
    if let Some(share) = arguments.held_out {
        ensure!(
            share > 0.0 && share <= 1.0,
            "--held-out is {share}\n  help: a share of the data, above 0 and at most 1"
        );
        ensure!(
            spec.has_parts(),
            "--held-out has no effect on {spec}, which has no end\n  help: use it with files, folders and patterns"
        );
    }
    let noted = own.then(|| before.held_out.unwrap_or(0.0));
    let share = arguments.held_out.or(noted.filter(|share| *share > 0.0)).unwrap_or(1.0);
    let part = trained_on::part(&spec, share, noted);
    let text_column = arguments.text_column.clone().or(before.text_column.clone().filter(|_| own));
    let settings = SourceSettings {
        part: Part::Last(share),
        tokenizer: if spec.is_text() { tokens.settings()? } else { None },
        corpus: CorpusSettings { text_column, ..corpus_settings() },
        ..asked.clone()
    };
    let source = Source::open(&spec, &settings)?;
    if let Some(line) = source.ids_of_text().and_then(|ids| tokens.line(ids)) {
        output::note(&line);
    }
    Ok(Chosen { source, part })
}

fn check_memory(arguments: &Arguments, device: DeviceSpec, need: usize) -> anyhow::Result<()> {
    let limit =
        arguments.memory_limit.as_deref().map(|text| memory_size::parse_bytes("--memory-limit", text)).transpose()?;
    let free = match device {
        DeviceSpec::Cuda(ordinal) => Some(cuda::facts(ordinal)?.free_bytes),
        _ => memory_available_bytes().map(|bytes| bytes as usize),
    };
    if let Some(room) = [limit, free].into_iter().flatten().min().filter(|room| need > *room) {
        bail!(
            "evaluating needs {} on {}, and {} are free or allowed\n  help: a smaller --batch-size or --seq-len",
            bytes(need as u64),
            device.name(),
            bytes(room as u64)
        );
    }
    Ok(())
}
