//! Data sources of a run: opened and checked, but not read yet.

use super::resumed::Resumed;
use crate::kept;
use crate::output;
use crate::tokenizer::{OwnTokenizer, TextTokens};
use crate::train::arguments::Arguments;
use anyhow::ensure;
use headroom_training::checkpoint::{CheckpointError, Companions};
use headroom_training::data::{
    BatchShape, CorpusSettings, DataError, DataSpec, Part, Source, SourceSettings, Split, percent,
};
use std::path::{PathBuf, absolute};

pub struct Sources {
    pub training: Source,
    pub evaluation: Option<Source>,
}

/// Data options as requested.
pub struct Wanted {
    pub data: String,
    pub text_tokens: TextTokens,
    pub text_column: Option<String>,
    /// Share at the end that is not trained on.
    pub held_out: f64,
    /// 0 is off.
    pub eval_every: u64,
    pub eval_batch_size: Option<usize>,
    pub eval_batches: usize,
    pub eval_data: Option<String>,
}

impl Wanted {
    /// `own` is the tokenizer of a loaded model.
    pub fn of(arguments: &Arguments, before: &Resumed, own: Option<OwnTokenizer>) -> anyhow::Result<Wanted> {
        let flags = &arguments.data;
        let eval_every = flags.eval_every.or(before.eval_every).unwrap_or(0);
        let eval_data = flags.eval_data.clone().or(before.eval_data.clone());
        let mut wanted = Wanted {
            data: flags.data.clone().or(before.data.clone()).unwrap_or("synthetic".into()),
            text_tokens: TextTokens::choose(flags.tokenizer.as_ref(), own),
            text_column: match (&flags.text_column, &flags.data) {
                (Some(column), _) => Some(column.clone()),
                (None, Some(_)) => None,
                (None, None) => before.text_column.clone(),
            },
            held_out: 0.0,
            eval_every,
            eval_batch_size: flags.eval_batch_size.or(before.eval_batch_size),
            eval_batches: flags.eval_batches.map(|count| count as usize).or(before.eval_batches).unwrap_or(4).max(1),
            eval_data,
        };
        wanted.held_out = wanted.held_out_of(flags.held_out, flags.data.is_some(), before)?;
        if wanted.eval_every == 0 {
            for (flag, given) in [
                ("--eval-batch-size", flags.eval_batch_size.is_some()),
                ("--eval-batches", flags.eval_batches.is_some()),
                ("--eval-data", flags.eval_data.is_some()),
            ] {
                ensure!(!given, "{flag} is given, but nothing is evaluated\n  help: --eval-every turns evaluation on");
            }
        }
        Ok(wanted)
    }

    /// The flag's share, else the resumed run's, else the default.
    fn held_out_of(&self, flag: Option<f64>, has_own_data: bool, before: &Resumed) -> anyhow::Result<f64> {
        let spec = DataSpec::parse(&self.data)?;
        if let Some(share) = flag {
            ensure!(
                (0.0..1.0).contains(&share),
                "--held-out is {share}\n  help: a share of the data, from 0 to below 1, such as {HELD_OUT}"
            );
            ensure!(
                share == 0.0 || spec.has_parts(),
                "--held-out has no effect on {spec}, which has no end\n  help: use it with files, folders and patterns"
            );
            return Ok(share);
        }
        let evaluates_itself = self.eval_every > 0 && self.eval_data.is_none();
        match before.held_out {
            Some(share) if !has_own_data => {
                if share == 0.0 && evaluates_itself && spec.has_parts() {
                    output::note(
                        "note: the resumed run held nothing out, so evaluation reads training data; --eval-data names other data",
                    );
                }
                Ok(share)
            }
            // A checkpoint from before held-out parts existed continues as it began.
            None if before.data.is_some() && !has_own_data => Ok(0.0),
            _ => Ok(if evaluates_itself && spec.has_parts() { HELD_OUT } else { 0.0 }),
        }
    }

    /// Opens the sources. `asked` is for training, without a tokenizer yet.
    pub fn open(&self, asked: &SourceSettings) -> anyhow::Result<Sources> {
        let training = self.open_training(asked, None)?;
        if let Some(line) = training.ids_of_text().and_then(|ids| self.text_tokens.line(ids)) {
            output::note(&line);
        }
        let evaluation = match self.eval_every {
            0 => None,
            _ => Some(self.open_evaluation(&SourceSettings { shape: training.shape(), ..asked.clone() })?),
        };
        Ok(Sources { training, evaluation })
    }

