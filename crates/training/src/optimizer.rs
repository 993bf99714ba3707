//! The update, clipping and gradient accumulation as nodes of the graph, and the learning rates of a step.

mod method;
mod state;

pub use method::Method;
pub use state::{FIRST_MOMENT, MOMENTUM, SECOND_MOMENT, StateTensor, Trained};

use crate::schedule::Schedule;
use headroom_graph::choice::bias_corrections;
use headroom_graph::ops::accumulate::{Accumulate, Zero};
use headroom_graph::ops::adamw::Decays;
use headroom_graph::ops::choose::Choose;
use headroom_graph::ops::clip::{ClipScale, GradientNorm, SquaredNorm};
use headroom_graph::{Among, Category, Graph, GraphError, Phase, Rule, TensorType, ValueId};
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimizerConfig {
    pub method: Method,
    pub learning_rate: f64,
    pub schedule: Schedule,
    /// Decay rates of AdamW's moments.
    pub betas: [f64; 2],
    pub eps: f64,
    pub weight_decay: f64,
    pub decays: Decays,
    /// Maximum global norm of the gradients; 0 is off.
    pub clip: f64,
    pub accumulation: usize,
    pub update: Update,
}

/// The part of the model that a step updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Update {
    /// Everything.
    #[default]
    Dense,
    /// The nodes of the model's tree that a rule chooses; the others stay as they are, moments and step counts
    /// included.
    Chosen {
        rule: Rule,
        /// Seed of the random draw, if the rule makes one.
        seed: u64,
    },
}

impl Update {
    pub fn rule(self) -> Option<Rule> {
        match self {
            Update::Dense => None,
            Update::Chosen { rule, .. } => Some(rule),
        }
    }
}

/// The name used in flags.
impl fmt::Display for Update {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Update::Dense => out.write_str("dense"),
            Update::Chosen { rule, .. } => rule.fmt(out),
        }
    }
}

/// Uses seed 0.
impl FromStr for Update {
    type Err = String;

    fn from_str(text: &str) -> Result<Update, String> {
        match text {
            "dense" => Ok(Update::Dense),
            _ => Ok(Update::Chosen { rule: text.parse()?, seed: 0 }),
        }
    }
}

/// The default is AdamW.
impl Default for OptimizerConfig {
    fn default() -> OptimizerConfig {
        OptimizerConfig {
            method: Method::AdamW,
            learning_rate: 3e-4,
            schedule: Schedule::default(),
            betas: [0.9, 0.999],
            eps: 1e-8,
            weight_decay: 0.01,
            decays: Decays::All,
            clip: 0.0,
            accumulation: 1,
            update: Update::Dense,
        }
    }
}

impl OptimizerConfig {
    /// The default settings with this update.
    pub fn updating(update: Update) -> OptimizerConfig {
        OptimizerConfig { update, ..OptimizerConfig::default() }
    }

    /// The learning rate of a step, counted from 1, in a run that ends at `last`.
    pub fn learning_rate_at(&self, step: u64, last: u64) -> f64 {
        self.learning_rate * self.schedule.share_at(step, last)
    }

    /// The `rates` input of all updates at a step, counted from 1.
    pub fn rates_at(&self, step: u64, last: u64) -> [f32; 3] {
        let [first, second] = bias_corrections(self.betas[0], self.betas[1], step);
        [self.learning_rate_at(step, last) as f32, first, second]
    }
}

/// Names of the inputs and states of the node choice.
pub const CHOICE_AT: &str = "update.at";
pub const CHOICE_TREE: &str = "update.tree";
pub const CHOICE_COUNTS: &str = "update.counts";
pub const CHOICE_LOG: &str = "update.log";

/// Steps whose choices a device keeps for the host to read.
pub const LOG_ROWS: usize = 256;

/// When the norm of all gradients is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    WhereClipped,
    /// Also when nothing is clipped, so that it can be watched.
    Always,
}

