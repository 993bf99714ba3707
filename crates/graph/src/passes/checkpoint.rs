//! Activation checkpointing: activations of the first blocks are recomputed when the backward pass needs them.

use crate::graph::{Graph, GraphError, Node, NodeId, Phase, ValueId};
use crate::pass::Copy;
use std::collections::{BTreeMap, BTreeSet};

/// Recomputes layers `0..layers` (modules `layers.<n>`), each right before the first node of its backward pass. The
/// first layers are the best choice: their activations stay alive longest.
pub fn checkpoint(graph: &Graph, layers: usize) -> Result<Graph, GraphError> {
    let mut copy = Copy::new(graph);
    let mut recomputed: BTreeSet<usize> = BTreeSet::new();
    for node in graph.nodes() {
        let layer = node.block().filter(|layer| *layer < layers && node.phase == Phase::Backward);
        if let Some(layer) = layer.filter(|layer| recomputed.insert(*layer)) {
            for id in forward_again(graph, layer) {
                let forward = graph.node(id);
                copy.enter_backward(forward);
                let made = copy.add(forward.op, &forward.inputs)?;
                for (&old, new) in forward.outputs.iter().zip(made) {
                    copy.redirect(old, new);
                }
            }
        }
        copy.node(node)?;
    }
    copy.finish()
}

/// Number of layers in the graph.
pub fn layers(graph: &Graph) -> usize {
    graph.nodes().iter().filter_map(Node::block).max().map_or(0, |last| last + 1)
}

/// The forward nodes of a layer that its backward pass depends on, in order.
fn forward_again(graph: &Graph, layer: usize) -> Vec<NodeId> {
    let inside = |node: &Node| node.phase == Phase::Forward && node.block() == Some(layer);
    let makers: BTreeMap<ValueId, usize> = (graph.nodes().iter().enumerate())
        .filter(|(_, node)| inside(node))
        .flat_map(|(index, node)| node.outputs.iter().map(move |output| (*output, index)))
        .collect();
    let backward = graph.nodes().iter().filter(|node| node.phase == Phase::Backward && node.block() == Some(layer));
    let mut wanted: Vec<ValueId> = backward.flat_map(|node| node.inputs.iter().copied()).collect();
    let mut again = BTreeSet::new();
    while let Some(value) = wanted.pop() {
        if let Some(&index) = makers.get(&value)
            && again.insert(index)
        {
            wanted.extend(&graph.nodes()[index].inputs);
        }
    }
    again.into_iter().map(NodeId).collect()
}
