//! Where a script creates its loaders, optimizers and modules, as one of its runs reported: the places where a patch is
//! written.

use serde::Deserialize;
use std::path::PathBuf;

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Places {
    /// The main script, if it is the user's.
    pub main: Option<PathBuf>,
    /// One per loader and optimizer of the note, in the same order.
    pub loaders: Vec<ConstructedObject>,
    pub optimizers: Vec<ConstructedObject>,
    /// Every DistributedDataParallel, and every TrainingArguments of transformers.
    pub distributed: Vec<ConstructedObject>,
    pub arguments: Vec<ConstructedObject>,
    /// One per module of the note.
    pub modules: Vec<Trained>,
    /// Calls of `zero_grad` that request zeros.
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

/// The innermost line within the user's own files.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Place {
    /// Relative to the working folder if it lies inside it.
    pub file: PathBuf,
    pub line: u32,
    /// Line and column of the end of the call; `None` before Python 3.11.
    pub end_line: Option<u32>,
    pub end_column: Option<u32>,
    pub function: String,
    /// Whether this line creates the object itself, rather than a library that it calls.
    pub direct: bool,
}

/// A trained module, located by the line that creates the first optimizer of its parameters.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Trained {
    pub class: String,
    pub place: Option<Place>,
    /// The expression for the module at that line.
    pub expression: Option<String>,
    /// Whether the expression is the inner module of a wrapper that is added later.
    pub wraps: bool,
    pub frameworks: Vec<Framework>,
    /// Per list of repeated blocks: the suffix of the expression that iterates over them, one text or one per block.
    pub blocks: Vec<Vec<String>>,
    /// Suffixes of the expression that name transformers models with eager attention.
    pub eager: Vec<String>,
    /// Calls of `nn.MultiheadAttention` whose attention weights are not used.
    pub attentions: Vec<Place>,
}

/// A framework object that is visible at the line.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Framework {
    /// `transformers`, `lightning` or `accelerate`.
    pub kind: String,
    pub expression: String,
}
