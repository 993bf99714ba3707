//! GPT-2, top to bottom: LayerNorm, learned positions, a fused QKV projection, GELU, biases, a tied head.
//!
//! Letters as in [`super::llama`], and p: positions. Weights are `[in, out]`, as Hugging Face stores them for this
//! family.

use super::build::{Build, Forward};
use super::fields::{FieldError, Fields};
use super::{ConfigError, Family, ModelConfig};
use headroom_graph::ops::add_rows::AddRows;
use headroom_graph::ops::gelu::Gelu;
use headroom_graph::ops::layer_norm::LayerNorm;
use headroom_graph::ops::matmul::{Form, MatMul};
use headroom_graph::ops::split::Split;
use headroom_graph::{GraphError, Role, ValueId};
use serde_json::{Value, json};

pub static FAMILY: Family = Family {
    name: "gpt2",
    title: "GPT-2",
    architecture: "GPT2LMHeadModel",
    prefix: "transformer.",
    hf_name,
    // Older files carry the causal masks.
    is_redundant: |name| name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"),
    sized,
    check,
    forward,
    parents: |_| vec![],
    constants: |_, _| vec![],
    read,
    write,
};

fn hf_name(module: &str) -> String {
    match module.strip_prefix("layers.") {
        Some(rest) => format!("transformer.h.{rest}"),
        None if module == "lm_head" => module.into(),
        None => format!("transformer.{module}"),
    }
}

fn sized(row: ModelConfig) -> ModelConfig {
    let (n_kv_heads, intermediate_dim) = (row.n_heads, 4 * row.hidden_dim);
    ModelConfig { n_kv_heads, intermediate_dim, norm_eps: 1e-5, tied: true, positions: 2048, ..row }
}

fn check(config: &ModelConfig) -> Result<(), ConfigError> {
    let whole = config.n_kv_heads == config.n_heads && config.q_width() == config.hidden_dim;
    let what = "every head has keys and values of its own, and the heads together are as wide as --hidden-dim";
    if whole { Ok(()) } else { Err(ConfigError::NotInFamily { family: FAMILY.title, what }) }
}

fn forward(build: &mut Build) -> Result<Forward, GraphError> {
    let (input_ids, targets) = build.inputs();
    let (x, table) = build.embedding("wte", input_ids)?; // [t, d]
    let positions = build.weight("wpe", Role::Position, &[build.config.positions, build.config.hidden_dim]); // [p, d]
    build.enter("wpe", Role::Position);
    let mut x = build.add(AddRows { period: build.seq }, &[x, positions])?;
    for layer in 0..build.config.n_layers {
        x = block(build, layer, x)?;
    }
    let normed = layer_norm(build, "ln_f", x)?;
    build.head_and_loss(normed, table, targets)
}

fn block(build: &mut Build, layer: usize, x: ValueId) -> Result<ValueId, GraphError> {
    let &ModelConfig { hidden_dim: d, intermediate_dim: f, .. } = build.config;
    let at = |part: &str| format!("layers.{layer}.{part}");

    let normed = layer_norm(build, &at("ln_1"), x)?; // [t, d]
    let qkv = linear(build, &at("attn.c_attn"), Role::QueryKeyValue, normed, [d, 3 * d])?; // [t, 3 · d]
    build.enter(&at("attn"), Role::Attention);
    let parts = build.graph.add(Split { parts: 3 }, &[qkv])?; // [t, h · hd] each
    let mixed = build.attention(&at("attn"), [parts[0], parts[1], parts[2]], None)?;
    let projected = linear(build, &at("attn.c_proj"), Role::Output, mixed, [d, d])?;
    let x = build.residual(layer, x, projected)?;

    let normed = layer_norm(build, &at("ln_2"), x)?;
    let up = linear(build, &at("mlp.c_fc"), Role::Up, normed, [d, f])?; // [t, f]
    build.enter(&at("mlp"), Role::Activation);
    let activated = build.add(Gelu {}, &[up])?;
    let down = linear(build, &at("mlp.c_proj"), Role::Down, activated, [f, d])?; // [t, d]
    build.residual(layer, x, down)
}

