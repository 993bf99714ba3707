//! Models: their configuration, their families, and what can be computed about one without running it.
//!
//! A family is one file here with its graph, its Hugging Face names and configuration, and the roles of its parts. It
//! is registered by a line in [`FAMILIES`].

pub mod build;
pub mod fields;
pub mod gpt2;
pub mod llama;
pub mod qwen3;
pub mod rope;
mod sizes;
pub mod tree;

pub use build::Forward;
pub use rope::RopeScaling;
pub use sizes::{SIZES, Size, VOCAB_SIZE};

use build::Build;
use fields::{FieldError, Fields};
use headroom_graph::{Graph, GraphError, Part, Role, TensorType};
use serde_json::Value;
use std::fmt;
use thiserror::Error;

/// Every family; the table of sizes describes the first.
pub static FAMILIES: [&Family; 4] = [&llama::FAMILY, &qwen3::FAMILY, &gpt2::FAMILY, &tree::FAMILY];

pub struct Family {
    /// Hugging Face's `model_type`.
    pub name: &'static str,
    /// Name for display.
    pub title: &'static str,
    /// Hugging Face's class.
    pub architecture: &'static str,
    /// Prefix of all parameter names but the head's; some files leave it out.
    pub prefix: &'static str,
    /// A module's name in Hugging Face's files.
    pub hf_name: fn(module: &str) -> String,
    /// Whether a file may carry this tensor although the model does not need it.
    pub is_redundant: fn(name: &str) -> bool,
    /// Turns a row of the table of sizes into a model of this family.
    pub sized: fn(ModelConfig) -> ModelConfig,
    /// Checks beyond those for every family.
    pub check: fn(&ModelConfig) -> Result<(), ConfigError>,
    pub forward: fn(&mut Build) -> Result<Forward, GraphError>,
    /// The parent of each block, if blocks are nodes of a tree that a step chooses among; otherwise empty.
    pub parents: fn(&ModelConfig) -> Vec<Option<usize>>,
    /// Constants of the graph for a sequence length, written once.
    pub constants: fn(&ModelConfig, usize) -> Vec<(&'static str, Vec<f32>)>,
    /// Reads Hugging Face's `config.json`; settings that are not supported are errors.
    pub read: fn(&Fields) -> Result<ModelConfig, FieldError>,
    /// Entries of Hugging Face's `config.json` beyond those that all families have.
    pub write: fn(&ModelConfig) -> Value,
}

impl Family {
    pub fn named(name: &str) -> Option<&'static Family> {
        FAMILIES.into_iter().find(|family| family.name == name)
    }
}

impl PartialEq for Family {
    fn eq(&self, other: &Family) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Family {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(self.name)
    }
}

/// A model as Hugging Face defines it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    pub family: &'static Family,
    pub vocab_size: usize,
    pub hidden_dim: usize,
    pub n_layers: usize,
    pub n_heads: usize,
    pub n_kv_heads: usize,
    pub head_dim: usize,
    pub intermediate_dim: usize,
    pub rope_theta: f64,
    pub rope_scaling: Option<RopeScaling>,
    pub norm_eps: f64,
    /// One table serves as embedding and head.
    pub tied: bool,
    /// Rows of the table of learned positions; 0 if there is none.
    pub positions: usize,
    /// Children of each node, level by level, if blocks form a tree; otherwise empty.
    pub branching: Vec<usize>,
}

/// Adds the forward pass to an empty graph: inputs `input_ids` and `targets` `i32[b, s]`, the family's constants,
/// output `loss`.
pub fn forward(graph: &mut Graph, config: &ModelConfig, batch: usize, seq: usize) -> Result<Forward, GraphError> {
    (config.family.forward)(&mut Build { graph, config, batch, seq })
}

/// A parameter: Hugging Face's name, its place in the model, and its type.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    pub name: String,
    pub part: Part,
    pub ty: TensorType,
}

/// Every parameter of a model in the order of the graph, known without a device.
pub fn parameters(config: &ModelConfig) -> Result<Vec<Parameter>, GraphError> {
    let mut graph = Graph::new();
    forward(&mut graph, config, 1, 1)?;
    let parameter = |id| {
        let value = graph.get(id);
        Parameter { name: value.name.to_string(), part: value.part.clone(), ty: value.ty.clone() }
    };
    Ok(graph.parameters().into_iter().map(parameter).collect())
}

/// Most elements that kernels and files can safely index in one tensor.
const MOST_ELEMENTS: usize = 1 << 40;

/// Most layers for which planning takes only seconds.
const MOST_LAYERS: usize = 1000;

#[derive(Clone, Debug, Error, PartialEq)]
pub enum ConfigError {
    #[error("{flag} is 0: every size must be at least 1")]
    Zero { flag: &'static str },
    #[error("--hidden-dim {hidden_dim} cannot be divided by --n-heads {n_heads}: use a multiple of {n_heads}")]
    HeadsDoNotDivide { hidden_dim: usize, n_heads: usize },
    #[error(
        "--n-heads {n_heads} cannot be divided by --n-kv-heads {n_kv_heads}: each key-value head must serve the same number of heads"
    )]
    GroupsDoNotDivide { n_heads: usize, n_kv_heads: usize },
    #[error("a head of {head_dim} cannot be rotated in pairs: --hidden-dim over --n-heads must be even")]
    OddHead { head_dim: usize },
    #[error("a {family} has other sizes: {what}")]
    NotInFamily { family: &'static str, what: &'static str },
    #[error("--seq-len {seq_len} is more than the {positions} positions that the model has learned")]
    TooLong { seq_len: usize, positions: usize },
    #[error("--n-layers {n_layers} is more than the {MOST_LAYERS} that are supported")]
    TooManyLayers { n_layers: usize },
    #[error("{what} would have {elements} elements: that is beyond what can be addressed")]
    TooLarge { what: &'static str, elements: String },
}

