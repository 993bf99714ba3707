//! Passes: named rewritings of the graph, and the driver that applies them and checks the graph after each.

use crate::graph::{Graph, GraphError, NodeId, Source, ValueId};
use std::collections::BTreeMap;

/// One rewriting with a name that a person would use.
#[derive(Clone, Copy)]
pub struct Pass {
    pub name: &'static str,
    pub rewrite: fn(&Graph) -> Result<Graph, GraphError>,
}

/// What one pass did, for the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    pub name: &'static str,
    pub nodes_before: usize,
    pub nodes_after: usize,
}

/// Applies the passes in order. After each, the graph must be valid and still have the parameters it had, under the same
/// names: a pass that breaks this is named in the error.
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
    rebuild(graph, |id| kept[id.0])
}

/// The same graph with only the nodes that `keep` wants.
fn rebuild(graph: &Graph, keep: impl Fn(NodeId) -> bool) -> Result<Graph, GraphError> {
    let mut next = Graph::new();
    let mut moved: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for id in graph.value_ids() {
        let value = graph.get(id);
        let ty = value.ty.clone();
        let new = match value.source {
            Source::Input => next.input(&value.name, ty),
            Source::Parameter => next.parameter(&value.name, ty),
            Source::Constant => next.constant(&value.name, ty),
            Source::State(category) => next.state(&value.name, ty, category),
            Source::Node(_) => continue,
        };
        moved.insert(id, new);
    }
    for (index, node) in graph.nodes().iter().enumerate() {
        if !keep(NodeId(index)) {
            continue;
        }
        next.enter(&node.module, node.phase);
        let inputs: Vec<ValueId> = node.inputs.iter().map(|input| moved[input]).collect();
        let outputs = next.add(node.op, &inputs)?;
        moved.extend(node.outputs.iter().copied().zip(outputs));
    }
    for (name, value) in graph.outputs() {
        next.output(name, moved[value]);
    }
    Ok(next)
}

fn parameter_types(graph: &Graph) -> BTreeMap<String, String> {
    graph.parameters().into_iter().map(|id| (graph.get(id).name.to_string(), graph.ty(id).to_string())).collect()
}
