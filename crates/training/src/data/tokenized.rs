//! Text tokenized once by a Hugging Face tokenizer: the tokens are cached in a file and read by position.
//!
//! The cache is a file of raw u32 ids in a folder that the caller names. Its name is derived from the text's path,
//! length and modification time and the tokenizer's content, so a later run with the same inputs finds it. Text is
//! processed in pieces of about a megabyte that end at a newline (or a space, if lines are that long), so text of any
//! size fits. A tokenizer that would merge across that newline (few do) is cut there. No special tokens are added.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use headroom_record::atomic::{FileError, write_atomically_with};
use headroom_record::reading;
use sha2::{Digest, Sha256};
use tokenizers::Tokenizer;

use super::corpus::files::{self, DataFile};
use super::pieces::read_text;
use super::spec::TokenWidth;
use super::text::check_is_text;
use super::token_file::TokenFile;
use super::{DataError, SourceSettings, TokenizerSettings};
use crate::positioned_file::PositionedFile;

/// Common names of the end-of-document token.
const ENDS: [&str; 6] = ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[EOS]", "[SEP]"];

pub fn open(text: &Path, tokenizer: &TokenizerSettings, settings: &SourceSettings) -> Result<TokenFile, DataError> {
    let cutter = Cutter::open(tokenizer, settings.vocab_size)?;
    check_is_text(&PositionedFile::open(text)?)?;
    let file = files::about(text)?;
    let cached = cached_path(&file, cutter.definition(), &tokenizer.cache)?;
    if !cached.exists() {
        fs::create_dir_all(&tokenizer.cache).map_err(FileError::new("make the folder", &tokenizer.cache))?;
        write_whole(&cached, |writer| {
            let bad = |position| DataError::NotUtf8 { path: text.to_path_buf(), position };
            read_text(text, bad, |piece| {
                for id in cutter.cut(piece)? {
                    writer.write_all(&id.to_le_bytes())?;
                }
                Ok::<_, Stop>(())
            })
        })?;
    }
    Ok(TokenFile::open(&cached, TokenWidth::U32, settings)?.of_text(file.bytes, cutter.needed()))
}

fn cached_path(text: &DataFile, definition: &[u8], cache: &Path) -> Result<PathBuf, DataError> {
    let whole = fs::canonicalize(&text.path).map_err(FileError::new("look at", &text.path))?;
    let mut digest = Sha256::new();
    digest.update(whole.as_os_str().as_encoded_bytes());
    digest.update(text.bytes.to_le_bytes());
    digest.update(text.changed_nanos.to_le_bytes());
    digest.update(definition);
    let name: String = digest.finalize()[..12].iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(cache.join(format!("{name}.u32")))
}

/// Why a token file was not written: the disk failed, or its input did.
pub(super) enum Stop {
    Write(io::Error),
    Data(DataError),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Write(error)
    }
}

impl From<DataError> for Stop {
    fn from(error: DataError) -> Stop {
        Stop::Data(error)
    }
}

/// Writes a file that appears under its name only once it is complete.
pub(super) fn write_whole<T>(
    target: &Path,
    fill: impl FnOnce(&mut BufWriter<fs::File>) -> Result<T, Stop>,
) -> Result<T, DataError> {
    let mut outcome = None;
    let written = write_atomically_with(target, |writer| match fill(writer) {
        Ok(value) => {
            outcome = Some(Ok(value));
            Ok(())
        }
        Err(Stop::Write(error)) => Err(error),
        // A data error is kept separately; the writer itself gets a stand-in I/O error.
        Err(Stop::Data(error)) => {
            outcome = Some(Err(error));
            Err(io::Error::other("the text cannot be tokenized"))
        }
    });
    match outcome {
        Some(Err(error)) => Err(error),
        Some(Ok(value)) => written.map(|()| value).map_err(DataError::from),
        None => Err(written.err().map_or(DataError::Ended, DataError::from)),
    }
}

/// A tokenizer for whole texts. A file may ask to truncate and pad what it encodes, which is for batches of a fixed length.
pub(crate) fn parse(definition: &[u8]) -> Result<Tokenizer, tokenizers::Error> {
    let mut tokenizer = Tokenizer::from_bytes(definition)?;
    tokenizer.with_truncation(None)?.with_padding(None);
    Ok(tokenizer)
}

pub(super) struct Cutter {
    path: PathBuf,
    definition: Vec<u8>,
    tokenizer: Tokenizer,
    needed: usize,
}

impl Cutter {
    pub fn open(tokenizer: &TokenizerSettings, vocab_size: usize) -> Result<Cutter, DataError> {
        let path = tokenizer.path.clone();
        let definition = reading::read(&path, reading::CHECKPOINT).map_err(FileError::new("read", &path))?;
        let tokenizer = parse(&definition)
            .map_err(|error| DataError::BadTokenizer { path: path.clone(), why: error.to_string() })?;
        let needed = tokenizer.get_vocab(true).values().max().map_or(0, |largest| *largest as usize + 1);
        if vocab_size < needed {
            return Err(DataError::TokenizerTooLarge { path, needed, vocab_size });
        }
        Ok(Cutter { path, definition, tokenizer, needed })
    }

    pub fn definition(&self) -> &[u8] {
        &self.definition
    }

    /// Vocabulary size that the ids need.
    pub fn needed(&self) -> usize {
        self.needed
    }

    /// The end-of-document token, if the tokenizer has one under a common name.
    pub fn end_of_document(&self) -> Option<(u32, String)> {
        ENDS.iter().find_map(|name| Some((self.tokenizer.token_to_id(name)?, name.to_string())))
    }

    pub fn cut(&self, text: &str) -> Result<Vec<u32>, DataError> {
        let bad = |why: String| DataError::BadTokenizer { path: self.path.clone(), why };
        let encoding = self.tokenizer.encode_fast(text, false).map_err(|error| bad(error.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }
}
