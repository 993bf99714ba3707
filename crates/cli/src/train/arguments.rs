//! The arguments of `headroom train`. An omitted flag falls back to a resumed checkpoint, then to the size's row.

use super::config_file::Given;
use crate::profile::arguments::ProfilingArguments;
use crate::shown::{Shown, Stream};
use crate::tokenizer::TokenizerChoice;
use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use headroom_graph::Precision;
use headroom_training::checkpoint::SavedDtype;
use headroom_training::fault::Fault;
use headroom_training::models::FAMILIES;
use headroom_training::optimizer::Method;
use std::path::{Path, PathBuf};
use std::str::FromStr;

#[derive(clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct Arguments {
    #[command(flatten, next_help_heading = "Model")]
    pub model: ModelArguments,
    #[command(flatten, next_help_heading = "Training")]
    pub training: TrainingArguments,
    #[command(flatten, next_help_heading = "Data")]
    pub data: DataArguments,
    #[command(flatten, next_help_heading = "Machine")]
    pub machine: MachineArguments,
    #[command(flatten, next_help_heading = "Output")]
    pub output: OutputArguments,
    #[command(flatten, next_help_heading = "Profiling")]
    pub profiling: ProfilingArguments,
    /// By command line or configuration file.
    #[arg(skip)]
    pub given: Given,
}

#[derive(clap::Args)]
pub struct ModelArguments {
    /// Model size: nano, tiny, small, medium, large or very_large; the flags below override parts of it [default: tiny]
    #[arg(long)]
    pub size: Option<String>,
    /// Model family; a checkpoint brings its own [default: llama]
    #[arg(long, value_parser = family_names())]
    pub family: Option<String>,
    /// Width of a token's vector; a multiple of the number of heads
    #[arg(long, value_name = "N")]
    pub hidden_dim: Option<usize>,
    /// Transformer layers
    #[arg(long, visible_alias = "num-layers", value_name = "N")]
    pub n_layers: Option<usize>,
    /// Children of each node of a tree, level by level from the root; sets the number of blocks [default: 4-3-2]
    #[arg(long, value_name = "N-N-N")]
    pub branching: Option<String>,
    /// Attention heads
    #[arg(long, visible_alias = "num-heads", value_name = "N")]
    pub n_heads: Option<usize>,
    /// Key-value heads, each shared by equally many query heads; must divide the number of heads
    #[arg(long, visible_alias = "num-kv-heads", value_name = "N")]
    pub n_kv_heads: Option<usize>,
    /// Width of the feed-forward part
    #[arg(long, value_name = "N")]
    pub intermediate_dim: Option<usize>,
    /// Vocabulary size
    #[arg(long, value_name = "N")]
    pub vocab_size: Option<usize>,
    /// Tokens per sequence
    #[arg(long, value_name = "N")]
    pub seq_len: Option<usize>,
    /// Sequences per batch; on several ranks, per rank
    #[arg(long, value_name = "N")]
    pub batch_size: Option<usize>,
    /// Base of the rotary embedding [default: 10000]
    #[arg(long)]
    pub rope_theta: Option<f64>,
    /// Use one table for embedding and head
    #[arg(long)]
    pub tied: bool,
    /// Start a new run from the weights of a checkpoint or Hugging Face folder
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub init_from: Option<PathBuf>,
    /// Continue from a checkpoint as if the run had not stopped: with the next sample, also under another batch size,
    /// accumulation or number of ranks. Other data or another --seq-len begins the data anew and says so
    #[arg(long, value_name = "DIR")]
    pub resume: Option<PathBuf>,
}

fn family_names() -> PossibleValuesParser {
    PossibleValuesParser::new(FAMILIES.map(|family| family.name))
}

