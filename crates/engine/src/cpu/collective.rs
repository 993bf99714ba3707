//! Collectives on the CPU: the addresses of their tensors, for the communication thread.

use super::frame::{Frame, Slot};
use crate::ranks::{Kind, Transfer};
use headroom_graph::ops::collective::AllReduce;
use headroom_graph::{Node, Op};
use std::sync::Arc;

/// A collective that is ready to run.
pub(super) enum PreparedCollective {
    Exchange {
        transfer: Arc<Transfer>,
        later: bool,
        /// Ticket of the last exchange that was started.
        ticket: u64,
    },
    /// Waits for the exchange started by this call.
    Arrival { of: usize },
}

/// `inputs` and `outputs` are the node's own.
pub(super) fn prepare(nodes: &[Node], node: &Node, inputs: &[Slot], outputs: &[Slot]) -> Option<PreparedCollective> {
    let places = |slots: &[Slot]| slots.iter().map(Slot::floats).collect::<Vec<_>>();
    let exchange = |kind, from: &[Slot], to: &[Slot], later| {
        let transfer = Arc::new(Transfer { kind, from: places(from), to: places(to) });
        Some(PreparedCollective::Exchange { transfer, later, ticket: 0 })
    };
    match node.op {
        Op::AllReduce(op) if op.ranks > 1 => {
            let to = if op.kept > 0 { inputs } else { outputs };
            exchange(Kind::AllReduce { mean: op.mean }, inputs, to, op.later)
        }
        Op::ReduceScatter(op) if op.ranks > 1 => exchange(Kind::ReduceScatter, inputs, outputs, op.later),
        Op::AllGather(op) if op.ranks > 1 => {
            exchange(Kind::AllGather, &inputs[op.tensors..], &inputs[..op.tensors], false)
        }
        Op::Arrive(_) => {
            let made = *node.inputs.get(node.inputs.len() / 2)?;
            let of = nodes.iter().position(|other| other.outputs.contains(&made))?;
            let ranks = match nodes[of].op {
                Op::AllReduce(op) => op.ranks,
                Op::ReduceScatter(op) => op.ranks,
                _ => 1,
            };
            (ranks > 1).then_some(PreparedCollective::Arrival { of })
        }
        _ => None,
    }
}

/// A single rank: its own values are the sum, and its shard is the whole.
pub(super) fn alone(op: &Op, at: &Frame) {
    match op {
        Op::AllReduce(AllReduce { kept: 0, .. }) | Op::ReduceScatter(_) => {
            (0..at.inputs()).for_each(|index| at.output(index).copy_from_slice(at.input(index)));
        }
        Op::AllGather(op) => {
            (0..op.tensors).for_each(|index| at.updated(index).copy_from_slice(at.input(op.tensors + index)));
        }
        _ => {}
    }
}
