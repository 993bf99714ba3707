//! Conversion between text and tokens: a Hugging Face tokenizer, or bytes.

use std::path::{Path, PathBuf};

use crate::data::tokenized::parse;
use headroom_record::atomic::FileError;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum VocabularyError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{} is not a tokenizer: {why}", path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error("the text cannot be tokenized: {0}")]
    NotCut(String),
}

pub enum Vocabulary {
    /// A token is a byte.
    Bytes,
    Tokenizer(Box<tokenizers::Tokenizer>),
}

impl Vocabulary {
    pub fn read(path: &Path) -> Result<Vocabulary, VocabularyError> {
        use headroom_record::reading;
        let bytes = reading::read(path, reading::CHECKPOINT).map_err(FileError::new("read", path))?;
        let unreadable =
            |error: tokenizers::Error| VocabularyError::Unreadable { path: path.to_path_buf(), why: error.to_string() };
        Ok(Vocabulary::Tokenizer(Box::new(parse(&bytes).map_err(unreadable)?)))
    }

    /// Tokenizes as training data is tokenized: without special tokens.
    pub fn tokens(&self, text: &str) -> Result<Vec<i32>, VocabularyError> {
        match self {
            Vocabulary::Bytes => Ok(text.bytes().map(i32::from).collect()),
            Vocabulary::Tokenizer(tokenizer) => {
                let cut = tokenizer.encode_fast(text, false);
                let cut = cut.map_err(|error| VocabularyError::NotCut(error.to_string()))?;
                Ok(cut.get_ids().iter().map(|id| *id as i32).collect())
            }
        }
    }

    /// Incomplete UTF-8 sequences become replacement characters.
    pub fn text(&self, tokens: &[i32]) -> Result<String, VocabularyError> {
        match self {
            Vocabulary::Bytes => {
                let bytes: Vec<u8> = tokens.iter().map(|token| u8::try_from(*token).unwrap_or(b'?')).collect();
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            Vocabulary::Tokenizer(tokenizer) => {
                let ids: Vec<u32> = tokens.iter().filter_map(|token| u32::try_from(*token).ok()).collect();
                tokenizer.decode(&ids, true).map_err(|error| VocabularyError::NotCut(error.to_string()))
            }
        }
    }
}
