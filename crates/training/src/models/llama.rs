//! LLaMA, top to bottom, as the naive graph that is Version 1: one node per kernel, attention scores materialized.
//!
//! b: batch, s: sequence, t = b · s tokens, d: hidden, h: heads, kv: key-value heads, hd: head size, f: feed-forward,
//! v: vocabulary.

use super::build::{Build, Forward, Rotation};
use super::fields::{FieldError, Fields};
use super::{Family, ModelConfig, rope};
use headroom_graph::{GraphError, Role, ValueId};
use serde_json::{Value, json};

pub static FAMILY: Family = Family {
    name: "llama",
    title: "LLaMA",
    architecture: "LlamaForCausalLM",
    prefix: "model.",
    hf_name,
    // Older files carry RoPE's frequencies, which follow from its base.
    is_redundant: |name| name.ends_with("rotary_emb.inv_freq"),
    sized: |row| row,
    check: |_| Ok(()),
    forward,
    parents: |_| vec![],
    constants: rope::constants,
    read,
    write,
};

/// Everything but the head lies under `model`.
pub fn hf_name(module: &str) -> String {
    if module == "lm_head" { module.into() } else { format!("model.{module}") }
}

fn forward(build: &mut Build) -> Result<Forward, GraphError> {
    stacked(build, block)
}

/// Adds one block: its index, its input, and the rotation.
pub type Block = fn(&mut Build, usize, ValueId, Rotation) -> Result<ValueId, GraphError>;

/// Embedding, blocks of one kind, norm and head.
pub fn stacked(build: &mut Build, block: Block) -> Result<Forward, GraphError> {
    let (input_ids, targets) = build.inputs();
    let rotation = build.rotation();
    let (mut x, table) = build.embedding("embed_tokens", input_ids)?; // [t, d]
    for layer in 0..build.config.n_layers {
        x = block(build, layer, x, rotation)?;
    }
    let normed = build.rms_norm("norm", Role::Norm, build.config.hidden_dim, x)?;
    build.head_and_loss(normed, table, targets)
}

/// 18 kernels: the workshop's list of 17, and the second residual add.
pub fn block(build: &mut Build, layer: usize, x: ValueId, rotation: Rotation) -> Result<ValueId, GraphError> {
    let (d, q_width, kv_width) = (build.config.hidden_dim, build.config.q_width(), build.config.kv_width());
    let at = |part: &str| format!("layers.{layer}.{part}");

    let normed = build.rms_norm(&at("input_layernorm"), Role::Norm, d, x)?; // [t, d]
    let q = build.linear(&at("self_attn.q_proj"), Role::Query, normed, [d, q_width])?; // [t, h · hd]
    let k = build.linear(&at("self_attn.k_proj"), Role::Key, normed, [d, kv_width])?; // [t, kv · hd]
    let v = build.linear(&at("self_attn.v_proj"), Role::Value, normed, [d, kv_width])?;
    let mixed = build.attention(&at("self_attn"), [q, k, v], Some(rotation))?; // [t, h · hd]
    let projected = build.linear(&at("self_attn.o_proj"), Role::Output, mixed, [q_width, d])?;
    let x = build.residual(layer, x, projected)?;

    let normed = build.rms_norm(&at("post_attention_layernorm"), Role::Norm, d, x)?;
    let down = build.gated_feed_forward(&at("mlp"), normed)?; // [t, d]
    build.residual(layer, x, down)
}

pub fn read(fields: &Fields) -> Result<ModelConfig, FieldError> {
    fields.only("hidden_act", &json!("silu"))?;
    for key in ["attention_bias", "mlp_bias"] {
        fields.only(key, &json!(false))?;
    }
    for (key, only) in [("attention_dropout", 0.0), ("partial_rotary_factor", 1.0)] {
        fields.only_number(key, only)?;
    }
    let (hidden_dim, n_heads) = (fields.size("hidden_size")?, fields.size("num_attention_heads")?);
    let config = ModelConfig {
        family: &FAMILY,
        vocab_size: fields.size("vocab_size")?,
        hidden_dim,
        n_layers: fields.size("num_hidden_layers")?,
        n_heads,
        n_kv_heads: fields.size_or("num_key_value_heads", n_heads)?,
        head_dim: fields.size_or("head_dim", hidden_dim / n_heads)?,
        intermediate_dim: fields.size("intermediate_size")?,
        rope_theta: rope::read_theta(fields, 10_000.0)?,
        rope_scaling: rope::read_scaling(fields)?,
        norm_eps: fields.positive_or("rms_norm_eps", 1e-6)?,
        tied: fields.flag("tie_word_embeddings")?,
        positions: 0,
        branching: vec![],
    };
    fields.check_heads(&config)?;
    Ok(config)
}

pub fn write(config: &ModelConfig) -> Value {
    let mut entries = json!({
        "attention_bias": false,
        "attention_dropout": 0.0,
        "bos_token_id": null,
        "eos_token_id": null,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "hidden_size": config.hidden_dim,
        "intermediate_size": config.intermediate_dim,
        "mlp_bias": false,
        "num_attention_heads": config.n_heads,
        "num_hidden_layers": config.n_layers,
        "num_key_value_heads": config.n_kv_heads,
        "pad_token_id": null,
        "rms_norm_eps": config.norm_eps,
    });
    rope::write(config, &mut entries);
    entries
}

#[cfg(test)]
mod tests {
    use crate::models::{Size, forward};
    use headroom_graph::{Graph, Phase};

    fn graph_of(size: &str) -> Graph {
        let size = Size::named(size).unwrap();
        let mut graph = Graph::new();
        forward(&mut graph, &size.model(), size.batch_size, size.seq_len).unwrap();
        graph
    }

    #[test]
    fn version_1_has_eighteen_kernels_a_layer() {
        let graph = graph_of("tiny");
        for layer in 0..4 {
            assert_eq!(graph.nodes().iter().filter(|node| node.block() == Some(layer)).count(), 18);
        }
        // Beside the layers: embedding, final norm, head and loss.
        assert_eq!(graph.nodes().len(), 4 * 18 + 4);
    }

    #[test]
    fn version_1_executes_the_documented_flops() {
        assert_eq!(graph_of("tiny").product_flops(Phase::Forward), 5_892_997_120);
    }

    #[test]
    fn the_graph_prints_and_parses_back_to_itself() {
        let graph = graph_of("nano");
        let parsed: Graph = graph.to_string().parse().unwrap();
        assert_eq!(parsed, graph);
    }
}
