//! Batches of next-token data: their sources, each of which gives the same batch for the same position every time.

pub mod batch_file;
pub mod corpus;
pub mod error;
pub mod markov;
mod pieces;
pub mod prefetch;
pub mod spec;
pub mod synthetic;
pub mod text;
pub mod token_file;
pub mod tokenized;
mod windows;

use std::path::PathBuf;

pub use error::DataError;
pub use prefetch::{Fetched, Prefetcher, Share};
pub use spec::{DataSpec, TokenWidth};

use batch_file::BatchFile;
use corpus::Corpus;
use markov::Markov;
use synthetic::Synthetic;
use text::ByteText;
use token_file::TokenFile;

/// B sequences of S tokens, and the next token for each. Both row-major `[B, S]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub input_ids: Vec<i32>,
    pub targets: Vec<i32>,
}

impl Batch {
    pub fn new(shape: BatchShape) -> Batch {
        let tokens = shape.batch_size * shape.seq_len;
        Batch { input_ids: vec![0; tokens], targets: vec![0; tokens] }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchShape {
    pub batch_size: usize,
    pub seq_len: usize,
}

/// Training and evaluation draw from the same source but never the same samples. For text, evaluation uses other
/// windows, and where a [`Part`] is held out, none that training sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    Train,
    Evaluation,
}

impl Split {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Split::Train => "train",
            Split::Evaluation => "evaluation",
        }
    }
}

/// The part of a file or corpus that a source reads. Generators and batch files have no parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    Whole,
    /// Everything but the held-out share at the end.
    AllButLast(f64),
    /// Only the share at the end, each window once.
    Last(f64),
}

impl Part {
    fn words(self) -> String {
        match self {
            Part::Whole => String::new(),
            Part::AllButLast(share) => format!(" beside the {} held out for evaluation", percent(share)),
            Part::Last(share) => format!(" in the {} held out for evaluation", percent(share)),
        }
    }
}

/// A share formatted as a percentage.
pub fn percent(share: f64) -> String {
    format!("{}%", (share * 1e4).round() / 1e2)
}

/// The held-out part, for descriptions.
fn held_out_words(part: Part, tokens: u64) -> String {
    match part {
        Part::AllButLast(_) => format!("{BEFORE_HELD_OUT}{tokens}{AFTER_HELD_OUT}"),
        Part::Whole | Part::Last(_) => String::new(),
    }
}

const BEFORE_HELD_OUT: &str = ", the last ";
const AFTER_HELD_OUT: &str = " held out";

/// Whether two descriptions are of the same data, however much of its end each holds out.
pub fn is_same_data(one: &str, other: &str) -> bool {
    fn whole(described: &str) -> &str {
        let held_out = described.strip_suffix(AFTER_HELD_OUT).and_then(|rest| rest.rsplit_once(BEFORE_HELD_OUT));
        held_out.map_or(described, |(whole, _)| whole)
    }
    whole(one) == whole(other)
}

#[derive(Clone, Debug)]
pub struct SourceSettings {
    pub shape: BatchShape,
    pub vocab_size: usize,
    pub seed: u64,
    pub split: Split,
    pub part: Part,
    /// The part in whose order a resumed run reads `part`, if it began with another one.
    pub order_of: Option<Part>,
    /// Tokenizer for text; without one, text is read as bytes.
    pub tokenizer: Option<TokenizerSettings>,
    pub corpus: CorpusSettings,
}

impl SourceSettings {
    /// Settings for training on the whole source, with text as bytes.
    pub fn new(shape: BatchShape, vocab_size: usize, seed: u64) -> SourceSettings {
        SourceSettings {
            shape,
            vocab_size,
            seed,
            split: Split::Train,
            part: Part::Whole,
            order_of: None,
            tokenizer: None,
            corpus: CorpusSettings::default(),
        }
    }
}

/// Ids of byte tokens.
const BYTE_IDS: usize = 256;

pub const DEFAULT_TEXT_COLUMN: &str = "text";

/// Settings for folders, patterns and JSONL files.
#[derive(Clone, Debug, Default)]
pub struct CorpusSettings {
    /// Column of JSONL files that holds the text; `text` by default.
    pub text_column: Option<String>,
    /// Folder that caches the tokens of files; created if missing.
    pub cache: Option<PathBuf>,
    /// Receives messages about work that takes a while.
    pub tell: Option<fn(&str)>,
}

#[derive(Clone, Debug)]
pub struct TokenizerSettings {
    /// A Hugging Face `tokenizer.json`.
    pub path: PathBuf,
    /// Folder that caches the tokens of texts; created if missing.
    pub cache: PathBuf,
}

/// A sample is a pure function of (seed, index), so there is no state to save or restore. Samples are numbered
/// consecutively, across batches and epochs, so the same samples come in the same order for every batch size: two
/// micro-batches of four are one batch of eight, and a batch may hold the end of one epoch and the beginning of the next.
/// Indices wrap: one from a damaged file must not panic.
#[derive(Debug)]
pub enum Source {
    Synthetic(Synthetic),
    Markov(Markov),
    ByteText(ByteText),
    TokenFile(TokenFile),
    BatchFile(BatchFile),
    Corpus(Corpus),
}

