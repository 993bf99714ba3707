//! Fuses a residual add and the RMSNorm right after it into one op.

use crate::graph::{Graph, GraphError, NodeId};
use crate::op::Op;
use crate::ops::add_rms_norm::AddRmsNorm;
use crate::pass::{Replacement, rewrite as replace};

pub fn rewrite(graph: &Graph) -> Result<Graph, GraphError> {
    replace(graph, |graph, id| {
        let node = graph.node(id);
        let (Op::RmsNorm(norm), &[x, weight]) = (node.op, &node.inputs[..]) else { return None };
        let (add, maker) = graph.maker(x)?;
        // Nothing in between may read the sum: the fused op produces it only at the place of the norm.
        if !matches!(maker.op, Op::Add(_)) || NodeId(add.0 + 1) != id {
            return None;
        }
        Some(Replacement {
            covers: vec![add, id],
            op: AddRmsNorm { eps: norm.eps }.into(),
            inputs: vec![maker.inputs[0], maker.inputs[1], weight],
            outputs: vec![Some(x), Some(node.outputs[0])],
        })
    })
}