    /// Opens the training data in its own order, or in that of another part.
    pub fn open_training(&self, asked: &SourceSettings, order_of: Option<Part>) -> anyhow::Result<Source> {
        let spec = DataSpec::parse(&self.data)?;
        if self.text_tokens.is_asked() && !spec.is_text() {
            return Err(DataError::TokenizerWithoutText(spec.to_string()).into());
        }
        let tokenizer = if spec.is_text() { self.text_tokens.settings()? } else { None };
        ensure!(
            self.text_column.is_none() || matches!(spec, DataSpec::Corpus { .. }),
            "--text-column has no effect on {spec}\n  help: use it with JSONL files"
        );
        let (part, corpus) = (part_without(self.held_out), self.corpus());
        Ok(Source::open(&spec, &SourceSettings { tokenizer, part, order_of, corpus, ..asked.clone() })?)
    }

    fn open_evaluation(&self, asked: &SourceSettings) -> anyhow::Result<Source> {
        let spec = DataSpec::parse(self.eval_data.as_deref().unwrap_or(&self.data))?;
        let tokenizer = if spec.is_text() { self.text_tokens.settings()? } else { None };
        let part = match &self.eval_data {
            None if self.held_out > 0.0 => Part::Last(self.held_out),
            _ => Part::Whole,
        };
        let batch_size = self.eval_batch_size.unwrap_or(asked.shape.batch_size);
        ensure!(batch_size > 0, "--eval-batch-size is 0: every size must be at least 1");
        let shape = BatchShape { batch_size, seq_len: asked.shape.seq_len };
        let split = Split::Evaluation;
        let corpus = self.corpus();
        let source = Source::open(&spec, &SourceSettings { shape, split, part, tokenizer, corpus, ..asked.clone() })?;
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

    /// The tokenizer of the data that is text, with its full path. A resumed run keeps the path that it began with: its
    /// checkpoint holds a copy.
    pub fn tokenizer(&self, before: &Resumed) -> anyhow::Result<Option<PathBuf>> {
        if !self.text_tokens.is_asked() && before.tokenizer.is_some() {
            return Ok(before.tokenizer.clone());
        }
        let names = [Some(self.data.as_str()), self.eval_data.as_deref().filter(|_| self.eval_every > 0)];
        for name in names.into_iter().flatten() {
            if DataSpec::parse(name)?.is_text() {
                return Ok(self.text_tokens.path.as_ref().map(|path| absolute(path).unwrap_or(path.clone())));
            }
        }
        Ok(None)
    }

    /// The files to save beside the model, given those it was loaded with.
    pub fn companions(&self, training: &Source, loaded: Companions) -> Result<Companions, CheckpointError> {
        // Tokens and generators say nothing about the tokenizer.
        match training.ids_of_text() {
            Some(_) => self.text_tokens.companions(loaded),
            None => Ok(loaded),
        }
    }

    fn corpus(&self) -> CorpusSettings {
        CorpusSettings { text_column: self.text_column.clone(), ..corpus_settings() }
    }

    /// The data of an evaluation, for display; `None` if nothing is evaluated. `never_read` is the share that training has
    /// not read before either.
    pub fn evaluation_line(&self, evaluation: Option<&Source>, never_read: f64) -> Option<String> {
        let source = evaluation?;
        let batch_size = source.shape().batch_size;
        let batches = batches_of(source, self.eval_batches);
        let read = match (&self.eval_data, self.held_out > 0.0, source.windows_per_epoch()) {
            (None, true, Some(windows)) => {
                let of_it = match self.held_out > never_read {
                    true if never_read > 0.0 => format!("the last {} never trained on", percent(never_read)),
                    true => "no longer trained on".into(),
                    false => "never trained on".into(),
                };
                format!("the last {} of the data, {windows} windows, {of_it}", percent(self.held_out))
            }
            (None, _, _) => "other samples of the same data".into(),
            (Some(_), _, _) => source.description(),
        };
        let every = match self.eval_every {
            1 => "after every step".into(),
            steps => format!("every {steps} steps"),
        };
        Some(format!("{read}; {batches} batches of {batch_size} {every}"))
    }
}

/// Batches per evaluation: no more than there are windows for.
pub fn batches_of(source: &Source, asked: usize) -> usize {
    let most = source.windows_per_epoch().map(|windows| (windows as usize / source.shape().batch_size).max(1));
    asked.min(most.unwrap_or(asked))
}

/// The data without a held-out share at its end.
pub fn part_without(held_out: f64) -> Part {
    if held_out > 0.0 { Part::AllButLast(held_out) } else { Part::Whole }
}

/// The default share of a file or corpus that is held out for evaluation.
const HELD_OUT: f64 = 0.05;

/// Caches tokenized texts with the other saved records.
pub fn corpus_settings() -> CorpusSettings {
    let cache = kept::folder().map(|folder| folder.join("tokens"));
    CorpusSettings { text_column: None, cache, tell: Some(output::note) }
}

/// Checks the flags against a batch file, which has its own shape: a flag that differs would be ignored.
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

/// A file's full path, so that a resume finds it from any folder; generators keep their names.
pub fn whole(given: &str) -> String {
    match given {
        "synthetic" | "markov" => given.into(),
        path => absolute(path).map_or(path.into(), |path| path.display().to_string()),
    }
}
