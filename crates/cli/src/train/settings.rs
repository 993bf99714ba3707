//! Resolves arguments into what a run does: flags first, then a resumed checkpoint, then the size's row.

mod data;
mod model;
mod optimizer;
mod position;
mod resumed;
mod update;

pub use data::{Sources, batches_of, corpus_settings, whole};
pub use resumed::Resumed;
pub use update::tree_of;

use super::arguments::{Arguments, PrecisionChoice};
use crate::memory_size::parse_bytes;
use crate::output;
use crate::proved::{self, Question};
use crate::tokenizer::OwnTokenizer;
use anyhow::{bail, ensure};
use data::{Wanted, check_shape};
use headroom_engine::DeviceSpec;
use headroom_engine::cuda;
use headroom_engine::machine::Machine;
use headroom_graph::Precision;
use headroom_graph::passes::PassList;
use headroom_record::config::version_of_passes;
use headroom_training::checkpoint::{Checkpoint, Companions, HfConfig};
use headroom_training::data::{BatchShape, SourceSettings};
use headroom_training::models::ModelConfig;
use headroom_training::optimizer::OptimizerConfig;
use headroom_training::patience::Patience;
use headroom_training::program::StepConfig;
use model::{ChosenModel, choose_model};
use position::Position;
use serde_json::{Map, Value};
use update::update_of;

pub struct Settings {
    /// A row's name, or `custom`.
    pub size: String,
    pub model: ModelConfig,
    /// The model as a checkpoint states it, including what it was loaded with.
    pub hf: HfConfig,
    /// Files that a checkpoint takes along beside the model.
    pub companions: Companions,
    pub shape: BatchShape,
    pub optimizer: OptimizerConfig,
    pub passes: PassList,
    /// The steps where the run starts and ends.
    pub first_step: u64,
    pub last_step: u64,
    pub seed: u64,
    /// The data's description of itself, where the run begins in it, and the lowest possible loss, if known.
    pub data_description: String,
    pub data_position: Position,
    pub floor_nats: Option<f64>,
    /// The data of evaluations, if there are any.
    pub evaluation_line: Option<String>,
    /// 0 is off.
    pub eval_every: u64,
    pub eval_batches: usize,
    /// The evaluations so far, and how many without improvement end the run.
    pub patience: Patience,
    pub keep_best: bool,
    pub device: DeviceSpec,
    /// Facts from the driver, if the device is a GPU.
    pub gpu: Option<cuda::Facts>,
    pub precision: Precision,
    pub threads: usize,
    pub memory_limit: Option<usize>,
    pub machine: Machine,
    /// Opened, with its headers checked.
    pub resume: Option<Checkpoint>,
    pub init_from: Option<Checkpoint>,
    /// Settings that a checkpoint stores so that resuming needs no flags.
    pub notes: Map<String, Value>,
    /// Processes that train the model together, and the number of them on this machine.
    pub ranks: usize,
    pub local_ranks: usize,
}

/// Steps of `--validate-setup`.
const STEPS_TO_VALIDATE: u64 = 3;

