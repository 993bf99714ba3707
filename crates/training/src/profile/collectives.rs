//! Collectives as traces of several ranks describe them: the names that readers recognize, and the message sizes.

use headroom_graph::{DType, Graph, Node, NodeId, Op, TensorType, ValueId};
use headroom_trace::write::WrittenMessage;

/// The number of ranks that take part in a call, if it is a collective.
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

/// The message of a collective call: the number of elements sent and received, and the dtype of most of them.
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

/// Name and sizes under which a collective appears as a host call when no device kernels exist for it. The name is one
/// that trace readers know from host-side libraries. An exchange that overlaps with other calls appears where it is
/// waited for.
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
