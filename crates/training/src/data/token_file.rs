//! Token ids from a file of any size, read by position: raw little-endian ids and nothing else.

use std::path::Path;

use super::spec::TokenWidth;
use super::synthetic::{check_room, small_vocabulary};
use super::windows::Windows;
use super::{Batch, DataError, SourceSettings, file_name, held_out_words, place_token};
use crate::positioned_file::PositionedFile;

/// Bytes read per call: the buffer is on the stack, so filling a batch allocates nothing. A multiple of every token
/// width.
const PIECE_BYTES: usize = 8192;

#[derive(Debug)]
pub struct TokenFile {
    tokens: Tokens,
    windows: Windows,
    held_out: String,
    /// Bytes of text per token, if known.
    bytes_per_token: Option<f64>,
    /// Vocabulary size that its tokenizer's ids need, if there is one.
    ids: Option<usize>,
}

impl TokenFile {
    pub fn open(path: &Path, width: TokenWidth, settings: &SourceSettings) -> Result<TokenFile, DataError> {
        let tokens = Tokens::open(path, width, settings.vocab_size)?;
        let range = settings.tokens(tokens.count, |token| token);
        Ok(TokenFile {
            held_out: held_out_words(settings.part, tokens.count - range.read.end),
            windows: Windows::of_file(path, range, settings)?,
            tokens,
            bytes_per_token: None,
            ids: None,
        })
    }

    /// The same file, tokenized from a text of this many bytes by a tokenizer that needs this vocabulary.
    pub fn of_text(self, bytes: u64, ids: usize) -> TokenFile {
        let bytes_per_token = Some(bytes as f64 / self.tokens.count.max(1) as f64);
        TokenFile { bytes_per_token, ids: Some(ids), ..self }
    }

    pub fn ids(&self) -> Option<usize> {
        self.ids
    }

    pub fn fill_from(&self, first: u64, batch: &mut Batch) -> Result<(), DataError> {
        self.tokens.fill_from(&self.windows, first, batch)
    }

    pub(super) fn windows(&self) -> &Windows {
        &self.windows
    }

    pub fn bytes_per_token(&self) -> Option<f64> {
        self.bytes_per_token
    }

    pub fn description(&self) -> String {
        let name = file_name(self.tokens.file.path());
        format!("token file {name}, {} tokens, seed {}{}", self.tokens.count, self.windows.seed, self.held_out)
    }
}

/// The tokens of a file.
#[derive(Debug)]
pub(super) struct Tokens {
    width: TokenWidth,
    vocab_size: u32,
    file: PositionedFile,
    pub count: u64,
}

impl Tokens {
    pub fn open(path: &Path, width: TokenWidth, vocab_size: usize) -> Result<Tokens, DataError> {
        let vocab_size = small_vocabulary("a token file", 1, vocab_size)?;
        let file = PositionedFile::open(path)?;
        let token_bytes = width.bytes();
        if !file.bytes().is_multiple_of(token_bytes as u64) {
            return Err(DataError::OddSize { path: path.to_path_buf(), bytes: file.bytes(), token_bytes });
        }
        let count = file.bytes() / token_bytes as u64;
        Ok(Tokens { width, vocab_size, file, count })
    }

    /// An id outside the vocabulary is found only when it is read: a file of any size cannot be scanned first.
    pub fn fill_from(&self, windows: &Windows, first: u64, batch: &mut Batch) -> Result<(), DataError> {
        check_room(windows.shape, batch)?;
        for (row, start) in windows.starts(first).take(windows.shape.batch_size).enumerate() {
            self.fill_row(start, (row, windows.shape.seq_len), batch)?;
        }
        Ok(())
    }

    fn fill_row(&self, start: u64, (row, seq_len): (usize, usize), batch: &mut Batch) -> Result<(), DataError> {
        let token_bytes = self.width.bytes();
        let mut piece = [0; PIECE_BYTES];
        let mut t = 0;
        while t <= seq_len {
            let count = (seq_len + 1 - t).min(PIECE_BYTES / token_bytes);
            let bytes = &mut piece[..count * token_bytes];
            self.file.read_exact_at(bytes, (start + t as u64) * token_bytes as u64)?;
            for encoded in bytes.chunks_exact(token_bytes) {
                let id = self.width.decode(encoded);
                if id >= self.vocab_size {
                    return Err(DataError::OutsideVocabulary {
                        path: self.file.path().to_path_buf(),
                        position: (start + t as u64).to_string(),
                        id: i64::from(id),
                        vocab_size: self.vocab_size as usize,
                    });
                }
                place_token(batch, seq_len, row, t, id as i32);
                t += 1;
            }
        }
        Ok(())
    }
}
