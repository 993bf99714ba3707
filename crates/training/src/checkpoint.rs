//! Checkpoints: a folder that transformers loads as a model, and that training resumes from bit for bit.
//!
//! `model.safetensors` and `config.json` use Hugging Face's names. `optimizer.safetensors` and `training_state.json`
//! beside them hold the rest of what resuming needs, exact weights included if the model is saved in fewer bits
//! (`stored`). The tokenizer's files and `generation_config.json` come along (`companions`). All of them change together
//! or not at all (`journal`). Nothing here knows about graphs: a checkpoint is a list of named float32 tensors, handed
//! over piece by piece so that no tensor is in memory twice.

pub mod companions;
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
pub mod stored;
mod tensor_writer;

pub use companions::{Companions, GENERATION_FILE, TOKENIZER_FILE};
pub use error::CheckpointError;
pub use hf_config::HfConfig;
pub use load::{Checkpoint, whole_tensors};
pub use save::{Saver, Snapshot, file_of_checkpoint};
pub use state::{OptimizerSettings, TrainingState};
pub use stored::SavedDtype;

use crate::optimizer::StateTensor;

pub const MODEL_FILE: &str = "model.safetensors";
pub const CONFIG_FILE: &str = "config.json";
pub const OPTIMIZER_FILE: &str = "optimizer.safetensors";
/// Lists the shards of a model that is too large for one file.
const INDEX_FILE: &str = "model.safetensors.index.json";
pub const STATE_FILE: &str = "training_state.json";

/// A parameter: Hugging Face's name, row-major shape, and the kinds of optimizer state kept for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    pub name: String,
    pub shape: Vec<usize>,
    pub states: Vec<StateTensor>,
}

impl TensorSpec {
    /// A parameter without optimizer state.
    pub fn new(name: impl Into<String>, shape: &[usize]) -> TensorSpec {
        TensorSpec { name: name.into(), shape: shape.to_vec(), states: vec![] }
    }

    pub fn with_states(self, states: &[StateTensor]) -> TensorSpec {
        TensorSpec { states: states.to_vec(), ..self }
    }

    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether the parameter has this tensor.
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
    /// Optimizer state.
    State(StateTensor),
}

impl Content {
    /// Every kind of state that an optimizer may keep.
    pub(crate) const STATES: [Content; StateTensor::ALL.len()] = {
        let mut all = [Content::Weight; StateTensor::ALL.len()];
        let mut index = 0;
        while index < all.len() {
            all[index] = Content::State(StateTensor::ALL[index]);
            index += 1;
        }
        all
    };

    /// The tensor's name in the file: PyTorch's name for the state, then the parameter's name.
    fn tensor_name(self, parameter: &str) -> String {
        match self {
            Content::Weight => parameter.to_string(),
            Content::State(kind) => format!("{}.{parameter}", kind.file),
        }
    }

    /// For messages.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Content::Weight => "weights",
            Content::State(kind) => kind.plural,
        }
    }
}
