//! Token ids from a file of any size, read by position: raw little-endian u16 or u32, nothing else in the file.

use std::path::Path;

use super::spec::TokenWidth;
use super::synthetic::{check_room, small_vocabulary};
use super::{Batch, BatchShape, DataError, SourceSettings, file_name, place_token};
use crate::positioned_file::PositionedFile;
use crate::rng::Stream;

/// Bytes read in one call: on the stack, so that filling a batch allocates nothing. A multiple of every token's width.
const PIECE_BYTES: usize = 8192;

#[derive(Debug)]
pub struct TokenFile {
    windows: Windows,
    width: TokenWidth,
    vocab_size: u32,
    file: PositionedFile,
    tokens: u64,
}

impl TokenFile {
    pub fn open(path: &Path, width: TokenWidth, settings: &SourceSettings) -> Result<TokenFile, DataError> {
        let vocab_size = small_vocabulary("a token file", 1, settings.vocab_size)?;
        let file = PositionedFile::open(path)?;
        let token_bytes = width.bytes();
        if !file.bytes().is_multiple_of(token_bytes as u64) {
            return Err(DataError::OddSize { path: path.to_path_buf(), bytes: file.bytes(), token_bytes });
        }
        let tokens = file.bytes() / token_bytes as u64;
        Ok(TokenFile { windows: Windows::new(path, tokens, settings)?, width, vocab_size, file, tokens })
    }

    /// An id outside the vocabulary is found when it is met: a file of any size cannot be looked through first.
    pub fn fill(&self, position: u64, batch: &mut Batch) -> Result<(), DataError> {
        let shape = self.shape();
        check_room(shape, batch)?;
        for row in 0..shape.batch_size {
            let start = self.windows.start(position, row);
            self.fill_row(start, row, batch)?;
        }
        Ok(())
    }

    pub fn shape(&self) -> BatchShape {
        self.windows.shape
    }

    pub fn description(&self) -> String {
        format!("token file {}, {} tokens, seed {}", file_name(self.file.path()), self.tokens, self.windows.seed)
    }

    fn fill_row(&self, start: u64, row: usize, batch: &mut Batch) -> Result<(), DataError> {
        let seq_len = self.windows.shape.seq_len;
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

/// Random windows of S + 1 tokens into a file: every start is equally likely.
#[derive(Debug)]
pub(super) struct Windows {
    pub shape: BatchShape,
    pub seed: u64,
    starts: u64,
    offsets: Stream,
}

impl Windows {
    pub fn new(path: &Path, tokens: u64, settings: &SourceSettings) -> Result<Windows, DataError> {
        let seq_len = settings.shape.seq_len;
        let starts = tokens.checked_sub(seq_len as u64).filter(|starts| *starts > 0);
        Ok(Windows {
            shape: settings.shape,
            seed: settings.seed,
            starts: starts.ok_or_else(|| DataError::TooShort { path: path.to_path_buf(), have: tokens, seq_len })?,
            offsets: Stream::new(settings.seed, &format!("data.windows.{}", settings.split.name())),
        })
    }

    /// The first token of a row's window.
    pub fn start(&self, position: u64, row: usize) -> u64 {
        let sample = self.shape.sample(position, row);
        self.offsets.uniform_u64_below(sample, self.starts)
    }
}
