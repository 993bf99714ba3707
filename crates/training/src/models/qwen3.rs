//! Qwen3, top to bottom: a LLaMA with an independent head size, whose queries and keys are normalized per head before
//! the rotation.
//!
//! Letters as in [`super::llama`].

use super::build::{Build, Forward, Rotation};
use super::fields::{FieldError, Fields};
use super::{Family, ModelConfig, llama, rope};
use headroom_graph::{GraphError, Role, ValueId};
use serde_json::{Value, json};

pub static FAMILY: Family = Family {
    name: "qwen3",
    title: "Qwen3",
    architecture: "Qwen3ForCausalLM",
    prefix: "model.",
    hf_name: llama::hf_name,
    // Older files carry RoPE's frequencies, which follow from its base.
    is_redundant: |name| name.ends_with("rotary_emb.inv_freq"),
    sized: |row| ModelConfig { rope_theta: 1e6, ..row },
    check: |_| Ok(()),
    forward,
    parents: |_| vec![],
    constants: rope::constants,
    read,
    write,
};

fn forward(build: &mut Build) -> Result<Forward, GraphError> {
    llama::stacked(build, block)
}

fn block(build: &mut Build, layer: usize, x: ValueId, rotation: Rotation) -> Result<ValueId, GraphError> {
    let &ModelConfig { hidden_dim: d, head_dim: hd, .. } = build.config;
    let (q_width, kv_width) = (build.config.q_width(), build.config.kv_width());
    let at = |part: &str| format!("layers.{layer}.{part}");

    let normed = build.rms_norm(&at("input_layernorm"), Role::Norm, d, x)?; // [t, d]
    let q = build.linear(&at("self_attn.q_proj"), Role::Query, normed, [d, q_width])?; // [t, h · hd]
    let k = build.linear(&at("self_attn.k_proj"), Role::Key, normed, [d, kv_width])?; // [t, kv · hd]
    let v = build.linear(&at("self_attn.v_proj"), Role::Value, normed, [d, kv_width])?;
    let q = build.rms_norm(&at("self_attn.q_norm"), Role::HeadNorm, hd, q)?;
    let k = build.rms_norm(&at("self_attn.k_norm"), Role::HeadNorm, hd, k)?;
    let mixed = build.attention(&at("self_attn"), [q, k, v], Some(rotation))?; // [t, h · hd]
    let projected = build.linear(&at("self_attn.o_proj"), Role::Output, mixed, [q_width, d])?;
    let x = build.residual(layer, x, projected)?;

    let normed = build.rms_norm(&at("post_attention_layernorm"), Role::Norm, d, x)?;
    let down = build.gated_feed_forward(&at("mlp"), normed)?; // [t, d]
    build.residual(layer, x, down)
}

/// LLaMA's entries with other defaults; refuses sliding-window attention.
fn read(fields: &Fields) -> Result<ModelConfig, FieldError> {
    fields.only("use_sliding_window", &json!(false))?;
    let config = ModelConfig { family: &FAMILY, head_dim: fields.size_or("head_dim", 128)?, ..llama::read(fields)? };
    fields.check_heads(&config)?;
    Ok(config)
}

fn write(config: &ModelConfig) -> Value {
    let mut entries = llama::write(config);
    entries["use_sliding_window"] = json!(false);
    entries.as_object_mut().map(|entries| entries.remove("mlp_bias"));
    entries
}
