//! `headroom generate`: generates text from a checkpoint.

use crate::failure::RunFailed;
use crate::output;
use crate::shown::{Plain, Shown};
use crate::tokenizer::{OwnTokenizer, TextTokens, TokenizerChoice};
use crate::train::start;
use anyhow::{Context, ensure};
use headroom_engine::DeviceSpec;
use headroom_engine::machine::Machine;
use headroom_graph::Precision;
use headroom_graph::passes::PassList;
use headroom_record::atomic::FileError;
use headroom_record::reading;
use headroom_training::checkpoint::{Checkpoint, GENERATION_FILE};
use headroom_training::generate::{Generator, Sampling, Settings, Vocabulary};
use serde::Serialize;
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Continue a prompt with a checkpoint's model, token by token.
#[derive(clap::Args)]
#[command(allow_negative_numbers = true)]
pub struct Arguments {
    /// A checkpoint of `train --save`, or a Hugging Face folder
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// Text to continue
    #[arg(long, required_unless_present = "prompt_tokens")]
    prompt: Option<String>,
    /// Tokens to continue, separated by commas, instead of text
    #[arg(long, value_name = "IDS", value_delimiter = ',', conflicts_with = "prompt")]
    prompt_tokens: Option<Vec<i32>>,
    /// Tokens to generate; fewer if the model ends the text or runs out of positions
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    max_tokens: u32,
    /// Divides the logits: 0 takes the most likely token, 1 samples from the model's own probabilities
    #[arg(long, default_value_t = 0.8)]
    temperature: f64,
    /// Sample from this many most likely tokens; 0 is all
    #[arg(long, value_name = "K", default_value_t = 0)]
    top_k: usize,
    /// Sample from the most likely tokens that together have this probability
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    top_p: f64,
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// A Hugging Face tokenizer.json, or bytes: a token is a byte [default: the model's own; bytes if it was trained on bytes]
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<TokenizerChoice>,
    /// cpu, cuda or cuda:N
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Precision of GEMMs [default: fp32]
    #[arg(long)]
    precision: Option<Precision>,
    /// [default: the physical cores]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    #[command(flatten)]
    shown: Shown<Plain>,
}

#[derive(Serialize)]
struct Generated {
    schema_version: u32,
    prompt_tokens: Vec<i32>,
    tokens: Vec<i32>,
    text: String,
    /// Why generation ended: `max_tokens`, `end_token` or `longest`.
    end: &'static str,
    seconds: f64,
    tokens_per_second: f64,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let device: DeviceSpec = arguments.device.parse()?;
    ensure!(
        device != DeviceSpec::Null,
        "--device null computes nothing, so there is no text\n  help: --device cpu or cuda"
    );
    let sampling = sampling(&arguments)?;
    let checkpoint = Checkpoint::open(&arguments.from)?;
    let vocabulary = vocabulary(&arguments, OwnTokenizer::of(&checkpoint))?;
    let model = &checkpoint.config().model;
    let prompt = match (&arguments.prompt_tokens, &arguments.prompt) {
        (Some(tokens), _) => tokens.clone(),
        (None, text) => vocabulary.tokens(text.as_deref().unwrap_or_default())?,
    };
    ensure!(!prompt.is_empty(), "the prompt is empty\n  help: give the text to continue with --prompt");
    ensure!(
        prompt.len() < model.longest(),
        "the prompt has {} tokens, and the model has {} positions\n  help: a shorter prompt",
        prompt.len(),
        model.longest()
    );
    let longest = (prompt.len() + arguments.max_tokens as usize).min(model.longest());
    let precision = arguments.precision.unwrap_or_default();
    let has: Vec<&str> = device.precisions().iter().map(|precision| precision.name()).collect();
    ensure!(
        has.contains(&precision.name()) && !precision.is_fp8(),
        "--precision {precision} has no kernels for this on {}\n  help: --precision fp32 or bf16",
        device.name()
    );
    let threads = arguments.threads.map_or_else(|| Machine::detect().cores, usize::from);
    let opening = start::opening(threads);
    let settings = Settings { device, opening: &opening, precision, passes: PassList::all(), longest };
    let mut generator = Generator::open(&checkpoint, &settings)?;

