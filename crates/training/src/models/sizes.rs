//! The table of sizes.

use super::{Family, ModelConfig, llama};

/// A row of the table of sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Size {
    pub name: &'static str,
    pub seq_len: usize,
    pub batch_size: usize,
    model: ModelConfig,
}

/// Sizes of each model: width, layers, heads, key-value heads, width of the feed-forward part.
#[rustfmt::skip]
pub static SIZES: [Size; 6] = [
    Size { name: "nano",       seq_len: 64,   batch_size: 8,  model: model([64,   2,  4,  2,  128]) },
    Size { name: "tiny",       seq_len: 128,  batch_size: 8,  model: model([256,  4,  8,  4,  512]) },
    Size { name: "small",      seq_len: 256,  batch_size: 8,  model: model([512,  8,  8,  4,  1104]) },
    Size { name: "medium",     seq_len: 512,  batch_size: 16, model: model([1024, 12, 16, 8,  3456]) },
    Size { name: "large",      seq_len: 1024, batch_size: 8,  model: model([2048, 16, 16, 8,  11136]) },
    Size { name: "very_large", seq_len: 2048, batch_size: 4,  model: model([4096, 24, 32, 16, 32128]) },
];

const fn model([hidden_dim, n_layers, n_heads, n_kv_heads, intermediate_dim]: [usize; 5]) -> ModelConfig {
    ModelConfig {
        family: &llama::FAMILY,
        vocab_size: VOCAB_SIZE,
        hidden_dim,
        n_layers,
        n_heads,
        n_kv_heads,
        head_dim: hidden_dim / n_heads,
        intermediate_dim,
        rope_theta: 10_000.0,
        rope_scaling: None,
        norm_eps: 1e-6,
        tied: false,
        positions: 0,
        branching: Vec::new(),
    }
}

pub const VOCAB_SIZE: usize = 1000;

impl Size {
    pub fn named(name: &str) -> Option<&'static Size> {
        SIZES.iter().find(|size| size.name == name)
    }

    /// The row for exactly this model, whatever its vocabulary.
    pub fn of(model: &ModelConfig) -> Option<&'static Size> {
        SIZES.iter().find(|size| {
            ModelConfig { vocab_size: model.vocab_size, tied: model.tied, ..size.model_of(model.family) } == *model
        })
    }

    /// The row as a LLaMA.
    pub fn model(&self) -> ModelConfig {
        self.model.clone()
    }

    pub fn model_of(&self, family: &'static Family) -> ModelConfig {
        (family.sized)(ModelConfig { family, ..self.model() })
    }
}
