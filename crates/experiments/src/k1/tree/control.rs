//! The control: a LLaMA as deep as the tree, with as many parameters.

use headroom_training::models::{ModelConfig, Size};

/// A chain of as many blocks as a path of the tree, wide enough to have as many parameters as all of its nodes. The
/// width is the one at which the feed-forward part keeps its share, and that part absorbs the remainder.
pub fn llama_of(tree: &ModelConfig) -> ModelConfig {
    let wanted = tree.parameters().total();
    let row = ModelConfig {
        vocab_size: tree.vocab_size,
        n_layers: tree.branching.len() + 1,
        n_heads: tree.n_heads,
        n_kv_heads: tree.n_kv_heads,
        rope_theta: tree.rope_theta,
        norm_eps: tree.norm_eps,
        tied: tree.tied,
        ..Size::named("nano").map_or_else(|| tree.clone(), Size::model)
    };
    let of = |hidden_dim: usize, intermediate_dim: usize| ModelConfig {
        hidden_dim,
        head_dim: hidden_dim / tree.n_heads,
        intermediate_dim,
        ..row.clone()
    };
    // Heads are rotated in pairs.
    let unit = 2 * tree.n_heads;
    let kept = |width: usize| width * tree.intermediate_dim / tree.hidden_dim;
    let widest =
        (1..).map(|times| times * unit).take_while(|&width| of(width, kept(width)).parameters().total() <= wanted);
    let width = widest.last().unwrap_or(unit);
    let more = wanted.saturating_sub(of(width, kept(width)).parameters().total());
    let of_one = 3 * row.n_layers * width;
    of(width, kept(width) + (more as usize + of_one / 2) / of_one)
}