fn linear(
    build: &mut Build,
    module: &str,
    role: Role,
    x: ValueId,
    [from, to]: [usize; 2],
) -> Result<ValueId, GraphError> {
    let (weight, bias) = build.weight_and_bias(module, role, &[from, to], to);
    build.enter(module, role);
    let product = build.add(MatMul { form: Form::Nn }, &[x, weight])?;
    build.add(AddRows { period: 1 }, &[product, bias])
}

fn layer_norm(build: &mut Build, module: &str, x: ValueId) -> Result<ValueId, GraphError> {
    let width = build.config.hidden_dim;
    let (weight, bias) = build.weight_and_bias(module, Role::Norm, &[width], width);
    build.enter(module, Role::Norm);
    build.add(LayerNorm { eps: build.config.norm_eps }, &[x, weight, bias])
}

/// Ignores dropout, as [`Family::read`] allows; refuses everything else that would change the model.
fn read(fields: &Fields) -> Result<ModelConfig, FieldError> {
    if fields.get("activation_function").is_some_and(|name| name != "gelu_pytorch_tanh") {
        fields.only("activation_function", &json!("gelu_new"))?;
    }
    fields.only("scale_attn_weights", &json!(true))?;
    for key in ["scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "add_cross_attention"] {
        fields.only(key, &json!(false))?;
    }
    let (hidden_dim, n_heads) = (fields.size_or("n_embd", 768)?, fields.size_or("n_head", 12)?);
    if !hidden_dim.is_multiple_of(n_heads) {
        return Err(fields.refuse("n_head", "which does not divide n_embd"));
    }
    Ok(ModelConfig {
        family: &FAMILY,
        vocab_size: fields.size_or("vocab_size", 50257)?,
        hidden_dim,
        n_layers: fields.size_or("n_layer", 12)?,
        n_heads,
        n_kv_heads: n_heads,
        head_dim: hidden_dim / n_heads,
        intermediate_dim: fields.size_or("n_inner", 4 * hidden_dim)?,
        rope_theta: 10_000.0,
        rope_scaling: None,
        norm_eps: fields.positive_or("layer_norm_epsilon", 1e-5)?,
        tied: fields.flag_or("tie_word_embeddings", true)?,
        positions: fields.size_or("n_positions", 1024)?,
        branching: vec![],
    })
}

fn write(config: &ModelConfig) -> Value {
    json!({
        "activation_function": "gelu_new",
        "attn_pdrop": 0.0,
        "bos_token_id": null,
        "embd_pdrop": 0.0,
        "eos_token_id": null,
        "layer_norm_epsilon": config.norm_eps,
        "n_embd": config.hidden_dim,
        "n_head": config.n_heads,
        "n_inner": config.intermediate_dim,
        "n_layer": config.n_layers,
        "n_positions": config.positions,
        "pad_token_id": null,
        "resid_pdrop": 0.0,
    })
}

#[cfg(test)]
mod tests {
    use crate::models::{Family, Size, forward};
    use headroom_graph::{Graph, Part, Role};

    #[test]
    fn a_bias_and_its_weight_are_leaves_of_one_module() {
        let model = Size::named("nano").unwrap().model_of(Family::named("gpt2").unwrap());
        let mut graph = Graph::new();
        forward(&mut graph, &model, 2, 8).unwrap();
        let part = |name: &str| graph.get(graph.named(name).unwrap()).part.clone();
        assert_eq!(part("transformer.h.1.ln_1.bias"), Part::new("layers.1.ln_1.bias", Role::Bias));
        assert_eq!(
            part("transformer.h.1.attn.c_attn.weight"),
            Part::new("layers.1.attn.c_attn.weight", Role::QueryKeyValue)
        );
        assert_eq!(part("transformer.wte.weight"), Part::new("wte", Role::Embedding));
        let parsed: Graph = graph.to_string().parse().unwrap();
        assert_eq!(parsed, graph);
    }
}
