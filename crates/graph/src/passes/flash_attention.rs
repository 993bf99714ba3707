//! Replaces scores, softmax and mix by tiled attention, if nothing else reads the scores or the weights.

use crate::graph::{Graph, GraphError};
use crate::op::Op;
use crate::ops::flash_attention::{FlashAttention, Rotation};
use crate::pass::{Replacement, rewrite as replace};

pub fn rewrite(graph: &Graph) -> Result<Graph, GraphError> {
    replace(graph, |graph, id| {
        let node = graph.node(id);
        let (Op::AttentionMix(mix), &[p, v]) = (node.op, &node.inputs[..]) else { return None };
        let (softmax, soft) = graph.maker(p)?;
        let (Op::CausalSoftmax(_), &[scores]) = (soft.op, &soft.inputs[..]) else { return None };
        let (scoring, scored) = graph.maker(scores)?;
        let (Op::AttentionScores(op), &[q, k]) = (scored.op, &scored.inputs[..]) else { return None };
        let plain = mix.scale == 1.0 && graph.uses(p) == 1 && graph.uses(scores) == 1;
        plain.then(|| Replacement {
            covers: vec![scoring, softmax, id],
            op: FlashAttention {
                heads: op.heads,
                kv_heads: op.kv_heads,
                seq: op.seq,
                scale: op.scale,
                rotation: Rotation::Before,
            }
            .into(),
            inputs: vec![q, k, v],
            outputs: vec![Some(node.outputs[0]), None],
        })
    })
}
