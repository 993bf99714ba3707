//! Passes: named graph rewrites, and the driver that applies them and checks the graph after each.

use crate::graph::{Category, Graph, GraphError, Node, NodeId, Phase, Source, Value, ValueId};
use crate::op::Op;
use crate::tensor::TensorType;
use std::collections::BTreeMap;

/// One rewrite and its name as users know it.
#[derive(Clone, std::marker::Copy)]
pub struct Pass {
    pub name: &'static str,
    pub rewrite: fn(&Graph) -> Result<Graph, GraphError>,
}

/// Effect of one pass, for the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    pub name: &'static str,
    pub nodes_before: usize,
    pub nodes_after: usize,
}

/// Applies the passes in order. After each, the graph must be valid and still have the parameters it had, under the
/// same names: a pass that breaks this is named in the error.
pub fn apply(graph: Graph, passes: &[Pass]) -> Result<(Graph, Vec<Applied>), GraphError> {
    let parameters = parameter_types(&graph);
    let mut current = graph;
    let mut log = vec![];
    for pass in passes {
        let next = (pass.rewrite)(&current)?;
        next.validate(pass.name)?;
        if parameter_types(&next) != parameters {
            return Err(GraphError::Invalid {
                after: pass.name.into(),
                what: "the parameters are no longer the same".into(),
            });
        }
        log.push(Applied { name: pass.name, nodes_before: current.nodes().len(), nodes_after: next.nodes().len() });
        current = next;
    }
    Ok((current, log))
}

/// Drops nodes that nothing needs: no output of theirs is read or kept, and they update nothing.
pub const DROP_UNUSED: Pass = Pass { name: "drop-unused", rewrite: drop_unused };

fn drop_unused(graph: &Graph) -> Result<Graph, GraphError> {
    let mut needed = vec![false; graph.values().len()];
    graph.outputs().iter().for_each(|(_, value)| needed[value.0] = true);
    let mut kept = vec![false; graph.nodes().len()];
    for (index, node) in graph.nodes().iter().enumerate().rev() {
        if !node.op.updates().is_empty() || node.outputs.iter().any(|output| needed[output.0]) {
            kept[index] = true;
            node.inputs.iter().for_each(|input| needed[input.0] = true);
        }
    }
    let mut copy = Copy::new(graph);
    for (node, _) in graph.nodes().iter().zip(kept).filter(|(_, kept)| *kept) {
        copy.node(node)?;
    }
    copy.finish()
}

/// Proposes to replace the nodes in `covers` by a single one.
pub struct Replacement {
    pub covers: Vec<NodeId>,
    pub op: Op,
    pub inputs: Vec<ValueId>,
    /// The value of the old graph that each output of `op` stands for; absent for a new value.
    pub outputs: Vec<Option<ValueId>>,
}

/// Walks the nodes and applies the replacement that `find` proposes for the last node of a pattern.
pub fn rewrite(graph: &Graph, find: impl Fn(&Graph, NodeId) -> Option<Replacement>) -> Result<Graph, GraphError> {
    let mut replacements: BTreeMap<NodeId, Replacement> = BTreeMap::new();
    let mut covered = vec![false; graph.nodes().len()];
    for id in (0..graph.nodes().len()).map(NodeId) {
        let Some(found) = find(graph, id) else { continue };
        if found.covers.iter().any(|node| covered[node.0]) {
            continue;
        }
        found.covers.iter().for_each(|node| covered[node.0] = true);
        replacements.insert(id, found);
    }
    let mut copy = Copy::new(graph);
    for id in (0..graph.nodes().len()).map(NodeId) {
        if let Some(found) = replacements.get(&id) {
            copy.enter(graph.node(id));
            let made = copy.add(found.op, &found.inputs)?;
            for (old, new) in found.outputs.iter().zip(made) {
                old.map(|old| copy.moved.insert(old, new));
            }
        } else if !covered[id.0] {
            copy.node(graph.node(id))?;
        }
    }
    copy.finish()
}