fn optimizer_names() -> PossibleValuesParser {
    PossibleValuesParser::new(Method::ALL.map(Method::name))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LearningRateSchedule {
    Constant,
    Linear,
    Cosine,
    Wsd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Decay {
    All,
    Matrices,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SpikeChoice {
    Tell,
    Stop,
    GoBack,
}

/// Two shares, separated by a comma.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Betas(pub [f64; 2]);

impl FromStr for Betas {
    type Err = String;

    fn from_str(text: &str) -> Result<Betas, String> {
        let shares = text.split_once(',').map(|(first, second)| (first.trim().parse(), second.trim().parse()));
        match shares {
            Some((Ok(first), Ok(second))) if [first, second].iter().all(|share| (0.0..1.0).contains(share)) => {
                Ok(Betas([first, second]))
            }
            _ => Err("expected two shares from 0 to below 1, such as 0.9,0.95".into()),
        }
    }
}

#[derive(clap::Args)]
pub struct TrainingArguments {
    /// The step at which the run ends: resuming at 10 with 20 runs ten more [default: 50, or as in the resumed run]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub num_steps: Option<u64>,
    /// The original course trains with 1e-4; this default is the rate of the stored PyTorch runs that tests compare losses with
    /// [default: 3e-4; above a hidden size of 1024 proportionally less, such as 1.5e-4 at 2048]
    #[arg(long)]
    pub learning_rate: Option<f64>,
    /// Linear and cosine fall from the warm-up to the last step, wsd (warm-up, stable, decay) only in its last steps [default:
    /// constant]
    #[arg(long, value_enum)]
    pub lr_schedule: Option<LearningRateSchedule>,
    /// Share of the learning rate at which a falling schedule ends [default: 0]
    #[arg(long, value_name = "SHARE")]
    pub lr_floor: Option<f64>,
    /// Number of last steps in which wsd falls [default: a fifth of the run]
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u64).range(1..))]
    pub lr_decay_steps: Option<u64>,
    /// Steps in which the rate rises from zero [default: 0; for hidden sizes from 1024, a fifth of the run but at most 100]
    #[arg(long)]
    pub lr_warmup_steps: Option<u64>,
    /// adamw; sgd; or muon, for the matrices of the blocks, with AdamW for embedding, head, norms and biases [default: adamw, or as
    /// in the resumed run]
    #[arg(long, value_parser = optimizer_names())]
    pub optimizer: Option<String>,
    /// Share of the momentum that sgd and muon keep per step [default: 0.9 for sgd, 0.95 for muon]
    #[arg(long)]
    pub momentum: Option<f64>,
    /// [default: 0.01]
    #[arg(long)]
    pub weight_decay: Option<f64>,
    /// Weights that decay: all, or matrices (norms and biases keep their size) [default: all]
    #[arg(long, value_enum)]
    pub decay: Option<Decay>,
    /// Shares of both moments that AdamW keeps per step [default: 0.9,0.999]
    #[arg(long, value_name = "FIRST,SECOND")]
    pub betas: Option<Betas>,
    /// Added to the root of AdamW's second moment [default: 1e-8]
    #[arg(long)]
    pub eps: Option<f64>,
    /// Clip gradients to this global norm; 0 turns clipping off [default: 0; 1 for hidden sizes from 1024]
    #[arg(long)]
    pub clip: Option<f64>,
    /// Micro-batches per step; each has the batch size [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub gradient_accumulation_steps: Option<u32>,
    /// Response to a loss spike: tell (report it, with the operators whose weights grew most, and continue), stop, or go-back (to the
    /// last checkpoint of --save, with half the rate, at most three times)
    #[arg(long, value_enum, default_value_t = SpikeChoice::Tell)]
    pub on_spike: SpikeChoice,
    /// End after this many evaluations in a row without improvement; 0 is never [default: 0]
    #[arg(long, value_name = "N")]
    pub early_stop: Option<u64>,
    /// Parameters that a step updates: dense (everything), topk:K (the K nodes of the model's tree with the largest gradient norm),
    /// topk:all, path (from the root to the child with the largest norm; nodes near the leaf take a part of the step), or random:K
    /// (at random: the control). Nodes that are not chosen stay unchanged, moments included [default: dense]
    #[arg(long, value_name = "RULE")]
    pub update: Option<String>,
    /// Print the tree of nodes that --update chooses from, and exit
    #[arg(long)]
    pub show_tree: bool,
    /// Seed of weights, data and random choices [default: 42]
    #[arg(long)]
    pub seed: Option<u64>,
}

