//! Checkpoint errors: which file, and what differs.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use headroom_record::atomic::FileError;

use crate::safetensors_file::SafetensorsError;

#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("{} holds no checkpoint: {missing} is missing", folder.display())]
    Missing { folder: PathBuf, missing: &'static str },

    #[error("{} has a model but no {missing}, so training cannot be resumed from it\n  help: --init-from starts anew from its weights", folder.display())]
    NotResumable { folder: PathBuf, missing: &'static str },

    #[error("another process is writing checkpoints to {}\n  help: give each run a folder of its own", folder.display())]
    InUse { folder: PathBuf },

    #[error("{} does not parse: {why}", path.display())]
    Unreadable { path: PathBuf, why: String },

    #[error("{}: {key} is {value}, {why}", path.display())]
    Unsupported { path: PathBuf, key: String, value: String, why: Cow<'static, str> },

    #[error("{} does not fit this model:{}", path.display(), Lines(differences))]
    Mismatch { path: PathBuf, differences: Vec<String> },

    #[error(
        "{} is not the file that {state} was written with (sha256 {have} now, {want} then): it was changed or damaged",
        path.display()
    )]
    DigestMismatch { path: PathBuf, state: &'static str, want: String, have: String },

    #[error(
        "{} is not as it was saved (sha256 {have} now, {want} then): it was changed or damaged\n  help: --init-from starts \
         anew from the weights beside it",
        path.display()
    )]
    StateChanged { path: PathBuf, want: String, have: String },

    #[error(
        "{} does not say where its data goes on: {why}\n  help: --init-from starts anew from the weights beside it",
        path.display()
    )]
    NoPosition { path: PathBuf, why: String },

    #[error(
        "{name} holds {value}, which is beyond {dtype}: not saved; the previous checkpoint stays\n  help: --save-dtype fp32"
    )]
    BeyondDtype { name: String, value: f32, dtype: &'static str },

    #[error("tensor {name} was given {have} elements to save, but its shape has {want}")]
    WrongLength { name: String, want: usize, have: usize },

    #[error(transparent)]
    File(#[from] FileError),

    #[error(transparent)]
    Safetensors(#[from] SafetensorsError),

    /// All ranks save together, and this one could not.
    #[error("rank {rank}: {why}")]
    OtherRank { rank: usize, why: String },

    /// The caller's own reason, from the function that hands tensors over.
    #[error(transparent)]
    Handover(Box<dyn std::error::Error + Send + Sync>),

    /// Stands in for a kill in tests.
    #[cfg(test)]
    #[error("stopped by a test")]
    Stopped,
}

impl CheckpointError {
    /// Whether the disk is full, as opposed to a bad request or a bad file.
    pub fn is_disk_full(&self) -> bool {
        match self {
            CheckpointError::File(error) | CheckpointError::Safetensors(SafetensorsError::File(error)) => {
                error.is_disk_full()
            }
            _ => false,
        }
    }
}

/// Prints the first few differences, one per line.
struct Lines<'a>(&'a [String]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 6;
        for line in self.0.iter().take(SHOWN) {
            write!(f, "\n  {line}")?;
        }
        if self.0.len() > SHOWN {
            write!(f, "\n  and {} more", self.0.len() - SHOWN)?;
        }
        Ok(())
    }
}