impl Settings {
    pub fn resolve(arguments: &Arguments) -> anyhow::Result<(Settings, Sources)> {
        let device: DeviceSpec = arguments.machine.device.parse()?;
        ensure!(
            device != DeviceSpec::Null || arguments.output.save.is_none(),
            "--save has nothing to save: --device null computes nothing"
        );
        ensure!(
            !arguments.machine.nvtx || matches!(device, DeviceSpec::Cuda(_)),
            "--nvtx has no effect on --device {}: its ranges are for NVIDIA's profilers\n  help: --device cuda, or leave it out",
            device.name()
        );
        let memory_limit =
            arguments.machine.memory_limit.as_deref().map(|text| parse_bytes("--memory-limit", text)).transpose()?;
        let resume = arguments.model.resume.as_deref().map(Checkpoint::open).transpose()?;
        let init_from = arguments.model.init_from.as_deref().map(Checkpoint::open).transpose()?;
        let state = resume.as_ref().map(Checkpoint::state).transpose()?;
        let before = state.map(Resumed::of).transpose()?.unwrap_or_default();
        let list = arguments.machine.passes.clone().or(before.passes.clone()).unwrap_or("v2".into());
        let passes = PassList::parse(&list).map_err(anyhow::Error::msg)?;
        let gpu = match device {
            DeviceSpec::Cuda(ordinal) => Some(cuda::facts(ordinal)?),
            _ => None,
        };

        let ChosenModel { size, model, row } =
            choose_model(&arguments.model, before.size.as_deref(), resume.as_ref().or(init_from.as_ref()))?;
        let asked = BatchShape {
            batch_size: arguments.model.batch_size.or(before.batch_size).unwrap_or(row.batch_size),
            seq_len: arguments.model.seq_len.or(before.seq_len).unwrap_or(row.seq_len.min(model.longest())),
        };
        model.validate(asked.batch_size, asked.seq_len)?;
        let first_step = state.map_or(0, |state| state.step);
        let last_step = last_step(arguments, &before, first_step)?;
        let seed = arguments.training.seed.or(state.map(|state| state.seed)).unwrap_or(42);
        let update = update_of(arguments, &before, state, &model, seed)?;
        let optimizer =
            optimizer::resolved(arguments, &before, update, &optimizer::TrainingDefaults::of(&model, last_step))?;
        let loaded = resume.as_ref().or(init_from.as_ref());
        let wanted = Wanted::of(arguments, &before, loaded.map(OwnTokenizer::of))?;
        let vocab_size = model.vocab_size;
        let asked = SourceSettings::new(asked, vocab_size, seed);
        let mut sources = wanted.open(&asked)?;
        let position = Position::of(resume.as_ref(), &before, &wanted, &sources.training)?;
        if let Some(part) = position.order_of(&wanted) {
            sources.training = wanted.open_training(&asked, Some(part))?;
        }
        let shape = sources.training.shape();
        check_shape(arguments, &wanted, shape)?;
        model.validate(shape.batch_size, shape.seq_len)?;
        if let Some(evaluation) = &sources.evaluation {
            model.validate(evaluation.shape().batch_size, evaluation.shape().seq_len)?;
        }
        let machine = Machine::detect();
        let question = Question {
            kind: device.name(),
            device: gpu.as_ref().map_or(machine.cpu_name.as_str(), |gpu| gpu.name.as_str()),
            size: &size,
            model: &model,
            shape,
        };
        let precision = precision_of(arguments, &before, device, &question)?;

        let patience = patience_of(arguments, &before, wanted.eval_every)?;
        let keep_best = arguments.output.keep_best || before.keep_best.unwrap_or(false);

        let notes = Resumed {
            size: Some(size.clone()),
            batch_size: Some(shape.batch_size),
            seq_len: Some(shape.seq_len),
            num_steps: Some(last_step),
            optimizer: Some(optimizer.method.name().into()),
            momentum: optimizer.method.momentum(),
            learning_rate: Some(optimizer.learning_rate),
            weight_decay: Some(optimizer.weight_decay),
            decay: Some(optimizer.decays.to_string()),
            clip: Some(optimizer.clip),
            gradient_accumulation_steps: Some(optimizer.accumulation),
            lr_schedule: Some(optimizer.schedule.shape.to_string()),
            lr_warmup_steps: Some(optimizer.schedule.warmup_steps),
            lr_floor: Some(optimizer.schedule.floor),
            lr_decay_steps: optimizer.schedule.decay_steps,
            betas: Some(optimizer.betas),
            eps: Some(optimizer.eps),
            update: Some(optimizer.update.to_string()),
            passes: Some(list),
            precision: Some(precision.to_string()),
            data: Some(whole(&wanted.data)),
            tokenizer: wanted.tokenizer(&before)?,
            text_column: wanted.text_column.clone(),
            held_out: Some(wanted.held_out),
            held_out_at_start: Some(position.held_out_at_start).filter(|share| *share != wanted.held_out),
            eval_every: Some(wanted.eval_every),
            eval_batch_size: wanted.eval_batch_size,
            eval_batches: Some(wanted.eval_batches),
            eval_data: wanted.eval_data.as_deref().map(whole),
            early_stop: Some(patience.most).filter(|most| *most > 0),
            keep_best: Some(true).filter(|_| keep_best),
            best_eval_loss: None,
            best_eval_step: None,
            evals_since_best: None,
        };
        let mut hf = match loaded {
            Some(loaded) => loaded.config().clone().seeing(shape.seq_len),
            None => HfConfig::of(&model, shape.seq_len),
        };
        hf.dtype = arguments.output.save_dtype.unwrap_or(hf.dtype);
        let companions = loaded.map(|loaded| Companions::read(loaded.folder())).transpose()?.unwrap_or_default();
        let companions = wanted.companions(&sources.training, companions)?;
        let settings = Settings {
            size,
            model,
            hf,
            companions,
            shape,
            optimizer,
            first_step,
            last_step,
            seed,
            data_description: sources.training.description(),
            floor_nats: sources.training.floor_nats(),
            evaluation_line: wanted.evaluation_line(sources.evaluation.as_ref(), position.held_out_at_start),
            data_position: position,
            eval_every: wanted.eval_every,
            eval_batches: wanted.eval_batches,
            patience,
            keep_best,
            device,
            gpu,
            precision,
            threads: arguments.machine.threads.map_or(machine.cores, usize::from),
            memory_limit,
            passes,
            machine,
            resume,
            init_from,
            notes: notes.to_map()?,
            ranks: 1,
            local_ranks: 1,
        };
        Ok((settings, sources))
    }
}

