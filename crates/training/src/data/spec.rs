//! The data that `--data` names: a generator, a file whose extension says what is in it, or a folder or pattern of text
//! files.

use std::fmt;
use std::path::{Path, PathBuf};

use super::DataError;
use super::corpus::files::{is_jsonl, is_pattern};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataSpec {
    Synthetic,
    Markov,
    Text {
        path: PathBuf,
    },
    Tokens {
        path: PathBuf,
        width: TokenWidth,
    },
    Batch {
        path: PathBuf,
    },
    /// A folder, a pattern, or one JSONL file: documents, tokenized once.
    Corpus {
        path: PathBuf,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenWidth {
    /// Bytes as tokens.
    U8,
    U16,
    U32,
}

impl TokenWidth {
    pub fn bytes(self) -> usize {
        match self {
            TokenWidth::U8 => 1,
            TokenWidth::U16 => 2,
            TokenWidth::U32 => 4,
        }
    }

    /// Decodes `bytes()` little-endian bytes.
    pub(super) fn decode(self, encoded: &[u8]) -> u32 {
        encoded.iter().rev().fold(0, |id, byte| id << 8 | u32::from(*byte))
    }
}

impl DataSpec {
    /// A file must exist. Its extension gives the kind; any other extension is text, which is checked when it is
    /// opened. A folder or pattern is searched when it is opened.
    pub fn parse(given: &str) -> Result<DataSpec, DataError> {
        let path = PathBuf::from(given);
        Ok(match given {
            "synthetic" => DataSpec::Synthetic,
            "markov" => DataSpec::Markov,
            _ if path.is_dir() || (is_pattern(given) && !path.exists()) => DataSpec::Corpus { path },
            _ => {
                check_readable(given, &path)?;
                match path.extension().and_then(|ending| ending.to_str()) {
                    Some("bin" | "u16") => DataSpec::Tokens { path, width: TokenWidth::U16 },
                    Some("u32") => DataSpec::Tokens { path, width: TokenWidth::U32 },
                    Some("safetensors") => DataSpec::Batch { path },
                    _ if is_jsonl(&path) => DataSpec::Corpus { path },
                    _ => DataSpec::Text { path },
                }
            }
        })
    }
}

impl DataSpec {
    /// Whether it is tokenized when it is read.
    pub fn is_text(&self) -> bool {
        matches!(self, DataSpec::Text { .. } | DataSpec::Corpus { .. })
    }

    /// Whether a part of it can be held out.
    pub fn has_parts(&self) -> bool {
        self.is_text() || matches!(self, DataSpec::Tokens { .. })
    }
}

impl fmt::Display for DataSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataSpec::Synthetic => f.write_str("synthetic"),
            DataSpec::Markov => f.write_str("markov"),
            DataSpec::Text { path }
            | DataSpec::Tokens { path, .. }
            | DataSpec::Batch { path }
            | DataSpec::Corpus { path } => write!(f, "{}", path.display()),
        }
    }
}

fn check_readable(given: &str, path: &Path) -> Result<(), DataError> {
    let why = match std::fs::metadata(path) {
        Ok(about) if about.is_file() => return Ok(()),
        Ok(_) => ": it is not a plain file".to_string(),
        Err(error) => format!(": {error}"),
    };
    Err(DataError::Unknown { given: given.to_string(), why })
}
