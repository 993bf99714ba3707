//! Prepares programs: every call as actions with addresses, and the memory that it touches.

use super::compile::Kernels;
use super::cudnn::Plans;
use super::driver::{Context, Memory};
use super::error::CudaError;
use super::launch::Action;
use super::lower::optimizer::Update;
use super::lower::{Call, Lowering, Operand};
use super::nvtx::Labels;
use super::pieces::{Piece, Pieces, grouped, last_touch};
use super::wire::PreparedCollective;
use super::{Loaded, Prepared};
use crate::device::Program;
use headroom_graph::ops::fp8_product::Part;
use headroom_graph::ops::matmul::Form;
use headroom_graph::{Graph, Node, Op, Phase, ValueId};
use std::collections::BTreeSet;
use std::ops::Range;

/// Whether it is a product whose result only the update reads.
fn is_weight_gradient(node: &Node) -> bool {
    let form = match node.op {
        Op::MatMul(op) => op.form == Form::Tn,
        Op::LinearsGradWeights(_) => true,
        Op::Fp8Product(op) => op.part == Part::GradWeights,
        _ => false,
    };
    form && node.phase == Phase::Backward
}

/// Whether nothing before the end of the backward pass reads the sums over rows that a backward call produces: a bias's
/// gradient, or the weight gradients of a norm.
fn only_update_reads(graph: &Graph, number: usize, last: usize) -> bool {
    let node = &graph.nodes()[number];
    let sums = if matches!(node.op, Op::SumRows(_)) { &node.outputs[..] } else { node.outputs.get(1..).unwrap_or(&[]) };
    let is_read = |made: &ValueId| graph.nodes()[number + 1..=last].iter().any(|later| later.inputs.contains(made));
    node.phase == Phase::Backward && number < last && !sums.is_empty() && !sums.iter().any(is_read)
}

/// Splits one unclipped update of all parameters into pieces that can run as soon as nothing else in the step touches
/// them.
fn pieces_of(
    lowering: &mut Lowering,
    graph: &Graph,
    calls: &[Prepared],
    operands: &dyn Fn(&[ValueId]) -> Vec<Operand>,
) -> Result<Option<Pieces>, CudaError> {
    let update = graph.nodes().iter().enumerate().find_map(|(number, node)| match node.op {
        Op::AdamWAll(op) if op.max_norm == 0.0 => Some((number, op)),
        _ => None,
    });
    let Some((number, op)) = update else { return Ok(None) };
    let inputs = operands(&graph.nodes()[number].inputs);
    let updates = Update::list(&inputs[1..], op.parameters);
    let touched = |update: &Update| -> Vec<Range<u64>> {
        let (changed, gradient) = update.ranges();
        changed.into_iter().chain([gradient]).collect()
    };
    let free: Vec<(usize, usize)> =
        updates.iter().map(|update| (last_touch(&calls[..number], &touched(update)), update.elements())).collect();
    let mut pieces = vec![];
    for (after, members) in grouped(&free) {
        let some: Vec<Update> = members.iter().map(|&index| updates[index]).collect();
        let action = lowering.adamw_some(inputs[0].at, &op, &some)?;
        let (writes, gradients): (Vec<Vec<Range<u64>>>, Vec<Range<u64>>) = some.iter().map(Update::ranges).unzip();
        let writes = writes.concat();
        let reads = gradients.into_iter().chain([inputs[0].range()]).chain(writes.iter().cloned()).collect();
        pieces.push(Piece {
            after,
            work: Prepared { actions: vec![action], reads, writes, beside: true, together: None },
        });
    }
    Ok(Some(Pieces { call: number, pieces }))
}

/// Lowers every program's calls to actions, and returns the most scratch that a call needs. `rank` is this process's
/// rank.
pub fn lower_all(
    context: &Context,
    (kernels, plans): (&mut Kernels, &mut Plans),
    arena: &Memory,
    scratch: &Memory,
    (programs, rank): (&[Program], Option<usize>),
) -> Result<(Vec<Loaded>, usize), CudaError> {
    let mut loaded = vec![];
    let mut needed = 0;
    for program in programs {
        let Program { graph, plan, precision, .. } = program;
        let mut lowering = Lowering {
            context,
            kernels,
            plans,
            precision: *precision,
            scratch: scratch.at,
            scratch_needed: 0,
            rotated: BTreeSet::new(),
            tables: vec![],
            sums_later: false,
            later: vec![],
        };
        let values: Vec<Option<Operand>> = graph
            .value_ids()
            .map(|id| {
                let (buffer, ty) = (plan.buffer(id)?, graph.ty(id).clone());
                let pitch = buffer.pitch / ty.dtype.bytes();
                Some(Operand { at: arena.at + buffer.offset as u64, ty, pitch })
            })
            .collect();
        let operands = |ids: &[ValueId]| -> Vec<Operand> { ids.iter().filter_map(|id| values[id.0].clone()).collect() };
        let mut calls = vec![];
        let last_backward = graph.nodes().iter().rposition(|node| node.phase == Phase::Backward);
        for (number, node) in graph.nodes().iter().enumerate() {
            let (inputs, outputs) = (operands(&node.inputs), operands(&node.outputs));
            let call = Call { op: &node.op, module: &node.module, inputs: &inputs, outputs: &outputs };
            lowering.sums_later = last_backward.is_some_and(|last| only_update_reads(graph, number, last));
            let mut actions = lowering.lower(&call)?;
            let summed = if last_backward == Some(number) { lowering.sum_later()? } else { None };
            let touched = |operands: &[Operand]| operands.iter().map(Operand::range).collect::<Vec<_>>();
            let updated = node.op.updates();
            let (mut reads, mut writes) = (touched(&inputs), touched(&outputs));
            // Updated inputs are both read and written.
            writes.extend(updated.iter().map(|&index| inputs[index].range()));
            reads.retain(|range| !range.is_empty());
            if let Some((sum, sums)) = summed {
                actions.push(sum);
                writes.extend(sums);
            }
            let products = actions.iter().all(|action| matches!(action, Action::Product(..) | Action::Scaled(..)));
            let beside = products && is_weight_gradient(node);
            let together = match rank {
                Some(rank) => PreparedCollective::of(graph.nodes(), node, (&inputs, &outputs), rank)?,
                None => None,
            };
            calls.push(Prepared { actions, reads, writes, beside, together });
        }
        let pieces = pieces_of(&mut lowering, graph, &calls, &operands)?;
        needed = needed.max(lowering.scratch_needed);
        let tables = lowering.tables;
        let labels = graph.nodes().iter().map(|node| Labels::of(node.phase.name(), node.op.name(), &node.module));
        loaded.push(Loaded { calls, labels: labels.collect(), values, tables, pieces });
    }
    Ok((loaded, needed))
}
