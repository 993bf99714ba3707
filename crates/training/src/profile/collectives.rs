//! Collectives as traces of several ranks tell them: names by which readers know them, and the sizes of their messages.

use headroom_graph::{DType, Graph, Node, NodeId, Op, TensorType, ValueId};
use headroom_trace::write::WrittenMessage;

/// The ranks that a call is made by, where it is one between several.
fn ranks(op: &Op) -> Option<usize> {
    let ranks = match op {
        Op::AllReduce(op) => op.ranks,
        Op::ReduceScatter(op) => op.ranks,
        Op::AllGather(op) => op.ranks,
        _ => 1,
    };
    (ranks > 1).then_some(ranks)
}

fn is_started_only(op: &Op) -> bool {
    matches!(op, Op::AllReduce(op) if op.later) || matches!(op, Op::ReduceScatter(op) if op.later)
}

/// Message of a collective call: the elements it sends and receives, and the type of most of them.
pub fn message(graph: &Graph, call: usize) -> Option<WrittenMessage<'static>> {
    let node = graph.node(NodeId(call));
    let ranks = ranks(&node.op)?;
    let types = |values: &[ValueId]| graph.types(values);
    let (collective, read, made) = match node.op {
        Op::AllReduce(_) => ("allreduce", types(&node.inputs), types(&node.inputs)),
        Op::ReduceScatter(_) => ("reduce_scatter", types(&node.inputs), types(&node.outputs)),
        Op::AllGather(op) => {
            let (whole, shards) = node.inputs[..2 * op.tensors].split_at(op.tensors);
            ("allgather", types(shards), types(whole))
        }
        _ => return None,
    };
    let elements = |types: &[TensorType]| types.iter().map(|ty| ty.elements() as u64).sum();
    let bytes = |dtype: DType| read.iter().filter(|ty| ty.dtype == dtype).map(TensorType::bytes).sum::<usize>();
    let element_type = if bytes(DType::Bf16) > bytes(DType::F32) { "BFloat16" } else { "Float" };
    Some(WrittenMessage {
        collective,
        elements_in: elements(&read),
        elements_out: elements(&made),
        element_type,
        ranks: ranks as u32,
    })
}

/// The name and the sizes under which the host's call of a collective is told where no device has kernels for it, as readers know
/// those of libraries that work on the host. An exchange that goes on beside other calls is told where it is waited for.
pub fn on_host(graph: &Graph, node: &Node) -> Option<(String, Vec<u64>)> {
    let total = |values: &[ValueId]| graph.types(values).iter().map(|ty| ty.elements() as u64).sum();
    if matches!(node.op, Op::Arrive(_)) {
        let (read, made) = node.inputs.split_at(node.inputs.len() / 2);
        let (_, started) = graph.maker(*made.first()?)?;
        ranks(&started.op)?;
        return Some((format!("mpi:{}", started.op.name()), vec![total(read)]));
    }
    ranks(&node.op)?;
    if is_started_only(&node.op) {
        return None;
    }
    let sent = match node.op {
        Op::AllGather(op) => &node.inputs[op.tensors..2 * op.tensors],
        _ => &node.inputs[..],
    };
    Some((format!("mpi:{}", node.op.name()), vec![total(sent)]))
}
