//! The layers that families are built from. Each enters its module with its role and declares its weights under Hugging
//! Face's names.

use super::ModelConfig;
use headroom_graph::ops::add::Add;
use headroom_graph::ops::attention::{AttentionMix, AttentionScores};
use headroom_graph::ops::causal_softmax::CausalSoftmax;
use headroom_graph::ops::cross_entropy::CrossEntropy;
use headroom_graph::ops::embedding::Embedding;
use headroom_graph::ops::matmul::{Form, MatMul};
use headroom_graph::ops::mul::Mul;
use headroom_graph::ops::rms_norm::RmsNorm;
use headroom_graph::ops::rope::{Rope, RotationDirection};
use headroom_graph::ops::silu::Silu;
use headroom_graph::{Graph, GraphError, Op, Part, Phase, Role, TensorType, ValueId};

/// Module names that every family uses.
pub const HEAD: &str = "lm_head";
pub const LOSS: &str = "loss";

/// The results of a forward pass.
#[derive(Clone, Copy, Debug)]
pub struct Forward {
    /// `[t, v]`
    pub logits: ValueId,
    /// `[1]`
    pub loss: ValueId,
}

/// Tables of cosines and sines, `[s, hd / 2]` each.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    cos: ValueId,
    sin: ValueId,
}

pub struct Build<'a> {
    pub graph: &'a mut Graph,
    pub config: &'a ModelConfig,
    pub batch: usize,
    pub seq: usize,
}

impl Build<'_> {
    /// Inputs `input_ids` and `targets`, `i32[b, s]`.
    pub fn inputs(&mut self) -> (ValueId, ValueId) {
        let ty = TensorType::i32(&[self.batch, self.seq]);
        (self.graph.input("input_ids", ty.clone()), self.graph.input("targets", ty))
    }

    /// Constants `rope.cos` and `rope.sin`.
    pub fn rotation(&mut self) -> Rotation {
        let ty = TensorType::f32(&[self.seq, self.config.head_dim / 2]);
        Rotation { cos: self.graph.constant("rope.cos", ty.clone()), sin: self.graph.constant("rope.sin", ty) }
    }

    /// Nodes added from now on belong to this module.
    pub fn enter(&mut self, module: &str, role: Role) {
        self.graph.enter_as(module, Phase::Forward, role);
    }

    pub fn add(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> Result<ValueId, GraphError> {
        self.graph.add_one(op, inputs)
    }

    /// The only parameter of a module.
    pub fn weight(&mut self, module: &str, role: Role, sizes: &[usize]) -> ValueId {
        let name = format!("{}.weight", (self.config.family.hf_name)(module));
        self.graph.weight(&name, TensorType::f32(sizes), Part::new(module, role))
    }

    /// A module's weight and its bias.
    pub fn weight_and_bias(&mut self, module: &str, role: Role, sizes: &[usize], width: usize) -> (ValueId, ValueId) {
        let mut leaf = |kind: &str, sizes: &[usize], role: Role| {
            let (name, path) = ((self.config.family.hf_name)(module), format!("{module}.{kind}"));
            self.graph.weight(&format!("{name}.{kind}"), TensorType::f32(sizes), Part::new(&path, role))
        };
        (leaf("weight", sizes, role), leaf("bias", &[width], Role::Bias))
    }

    /// The table's row for every token, and the table itself.
    pub fn embedding(&mut self, module: &str, ids: ValueId) -> Result<(ValueId, ValueId), GraphError> {
        let table = self.weight(module, Role::Embedding, &[self.config.vocab_size, self.config.hidden_dim]);
        self.enter(module, Role::Embedding);
        Ok((self.add(Embedding {}, &[ids, table])?, table))
    }

    pub fn linear(
        &mut self,
        module: &str,
        role: Role,
        x: ValueId,
        [from, to]: [usize; 2],
    ) -> Result<ValueId, GraphError> {
        let weight = self.weight(module, role, &[to, from]);
        self.enter(module, role);
        self.add(MatMul { form: Form::Nt }, &[x, weight])
    }

    /// RMSNorm over runs of `width` elements.
    pub fn rms_norm(&mut self, module: &str, role: Role, width: usize, x: ValueId) -> Result<ValueId, GraphError> {
        let weight = self.weight(module, role, &[width]);
        self.enter(module, role);
        self.add(RmsNorm { eps: self.config.norm_eps }, &[x, weight])
    }

    /// `q` `[t, h · hd]`, `k` and `v` `[t, kv · hd]` → `[t, h · hd]`.
    pub fn attention(
        &mut self,
        module: &str,
        [mut q, mut k, v]: [ValueId; 3],
        rotation: Option<Rotation>,
    ) -> Result<ValueId, GraphError> {
        let &ModelConfig { n_heads: heads, n_kv_heads: kv_heads, head_dim, .. } = self.config;
        let (seq, scale) = (self.seq, 1.0 / (head_dim as f64).sqrt());
        self.enter(module, Role::Attention);
        if let Some(Rotation { cos, sin }) = rotation {
            q = self.add(Rope { heads, turn: RotationDirection::Forward }, &[q, cos, sin])?;
            k = self.add(Rope { heads: kv_heads, turn: RotationDirection::Forward }, &[k, cos, sin])?;
        }
        let scores = self.add(AttentionScores { heads, kv_heads, seq, scale }, &[q, k])?; // [b, h, s, s]
        let p = self.add(CausalSoftmax {}, &[scores])?;
        self.add(AttentionMix { heads, kv_heads, seq, scale: 1.0 }, &[p, v])
    }

    /// `down(silu(gate(x)) * up(x))`.
    pub fn gated_feed_forward(&mut self, module: &str, x: ValueId) -> Result<ValueId, GraphError> {
        let (d, f) = (self.config.hidden_dim, self.config.intermediate_dim);
        let gate = self.linear(&format!("{module}.gate_proj"), Role::Gate, x, [d, f])?; // [t, f]
        let up = self.linear(&format!("{module}.up_proj"), Role::Up, x, [d, f])?;
        self.enter(module, Role::Activation);
        let gate = self.add(Silu {}, &[gate])?;
        let gated = self.add(Mul {}, &[gate, up])?;
        self.linear(&format!("{module}.down_proj"), Role::Down, gated, [f, d])
    }

    pub fn residual(&mut self, layer: usize, x: ValueId, branch: ValueId) -> Result<ValueId, GraphError> {
        self.enter(&format!("layers.{layer}"), Role::Residual);
        self.add(Add {}, &[x, branch])
    }

    /// Adds the head and the output `loss`; a tied head reads the embedding's table.
    pub fn head_and_loss(&mut self, x: ValueId, table: ValueId, targets: ValueId) -> Result<Forward, GraphError> {
        let sizes = [self.config.vocab_size, self.config.hidden_dim];
        let head = if self.config.tied { table } else { self.weight(HEAD, Role::Head, &sizes) };
        self.enter(HEAD, Role::Head);
        let logits = self.add(MatMul { form: Form::Nt }, &[x, head])?; // [t, v]
        self.enter(LOSS, Role::Loss);
        let loss = self.add(CrossEntropy {}, &[logits, targets])?;
        self.graph.output("loss", loss);
        Ok(Forward { logits, loss })
    }
}
