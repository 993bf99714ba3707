//! What a run reads: opened and checked, not read from yet.

use super::resumed::Resumed;
use crate::kept;
use crate::train::arguments::Arguments;
use anyhow::{Context, ensure};
use headroom_training::data::{BatchShape, DataSpec, Source, SourceSettings, Split, TokenizerSettings};
use std::path::{Path, PathBuf, absolute};

pub struct Sources {
    pub training: Source,
    pub evaluation: Option<Source>,
}

/// What was asked for.
pub struct Wanted {
    pub data: String,
    pub tokenizer: Option<PathBuf>,
    /// 0 is off.
    pub eval_every: u64,
    pub eval_batch_size: Option<usize>,
    pub eval_batches: usize,
    pub eval_data: Option<String>,
}

impl Wanted {
    pub fn of(arguments: &Arguments, before: &Resumed) -> anyhow::Result<Wanted> {
        let flags = &arguments.data;
        let wanted = Wanted {
            data: flags.data.clone().or(before.data.clone()).unwrap_or("synthetic".into()),
            // Other data than the resumed run's comes without its tokenizer.
            tokenizer: match (&flags.tokenizer, &flags.data) {
                (Some(path), _) => Some(path.clone()),
                (None, Some(_)) => None,
                (None, None) => before.tokenizer.clone(),
            },
            eval_every: flags.eval_every.or(before.eval_every).unwrap_or(0),
            eval_batch_size: flags.eval_batch_size.or(before.eval_batch_size),
            eval_batches: flags.eval_batches.map(|count| count as usize).or(before.eval_batches).unwrap_or(4).max(1),
            eval_data: flags.eval_data.clone().or(before.eval_data.clone()),
        };
        if wanted.eval_every == 0 {
            for (flag, given) in [
                ("--eval-batch-size", flags.eval_batch_size.is_some()),
                ("--eval-batches", flags.eval_batches.is_some()),
                ("--eval-data", flags.eval_data.is_some()),
            ] {
                ensure!(!given, "{flag} is given, but nothing is evaluated\n  help: --eval-every says how often");
            }
        }
        Ok(wanted)
    }

    /// `asked` is for training, without a tokenizer yet.
    pub fn open(&self, asked: &SourceSettings) -> anyhow::Result<Sources> {
        let spec = DataSpec::parse(&self.data)?;
        let tokenizer = self.tokenizer.as_deref().map(tokenizer).transpose()?;
        let training = Source::open(&spec, &SourceSettings { tokenizer, ..asked.clone() })?;
        let evaluation = match self.eval_every {
            0 => None,
            _ => Some(self.open_evaluation(&SourceSettings { shape: training.shape(), ..asked.clone() })?),
        };
        Ok(Sources { training, evaluation })
    }

    fn open_evaluation(&self, asked: &SourceSettings) -> anyhow::Result<Source> {
        let spec = DataSpec::parse(self.eval_data.as_deref().unwrap_or(&self.data))?;
        let tokenizer = match (&self.tokenizer, &spec) {
            (Some(path), DataSpec::Text { .. }) => Some(tokenizer(path)?),
            _ => None,
        };
        let batch_size = self.eval_batch_size.unwrap_or(asked.shape.batch_size);
        ensure!(batch_size > 0, "--eval-batch-size is 0: every size must be at least 1");
        let shape = BatchShape { batch_size, seq_len: asked.shape.seq_len };
        let split = Split::Evaluation;
        let source = Source::open(&spec, &SourceSettings { shape, split, tokenizer, ..asked.clone() })?;
        let brought = source.shape();
        ensure!(
            brought.seq_len == shape.seq_len,
            "{spec} has sequences of {}, and training has {}: evaluation needs the same length",
            brought.seq_len,
            shape.seq_len,
        );
        if let Some(given) = self.eval_batch_size {
            refuse_other("--eval-batch-size", given, &spec, brought.batch_size)?;
        }
        Ok(source)
    }
}

/// A batch file brings its own shape; a flag that says otherwise would be ignored.
pub fn check_shape(arguments: &Arguments, wanted: &Wanted, brought: BatchShape) -> anyhow::Result<()> {
    let spec = DataSpec::parse(&wanted.data)?;
    if let Some(given) = arguments.model.batch_size {
        refuse_other("--batch-size", given, &spec, brought.batch_size)?;
    }
    if let Some(given) = arguments.model.seq_len {
        refuse_other("--seq-len", given, &spec, brought.seq_len)?;
    }
    Ok(())
}

fn refuse_other(flag: &str, given: usize, spec: &DataSpec, brought: usize) -> anyhow::Result<()> {
    ensure!(given == brought, "{flag} is {given}, and {spec} brings its own: {brought}\n  help: leave {flag} out");
    Ok(())
}

/// A file's whole path, so that a resume finds it from any folder; generators stay as they are named.
pub fn whole(given: &str) -> String {
    match given {
        "synthetic" | "markov" => given.into(),
        path => absolute(path).map_or(path.into(), |path| path.display().to_string()),
    }
}

fn tokenizer(path: &Path) -> anyhow::Result<TokenizerSettings> {
    let cache = kept::folder().context("there is no folder to keep tokens in\n  help: set HEADROOM_HOME or HOME")?;
    Ok(TokenizerSettings { path: path.to_path_buf(), cache: cache.join("tokens") })
}
