//! Where a script makes its loaders, optimizers and modules, as a run of it told: the places at which a patch is written.

use serde::Deserialize;
use std::path::PathBuf;

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Places {
    /// The main script, where it is the user's.
    pub main: Option<PathBuf>,
    /// As many as the note's loaders and optimizers, in their order.
    pub loaders: Vec<ConstructedObject>,
    pub optimizers: Vec<ConstructedObject>,
    /// Every DistributedDataParallel, and every TrainingArguments of transformers.
    pub distributed: Vec<ConstructedObject>,
    pub arguments: Vec<ConstructedObject>,
    /// As many as the note's modules.
    pub modules: Vec<Trained>,
    /// Calls of `zero_grad` that ask for zeros.
    pub zeros: Vec<Place>,
    /// Copies that a remedy made non-blocking.
    pub copies: Vec<Place>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct ConstructedObject {
    pub class: String,
    pub place: Option<Place>,
}

/// The innermost line of the user's own files.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Place {
    /// Relative to the working folder, where it lies beneath it.
    pub file: PathBuf,
    pub line: u32,
    /// End of the call, and the byte behind it on its last line; none before Python 3.11.
    pub end_line: Option<u32>,
    pub end_column: Option<u32>,
    pub function: String,
    /// Whether this line makes it, or a library that it calls.
    pub direct: bool,
}

/// A trained module, by the line that makes the first optimizer of its parameters.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Trained {
    pub class: String,
    pub place: Option<Place>,
    /// How that line can write it.
    pub expression: Option<String>,
    /// Whether the expression is the module inside of a wrapper that is put around it later.
    pub wraps: bool,
    pub frameworks: Vec<Framework>,
    /// Per list of repeated blocks: what follows the expression to run over them, one word or one per block.
    pub blocks: Vec<Vec<String>>,
    /// Text that follows the expression to name models of transformers that compute attention step by step.
    pub eager: Vec<String>,
    /// Calls of `nn.MultiheadAttention` whose weights nobody reads.
    pub attentions: Vec<Place>,
}

/// A framework's object that the line knows.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Framework {
    /// `transformers`, `lightning` or `accelerate`.
    pub kind: String,
    pub expression: String,
}
