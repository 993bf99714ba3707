//! From arguments to what a run really does: flags first, then a resumed checkpoint, then the size's row.

use super::arguments::{Arguments, LearningRateSchedule, Precision};
use anyhow::{Context, bail, ensure};
use headroom_engine::machine::Machine;
use headroom_training::checkpoint::Checkpoint;
use headroom_training::config::{ModelConfig, SIZES, Size};
use headroom_training::data::{BatchShape, DataSpec, Source, SourceSettings, Split, TokenizerSettings};
use headroom_training::optimizer::{OptimizerConfig, Schedule};
use headroom_training::persist::from_hugging_face;
use serde_json::{Map, Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    Cpu,
    Null,
}

pub struct Settings {
    /// A row's name, or `custom`.
    pub size: String,
    pub model: ModelConfig,
    pub shape: BatchShape,
    pub optimizer: OptimizerConfig,
    pub seed: u64,
    pub data_spec: String,
    /// The data's own words for itself, and the loss that it allows, where that is known.
    pub data_description: String,
    pub floor_nats: Option<f64>,
    pub device: DeviceKind,
    pub threads: usize,
    pub memory_limit: Option<usize>,
    pub machine: Machine,
    /// Opened, its headers checked.
    pub resume: Option<Checkpoint>,
    pub init_from: Option<Checkpoint>,
}

/// Opened, but not read from yet.
pub struct Sources {
    pub training: Source,
    pub evaluation: Option<Source>,
}

impl Settings {
    pub fn resolve(arguments: &Arguments) -> anyhow::Result<(Settings, Sources)> {
        let open = |folder: &Option<std::path::PathBuf>| folder.as_deref().map(Checkpoint::open).transpose();
        let (resume, init_from) = (open(&arguments.model.resume)?, open(&arguments.model.init_from)?);
        let kept = match &resume {
            Some(checkpoint) => Kept::of(checkpoint)?,
            None => Kept::default(),
        };
        let checkpoint = resume.as_ref().or(init_from.as_ref());
        let (size, row, model) = model_of(arguments, &kept, checkpoint)?;
        let threads_given = arguments.machine.threads.map(usize::from);
        let machine = Machine::detect();
        let mut shape = BatchShape {
            batch_size: arguments.model.batch_size.or(kept.size_of("batch_size")).unwrap_or(row.batch_size),
            seq_len: arguments.model.seq_len.or(kept.size_of("seq_len")).unwrap_or(row.seq_len),
        };
        model.validate(shape.batch_size, shape.seq_len)?;
        let seed = arguments.training.seed.or(kept.number("seed")).unwrap_or(42);
        let data_spec = arguments.data.data.clone().or(kept.text("data_spec")).unwrap_or("synthetic".into());
        let (spec, data) = open_data(arguments, &data_spec, Split::Train, shape, model.vocab_size, seed)?;
        if matches!(spec, DataSpec::Batch { .. }) {
            let given = [("--batch-size", arguments.model.batch_size, data.shape().batch_size)];
            for (flag, wanted, has) in
                given.into_iter().chain([("--seq-len", arguments.model.seq_len, data.shape().seq_len)])
            {
                ensure!(wanted.is_none_or(|wanted| wanted == has), "{flag} is given, but {spec} brings its own: {has}");
            }
            shape = data.shape();
            model.validate(shape.batch_size, shape.seq_len)?;
        }
        let evaluation = match arguments.data.eval_every {
            0 => None,
            _ => Some(open_evaluation(arguments, &data_spec, shape, model.vocab_size, seed)?),
        };
        let settings = Settings {
            size,
            shape,
            optimizer: optimizer_of(arguments, &kept)?,
            seed,
            data_spec,
            data_description: data.description(),
            floor_nats: data.floor_nats(),
            device: device_of(arguments)?,
            threads: threads_given.unwrap_or(machine.cores),
            memory_limit: arguments.machine.memory_limit.as_deref().map(parse_bytes).transpose()?,
            machine,
            model,
            resume,
            init_from,
        };
        Ok((settings, Sources { training: data, evaluation }))
    }

    /// What a checkpoint notes so that resuming needs no flags.
    pub fn kept(&self) -> Map<String, Value> {
        let schedule = match self.optimizer.schedule {
            Schedule::Constant => "constant",
            Schedule::Cosine => "cosine",
        };
        let Value::Object(kept) = json!({
            "size": self.size,
            "batch_size": self.shape.batch_size,
            "seq_len": self.shape.seq_len,
            "gradient_accumulation_steps": self.optimizer.accumulation,
            "lr_schedule": schedule,
            "lr_warmup_steps": self.optimizer.warmup_steps,
            "data_spec": self.data_spec,
        }) else {
            unreachable!("an object by its braces")
        };
        kept
    }
}

