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
pub mod ranges;
pub mod save;
pub mod state;
mod tensor_writer;

pub use error::CheckpointError;
pub use hf_config::HfConfig;
pub use load::{Checkpoint, whole_tensors};
pub use save::{Saver, Snapshot, file_of_checkpoint};
pub use state::{OptimizerSettings, TrainingState};

use crate::optimizer::StateTensor;

pub const MODEL_FILE: &str = "model.safetensors";
pub const CONFIG_FILE: &str = "config.json";
pub const OPTIMIZER_FILE: &str = "optimizer.safetensors";
/// Lists the shards of a model that is too large for one file.
const INDEX_FILE: &str = "model.safetensors.index.json";
pub const STATE_FILE: &str = "training_state.json";

/// A parameter: Hugging Face's name, row-major shape, and what the optimizer keeps of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    pub name: String,
    pub shape: Vec<usize>,
    pub states: Vec<StateTensor>,
}

impl TensorSpec {
    /// Nothing is kept of it.
    pub fn new(name: impl Into<String>, shape: &[usize]) -> TensorSpec {
        TensorSpec { name: name.into(), shape: shape.to_vec(), states: vec![] }
    }

    pub fn with_states(self, states: &[StateTensor]) -> TensorSpec {
        TensorSpec { states: states.to_vec(), ..self }
    }

    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Is this one of its tensors?
    pub(crate) fn has(&self, content: Content) -> bool {
        match content {
            Content::Weight => true,
            Content::State(kind) => self.states.contains(&kind),
        }
    }
}

/// One of a parameter's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    Weight,
    /// Kept by its optimizer.
    State(StateTensor),
}

impl Content {
    /// All that an optimizer may keep.
    pub(crate) const STATES: [Content; StateTensor::ALL.len()] = {
        let mut all = [Content::Weight; StateTensor::ALL.len()];
        let mut index = 0;
        while index < all.len() {
            all[index] = Content::State(StateTensor::ALL[index]);
            index += 1;
        }
        all
    };

    /// The name in the file: PyTorch's words for what is kept, before the parameter's name.
    fn tensor_name(self, parameter: &str) -> String {
        match self {
            Content::Weight => parameter.to_string(),
            Content::State(kind) => format!("{}.{parameter}", kind.file),
        }
    }

    /// In words, for messages.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Content::Weight => "weights",
            Content::State(kind) => kind.plural,
        }
    }
}
