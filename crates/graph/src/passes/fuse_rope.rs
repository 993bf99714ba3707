//! Moves the rotations of q and k into the attention that reads them, if nothing else does.

use crate::graph::{Graph, GraphError, Node, NodeId, ValueId};
use crate::op::Op;
use crate::ops::flash_attention::{FlashAttention, Rotation};
use crate::ops::rope::{Rope, RotationDirection};
use crate::pass::{Replacement, rewrite as replace};

pub fn rewrite(graph: &Graph) -> Result<Graph, GraphError> {
    replace(graph, |graph, id| {
        let node = graph.node(id);
        let (Op::FlashAttention(op), &[q, k, v]) = (node.op, &node.inputs[..]) else { return None };
        let ((q_turn, q_node), (k_turn, k_node)) = (rotation(graph, q)?, rotation(graph, k)?);
        let (tables, others) = (&q_node.inputs[1..], &k_node.inputs[1..]);
        (tables == others).then(|| Replacement {
            covers: vec![q_turn, k_turn, id],
            op: FlashAttention { rotation: Rotation::Inside, ..op }.into(),
            inputs: vec![q_node.inputs[0], k_node.inputs[0], v, tables[0], tables[1]],
            outputs: node.outputs.iter().copied().map(Some).collect(),
        })
    })
}

/// The rotation that produces a value, if nothing else reads it.
fn rotation(graph: &Graph, value: ValueId) -> Option<(NodeId, &Node)> {
    let (id, node) = graph.maker(value)?;
    let forward = matches!(node.op, Op::Rope(Rope { turn: RotationDirection::Forward, .. }));
    (forward && graph.uses(value) == 1).then_some((id, node))
}