/// How many parameters each part of the model has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParameterCount {
    pub embedding: u64,
    pub attention: u64,
    pub feed_forward: u64,
    pub norms: u64,
    pub head: u64,
    pub biases: u64,
}

impl ParameterCount {
    pub fn total(&self) -> u64 {
        self.embedding + self.attention + self.feed_forward + self.norms + self.head + self.biases
    }
}

impl ModelConfig {
    pub fn validate(&self, batch_size: usize, seq_len: usize) -> Result<(), ConfigError> {
        let sizes = [
            ("--hidden-dim", self.hidden_dim),
            ("--n-layers", self.n_layers),
            ("--n-heads", self.n_heads),
            ("--n-kv-heads", self.n_kv_heads),
            ("--intermediate-dim", self.intermediate_dim),
            ("--vocab-size", self.vocab_size),
            ("--batch-size", batch_size),
            ("--seq-len", seq_len),
        ];
        if let Some(&(flag, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(ConfigError::Zero { flag });
        }
        let (n_heads, n_kv_heads, head_dim) = (self.n_heads, self.n_kv_heads, self.head_dim);
        if head_dim == 0 {
            return Err(ConfigError::HeadsDoNotDivide { hidden_dim: self.hidden_dim, n_heads });
        }
        if n_heads % n_kv_heads != 0 {
            return Err(ConfigError::GroupsDoNotDivide { n_heads, n_kv_heads });
        }
        if head_dim % 2 != 0 {
            return Err(ConfigError::OddHead { head_dim });
        }
        (self.family.check)(self)?;
        if seq_len > self.longest() {
            return Err(ConfigError::TooLong { seq_len, positions: self.positions });
        }
        if self.n_layers > MOST_LAYERS {
            return Err(ConfigError::TooManyLayers { n_layers: self.n_layers });
        }
        let width = n_heads.saturating_mul(head_dim).max(self.hidden_dim);
        let products: [(&'static str, &[usize]); 5] = [
            ("the attention scores", &[batch_size, n_heads, seq_len, seq_len]),
            ("the logits", &[batch_size, seq_len, self.vocab_size]),
            ("the feed-forward activations", &[batch_size, seq_len, self.intermediate_dim]),
            ("the activations", &[batch_size, seq_len, width]),
            ("a weight", &[self.hidden_dim, self.intermediate_dim.max(self.vocab_size).max(width)]),
        ];
        for (what, factors) in products {
            let elements = factors.iter().try_fold(1usize, |product, factor| product.checked_mul(*factor));
            if elements.is_none_or(|elements| elements > MOST_ELEMENTS) {
                let elements = factors.iter().map(usize::to_string).collect::<Vec<_>>().join(" × ");
                return Err(ConfigError::TooLarge { what, elements });
            }
        }
        Ok(())
    }

    /// The longest sequence that the model accepts.
    pub fn longest(&self) -> usize {
        if self.positions > 0 { self.positions } else { usize::MAX }
    }

    pub fn q_width(&self) -> usize {
        self.n_heads * self.head_dim
    }

    pub fn kv_width(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }

    pub fn parameters(&self) -> ParameterCount {
        let mut count = ParameterCount::default();
        for parameter in parameters(self).unwrap_or_default() {
            let to = match parameter.part.role {
                Role::Embedding | Role::Position => &mut count.embedding,
                Role::Query | Role::Key | Role::Value | Role::QueryKeyValue | Role::Output => &mut count.attention,
                Role::Gate | Role::Up | Role::Down => &mut count.feed_forward,
                Role::Norm | Role::HeadNorm => &mut count.norms,
                Role::Head => &mut count.head,
                _ => &mut count.biases,
            };
            *to += parameter.ty.elements() as u64;
        }
        count
    }

    /// FLOPs of the matrix products that one forward pass needs, with causal attention counted as S(S+1)/2 positions.
    pub fn needed_forward_flops(&self, batch_size: usize, seq_len: usize) -> u64 {
        let count = self.parameters();
        let tokens = (batch_size * seq_len) as u64;
        let head = (self.vocab_size * self.hidden_dim) as u64;
        let pairs = (batch_size * self.n_layers) as u64 * (seq_len * (seq_len + 1) / 2) as u64;
        2 * tokens * (count.attention + count.feed_forward + head) + 4 * pairs * self.q_width() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_every_size_are_the_documented_ones() {
        let counted = SIZES.each_ref().map(|size| size.model().parameters().total());
        assert_eq!(counted, [202_048, 2_873_600, 20_890_112, 167_224_320, 1_300_203_520, 10_691_284_992]);
    }

    #[test]
    fn tiny_needs_the_documented_flops() {
        let tiny = Size::named("tiny").unwrap();
        assert_eq!(tiny.model().needed_forward_flops(tiny.batch_size, tiny.seq_len), 5_626_658_816);
    }

    #[test]
    fn sizes_that_cannot_be_are_refused_by_name() {
        let check = |change: fn(&mut ModelConfig), want: &str| {
            let mut config = Size::named("tiny").unwrap().model();
            change(&mut config);
            let error = config.validate(8, 128).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        };
        check(|config| config.n_layers = 0, "--n-layers is 0");
        check(|config| config.n_kv_heads = 3, "--n-heads 8 cannot be divided by --n-kv-heads 3");
        check(|config| config.head_dim = 5, "a head of 5");
        check(|config| config.vocab_size = usize::MAX / 2, "the logits would have 8 × 128 ×");
        assert!(Size::named("tiny").unwrap().model().validate(0, 128).is_err());
    }
}