#[derive(clap::Args)]
pub struct DataArguments {
    /// synthetic (uniform tokens), markov (a source with known entropy), a text or token file, a folder or quoted pattern of text and
    /// JSONL files ('texts/**/*.md': tokenized once, every window once per epoch), or a .safetensors batch [default: synthetic]
    #[arg(long)]
    pub data: Option<String>,
    /// Column of JSONL files that holds the text [default: text]
    #[arg(long, value_name = "NAME")]
    pub text_column: Option<String>,
    /// Share at the end of a file, folder or pattern that is evaluated and never trained on [default: 0.05 if --eval-every is given
    /// without --eval-data, else 0]
    #[arg(long, value_name = "SHARE")]
    pub held_out: Option<f64>,
    /// A Hugging Face tokenizer.json for text, or bytes: a token is a byte [default: the loaded model's own tokenizer.json; bytes if
    /// there is none]
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<TokenizerChoice>,
    /// Steps between evaluations; 0 is off [default: 0]
    #[arg(long)]
    pub eval_every: Option<u64>,
    /// [default: the training batch size]
    #[arg(long)]
    pub eval_batch_size: Option<usize>,
    /// Batches per evaluation [default: 4]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub eval_batches: Option<u32>,
    /// [default: the held-out end of the training data; other samples from a generator]
    #[arg(long)]
    pub eval_data: Option<String>,
}

#[derive(clap::Args)]
pub struct MachineArguments {
    /// cpu, cuda, cuda:N, or null (computes nothing: predicts memory and time)
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// Precision of GEMMs; values, master weights and sums stay fp32, except under bf16-pure and fp8-pure. fp8: the blocks' linear
    /// layers in eight bits, the rest as bf16. auto: the fastest that `headroom optimize` proved on this machine for this model,
    /// batch and sequence, so the same flags may give other results elsewhere [default: fp32, or as in the resumed run]
    #[arg(long, value_parser = precisions())]
    pub precision: Option<PrecisionChoice>,
    /// The same as --precision bf16
    #[arg(long, conflicts_with = "precision")]
    pub use_amp: bool,
    /// Graph rewriting passes: none (= v1, the naive graph), v2, all, and +name, -name on top; checkpoint recomputes activations; on
    /// several ranks dp or zero1, bucket and overlap (both unless none is given) [default: v2, or as in the resumed run]
    #[arg(long, allow_hyphen_values = true)]
    pub passes: Option<String>,
    /// [default: the physical cores, divided among the ranks of a machine]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// Memory limit for the plan, such as 4GiB [default: the machine's free memory]
    #[arg(long, value_name = "SIZE")]
    pub memory_limit: Option<String>,
    /// Number of ranks to plan and predict with --device null; otherwise the launcher sets it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks: Option<u32>,
    /// Seconds after which a rank that gives no sign of life, or makes no progress in its step, ends the run on all ranks
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub rank_timeout: u64,
    /// A fault for tests of several ranks: RANK:STEP:KIND
    #[arg(long = "inject-fault", value_name = "FAULT", hide = true)]
    pub fault: Option<Fault>,
    /// Mark phases and modules with NVTX ranges for NVIDIA's own profilers; cuda only, launches steps call by call
    #[arg(long)]
    pub nvtx: bool,
    /// Produce the same bytes on every run and for any number of threads; this is the default
    #[arg(long, conflicts_with = "no_deterministic")]
    pub deterministic: bool,
    /// Split sums by the number of threads, so the last bits may differ with it
    #[arg(long)]
    pub no_deterministic: bool,
}

impl MachineArguments {
    /// The requested precision, by either flag.
    pub fn asked_precision(&self) -> Option<PrecisionChoice> {
        if self.use_amp { Some(PrecisionChoice::Named(Precision::Bf16)) } else { self.precision }
    }
}

/// A precision by name, or the proved one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrecisionChoice {
    Auto,
    Named(Precision),
}

const AUTO: &str = "auto";
/// A choice of the course that this is based on.
const FP16: &str = "fp16";

