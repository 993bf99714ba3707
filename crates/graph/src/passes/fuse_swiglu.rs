//! Fuses `silu(gate) * up` into one op, if nothing else reads `silu(gate)`.

use crate::graph::{Graph, GraphError};
use crate::op::Op;
use crate::ops::swiglu::SwiGlu;
use crate::pass::{Replacement, rewrite as replace};

pub fn rewrite(graph: &Graph) -> Result<Graph, GraphError> {
    replace(graph, |graph, id| {
        let node = graph.node(id);
        let (Op::Mul(_), &[gated, up]) = (node.op, &node.inputs[..]) else { return None };
        let (silu, maker) = graph.maker(gated)?;
        let (Op::Silu(_), &[gate]) = (maker.op, &maker.inputs[..]) else { return None };
        (graph.uses(gated) == 1).then(|| Replacement {
            covers: vec![silu, id],
            op: SwiGlu {}.into(),
            inputs: vec![gate, up],
            outputs: vec![Some(node.outputs[0])],
        })
    })
}
