//! Text as bytes: a token is a byte, so any file can be read by position, at any size, without a tokenizer.

use std::path::Path;

use super::synthetic::{check_room, small_vocabulary};
use super::windows::Windows;
use super::{BYTE_IDS, Batch, DataError, SourceSettings, file_name, held_out_words, place_token};
use crate::positioned_file::PositionedFile;

const PIECE_BYTES: usize = 8192;

/// How far into a file to look for a zero byte, which text never has and most binary files have near the beginning.
const LOOKED_AT_BYTES: u64 = 4096;

#[derive(Debug)]
pub struct ByteText {
    windows: Windows,
    held_out: String,
    file: PositionedFile,
}

impl ByteText {
    pub fn open(path: &Path, settings: &SourceSettings) -> Result<ByteText, DataError> {
        small_vocabulary("text with byte tokens", BYTE_IDS, settings.vocab_size)?;
        let file = PositionedFile::open(path)?;
        check_is_text(&file)?;
        let tokens = settings.tokens(file.bytes(), |token| token);
        let held_out = held_out_words(settings.part, file.bytes() - tokens.read.end);
        Ok(ByteText { windows: Windows::of_file(path, tokens, settings)?, held_out, file })
    }

    pub fn fill_from(&self, first: u64, batch: &mut Batch) -> Result<(), DataError> {
        let shape = self.windows.shape;
        check_room(shape, batch)?;
        let mut piece = [0; PIECE_BYTES];
        for (row, start) in self.windows.starts(first).take(shape.batch_size).enumerate() {
            let mut t = 0;
            while t <= shape.seq_len {
                let bytes = &mut piece[..(shape.seq_len + 1 - t).min(PIECE_BYTES)];
                self.file.read_exact_at(bytes, start + t as u64)?;
                for byte in bytes {
                    place_token(batch, shape.seq_len, row, t, i32::from(*byte));
                    t += 1;
                }
            }
        }
        Ok(())
    }

    pub(super) fn windows(&self) -> &Windows {
        &self.windows
    }

    pub fn description(&self) -> String {
        format!(
            "text {}, {} bytes as tokens, seed {}{}",
            file_name(self.file.path()),
            self.file.bytes(),
            self.windows.seed,
            self.held_out
        )
    }
}

pub(super) fn check_is_text(file: &PositionedFile) -> Result<(), DataError> {
    let mut beginning = vec![0; file.bytes().min(LOOKED_AT_BYTES) as usize];
    file.read_exact_at(&mut beginning, 0)?;
    match beginning.iter().position(|byte| *byte == 0) {
        None => Ok(()),
        Some(position) => Err(DataError::NotText { path: file.path().to_path_buf(), position: position as u64 }),
    }
}
