//! Places values together so that one product can read or write all of them: rows side by side, or stacked.
//!
//! The weights that a fused layer reads are already stacked, as they are declared in order. The results of
//! its product, and the inputs of its gradients, are placed side by side here.

use super::{align, row_bytes};
use crate::graph::{Graph, Node, Phase, ValueId};
use crate::op::Op;
use crate::ops::fp8_product::Part;
use crate::ops::matmul::Form;
use std::ops::Range;

/// How values are placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Each value by itself, its rows without gaps.
    #[default]
    Apart,
    /// Operands of fused products are side by side or stacked; a row's stride is then larger than its length.
    Together,
}

/// Byte alignment of a row's start that 16-byte vector loads need.
const ROW_ALIGNMENT: usize = 16;

pub struct Block {
    pub bytes: usize,
    pub members: Vec<Member>,
}

pub struct Member {
    pub value: ValueId,
    /// Byte offset from the start of the block.
    pub offset: usize,
    pub pitch: usize,
}

/// Number of calls that the product of a weight's gradient may lag behind.
const LAG: usize = 5;

/// Keeps the inputs of weight-gradient products alive a few calls longer if those may run beside later calls.
pub fn lengthened(graph: &Graph, layout: Layout, mut alive: Vec<Range<usize>>) -> Vec<Range<usize>> {
    if layout == Layout::Apart {
        return alive;
    }
    let backward = graph.nodes().iter().take_while(|node| node.phase <= Phase::Backward).count();
    for (call, node) in graph.nodes().iter().enumerate().filter(|(_, node)| node.phase == Phase::Backward) {
        let of_a_weight = match node.op {
            Op::MatMul(op) => op.form == Form::Tn,
            Op::LinearsGradWeights(_) => true,
            Op::Fp8Product(op) => op.part == Part::GradWeights,
            _ => false,
        };
        if of_a_weight {
            for input in &node.inputs {
                let until = (call + 1 + LAG).min(backward);
                alive[input.0].end = alive[input.0].end.max(until);
            }
        }
    }
    alive
}

/// Groups the non-kept values into blocks; each value is in exactly one.
pub fn blocks(graph: &Graph, layout: Layout, moving: &[ValueId]) -> Vec<Block> {
    let mut taken = vec![true; graph.values().len()];
    moving.iter().for_each(|id| taken[id.0] = false);
    let mut blocks = vec![];
    if layout == Layout::Together {
        for node in graph.nodes() {
            let found = stacked_columns(graph, node).or_else(|| stacked_rows(graph, node));
            if let Some(block) = found
                && block.members.iter().all(|member| !taken[member.value.0])
            {
                block.members.iter().for_each(|member| taken[member.value.0] = true);
                blocks.push(block);
            }
        }
    }
    for &value in moving.iter().filter(|id| !taken[id.0]) {
        let member = Member { value, offset: 0, pitch: row_bytes(graph, value) };
        blocks.push(Block { bytes: graph.ty(value).bytes(), members: vec![member] });
    }
    blocks
}

fn stacked_columns(graph: &Graph, node: &Node) -> Option<Block> {
    let values: Vec<ValueId> = match node.op {
        Op::Linears(_) => node.outputs.clone(),
        Op::Fp8Product(op) if op.part == Part::Output => node.outputs.clone(),
        Op::LinearsGradInput(_) => node.inputs.iter().step_by(2).copied().collect(),
        _ => return None,
    };
    let rows = graph.ty(*values.first()?).sizes()[0];
    if values.iter().any(|&value| !may_have_a_pitch(graph, value)) {
        return None;
    }
    let pitch: usize = values.iter().map(|&value| row_bytes(graph, value)).sum();
    let mut offset = 0;
    let mut members = vec![];
    for value in values {
        members.push(Member { value, offset, pitch });
        offset += row_bytes(graph, value);
    }
    let aligned =
        members.iter().all(|member| member.offset.is_multiple_of(ROW_ALIGNMENT)) && pitch.is_multiple_of(ROW_ALIGNMENT);
    aligned.then_some(Block { bytes: rows * pitch, members })
}

fn stacked_rows(graph: &Graph, node: &Node) -> Option<Block> {
    match node.op {
        Op::LinearsGradWeights(_) => {}
        Op::Fp8Product(op) if op.part == Part::GradWeights => {}
        _ => return None,
    }
    let mut offset = 0;
    let mut members = vec![];
    for &value in &node.outputs {
        let bytes = graph.ty(value).bytes();
        if bytes != align(bytes) {
            return None;
        }
        members.push(Member { value, offset, pitch: row_bytes(graph, value) });
        offset += bytes;
    }
    Some(Block { bytes: offset, members })
}

/// Whether every op that produces or reads the value accepts rows with gaps between them.
fn may_have_a_pitch(graph: &Graph, value: ValueId) -> bool {
    let made_by = |op: &Op| {
        matches!(op, Op::Linears(_) | Op::Fp8Product(_) | Op::Rope(_) | Op::FlashAttentionGrad(_) | Op::SwiGluGrad(_))
    };
    let read_by = |op: &Op| {
        matches!(
            op,
            Op::Rope(_)
                | Op::FlashAttention(_)
                | Op::FlashAttentionGrad(_)
                | Op::SwiGlu(_)
                | Op::SwiGluGrad(_)
                | Op::LinearsGradInput(_)
                | Op::LinearsGradWeights(_)
                | Op::Quantize(_)
        )
    };
    let made = graph.maker(value).is_some_and(|(_, node)| made_by(&node.op));
    let reads = || graph.nodes().iter().filter(|node| node.inputs.contains(&value));
    let kept = graph.outputs().iter().any(|(_, output)| *output == value);
    made && !kept && graph.ty(value).sizes().len() == 2 && reads().all(|node| read_by(&node.op))
}