/// Lists the choices in help and completions.
fn precisions() -> impl TypedValueParser<Value = PrecisionChoice> {
    let names = Precision::ALL.map(Precision::name).into_iter().chain([AUTO]).map(PossibleValue::new);
    let course = PossibleValue::new(FP16).hide(true);
    PossibleValuesParser::new(names.chain([course])).try_map(|name| match name.as_str() {
        AUTO => Ok(PrecisionChoice::Auto),
        FP16 => Err(
            "fp16 needs loss scaling and is not supported; --precision bf16 takes as few bytes and has the range of fp32"
                .to_string(),
        ),
        name => name.parse::<Precision>().map(PrecisionChoice::Named).map_err(|error| error.to_string()),
    })
}

fn saved_dtypes() -> impl TypedValueParser<Value = SavedDtype> {
    let named = |name: String| SavedDtype::ALL.into_iter().find(|dtype| dtype.name() == name).unwrap_or_default();
    PossibleValuesParser::new(SavedDtype::ALL.map(SavedDtype::name)).map(named)
}

#[derive(clap::Args)]
pub struct OutputArguments {
    /// Read flags from a TOML file, by their long names (num-steps = 100); the command line wins. Every run leaves such a file,
    /// run.toml, in its folder
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Steps between reports; losses are kept until then
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub log_interval: u64,
    /// First steps to leave out of averages
    #[arg(long, default_value_t = 3)]
    pub warmup_steps: u64,
    /// Run folder; made if missing, refused if it holds another run [default: runs/TIME-SIZE]
    #[arg(long, value_name = "DIR")]
    pub output_dir: Option<PathBuf>,
    /// The same as --output-dir; with both, a copy of the profile's files
    #[arg(long, value_name = "DIR")]
    pub profile_dir: Option<PathBuf>,
    /// A name to find the run by: `headroom runs show NAME`, `headroom regress --baseline NAME`
    #[arg(long)]
    pub name: Option<String>,
    /// Write into an --output-dir that holds another run, or a --save that holds another model
    #[arg(long)]
    pub overwrite: bool,
    /// Save a checkpoint at the end and when interrupted: model.safetensors, config.json and the state to resume. Refused
    /// if the folder holds another model, unless it is the one that --resume names
    #[arg(long, value_name = "DIR")]
    pub save: Option<PathBuf>,
    /// Also save a checkpoint every this many steps
    #[arg(long, value_name = "N", requires = "save", value_parser = clap::value_parser!(u64).range(1..))]
    pub save_every: Option<u64>,
    /// Dtype of the saved weights: fp32, bf16 or fp16. What resuming needs is kept exactly beside them [default: the dtype that
    /// the loaded model has, else fp32]
    #[arg(long, value_name = "DTYPE", requires = "save", value_parser = saved_dtypes(), hide_possible_values = true)]
    pub save_dtype: Option<SavedDtype>,
    /// Checkpoints to keep, including the newest
    #[arg(long, value_name = "N", default_value_t = 1, requires = "save", value_parser = clap::value_parser!(u32).range(1..))]
    pub keep: u32,
    /// Also keep the checkpoint with the best evaluation, whole, in DIR/best
    #[arg(long, requires = "save")]
    pub keep_best: bool,
    /// Write TensorBoard events of every step and evaluation into this folder during the run
    #[arg(long, value_name = "DIR")]
    pub tensorboard: Option<PathBuf>,
    /// Compute the norm of all gradients at every step (clipping, TensorBoard and profiles compute it anyway)
    #[arg(long)]
    pub gradient_norm: bool,
    /// Seconds after which a step that is still running reports it, repeatedly; 0 is off
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub heartbeat: u64,
    #[command(flatten)]
    pub shown: Shown<Stream>,
    /// Leave paths out of the written files
    #[arg(long)]
    pub redact: bool,
    /// Check device, memory and folder, take three steps, report that the machine is ready, and save nothing
    #[arg(long, conflicts_with = "save")]
    pub validate_setup: bool,
}

impl OutputArguments {
    /// The run's folder, by either of its flags.
    pub fn folder(&self) -> Option<&Path> {
        self.output_dir.as_deref().or(self.profile_dir.as_deref())
    }

    /// A second folder for the profile's files.
    pub fn second_folder(&self) -> Option<&Path> {
        self.profile_dir.as_deref().filter(|folder| Some(*folder) != self.folder())
    }
}