impl Settings {
    /// The same settings for one of several ranks. `on_machine` is the number of ranks on its machine, which share its
    /// memory, and the number with the same CPUs, which divide them unless the number of threads was given.
    pub fn among(self, ranks: usize, on_machine: Option<(usize, usize)>, arguments: &Arguments) -> Settings {
        let (local_ranks, sharing) = on_machine.unwrap_or((1, 1));
        let threads = match arguments.machine.threads {
            Some(_) => self.threads,
            None => (self.threads / sharing.max(1)).max(1),
        };
        Settings { ranks, local_ranks: local_ranks.max(1), threads, passes: self.passes.among(ranks), ..self }
    }

    /// Sequences per step, over all ranks.
    pub fn samples_per_step(&self) -> usize {
        self.shape.batch_size * self.optimizer.accumulation * self.ranks
    }

    /// Configuration of a step that recomputes the activations of this many layers.
    pub fn step(&self, recomputed_layers: usize) -> StepConfig {
        StepConfig {
            model: self.model.clone(),
            shape: self.shape,
            optimizer: self.optimizer,
            passes: self.passes.clone(),
            recomputed_layers,
            precision: self.precision,
            target: self.device.target(),
        }
    }

    /// Family and size, for display.
    pub fn name(&self) -> String {
        format!("{} {}", self.model.family.title, self.size)
    }

    /// Passes and precision in short, for display.
    pub fn label(&self) -> String {
        format!("{}, {}", self.passes.label(), self.precision)
    }

    /// The pass list as files name it.
    pub fn version(&self) -> String {
        version_of_passes(self.passes.names())
    }
}

/// The precision of the flags, else of the resumed run, else fp32; refused if the device has no kernels for it. `auto`
/// keeps the resumed run's, so that a run continues as it began.
fn precision_of(
    arguments: &Arguments,
    before: &Resumed,
    device: DeviceSpec,
    question: &Question,
) -> anyhow::Result<Precision> {
    let noted: Option<Precision> = before.precision.as_deref().map(str::parse).transpose()?;
    let precision = match (arguments.machine.asked_precision(), noted) {
        (Some(PrecisionChoice::Named(precision)), _) => precision,
        (Some(PrecisionChoice::Auto), Some(noted)) => {
            output::note(&format!("--precision auto stays with {noted}, as in the resumed run"));
            noted
        }
        (Some(PrecisionChoice::Auto), None) => {
            let (precision, said) = proved::answer(question).map_err(anyhow::Error::msg)?;
            output::note(&said);
            precision
        }
        (None, noted) => noted.unwrap_or_default(),
    };
    let has = device.precisions();
    if !has.contains(&precision) {
        let choices: Vec<&str> = has.iter().map(|precision| precision.name()).collect();
        bail!(
            "--precision {precision} has no kernels on {}\n  help: --precision {}",
            device.name(),
            choices.join(" or ")
        );
    }
    Ok(precision)
}

fn patience_of(arguments: &Arguments, before: &Resumed, eval_every: u64) -> anyhow::Result<Patience> {
    let asked = [
        ("--early-stop", arguments.training.early_stop.is_some_and(|most| most > 0)),
        ("--keep-best", arguments.output.keep_best),
    ];
    for (flag, is_given) in asked {
        ensure!(
            !is_given || eval_every > 0,
            "{flag} is given, but nothing is evaluated\n  help: --eval-every turns evaluation on"
        );
    }
    Ok(before.patience(arguments.training.early_stop.or(before.early_stop).unwrap_or(0)))
}

fn last_step(arguments: &Arguments, before: &Resumed, first_step: u64) -> anyhow::Result<u64> {
    if arguments.output.validate_setup {
        return Ok(first_step.saturating_add(STEPS_TO_VALIDATE));
    }
    let last = arguments.training.num_steps.or(before.num_steps).unwrap_or(50);
    ensure!(
        last > first_step,
        "the checkpoint is already at step {first_step}, and the run would end at step {last}\n  help: --num-steps is the step at \
         which the run ends: choose more than {first_step}"
    );
    Ok(last)
}