impl Source {
    pub fn open(spec: &DataSpec, settings: &SourceSettings) -> Result<Source, DataError> {
        let vocab_size = settings.vocab_size;
        if vocab_size == 0 || settings.shape.batch_size == 0 || settings.shape.seq_len == 0 {
            return Err(DataError::ZeroSize { shape: settings.shape, vocab_size });
        }
        if settings.tokenizer.is_some() && !spec.is_text() {
            return Err(DataError::TokenizerWithoutText(spec.to_string()));
        }
        Ok(match spec {
            DataSpec::Synthetic => Source::Synthetic(Synthetic::new(settings)?),
            DataSpec::Markov => Source::Markov(Markov::new(settings)?),
            DataSpec::Text { path } => match &settings.tokenizer {
                None => Source::ByteText(ByteText::open(path, settings)?),
                Some(tokenizer) => Source::TokenFile(tokenized::open(path, tokenizer, settings)?),
            },
            DataSpec::Tokens { path, width } => Source::TokenFile(TokenFile::open(path, *width, settings)?),
            DataSpec::Batch { path } => Source::BatchFile(BatchFile::open(path, vocab_size)?),
            DataSpec::Corpus { path } => Source::Corpus(Corpus::open(path, settings)?),
        })
    }

    /// Writes batch number `position` of those that follow one another from the first sample on.
    pub fn fill(&self, position: u64, batch: &mut Batch) -> Result<(), DataError> {
        self.fill_from(position.wrapping_mul(self.shape().batch_size as u64), batch)
    }

    /// Writes a batch of the samples from index `first` on.
    pub fn fill_from(&self, first: u64, batch: &mut Batch) -> Result<(), DataError> {
        match self {
            Source::Synthetic(source) => source.fill_from(first, batch),
            Source::Markov(source) => source.fill_from(first, batch),
            Source::ByteText(source) => source.fill_from(first, batch),
            Source::TokenFile(source) => source.fill_from(first, batch),
            Source::BatchFile(source) => source.fill(batch),
            Source::Corpus(source) => source.fill_from(first, batch),
        }
    }

    /// The index after the next `count` samples from index `first` on. Held-out samples have an index and are passed over,
    /// where a run holds more out than it began with.
    pub fn after(&self, first: u64, count: u64) -> u64 {
        match self {
            Source::Synthetic(_) | Source::Markov(_) | Source::BatchFile(_) => first.wrapping_add(count),
            Source::ByteText(source) => source.windows().after(first, count),
            Source::TokenFile(source) => source.windows().after(first, count),
            Source::Corpus(source) => source.windows().after(first, count),
        }
    }

    /// The shape of the batches: as requested, except that a batch file has its own.
    pub fn shape(&self) -> BatchShape {
        match self {
            Source::Synthetic(source) => source.shape(),
            Source::Markov(source) => source.shape(),
            Source::ByteText(source) => source.windows().shape,
            Source::TokenFile(source) => source.windows().shape,
            Source::BatchFile(source) => source.shape(),
            Source::Corpus(source) => source.windows().shape,
        }
    }

    /// Lower bound on any model's expected loss, in nats per token, if known.
    pub fn floor_nats(&self) -> Option<f64> {
        match self {
            Source::Synthetic(source) => Some(source.floor_nats()),
            Source::Markov(source) => Some(source.floor_nats()),
            Source::ByteText(_) | Source::TokenFile(_) | Source::BatchFile(_) | Source::Corpus(_) => None,
        }
    }

    /// Windows per epoch, if each is read once; a batch file is one epoch. `None` if samples are drawn at random.
    pub fn windows_per_epoch(&self) -> Option<u64> {
        match self {
            Source::Synthetic(_) | Source::Markov(_) => None,
            Source::ByteText(source) => source.windows().per_epoch(),
            Source::TokenFile(source) => source.windows().per_epoch(),
            Source::BatchFile(source) => Some(source.shape().batch_size as u64),
            Source::Corpus(source) => source.windows().per_epoch(),
        }
    }

    /// Vocabulary size that the tokens of a text need: that of its tokenizer, or the number of bytes.
    pub fn ids_of_text(&self) -> Option<usize> {
        match self {
            Source::Synthetic(_) | Source::Markov(_) | Source::BatchFile(_) => None,
            Source::ByteText(_) => Some(BYTE_IDS),
            Source::TokenFile(source) => source.ids(),
            Source::Corpus(source) => Some(source.ids()),
        }
    }

    /// Bytes of text per token, if known.
    pub fn bytes_per_token(&self) -> Option<f64> {
        match self {
            Source::Synthetic(_) | Source::Markov(_) | Source::BatchFile(_) => None,
            Source::ByteText(_) => Some(1.0),
            Source::TokenFile(source) => source.bytes_per_token(),
            Source::Corpus(source) => source.bytes_per_token(),
        }
    }

    /// Description stored in a checkpoint, so that a resume with other data is noticed. The same data has the same
    /// description wherever the file is.
    pub fn description(&self) -> String {
        match self {
            Source::Synthetic(source) => source.description(),
            Source::Markov(source) => source.description(),
            Source::ByteText(source) => source.description(),
            Source::TokenFile(source) => source.description(),
            Source::BatchFile(source) => source.description(),
            Source::Corpus(source) => source.description(),
        }
    }
}

/// Splits a row of S + 1 tokens into inputs and targets as it arrives: token `t` is input `t` and target `t - 1`.
pub(crate) fn place_token(batch: &mut Batch, seq_len: usize, row: usize, t: usize, token: i32) {
    if t < seq_len {
        batch.input_ids[row * seq_len + t] = token;
    }
    if t > 0 {
        batch.targets[row * seq_len + t - 1] = token;
    }
}

/// File name without its folder, for descriptions.
pub(crate) fn file_name(path: &std::path::Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
