//! Many documents as one sequence of tokens: the texts of a folder, a pattern or JSONL files, tokenized once and
//! cached.
//!
//! Documents are in the order of their file names, each followed by an end-of-document token. A window may hold the end
//! of one document and the beginning of the next. An epoch reads every window once, in an order of its own.

mod cache;
mod documents;
pub(super) mod files;

use std::path::Path;

use super::token_file::Tokens;
use super::windows::Windows;
use super::{Batch, DataError, SourceSettings, file_name, held_out_words};
use cache::Kept;

#[derive(Debug)]
pub struct Corpus {
    tokens: Tokens,
    windows: Windows,
    bytes_per_token: Option<f64>,
    ids: usize,
    description: String,
}

impl Corpus {
    pub fn open(given: &Path, settings: &SourceSettings) -> Result<Corpus, DataError> {
        let files = files::find(given)?;
        let kept = Kept::open(given, &files, settings)?;
        let tokens = Tokens::open(&kept.path, kept.width, settings.vocab_size)?;
        let range = settings.tokens(tokens.count, |token| kept.document_before(token));
        let held_out = held_out_words(settings.part, tokens.count - range.read.end);
        let description = format!(
            "corpus {}, {} files, {} documents, {} {}, seed {}{held_out}",
            file_name(given),
            files.len(),
            kept.documents.len(),
            tokens.count,
            kept.unit,
            settings.seed
        );
        Ok(Corpus {
            bytes_per_token: kept.bytes_per_token(&range.read),
            windows: Windows::once_per_epoch(given, range, settings)?,
            tokens,
            ids: kept.ids,
            description,
        })
    }

    pub fn fill_from(&self, first: u64, batch: &mut Batch) -> Result<(), DataError> {
        self.tokens.fill_from(&self.windows, first, batch)
    }

    pub(super) fn windows(&self) -> &Windows {
        &self.windows
    }

    /// Vocabulary size that its tokens need.
    pub fn ids(&self) -> usize {
        self.ids
    }

    pub fn bytes_per_token(&self) -> Option<f64> {
        self.bytes_per_token
    }

    pub fn description(&self) -> String {
        self.description.clone()
    }
}
