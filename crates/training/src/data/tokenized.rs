//! Text cut by a Hugging Face tokenizer, once: its tokens are kept in a file and read by position from then on.
//!
//! The file lies in a folder that the caller names, as raw u32 ids, under a name made from the text's path, length and time of
//! change and the tokenizer's content; a later run with the same finds it there. Text goes through in pieces of about a megabyte
//! that end at a line's end (or a space, where lines are that long), so a text of any size fits; a tokenizer that would join
//! text across that line's end (few do) sees it cut there. No special tokens are added.

use std::path::Path;

use super::token_file::TokenFile;
use super::{DataError, SourceSettings, TokenizerSettings};

#[cfg(not(feature = "tokenizers"))]
pub fn open(_text: &Path, tokenizer: &TokenizerSettings, _settings: &SourceSettings) -> Result<TokenFile, DataError> {
    Err(DataError::TokenizerNotBuilt(tokenizer.path.clone()))
}

#[cfg(feature = "tokenizers")]
pub use with_tokenizers::open;

#[cfg(feature = "tokenizers")]
mod with_tokenizers {
    use std::fs::{self, File};
    use std::io::{self, Read, Write};
    use std::path::PathBuf;

    use headroom_record::atomic::{FileError, write_atomically_with};
    use sha2::{Digest, Sha256};
    use tokenizers::Tokenizer;

    use super::super::spec::TokenWidth;
    use super::super::text::check_is_text;
    use super::*;
    use crate::positioned_file::PositionedFile;

    const PIECE_BYTES: usize = 1 << 20;

    pub fn open(text: &Path, tokenizer: &TokenizerSettings, settings: &SourceSettings) -> Result<TokenFile, DataError> {
        let bad = |why: String| DataError::BadTokenizer { path: tokenizer.path.clone(), why };
        let definition = fs::read(&tokenizer.path).map_err(FileError::new("read", &tokenizer.path))?;
        let cutter = Tokenizer::from_bytes(&definition).map_err(|error| bad(error.to_string()))?;
        let needed = cutter.get_vocab(true).values().max().map_or(0, |largest| *largest as usize + 1);
        if settings.vocab_size < needed {
            return Err(DataError::VocabularyTooSmall {
                source_name: "this tokenizer",
                least: needed,
                vocab_size: settings.vocab_size,
            });
        }
        check_is_text(&PositionedFile::open(text)?)?;
        let cached = cached_path(text, &definition, &tokenizer.cache)?;
        if !cached.exists() {
            fs::create_dir_all(&tokenizer.cache).map_err(FileError::new("make the folder", &tokenizer.cache))?;
            tokenize(text, &cutter, &cached).map_err(|error| match error {
                TokenizeError::Data(error) => error,
                TokenizeError::Cut(why) => bad(why),
            })?;
        }
        TokenFile::open(&cached, TokenWidth::U32, settings)
    }

    fn cached_path(text: &Path, definition: &[u8], cache: &Path) -> Result<PathBuf, DataError> {
        let about = fs::metadata(text).map_err(FileError::new("look at", text))?;
        let whole = fs::canonicalize(text).map_err(FileError::new("look at", text))?;
        let changed = about
            .modified()
            .ok()
            .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok())
            .map_or(0, |since| since.as_nanos());
        let mut digest = Sha256::new();
        digest.update(whole.as_os_str().as_encoded_bytes());
        digest.update(about.len().to_le_bytes());
        digest.update(changed.to_le_bytes());
        digest.update(definition);
        let name: String = digest.finalize()[..12].iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(cache.join(format!("{name}.u32")))
    }

    enum TokenizeError {
        Data(DataError),
        Cut(String),
    }

    fn tokenize(text: &Path, cutter: &Tokenizer, target: &Path) -> Result<(), TokenizeError> {
        let mut inner = None;
        let written = write_atomically_with(target, |writer| {
            let outcome = tokenize_pieces(text, cutter, writer);
            // An error of the text or tokenizer travels beside the write's, which it ends.
            outcome.map_err(|error| match error {
                PieceError::Write(error) => error,
                PieceError::Other(error) => {
                    inner = Some(error);
                    io::Error::other("the text cannot be cut")
                }
            })
        });
        match (inner, written) {
            (Some(error), _) => Err(error),
            (None, outcome) => outcome.map_err(|error| TokenizeError::Data(error.into())),
        }
    }

    enum PieceError {
        Write(io::Error),
        Other(TokenizeError),
    }

    fn tokenize_pieces(text: &Path, cutter: &Tokenizer, writer: &mut impl Write) -> Result<(), PieceError> {
        let data = |error: DataError| PieceError::Other(TokenizeError::Data(error));
        let reading = |source| data(FileError::new("read", text)(source).into());
        let mut file = File::open(text).map_err(reading)?;
        let mut pending: Vec<u8> = Vec::new();
        let mut done_bytes = 0;
        loop {
            let read = (&mut file).take(PIECE_BYTES as u64).read_to_end(&mut pending).map_err(reading)?;
            let ended = read < PIECE_BYTES;
            let whole = if ended { pending.len() } else { end_of_piece(&pending) };
            let piece = std::str::from_utf8(&pending[..whole]).map_err(|error| {
                data(DataError::NotUtf8 { path: text.to_path_buf(), position: done_bytes + error.valid_up_to() as u64 })
            })?;
            let encoding = cutter
                .encode_fast(piece, false)
                .map_err(|error| PieceError::Other(TokenizeError::Cut(error.to_string())))?;
            for id in encoding.get_ids() {
                writer.write_all(&id.to_le_bytes()).map_err(PieceError::Write)?;
            }
            if ended {
                return Ok(());
            }
            pending.drain(..whole);
            done_bytes += whole as u64;
        }
    }

    /// After the last line's end; in a piece without one, before the last space, which tokenizers join to the word after it;
    /// in a piece without either, before a character that may go on in the next.
    fn end_of_piece(bytes: &[u8]) -> usize {
        let last = |wanted: u8| bytes.iter().rposition(|byte| *byte == wanted);
        if let Some(newline) = last(b'\n') {
            return newline + 1;
        }
        if let Some(space) = last(b' ').filter(|space| *space > 0) {
            return space;
        }
        let tail = bytes.len().saturating_sub(4);
        let last_start = bytes[tail..].iter().rposition(|byte| byte & 0xC0 != 0x80);
        last_start.map_or(bytes.len(), |place| tail + place)
    }
}