    let ends = end_tokens(&checkpoint)?;
    let streams = !arguments.shown.is_json();
    let (mut tokens, mut shown, mut end) = (vec![], String::new(), "max_tokens");
    let mut next = prompt.clone();
    let started = Instant::now();
    if streams && let Some(prompt) = &arguments.prompt {
        output::exactly(prompt)?;
    }
    loop {
        let logits = generator.read(&next).map_err(|error| RunFailed(error.to_string()))?;
        let token = sampling.choose(logits, tokens.len() as u64);
        if ends.contains(&i64::from(token)) {
            end = "end_token";
            break;
        }
        tokens.push(token);
        if streams {
            show(&vocabulary, &tokens, &mut shown, Whole::No)?;
        }
        if tokens.len() == arguments.max_tokens as usize {
            break;
        }
        if generator.tokens() == longest {
            end = "longest";
            break;
        }
        next = vec![token];
    }
    let seconds = started.elapsed().as_secs_f64();
    let tokens_per_second = tokens.len() as f64 / seconds.max(1e-9);
    if streams {
        show(&vocabulary, &tokens, &mut shown, Whole::Yes)?;
        output::exactly("\n")?;
        output::note(&format!("{} tokens in {seconds:.1} s, {tokens_per_second:.1} per second", tokens.len()));
        return Ok(ExitCode::SUCCESS);
    }
    let text = vocabulary.text(&tokens)?;
    let generated =
        Generated { schema_version: 1, prompt_tokens: prompt, tokens, text, end, seconds, tokens_per_second };
    output::exactly(&(serde_json::to_string_pretty(&generated)? + "\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Whether the last character is complete.
#[derive(Clone, Copy, PartialEq)]
enum Whole {
    Yes,
    No,
}

/// Prints the new part of the text. An incomplete character is held back until the next token.
fn show(vocabulary: &Vocabulary, tokens: &[i32], shown: &mut String, whole: Whole) -> anyhow::Result<()> {
    let text = vocabulary.text(tokens)?;
    let ready = if whole == Whole::Yes { text.as_str() } else { text.trim_end_matches('\u{FFFD}') };
    if let Some(new) = ready.strip_prefix(shown.as_str()).filter(|new| !new.is_empty()) {
        output::result(new)?;
        *shown = ready.to_string();
    }
    Ok(())
}

fn sampling(arguments: &Arguments) -> anyhow::Result<Sampling> {
    let &Arguments { temperature, top_k, top_p, seed, .. } = arguments;
    ensure!(
        temperature.is_finite() && temperature >= 0.0,
        "--temperature is {temperature}\n  help: 0 for the most likely token, up to about 2"
    );
    ensure!(top_p > 0.0 && top_p <= 1.0, "--top-p is {top_p}\n  help: a share above 0, to 1");
    Ok(Sampling { temperature, top_k, top_p, seed })
}

fn vocabulary(arguments: &Arguments, own: OwnTokenizer) -> anyhow::Result<Vocabulary> {
    ensure!(
        arguments.tokenizer.is_some() || arguments.prompt_tokens.is_some() || !own.is_unknown(),
        "{} has no tokenizer.json, and nothing says that its tokens are bytes\n  help: name one with --tokenizer (or \
         --tokenizer bytes), or give tokens with --prompt-tokens",
        arguments.from.display()
    );
    let Some(path) = TextTokens::choose(arguments.tokenizer.as_ref(), Some(own)).path else {
        return Ok(Vocabulary::Bytes);
    };
    let help = || format!("the tokenizer of {}\n  help: give its path with --tokenizer", arguments.from.display());
    Vocabulary::read(&path).with_context(help)
}

/// Tokens that end a text. transformers goes by `generation_config.json` alone where there is one: a model for chats names
/// more tokens there than in its configuration.
fn end_tokens(checkpoint: &Checkpoint) -> anyhow::Result<Vec<i64>> {
    let path = checkpoint.folder().join(GENERATION_FILE);
    let settings: Option<Value> = match path.is_file() {
        true => {
            let bytes = reading::read(&path, reading::CHECKPOINT).map_err(FileError::new("read", &path))?;
            Some(serde_json::from_slice(&bytes).with_context(|| format!("{} does not parse", path.display()))?)
        }
        false => None,
    };
    let ends = match &settings {
        Some(settings) => settings.get(END_TOKENS),
        None => checkpoint.config().entries.get(END_TOKENS),
    };
    Ok(match ends {
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_i64).collect(),
        Some(one) => one.as_i64().into_iter().collect(),
        None => vec![],
    })
}

const END_TOKENS: &str = "eos_token_id";
