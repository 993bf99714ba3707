//! Data errors, worded for the user who supplied the data.

use std::path::PathBuf;

use headroom_record::atomic::FileError;

use super::{BatchShape, Part};
use crate::safetensors_file::SafetensorsError;

#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// Stands in for a bad file in tests.
    #[error("there is no batch for step {step}: this fault was requested")]
    Injected { step: u64 },

    #[error(
        "data `{given}` is neither a generator nor a file that can be read{why}\n  help: choose synthetic, markov, a \
         text file (.txt and others), a folder or pattern of text and JSONL files, a token file (.bin or .u16: 16-bit \
         ids, .u32: 32-bit ids) or a batch (.safetensors)"
    )]
    Unknown { given: String, why: String },

    #[error(
        "{path} does not look like text: byte {position} is 0\n  help: token files end in .bin, .u16 or .u32, batches in \
         .safetensors"
    )]
    NotText { path: PathBuf, position: u64 },

    #[error(
        "batch size {}, sequence length {} and vocabulary {vocab_size} must all be at least 1",
        shape.batch_size,
        shape.seq_len
    )]
    ZeroSize { shape: BatchShape, vocab_size: usize },

    #[error("{source_name} needs a vocabulary of at least {least}, not {vocab_size}\n  help: --vocab-size {least}")]
    VocabularyTooSmall { source_name: &'static str, least: usize, vocab_size: usize },

    #[error("a vocabulary of {vocab_size} is more than the {most} that token ids can distinguish")]
    VocabularyTooLarge { vocab_size: usize, most: usize },

    #[error(
        "{path} has {have} tokens{}, but one sequence of length {seq_len} needs {} (its inputs and the token after the last)
  \
         help: --seq-len {} or less, or a longer file{}",
        part.words(),
        seq_len + 1,
        have.saturating_sub(1),
        if matches!(part, Part::Whole) { "" } else { "; --eval-data FILE holds nothing of it out" }
    )]
    TooShort { path: PathBuf, have: u64, seq_len: usize, part: Part },

    #[error(
        "{path} has {bytes} bytes, which is not a whole number of {token_bytes}-byte tokens: it is truncated or of another kind"
    )]
    OddSize { path: PathBuf, bytes: u64, token_bytes: usize },

    #[error("token {id} at position {position} of {path} is outside the vocabulary of {vocab_size} (ids 0 to {})", vocab_size - 1)]
    OutsideVocabulary {
        path: PathBuf,
        /// Position of the token in the file, or of the element in the named tensor, counted from 0.
        position: String,
        id: i64,
        vocab_size: usize,
    },

    #[error("{path}: {why}\n  help: a batch file holds `input_ids` and `targets`, int64 or int32, both [B, S]")]
    BadBatch { path: PathBuf, why: String },

    #[error("the batch to fill has room for {have} tokens, but the data's shape is {} × {}", shape.batch_size, shape.seq_len)]
    WrongRoom { have: usize, shape: BatchShape },

    #[error("the Markov source's stationary distribution did not settle: the last change was {change:e}")]
    NotSettled { change: f64 },

    #[error("a tokenizer was given, but `{0}` is not text to tokenize")]
    TokenizerWithoutText(String),

    #[error(
        "tokenizer {path} has ids up to {} and needs a vocabulary of at least {needed}, but the model's has {vocab_size}\n  \
         help: --tokenizer with the tokenizer.json that belongs to the model, or --tokenizer bytes; a new model takes \
         --vocab-size {needed}",
        needed - 1
    )]
    TokenizerTooLarge { path: PathBuf, needed: usize, vocab_size: usize },

    #[error("tokenizer {path} cannot be used: {why}")]
    BadTokenizer { path: PathBuf, why: String },

    #[error(
        "{path} is not UTF-8 at byte {position}, but a tokenizer needs text\n  help: without a tokenizer it is read as bytes"
    )]
    NotUtf8 { path: PathBuf, position: u64 },

    #[error(
        "{path} holds no file to read\n  help: text files (.txt, .md and others) and JSONL files; names that begin \
         with a dot are left out"
    )]
    NoFiles { path: PathBuf },

    #[error(
        "{path} is not text: byte {position} is {what}\n  help: take it out of the folder, or name the files by a \
         pattern such as '{folder}/*.txt'"
    )]
    NotTextAmongFiles { path: PathBuf, position: u64, what: &'static str, folder: PathBuf },

    #[error("line {line} of {path} {why}")]
    BadLine { path: PathBuf, line: u64, why: String },

    #[error("--text-column {column} is given, but {path} has no JSONL file that has columns")]
    ColumnWithoutJsonl { path: PathBuf, column: String },

    #[error("{path} changed while it was read\n  help: start again once it is whole")]
    Changed { path: PathBuf },

    #[error("there is no folder to keep the tokens of {path} in\n  help: set HEADROOM_HOME or HOME")]
    NoCache { path: PathBuf },

    #[error("the thread that prepares batches could not start: {0}")]
    Thread(std::io::Error),

    #[error("the thread that prepares batches has ended")]
    Ended,

    #[error(transparent)]
    File(#[from] FileError),

    #[error(transparent)]
    Safetensors(#[from] SafetensorsError),
}

impl DataError {
    /// Whether the disk is full (the tokenizer cache is the only thing written here).
    pub fn is_disk_full(&self) -> bool {
        match self {
            DataError::File(error) | DataError::Safetensors(SafetensorsError::File(error)) => error.is_disk_full(),
            _ => false,
        }
    }
}