/// What the checkpoint that is resumed says of its run.
#[derive(Default)]
struct Kept(Map<String, Value>);

impl Kept {
    fn of(checkpoint: &Checkpoint) -> anyhow::Result<Kept> {
        let state = checkpoint.state()?;
        let mut kept = state.extra.clone();
        kept.insert("seed".into(), state.seed.into());
        kept.insert("learning_rate".into(), state.optimizer.learning_rate.into());
        kept.insert("weight_decay".into(), state.optimizer.weight_decay.into());
        kept.insert("clip".into(), state.optimizer.clip.into());
        Ok(Kept(kept))
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.0.get(key)?.as_u64()
    }

    fn size_of(&self, key: &str) -> Option<usize> {
        self.number(key).map(|number| number as usize)
    }

    fn float(&self, key: &str) -> Option<f64> {
        self.0.get(key)?.as_f64()
    }

    fn text(&self, key: &str) -> Option<String> {
        self.0.get(key)?.as_str().map(String::from)
    }
}

/// The size's name, its row, and the model: from the checkpoint where there is one, else from the row and the flags.
fn model_of(
    arguments: &Arguments,
    kept: &Kept,
    checkpoint: Option<&Checkpoint>,
) -> anyhow::Result<(String, &'static Size, ModelConfig)> {
    let flags = &arguments.model;
    let asked = flags.size.clone().or(kept.text("size").filter(|size| size != CUSTOM)).unwrap_or("tiny".into());
    let Some(row) = Size::named(&asked) else {
        let names: Vec<&str> = SIZES.iter().map(|size| size.name).collect();
        bail!("there is no size `{asked}`\n  help: choose one of {}", names.join(", "));
    };
    let base = checkpoint.map_or_else(|| row.model(), |checkpoint| from_hugging_face(checkpoint.config()));
    let mut model = base.clone();
    let heads_given = flags.n_heads.is_some() || flags.hidden_dim.is_some();
    model.hidden_dim = flags.hidden_dim.unwrap_or(base.hidden_dim);
    model.n_layers = flags.n_layers.unwrap_or(base.n_layers);
    model.n_heads = flags.n_heads.unwrap_or(base.n_heads);
    // Half of the heads, as in every row, where only the heads are given.
    let kv_default = if flags.n_heads.is_some() { (model.n_heads / 2).max(1) } else { base.n_kv_heads };
    model.n_kv_heads = flags.n_kv_heads.unwrap_or(kv_default);
    model.intermediate_dim = flags.intermediate_dim.unwrap_or(base.intermediate_dim);
    model.vocab_size = flags.vocab_size.unwrap_or(base.vocab_size);
    model.rope_theta = flags.rope_theta.unwrap_or(base.rope_theta);
    model.tied |= flags.tied;
    if heads_given && checkpoint.is_none() && model.n_heads > 0 {
        ensure!(
            model.hidden_dim.is_multiple_of(model.n_heads),
            "--hidden-dim {} cannot be divided by --n-heads {}\n  help: use a multiple of {}",
            model.hidden_dim,
            model.n_heads,
            model.n_heads
        );
        model.head_dim = model.hidden_dim / model.n_heads;
    }
    ensure!(
        model.rope_theta.is_finite() && model.rope_theta > 0.0,
        "--rope-theta must be a positive number, not {}",
        model.rope_theta
    );
    if let Some(checkpoint) = checkpoint {
        let loaded = from_hugging_face(checkpoint.config());
        ensure!(
            model == loaded,
            "the flags ask for another model than the checkpoint holds\n  flags:      {model:?}\n  checkpoint: {loaded:?}\n  help: \
             leave the model's flags out, they come from the checkpoint"
        );
    }
    let name = if checkpoint.is_none() && model == row.model() {
        row.name.to_string()
    } else {
        let known = SIZES.iter().find(|size| size.model() == model);
        known.map_or(CUSTOM.to_string(), |size| size.name.to_string())
    };
    Ok((name, row, model))
}

const CUSTOM: &str = "custom";