/// A graph built from another: declarations are copied up front, nodes on request.
pub struct Copy<'a> {
    from: &'a Graph,
    to: Graph,
    moved: BTreeMap<ValueId, ValueId>,
}

impl<'a> Copy<'a> {
    pub fn new(from: &'a Graph) -> Copy<'a> {
        Copy::with_types(from, |value| value.ty.clone())
    }

    /// Gives each declared value the type that `of` returns for it.
    pub fn with_types(from: &'a Graph, of: impl Fn(&Value) -> TensorType) -> Copy<'a> {
        let mut copy = Copy { from, to: Graph::new(), moved: BTreeMap::new() };
        for id in from.value_ids() {
            let (name, ty) = (&from.get(id).name, of(from.get(id)));
            let new = match from.get(id).source {
                Source::Input => copy.to.input(name, ty),
                Source::Parameter => copy.to.parameter(name, ty),
                Source::Constant => copy.to.constant(name, ty),
                Source::State(category) => copy.to.state(name, ty, category),
                Source::Node(_) => continue,
            };
            copy.to.place(new, from.get(id).part.clone());
            copy.moved.insert(id, new);
        }
        copy
    }

    /// The next node gets the module, phase and role of this one.
    pub fn enter(&mut self, node: &Node) {
        self.to.enter_as(&node.module, node.phase, node.role);
    }

    /// The next node gets the module and role of this one, in the backward pass.
    pub fn enter_backward(&mut self, node: &Node) {
        self.to.enter_as(&node.module, Phase::Backward, node.role);
    }

    /// The next node belongs to the optimizer step of this module.
    pub fn enter_optimizer(&mut self, module: &str) {
        self.to.enter(module, Phase::Optimizer);
    }

    /// Copies a node unchanged.
    pub fn node(&mut self, node: &Node) -> Result<(), GraphError> {
        self.enter(node);
        let made = self.add(node.op, &node.inputs)?;
        self.moved.extend(node.outputs.iter().copied().zip(made));
        Ok(())
    }

    /// Adds a node that reads values of the old graph; returns values of the new one.
    pub fn add(&mut self, op: Op, inputs: &[ValueId]) -> Result<Vec<ValueId>, GraphError> {
        let inputs: Vec<ValueId> = inputs.iter().map(|input| self.moved[input]).collect();
        self.to.add(op, &inputs)
    }

    /// The value of the new graph that stands for a value of the old one.
    pub fn moved(&self, old: ValueId) -> ValueId {
        self.moved[&old]
    }

    /// Declares a state that the old graph does not have.
    pub fn state(&mut self, name: &str, ty: TensorType, category: Category) -> ValueId {
        self.to.state(name, ty, category)
    }

    /// Declares a state that stands in for a value of the old graph, at the same place in the model.
    pub fn state_of(&mut self, old: ValueId, name: &str, ty: TensorType, category: Category) -> ValueId {
        let state = self.to.state(name, ty, category);
        self.to.place(state, self.from.get(old).part.clone());
        state
    }

    /// Adds a node that reads values of the new graph.
    pub fn add_new(&mut self, op: Op, inputs: &[ValueId]) -> Result<Vec<ValueId>, GraphError> {
        self.to.add(op, inputs)
    }

    /// From now on `old` means `new`.
    pub fn redirect(&mut self, old: ValueId, new: ValueId) {
        self.moved.insert(old, new);
    }

    pub fn finish(mut self) -> Result<Graph, GraphError> {
        for (name, value) in self.from.outputs() {
            self.to.output(name, self.moved[value]);
        }
        Ok(self.to)
    }
}

fn parameter_types(graph: &Graph) -> BTreeMap<String, String> {
    graph.parameters().into_iter().map(|id| (graph.get(id).name.to_string(), graph.ty(id).to_string())).collect()
}
