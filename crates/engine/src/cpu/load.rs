//! A program prepared for the CPU: addresses of each call's operands, and the largest scratch that a call needs.

use super::arena::Arena;
use super::collective::{self, PreparedCollective};
use super::frame::{Operand, Slot};
use super::{flash_attention, layer_norm, linear_cross_entropy, optimizer, rms_norm, rows};
use crate::device::{EngineError, Program, Walk};
use headroom_graph::ops::linear_cross_entropy::{LinearCrossEntropy, LinearCrossEntropyTrain};
use headroom_graph::{DType, Graph, Op, TensorType, ValueId};

pub(super) struct Loaded {
    pub walk: Walk,
    pub calls: Vec<Prepared>,
    pub values: Vec<Option<Slot>>,
}

pub(super) struct Prepared {
    pub op: Op,
    /// Types of the inputs.
    pub types: Vec<TensorType>,
    pub inputs: Vec<Operand>,
    pub outputs: Vec<Operand>,
    /// Set if the call is made together with other ranks.
    pub together: Option<PreparedCollective>,
}

pub(super) fn load(program: &Program, arena: &Arena) -> Result<Loaded, EngineError> {
    let Program { graph, plan, walk, .. } = program;
    let values: Vec<Option<Slot>> = graph
        .value_ids()
        .map(|id| plan.buffer(id).map(|buffer| arena.slot(buffer.offset, graph.ty(id).elements(), graph.ty(id).dtype)))
        .collect();
    let slots = |ids: &[ValueId]| -> Vec<Slot> {
        ids.iter().map(|id| values[id.0].expect("a call's values have buffers")).collect()
    };
    let calls = graph
        .nodes()
        .iter()
        .map(|node| {
            let mut touched = node.inputs.iter().chain(&node.outputs).map(|id| graph.ty(*id).dtype);
            if let Some(dtype) = touched.find(|dtype| !matches!(dtype, DType::F32 | DType::I32)) {
                let (op, module, dtype) = (node.op.name(), node.module.to_string(), dtype.to_string());
                return Err(EngineError::NoKernel { op, module, dtype, device: "cpu" });
            }
            let updates = node.op.updates();
            let (inputs, outputs) = (slots(&node.inputs), slots(&node.outputs));
            Ok(Prepared {
                together: collective::prepare(graph.nodes(), node, &inputs, &outputs),
                op: node.op,
                types: graph.types(&node.inputs),
                inputs: inputs
                    .into_iter()
                    .enumerate()
                    .map(|(index, slot)| match updates.contains(&index) {
                        true => Operand::written(slot),
                        false => Operand::read(slot),
                    })
                    .collect(),
                outputs: outputs.into_iter().map(Operand::written).collect(),
            })
        })
        .collect::<Result<_, _>>()?;
    Ok(Loaded { walk: *walk, calls, values })
}

/// Elements of reduction scratch that the most demanding call needs.
pub(super) fn reduction_elements(graph: &Graph, parts: usize) -> usize {
    let need = |op: &Op, inputs: &[ValueId]| match op {
        Op::RmsNormGrad(_) | Op::AddRmsNormGrad(_) => {
            let width = graph.ty(inputs[1]).elements();
            rms_norm::gradient_scratch(graph.ty(inputs[0]).elements() / width, width, parts)
        }
        Op::LayerNormGrad(_) => {
            let width = graph.ty(inputs[1]).elements();
            layer_norm::gradient_scratch(graph.ty(inputs[0]).elements() / width, width, parts)
        }
        Op::SumRows(op) => {
            let &[rows, width] = graph.ty(inputs[0]).sizes() else { return 0 };
            rows::sum_scratch(rows, width, op.period, parts)
        }
        Op::CrossEntropy(_) => graph.ty(inputs[1]).elements(),
        // Several operands are processed one after the other.
        Op::SquaredNorm(_) | Op::GradientNorm(_) => {
            let elements = inputs.iter().map(|input| graph.ty(*input).elements()).max();
            optimizer::squared_norm_scratch(elements.unwrap_or(0))
        }
        Op::AdamWAll(op) => optimizer::adamw_all_scratch(op, &graph.types(inputs)),
        Op::AdamWChosen(op) => optimizer::adamw_chosen_scratch(op, &graph.types(inputs)),
        Op::LinearCrossEntropy(LinearCrossEntropy { rows })
        | Op::LinearCrossEntropyTrain(LinearCrossEntropyTrain { rows }) => {
            linear_cross_entropy::scratch(*rows, graph.ty(inputs[1]).sizes()[0])
        }
        _ => 0,
    };
    graph.nodes().iter().map(|node| need(&node.op, &node.inputs)).max().unwrap_or(0)
}

/// Tile elements per thread that the most demanding call needs.
pub(super) fn tile_elements(graph: &Graph) -> usize {
    let need = |op: &Op, inputs: &[ValueId]| match op {
        Op::FlashAttention(op) => flash_attention::tile(op, graph.ty(inputs[0])),
        Op::FlashAttentionGrad(op) => flash_attention::tile(&op.forward(), graph.ty(inputs[0])),
        _ => 0,
    };
    graph.nodes().iter().map(|node| need(&node.op, &node.inputs)).max().unwrap_or(0)
}
