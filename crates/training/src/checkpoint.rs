//! Checkpoints: a folder that transformers loads as a model, and that training resumes from to the byte.
//!
//! `model.safetensors` and `config.json` carry Hugging Face's names; `optimizer.safetensors` and `training_state.json` beside
//! them are what resuming needs besides. The four change together or not at all (`journal`). Nothing here knows what a graph
//! is: a checkpoint is a list of named float32 tensors, handed over piece by piece, so that none is held twice.

pub mod error;
pub mod hf_config;
mod journal;
mod keep;
#[cfg(test)]
mod kill_tests;
pub mod load;
pub mod save;
pub mod state;
mod tensor_writer;

pub use error::CheckpointError;
pub use hf_config::HfConfig;
pub use load::{Checkpoint, whole_tensors};
pub use save::{Saver, Snapshot, file_of_checkpoint};
pub use state::{OptimizerSettings, TrainingState};

pub const MODEL_FILE: &str = "model.safetensors";
pub const CONFIG_FILE: &str = "config.json";
pub const OPTIMIZER_FILE: &str = "optimizer.safetensors";
/// Lists the shards of a model that is too large for one file.
const INDEX_FILE: &str = "model.safetensors.index.json";
pub const STATE_FILE: &str = "training_state.json";

/// A parameter: Hugging Face's name, row-major shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    pub name: String,
    pub shape: Vec<usize>,
}

impl TensorSpec {
    pub fn new(name: impl Into<String>, shape: &[usize]) -> TensorSpec {
        TensorSpec { name: name.into(), shape: shape.to_vec() }
    }

    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Which of a parameter's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    Weight,
    /// Adam's running mean of gradients.
    FirstMoment,
    /// Adam's running mean of squared gradients.
    SecondMoment,
}

impl Content {
    /// The name in the file: PyTorch's words for the moments, before the parameter's name.
    fn tensor_name(self, parameter: &str) -> String {
        match self {
            Content::Weight => parameter.to_string(),
            Content::FirstMoment => format!("exp_avg.{parameter}"),
            Content::SecondMoment => format!("exp_avg_sq.{parameter}"),
        }
    }

    /// In words, for messages.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Content::Weight => "weights",
            Content::FirstMoment => "first moments",
            Content::SecondMoment => "second moments",
        }
    }
}
