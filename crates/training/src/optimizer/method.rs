//! Optimizers: which tensors each keeps per parameter, and the nodes that update it.

use super::OptimizerConfig;
use super::state::{FIRST_MOMENT, MOMENTUM, SECOND_MOMENT, StateTensor};
use headroom_graph::ops::adamw::AdamW;
use headroom_graph::ops::clip::SquaredNorm;
use headroom_graph::ops::matmul::{Form, MatMul};
use headroom_graph::ops::muon::{Blend, MuonMomentum, MuonUpdate, UnitNorm};
use headroom_graph::ops::sgd::Sgd;
use headroom_graph::{Category, Graph, GraphError, Role, ValueId};
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Method {
    #[default]
    AdamW,
    Sgd {
        /// Share of the previous momentum that a step keeps; 0 turns momentum off.
        momentum: f64,
    },
    /// Muon for the matrices of the blocks; AdamW for embedding, head, norms and biases.
    Muon { momentum: f64 },
}

/// Coefficients and rounds of the Newton-Schulz iteration, and the smallest norm it divides by: those of PyTorch's
/// Muon.
const COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];
const ROUNDS: usize = 5;
const LEAST_NORM: f64 = 1e-7;

/// Scales Muon's update to a root mean square of about 0.2 times the learning rate, like AdamW's, so that one rate
/// serves both.
const LIKE_ADAMW: f64 = 0.2;

impl Method {
    /// Each with its usual momentum.
    pub const ALL: [Method; 3] = [Method::AdamW, Method::Sgd { momentum: 0.9 }, Method::Muon { momentum: 0.95 }];

    /// The name used in flags.
    pub fn name(self) -> &'static str {
        match self {
            Method::AdamW => "adamw",
            Method::Sgd { .. } => "sgd",
            Method::Muon { .. } => "muon",
        }
    }

    /// PyTorch's class.
    pub fn torch_name(self) -> &'static str {
        match self {
            Method::AdamW => "AdamW",
            Method::Sgd { .. } => "SGD",
            Method::Muon { .. } => "Muon",
        }
    }

    pub fn momentum(self) -> Option<f64> {
        match self {
            Method::AdamW => None,
            Method::Sgd { momentum } | Method::Muon { momentum } => Some(momentum),
        }
    }

    pub fn with_momentum(self, momentum: f64) -> Method {
        match self {
            Method::AdamW => Method::AdamW,
            Method::Sgd { .. } => Method::Sgd { momentum },
            Method::Muon { .. } => Method::Muon { momentum },
        }
    }

    /// The method that updates this parameter, and the tensors it keeps.
    fn of(self, graph: &Graph, parameter: ValueId) -> (Method, &'static [StateTensor]) {
        let value = graph.get(parameter);
        match self {
            Method::Sgd { momentum } if momentum > 0.0 => (self, &[MOMENTUM]),
            Method::Sgd { .. } => (self, &[]),
            Method::Muon { .. } if is_hidden_matrix(value.part.role, value.ty.sizes()) => (self, &[MOMENTUM]),
            Method::AdamW | Method::Muon { .. } => (Method::AdamW, &[FIRST_MOMENT, SECOND_MOMENT]),
        }
    }
}

/// Muon is for matrices between hidden activations: not for lookup tables, nor for the head.
fn is_hidden_matrix(role: Role, sizes: &[usize]) -> bool {
    sizes.len() == 2 && !matches!(role, Role::Embedding | Role::Position | Role::Head)
}

impl fmt::Display for Method {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// Parses the name; the momentum is the usual one.
impl FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Method, String> {
        let names: Vec<&str> = Method::ALL.iter().map(|method| method.name()).collect();
        let found = Method::ALL.into_iter().find(|method| method.name() == text);
        found.ok_or_else(|| format!("no optimizer is called `{text}` (choose from {})", names.join(", ")))
    }
}

/// Inputs of one parameter's update: its gradient, the rates of the step, and the clipping factor.
pub(super) struct Step {
    pub gradient: ValueId,
    pub rates: ValueId,
    pub clip: Option<ValueId>,
}

/// Declares the tensors that the optimizer keeps for a parameter.
pub(super) fn declare(graph: &mut Graph, method: Method, parameter: ValueId) -> Vec<ValueId> {
    let (name, ty) = (graph.get(parameter).name.to_string(), graph.ty(parameter).clone());
    let kinds = method.of(graph, parameter).1;
    kinds.iter().map(|kind| graph.state(&kind.of(&name), ty.clone(), Category::OptimizerState)).collect()
}

/// Adds the nodes that update a parameter; `states` come from [`declare`].
pub(super) fn update(
    graph: &mut Graph,
    config: &OptimizerConfig,
    (parameter, states): (ValueId, &[ValueId]),
    step: &Step,
) -> Result<(), GraphError> {
    let &OptimizerConfig { betas: [beta1, beta2], eps, weight_decay, decays, .. } = config;
    match config.method.of(graph, parameter).0 {
        Method::AdamW => {
            let op = AdamW { beta1, beta2, eps, weight_decay, decays, bf16_copies: 0 };
            let inputs = [&[parameter], states, &[step.gradient, step.rates], step.clip.as_slice()].concat();
            graph.add(op, &inputs)?;
        }
        Method::Sgd { momentum } => {
            let op = Sgd { momentum, weight_decay, decays, bf16_copies: 0 };
            let inputs = [&[parameter, step.gradient, step.rates], states, step.clip.as_slice()].concat();
            graph.add(op, &inputs)?;
        }
        Method::Muon { momentum } => {
            let inputs = [states, &[step.gradient, step.rates], step.clip.as_slice()].concat();
            let direction = graph.add_one(MuonMomentum { momentum }, &inputs)?;
            let along = orthogonal(graph, direction)?;
            let longest = graph.ty(parameter).sizes().iter().copied().max().unwrap_or(1);
            let scale = LIKE_ADAMW * (longest as f64).sqrt();
            // Matrices always decay.
            graph.add(MuonUpdate { scale, weight_decay, bf16_copies: 0 }, &[parameter, along, step.rates])?;
        }
    }
    Ok(())
}

/// Approximates the orthogonal matrix nearest to `x`: its singular values come out between 0.7 and 1.2.
fn orthogonal(graph: &mut Graph, x: ValueId) -> Result<ValueId, GraphError> {
    let squares = graph.add_one(SquaredNorm {}, &[x])?;
    let mut x = graph.add_one(UnitNorm { least: LEAST_NORM }, &[x, squares])?;
    let is_tall = matches!(*graph.ty(x).sizes(), [rows, columns] if rows > columns);
    let [a, b, c] = COEFFICIENTS;
    for _ in 0..ROUNDS {
        // The smaller of the two Gram matrices.
        let gram = graph.add_one(MatMul { form: if is_tall { Form::Tn } else { Form::Nt } }, &[x, x])?;
        let square = graph.add_one(MatMul { form: Form::Nn }, &[gram, gram])?;
        let factor = graph.add_one(Blend { of_x: b, of_y: c }, &[gram, square])?;
        let sides = if is_tall { [x, factor] } else { [factor, x] };
        let product = graph.add_one(MatMul { form: Form::Nn }, &sides)?;
        x = graph.add_one(Blend { of_x: a, of_y: 1.0 }, &[x, product])?;
    }
    Ok(x)
}