fn optimizer_of(arguments: &Arguments, kept: &Kept) -> anyhow::Result<OptimizerConfig> {
    let flags = &arguments.training;
    let cosine = match (flags.lr_schedule, kept.text("lr_schedule").as_deref()) {
        (Some(schedule), _) => schedule == LearningRateSchedule::Cosine,
        (None, kept) => kept == Some("cosine"),
    };
    let accumulation = flags.gradient_accumulation_steps.map(|steps| steps as usize);
    let config = OptimizerConfig {
        learning_rate: flags.learning_rate.or(kept.float("learning_rate")).unwrap_or(3e-4),
        schedule: if cosine { Schedule::Cosine } else { Schedule::Constant },
        warmup_steps: flags.lr_warmup_steps.or(kept.number("lr_warmup_steps")).unwrap_or(0),
        weight_decay: flags.weight_decay.or(kept.float("weight_decay")).unwrap_or(0.01),
        clip: flags.clip.or(kept.float("clip")).unwrap_or(0.0),
        accumulation: accumulation.or(kept.size_of("gradient_accumulation_steps")).unwrap_or(1),
    };
    for (flag, value) in
        [("--learning-rate", config.learning_rate), ("--weight-decay", config.weight_decay), ("--clip", config.clip)]
    {
        ensure!(value.is_finite() && value >= 0.0, "{flag} must be a number of at least 0, not {value}");
    }
    Ok(config)
}

fn open_data(
    arguments: &Arguments,
    given: &str,
    split: Split,
    shape: BatchShape,
    vocab_size: usize,
    seed: u64,
) -> anyhow::Result<(DataSpec, Source)> {
    let spec = DataSpec::parse(given)?;
    let tokenizer = match &arguments.data.tokenizer {
        Some(path) if matches!(spec, DataSpec::Text { .. }) || split == Split::Train => {
            let cache = crate::kept::folder().context("no folder to keep tokens in: set HEADROOM_HOME or HOME")?;
            Some(TokenizerSettings { path: path.clone(), cache: cache.join("tokens") })
        }
        _ => None,
    };
    let source = Source::open(&spec, &SourceSettings { shape, vocab_size, seed, split, tokenizer })?;
    Ok((spec, source))
}

fn open_evaluation(
    arguments: &Arguments,
    training: &str,
    shape: BatchShape,
    vocab_size: usize,
    seed: u64,
) -> anyhow::Result<Source> {
    let batch_size = arguments.data.eval_batch_size.unwrap_or(shape.batch_size);
    ensure!(batch_size > 0, "--eval-batch-size is 0: every size must be at least 1");
    let given = arguments.data.eval_data.as_deref().unwrap_or(training);
    let shape = BatchShape { batch_size, ..shape };
    let (spec, source) = open_data(arguments, given, Split::Evaluation, shape, vocab_size, seed)?;
    ensure!(
        source.shape().seq_len == shape.seq_len,
        "{spec} has sequences of {}, training has {}: evaluation needs the same length",
        source.shape().seq_len,
        shape.seq_len
    );
    Ok(source)
}

fn device_of(arguments: &Arguments) -> anyhow::Result<DeviceKind> {
    let machine = &arguments.machine;
    let precision = if machine.use_amp { Precision::Bf16 } else { machine.precision };
    if precision != Precision::Fp32 {
        bail!("{precision:?} has no kernels on {} yet\n  help: --precision fp32", machine.device);
    }
    if !matches!(machine.passes.as_str(), "none" | "v1") {
        bail!("there is no pass or list of passes `{}`\n  help: `none` (= `v1`) is the naive graph", machine.passes);
    }
    match machine.device.as_str() {
        "cpu" => Ok(DeviceKind::Cpu),
        "null" => Ok(DeviceKind::Null),
        other => bail!("there is no device `{other}`\n  help: choose cpu or null"),
    }
}

/// `4GiB`, `512MB`, `1000000`.
fn parse_bytes(text: &str) -> anyhow::Result<usize> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "kb" => 1e3,
        "m" | "mib" => 1024.0 * 1024.0,
        "mb" => 1e6,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "gb" => 1e9,
        other => bail!("`{other}` is not a unit of memory\n  help: 4GiB, 512MiB, 1000000"),
    };
    let count: f64 =
        digits.trim().parse().with_context(|| format!("`{text}` is not an amount of memory such as 4GiB"))?;
    ensure!(count.is_finite() && count > 0.0, "`{text}` is not an amount of memory such as 4GiB");
    Ok((count * unit) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_memory_are_read_with_their_unit() {
        let read = ["4GiB", "512MB", "1000", "1.5k"].map(|text| parse_bytes(text).unwrap());
        assert_eq!(read, [4 << 30, 512_000_000, 1000, 1536]);
        assert!(["", "GiB", "-1", "4XiB", "inf"].iter().all(|text| parse_bytes(text).is_err()));
    }
}
