//! Fuses the LM head and the cross-entropy into one op, if nothing else reads the logits.

use crate::graph::{Graph, GraphError, Source};
use crate::op::Op;
use crate::ops::linear_cross_entropy::{LinearCrossEntropy, LinearCrossEntropyTrain};
use crate::ops::matmul::{Form, MatMul};
use crate::pass::{Replacement, rewrite as replace};

/// The input that holds the gradient of the loss, if the graph is for training.
pub const LOSS_GRADIENT: &str = "loss_gradient";

/// Logits per chunk: two mebibytes at small vocabularies, and enough rows for a product to run at its full rate.
const CHUNK_LOGITS: usize = 512 * 1024;
const LEAST_ROWS: usize = 512;

pub fn rewrite(graph: &Graph) -> Result<Graph, GraphError> {
    replace(graph, |graph, id| {
        let node = graph.node(id);
        let (Op::CrossEntropy(_), &[logits, targets]) = (node.op, &node.inputs[..]) else { return None };
        let (product, head) = graph.maker(logits)?;
        let (Op::MatMul(MatMul { form: Form::Nt }), &[x, weight]) = (head.op, &head.inputs[..]) else { return None };
        if graph.uses(logits) != 1 {
            return None;
        }
        let (tokens, vocab) = (graph.ty(logits).sizes()[0], graph.ty(logits).sizes()[1]);
        let rows = (CHUNK_LOGITS / vocab).max(LEAST_ROWS).min(tokens);
        let seed = graph.named(LOSS_GRADIENT).filter(|seed| graph.get(*seed).source == Source::Input);
        let (op, inputs, made): (Op, _, _) = match seed {
            Some(seed) => (LinearCrossEntropyTrain { rows }.into(), vec![x, weight, targets, seed], 3),
            None => (LinearCrossEntropy { rows }.into(), vec![x, weight, targets], 1),
        };
        let outputs = (0..made).map(|output| (output == 0).then_some(node.outputs[0])).collect();
        Some(Replacement { covers: vec![product, id], op, inputs, outputs })
    })
}
