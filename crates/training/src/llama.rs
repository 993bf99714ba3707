//! The LLaMA, top to bottom, as the naive graph that is Version 1: one node a kernel, scores materialised.
//!
//! b: batch, s: sequence, t = b · s tokens, d: hidden, h: heads, kv: key-value heads, hd: head size, f: feed-forward, v:
//! vocabulary. Parameters carry Hugging Face's names.

use crate::config::ModelConfig;
use headroom_graph::ops::add::Add;
use headroom_graph::ops::attention::{AttentionMix, AttentionScores};
use headroom_graph::ops::causal_softmax::CausalSoftmax;
use headroom_graph::ops::cross_entropy::CrossEntropy;
use headroom_graph::ops::embedding::Embedding;
use headroom_graph::ops::matmul::{Form, MatMul};
use headroom_graph::ops::mul::Mul;
use headroom_graph::ops::rms_norm::RmsNorm;
use headroom_graph::ops::rope::{Rope, Turn};
use headroom_graph::ops::silu::Silu;
use headroom_graph::{Graph, GraphError, Phase, TensorType, ValueId};

/// The results of a forward pass.
#[derive(Clone, Copy, Debug)]
pub struct Forward {
    /// `[t, v]`
    pub logits: ValueId,
    /// `[1]`
    pub loss: ValueId,
}

/// Adds the forward pass to an empty graph: inputs `input_ids` and `targets` `i32[b, s]`, constants `rope.cos` and
/// `rope.sin` `[s, hd / 2]`, output `loss`.
pub fn forward(graph: &mut Graph, config: &ModelConfig, batch: usize, seq: usize) -> Result<Forward, GraphError> {
    let mut build = Builder { graph, config, seq };
    let (d, v) = (config.hidden_dim, config.vocab_size);
    let input_ids = build.graph.input("input_ids", TensorType::i32(&[batch, seq]));
    let targets = build.graph.input("targets", TensorType::i32(&[batch, seq]));
    let cos = build.graph.constant("rope.cos", TensorType::f32(&[seq, config.head_dim / 2]));
    let sin = build.graph.constant("rope.sin", TensorType::f32(&[seq, config.head_dim / 2]));

    let table = build.weight("model.embed_tokens", &[v, d]);
    build.enter("embed_tokens");
    let mut x = build.graph.add_one(Embedding {}, &[input_ids, table])?; // [t, d]
    for layer in 0..config.n_layers {
        x = build.layer(layer, x, (cos, sin))?;
    }
    let normed = build.norm("model.norm", "norm", x)?;
    let head = if config.tied { table } else { build.weight("lm_head", &[v, d]) };
    build.enter("lm_head");
    let logits = build.graph.add_one(MatMul { form: Form::Nt }, &[normed, head])?; // [t, v]
    build.enter("loss");
    let loss = build.graph.add_one(CrossEntropy {}, &[logits, targets])?;
    graph.output("loss", loss);
    Ok(Forward { logits, loss })
}

struct Builder<'a> {
    graph: &'a mut Graph,
    config: &'a ModelConfig,
    seq: usize,
}

impl Builder<'_> {
    /// 18 kernels: the workshop's list of 17, and the second residual add.
    fn layer(&mut self, layer: usize, x: ValueId, (cos, sin): (ValueId, ValueId)) -> Result<ValueId, GraphError> {
        let &ModelConfig { hidden_dim: d, n_heads: heads, n_kv_heads: kv_heads, intermediate_dim: f, .. } = self.config;
        let (q_width, kv_width, seq) = (self.config.q_width(), self.config.kv_width(), self.seq);
        let at = |part: &str| (format!("model.layers.{layer}.{part}"), format!("layers.{layer}.{part}"));
        let scale = 1.0 / (self.config.head_dim as f64).sqrt();

        let (name, module) = at("input_layernorm");
        let normed = self.norm(&name, &module, x)?; // [t, d]
        let q = self.linear(at("self_attn.q_proj"), normed, d, q_width)?; // [t, h · hd]
        let k = self.linear(at("self_attn.k_proj"), normed, d, kv_width)?; // [t, kv · hd]
        let v = self.linear(at("self_attn.v_proj"), normed, d, kv_width)?;
        self.enter(&at("self_attn").1);
        let q = self.graph.add_one(Rope { heads, turn: Turn::Forward }, &[q, cos, sin])?;
        let k = self.graph.add_one(Rope { heads: kv_heads, turn: Turn::Forward }, &[k, cos, sin])?;
        let scores = self.graph.add_one(AttentionScores { heads, kv_heads, seq, scale }, &[q, k])?; // [b, h, s, s]
        let p = self.graph.add_one(CausalSoftmax {}, &[scores])?;
        let mixed = self.graph.add_one(AttentionMix { heads, kv_heads, seq, scale: 1.0 }, &[p, v])?; // [t, h · hd]
        let projected = self.linear(at("self_attn.o_proj"), mixed, q_width, d)?;
        self.enter(&format!("layers.{layer}"));
        let x = self.graph.add_one(Add {}, &[x, projected])?;

        let (name, module) = at("post_attention_layernorm");
        let normed = self.norm(&name, &module, x)?;
        let gate = self.linear(at("mlp.gate_proj"), normed, d, f)?; // [t, f]
        let up = self.linear(at("mlp.up_proj"), normed, d, f)?;
        self.enter(&at("mlp").1);
        let gate = self.graph.add_one(Silu {}, &[gate])?;
        let gated = self.graph.add_one(Mul {}, &[gate, up])?;
        let down = self.linear(at("mlp.down_proj"), gated, f, d)?; // [t, d]
        self.enter(&format!("layers.{layer}"));
        self.graph.add_one(Add {}, &[x, down])
    }

    fn linear(
        &mut self,
        (name, module): (String, String),
        x: ValueId,
        from: usize,
        to: usize,
    ) -> Result<ValueId, GraphError> {
        let weight = self.weight(&name, &[to, from]);
        self.enter(&module);
        self.graph.add_one(MatMul { form: Form::Nt }, &[x, weight])
    }

    fn norm(&mut self, name: &str, module: &str, x: ValueId) -> Result<ValueId, GraphError> {
        let weight = self.weight(name, &[self.config.hidden_dim]);
        self.enter(module);
        self.graph.add_one(RmsNorm { eps: self.config.norm_eps }, &[x, weight])
    }

    fn weight(&mut self, name: &str, sizes: &[usize]) -> ValueId {
        self.graph.parameter(&format!("{name}.weight"), TensorType::f32(sizes))
    }

    fn enter(&mut self, module: &str) {
        self.graph.enter(module, Phase::Forward);
    }
}

/// The rotation tables, rounded to single precision where Hugging Face rounds: frequency, angle, cosine and sine.
pub fn rope_tables(config: &ModelConfig, seq: usize) -> (Vec<f32>, Vec<f32>) {
    let half = config.head_dim / 2;
    let frequencies: Vec<f32> = (0..half)
        .map(|i| {
            let exponent = (2 * i) as f32 / config.head_dim as f32;
            1.0 / config.rope_theta.powf(f64::from(exponent)) as f32
        })
        .collect();
    let angles = (0..seq).flat_map(|position| frequencies.iter().map(move |f| position as f32 * f));
    angles.map(|angle| (f64::from(angle).cos() as f32, f64::from(angle).sin() as f32)).unzip()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Size;

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
            let inside = format!("layers.{layer}");
            let kernels = graph.nodes().iter().filter(|node| {
                node.module.strip_prefix(&inside).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            });
            assert_eq!(kernels.count(), 18);
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
