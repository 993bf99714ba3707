//! The optimizer's part of `zero1`: each rank keeps its shard of every state and updates its shard of every weight.
//!
//! A weight's shard is kept beside the weight: the update writes it, and it is gathered afterwards. So the updates
//! themselves stay elementwise, on shorter tensors.

use crate::graph::{Category, Graph, GraphError, Node, Phase, Source, Value, ValueId};
use crate::op::Op;
use crate::ops::clip::{ClipScale, SquaredNorm};
use crate::ops::collective::{AllReduce, shard_type};
use crate::pass::Copy;
use crate::tensor::TensorType;
use std::collections::{BTreeMap, BTreeSet};

/// Name of the pass.
pub const ZERO1: &str = "zero1";

const SHARD: &str = "shard.";

/// Name of this rank's shard of a weight.
pub fn shard_name(parameter: &str) -> String {
    format!("{SHARD}{parameter}")
}

/// Name of the weight that a value of this name is a shard of.
pub fn weight_of_shard(name: &str) -> Option<&str> {
    name.strip_prefix(SHARD)
}

/// Parameters and states that are sharded, and over how many ranks; empty by default.
#[derive(Default)]
pub struct Sharding {
    ranks: usize,
    parameters: Vec<ValueId>,
    states: BTreeSet<String>,
    /// The last sum of squares of a gradient: after it, all of them are summed over the ranks.
    squares: Vec<ValueId>,
}

impl Sharding {
    /// Shards every weight that a step updates, with its states. Rejects an update that is not elementwise.
    pub fn of(graph: &Graph, ranks: usize) -> Result<Sharding, GraphError> {
        let mut found = Sharding { ranks, ..Sharding::default() };
        for node in graph.nodes().iter().filter(|node| node.phase == Phase::Optimizer) {
            let states = match node.op {
                Op::AdamW(_) => 1..3,
                Op::Sgd(op) => 3..3 + op.buffers(),
                Op::SquaredNorm(_) => {
                    found.squares.push(node.outputs[0]);
                    continue;
                }
                Op::MuonMomentum(_) | Op::MuonUpdate(_) => {
                    let what =
                        "only elementwise updates (adamw, sgd) can be sharded, and muon's are not elementwise".into();
                    return Err(GraphError::Invalid { after: ZERO1.into(), what });
                }
                _ => continue,
            };
            found.parameters.push(node.inputs[0]);
            found.states.extend(node.inputs[states].iter().map(|state| graph.get(*state).name.to_string()));
        }
        found.parameters.sort_unstable();
        Ok(found)
    }

    pub fn parameters(&self) -> Vec<ValueId> {
        self.parameters.clone()
    }

    /// The type that a declared value has on each rank.
    pub fn type_of(&self, value: &Value) -> TensorType {
        let is_sharded = matches!(value.source, Source::State(_)) && self.states.contains(&*value.name);
        if is_sharded { shard_type(&value.ty, self.ranks) } else { value.ty.clone() }
    }

    /// Declares the shards of the weights.
    pub fn declare(&self, graph: &Graph, copy: &mut Copy) -> BTreeMap<ValueId, ValueId> {
        let mut declare = |parameter: ValueId| {
            let (name, ty) = (shard_name(&graph.get(parameter).name), shard_type(graph.ty(parameter), self.ranks));
            (parameter, copy.state_of(parameter, &name, ty, Category::Parameters))
        };
        self.parameters.iter().map(|&parameter| declare(parameter)).collect()
    }

    /// Copies a node of the optimizer: updates write shards, and sums over a tensor become sums over the ranks as well.
    pub fn node(&self, copy: &mut Copy, node: &Node, shards: &BTreeMap<ValueId, ValueId>) -> Result<(), GraphError> {
        copy.enter(node);
        match node.op {
            Op::AdamW(_) | Op::Sgd(_) => {
                let own = |input: &ValueId| shards.get(input).copied().unwrap_or_else(|| copy.moved(*input));
                let inputs: Vec<ValueId> = node.inputs.iter().map(own).collect();
                copy.add_new(node.op, &inputs).map(|_| ())
            }
            // A norm of shards covers only this rank's part: the squares are summed over the ranks, and a clip that
            // never clips turns them into the norm.
            Op::GradientNorm(_) => {
                let mut squares = vec![];
                for &gradient in &node.inputs {
                    squares.push(copy.add(SquaredNorm {}.into(), &[gradient])?[0]);
                }
                let all = copy.add_new(self.sum(), &squares)?;
                let norm = copy.add_new(ClipScale { max_norm: f64::INFINITY }.into(), &all)?[1];
                copy.redirect(node.outputs[0], norm);
                Ok(())
            }
            Op::SquaredNorm(_) => {
                copy.node(node)?;
                if self.squares.last() == Some(&node.outputs[0]) {
                    let own: Vec<ValueId> = self.squares.iter().map(|&square| copy.moved(square)).collect();
                    let all = copy.add_new(self.sum(), &own)?;
                    self.squares.iter().zip(all).for_each(|(&old, new)| copy.redirect(old, new));
                }
                Ok(())
            }
            _ => copy.node(node),
        }
    }

    fn sum(&self) -> Op {
        AllReduce { ranks: self.ranks, mean: false, kept: 0, later: false }.into()
    }
}