/// Adds one update per parameter, with clipping and accumulation if requested; returns the norm of all gradients if it
/// is computed. Nodes are chosen among `units`. The input `rates` `[3]` is written before every update.
pub fn optimize(
    graph: &mut Graph,
    config: &OptimizerConfig,
    parameters: &[ValueId],
    gradients: &[ValueId],
    units: Among,
    norm: Norm,
) -> Result<Option<ValueId>, GraphError> {
    let states: Vec<Vec<ValueId>> =
        parameters.iter().map(|&parameter| method::declare(graph, config.method, parameter)).collect();
    let rates = graph.input("rates", TensorType::f32(&[3]));
    let gradients =
        if config.accumulation > 1 { accumulate(graph, parameters, gradients)? } else { gradients.to_vec() };

    graph.enter("optimizer", Phase::Optimizer);
    let clips = config.clip > 0.0;
    let mut squares = vec![];
    if clips || config.update != Update::Dense {
        for &gradient in &gradients {
            squares.push(graph.add_one(SquaredNorm {}, &[gradient])?);
        }
    }
    let mut clip = None;
    if clips {
        let made = graph.add(ClipScale { max_norm: config.clip }, &squares)?;
        clip = Some((made[0], made[1]));
    }
    // Without clipping the step itself needs no norm. A separate op computes it, so the kernels are those of a run that
    // is not watched.
    let watched = match clip {
        None if norm == Norm::Always => Some(graph.add_one(GradientNorm {}, &gradients)?),
        _ => None,
    };
    let rates = match config.update {
        Update::Dense => vec![rates; parameters.len()],
        Update::Chosen { rule, seed } => {
            let [beta1, beta2] = config.betas;
            choose(graph, Choose { rule, among: units, seed, beta1, beta2 }, rates, &squares)?
        }
    };
    for (((&parameter, states), &gradient), rates) in parameters.iter().zip(&states).zip(&gradients).zip(rates) {
        let step = method::Step { gradient, rates, clip: clip.map(|(scale, _)| scale) };
        method::update(graph, config, (parameter, states), &step)?;
    }
    if config.accumulation > 1 {
        for &sum in &gradients {
            graph.add(Zero {}, &[sum])?;
        }
    }
    Ok(clip.map(|(_, norm)| norm).or(watched))
}

/// Adds the node choice and its states; returns the rates of every parameter's update.
fn choose(graph: &mut Graph, choice: Choose, rates: ValueId, squares: &[ValueId]) -> Result<Vec<ValueId>, GraphError> {
    let leaves = squares.len();
    let at = graph.input(CHOICE_AT, TensorType::i32(&[2]));
    let state = Category::OptimizerState;
    let tree = graph.state(CHOICE_TREE, TensorType::i32(&[leaves, 3]), state);
    let counts = graph.state(CHOICE_COUNTS, TensorType::f32(&[leaves]), state);
    let log = graph.state(CHOICE_LOG, TensorType::f32(&[LOG_ROWS, 2 * leaves]), state);
    graph.add(choice, &[&[rates, at, tree, counts, log], squares].concat())
}

/// Adds one persistent gradient sum per parameter, which every backward pass adds to and the optimizer resets to zero.
fn accumulate(graph: &mut Graph, parameters: &[ValueId], gradients: &[ValueId]) -> Result<Vec<ValueId>, GraphError> {
    graph.enter("accumulate", Phase::Backward);
    parameters
        .iter()
        .zip(gradients)
        .map(|(&parameter, &gradient)| {
            let (name, ty) = (format!("gradient_sum.{}", graph.get(parameter).name), graph.ty(parameter).clone());
            let sum = graph.state(&name, ty, Category::Gradients);
            graph.add(Accumulate {}, &[sum, gradient])?;
            Ok(sum)
        })
        .collect()
}

#[cfg(test)]
mod tests;
