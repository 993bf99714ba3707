//! Fuses linear layers that read the same value into one product: q, k and v; gate and up.

use crate::graph::{Graph, GraphError, NodeId, ValueId};
use crate::op::Op;
use crate::ops::linears::Linears;
use crate::ops::matmul::{Form, MatMul};
use crate::pass::{Replacement, rewrite};
use crate::role::Role;

pub fn fuse_qkv(graph: &Graph) -> Result<Graph, GraphError> {
    fuse(graph, &[Role::Query, Role::Key, Role::Value])
}

pub fn fuse_gate_up(graph: &Graph) -> Result<Graph, GraphError> {
    fuse(graph, &[Role::Gate, Role::Up])
}

/// Fuses the layers of these roles, in order. The fused product takes the place of the last one's node.
fn fuse(graph: &Graph, roles: &[Role]) -> Result<Graph, GraphError> {
    rewrite(graph, |graph, id| {
        if Some(&graph.node(id).role) != roles.last() {
            return None;
        }
        let x = linear(graph, id)?.0;
        let mut covers = vec![];
        for role in roles {
            let is_linear = |id: &NodeId| graph.node(*id).role == *role && linear(graph, *id).is_some();
            let found = (0..=id.0).map(NodeId).rev().find(is_linear)?;
            if linear(graph, found)?.0 != x {
                return None;
            }
            covers.push(found);
        }
        let weights = covers.iter().filter_map(|&node| linear(graph, node)).map(|(_, weight)| weight);
        Some(Replacement {
            op: Linears {}.into(),
            inputs: std::iter::once(x).chain(weights).collect(),
            outputs: covers.iter().map(|&node| Some(graph.node(node).outputs[0])).collect(),
            covers,
        })
    })
}

/// The input and the weight of a linear layer.
fn linear(graph: &Graph, id: NodeId) -> Option<(ValueId, ValueId)> {
    let node = graph.node(id);
    matches!(node.op, Op::MatMul(MatMul { form: Form::Nt })).then(|| (node.inputs[0], node.inputs[1]))
}
