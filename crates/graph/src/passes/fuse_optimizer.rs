//! All updates, and the norms and the scale of clipping, become one op.

use crate::graph::{Graph, GraphError, NodeId, ValueId};
use crate::op::Op;
use crate::ops::adamw_all::AdamWAll;
use crate::pass::{Replacement, rewrite as replace};

pub fn rewrite(graph: &Graph) -> Result<Graph, GraphError> {
    let updates: Vec<NodeId> = ids(graph, |op| matches!(op, Op::AdamW(_)));
    let Some(&last) = updates.last() else { return Ok(graph.clone()) };
    replace(graph, |graph, id| {
        if id != last {
            return None;
        }
        let Op::AdamW(update) = graph.node(id).op else { return None };
        if updates.iter().any(|&node| graph.node(node).op != Op::AdamW(update)) {
            return None;
        }
        let scale = ids(graph, |op| matches!(op, Op::ClipScale(_))).first().copied();
        let max_norm = match scale.map(|scale| graph.node(scale).op) {
            Some(Op::ClipScale(clip)) => clip.max_norm,
            _ => 0.0,
        };
        let rates = graph.node(id).inputs[4];
        let tensors = updates.iter().flat_map(|&node| graph.node(node).inputs[..4].iter().copied());
        let norm: Option<Option<ValueId>> = scale.map(|scale| Some(graph.node(scale).outputs[1]));
        let mut covers = ids(graph, |op| matches!(op, Op::SquaredNorm(_)));
        covers.extend(scale);
        covers.extend(&updates);
        Some(Replacement {
            covers,
            op: AdamWAll {
                parameters: updates.len(),
                beta1: update.beta1,
                beta2: update.beta2,
                eps: update.eps,
                weight_decay: update.weight_decay,
                max_norm,
                halves: 0,
            }
            .into(),
            inputs: std::iter::once(rates).chain(tensors).collect(),
            outputs: norm.into_iter().collect(),
        })
    })
}

fn ids(graph: &Graph, wanted: impl Fn(&Op) -> bool) -> Vec<NodeId> {
    let nodes = graph.nodes().iter().enumerate();
    nodes.filter(|(_, node)| wanted(&node.op)).map(|(index, _)| NodeId(index)).collect()
}
