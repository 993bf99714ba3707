//! The model's configuration: the table of sizes, what may be changed, and what cannot be.

use thiserror::Error;

/// A LLaMA as Hugging Face defines it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    pub vocab_size: usize,
    pub hidden_dim: usize,
    pub n_layers: usize,
    pub n_heads: usize,
    pub n_kv_heads: usize,
    pub head_dim: usize,
    pub intermediate_dim: usize,
    pub rope_theta: f64,
    pub norm_eps: f64,
    /// One table serves as embedding and head.
    pub tied: bool,
}

/// A row of the table of sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Size {
    pub name: &'static str,
    pub seq_len: usize,
    pub batch_size: usize,
    model: ModelConfig,
}

/// Of each model: width, layers, heads, key-value heads, width of the feed-forward part.
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
        vocab_size: VOCAB_SIZE,
        hidden_dim,
        n_layers,
        n_heads,
        n_kv_heads,
        head_dim: hidden_dim / n_heads,
        intermediate_dim,
        rope_theta: 10_000.0,
        norm_eps: 1e-6,
        tied: false,
    }
}

pub const VOCAB_SIZE: usize = 1000;

/// Elements of one tensor that kernels and files still index safely.
const MOST_ELEMENTS: usize = 1 << 40;

/// Layers whose plan is made within seconds.
const MOST_LAYERS: usize = 1000;

#[derive(Clone, Debug, Error, PartialEq)]
pub enum ConfigError {
    #[error("{flag} is 0: every size must be at least 1")]
    Zero { flag: &'static str },
    #[error("--hidden-dim {hidden_dim} cannot be divided by --n-heads {n_heads}: use a multiple of {n_heads}")]
    HeadsDoNotDivide { hidden_dim: usize, n_heads: usize },
    #[error(
        "--n-heads {n_heads} cannot be divided by --n-kv-heads {n_kv_heads}: each key-value head serves as many heads"
    )]
    GroupsDoNotDivide { n_heads: usize, n_kv_heads: usize },
    #[error("a head of {head_dim} cannot be rotated in pairs: --hidden-dim over --n-heads must be even")]
    OddHead { head_dim: usize },
    #[error("--n-layers {n_layers} is more than the {MOST_LAYERS} that are planned for")]
    TooManyLayers { n_layers: usize },
    #[error("{what} would have {elements} elements: that is beyond what can be addressed")]
    TooLarge { what: &'static str, elements: String },
}

impl Size {
    pub fn named(name: &str) -> Option<&'static Size> {
        SIZES.iter().find(|size| size.name == name)
    }

    pub fn model(&self) -> ModelConfig {
        self.model.clone()
    }
}

/// How many parameters each part of the model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterCount {
    pub embedding: u64,
    pub attention: u64,
    pub feed_forward: u64,
    pub norms: u64,
    pub head: u64,
}

impl ParameterCount {
    pub fn total(&self) -> u64 {
        self.embedding + self.attention + self.feed_forward + self.norms + self.head
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

    pub fn q_width(&self) -> usize {
        self.n_heads * self.head_dim
    }

    pub fn kv_width(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }

    pub fn parameters(&self) -> ParameterCount {
        let [d, layers, vocab] = [self.hidden_dim, self.n_layers, self.vocab_size].map(|size| size as u64);
        let attention = 2 * d * (self.q_width() + self.kv_width()) as u64;
        ParameterCount {
            embedding: vocab * d,
            attention: layers * attention,
            feed_forward: layers * 3 * d * self.intermediate_dim as u64,
            norms: (2 * layers + 1) * d,
            head: if self.tied { 0 } else { vocab * d },
        }
    }

    /// FLOPs of the products that one forward pass needs: causal attention counted as S(S+1)/2 positions.
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
