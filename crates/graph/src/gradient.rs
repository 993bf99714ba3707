//! Builds the backward pass: walks the nodes from the last to the first and asks each op for its gradient.

use crate::graph::{Graph, GraphError, NodeId, Phase, ValueId};
use crate::op::Backward;
use crate::ops::add::Add;

/// Adds the backward pass to the graph, starting from pairs of a value and its gradient (the loss and its seed), and
/// returns the gradient of each value in `with_respect_to`. A value that no gradient reaches is an error, never a
/// silent zero.
pub fn differentiate(
    graph: &mut Graph,
    from: &[(ValueId, ValueId)],
    with_respect_to: &[ValueId],
) -> Result<Vec<ValueId>, GraphError> {
    let forward_nodes = graph.nodes().len();
    let mut wants = vec![false; graph.values().len()];
    for &value in with_respect_to {
        wants[value.0] = true;
    }
    for node in graph.nodes() {
        if node.inputs.iter().any(|input| wants[input.0]) {
            node.outputs.iter().for_each(|output| wants[output.0] = true);
        }
    }

    let mut gradients: Vec<Option<ValueId>> = vec![None; graph.values().len()];
    for &(value, gradient) in from {
        gradients[value.0] = Some(gradient);
    }
    for index in (0..forward_nodes).rev() {
        let node = graph.node(NodeId(index)).clone();
        let arrived: Vec<Option<ValueId>> = node.outputs.iter().map(|output| gradients[output.0]).collect();
        let wanted: Vec<bool> =
            node.inputs.iter().map(|&input| wants[input.0] && graph.ty(input).dtype.is_float()).collect();
        if arrived.iter().all(Option::is_none) || !wanted.contains(&true) {
            continue;
        }
        graph.enter_as(&node.module, Phase::Backward, node.role);
        let contributions = node.op.gradient(&mut Backward {
            graph,
            inputs: &node.inputs,
            outputs: &node.outputs,
            arrived: &arrived,
            wanted: &wanted,
            op: node.op,
            module: &node.module,
        })?;
        for (&input, contribution) in node.inputs.iter().zip(contributions) {
            let Some(contribution) = contribution else { continue };
            gradients[input.0] = Some(match gradients[input.0] {
                None => contribution,
                Some(earlier) => graph.add_one(Add {}, &[earlier, contribution])?,
            });
        }
    }
    with_respect_to
        .iter()
        .map(|&value| {
            gradients[value.0].ok_or_else(|| GraphError::NoGradient { name: graph.get(value).name.to_string() })
        })
        .collect()
}
