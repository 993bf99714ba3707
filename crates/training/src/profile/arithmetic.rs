//! FLOPs by phase, module and operator, and the step against the device's roofs.

use super::Profiled;
use super::operators::{bound, step_breakdown};
use crate::config::ModelConfig;
use headroom_graph::{Node, NodeId, Op, Phase};
use headroom_record::flops::{FlopsAnalysis, ModuleFlops, OperatorFlops};
use headroom_record::intensity::{Bound, OperatorIntensity, TimeByBound};
use headroom_record::operators::PlaceStats;
use std::collections::BTreeMap;

/// FLOPs of one optimizer step; `steps` is how many ran.
pub fn flops_analysis(profiled: &Profiled, model: &ModelConfig, steps: u64) -> FlopsAnalysis {
    let calls = &profiled.plan().calls;
    let sum = |wanted: &dyn Fn(usize) -> bool| -> u64 {
        (0..calls.len()).filter(|&call| wanted(call)).map(|call| profiled.runs_a_step(call) * calls[call].flops).sum()
    };
    let products = |phase: Phase| sum(&|call: usize| calls[call].phase == phase && calls[call].is_product);
    let (forward_flops, backward_flops) = (products(Phase::Forward), products(Phase::Backward));
    let optimizer_flops = sum(&|call: usize| calls[call].phase == Phase::Optimizer);
    let avg_flops_per_step = forward_flops + backward_flops + optimizer_flops;
    let shape = profiled.training.shape;
    let needed_forward_flops =
        model.needed_forward_flops(shape.batch_size, shape.seq_len) * profiled.accumulation as u64;
    let executed_flops_per_step = sum(&|_| true);
    FlopsAnalysis {
        total_flops: avg_flops_per_step * steps,
        avg_flops_per_step,
        flops_per_parameter: avg_flops_per_step as f64 / model.parameters().total() as f64,
        forward_flops,
        backward_flops,
        optimizer_flops,
        recomputed_flops: sum(&|call: usize| calls[call].is_product && is_recomputed(profiled, call))
            + scores_computed_again(profiled),
        needed_forward_flops,
        // Backward needs two products for each one of the forward pass.
        needed_flops_per_step: 3 * needed_forward_flops,
        elementwise_flops: sum(&|call: usize| calls[call].phase != Phase::Optimizer && !calls[call].is_product),
        executed_flops_per_step,
        by_module: module_tree(profiled),
        by_op: by_operator(profiled, executed_flops_per_step),
    }
}

/// Does a call of the backward pass do what one of the forward pass did: the same op, in the same module, on inputs of the
/// same types?
fn is_recomputed(profiled: &Profiled, call: usize) -> bool {
    let graph = profiled.graph();
    let node = graph.node(NodeId(call));
    let same = |other: &Node| {
        other.phase == Phase::Forward
            && other.module == node.module
            && other.op == node.op
            && graph.types(&other.inputs) == graph.types(&node.inputs)
    };
    node.phase == Phase::Backward && graph.nodes().iter().any(same)
}

/// Tiled attention keeps no scores: one of the five products of its backward pass makes them again.
fn scores_computed_again(profiled: &Profiled) -> u64 {
    let calls = profiled.plan().calls.iter().enumerate();
    let tiled =
        calls.filter(|(index, _)| matches!(profiled.graph().node(NodeId(*index)).op, Op::FlashAttentionGrad(_)));
    tiled.map(|(index, call)| profiled.runs_a_step(index) * call.flops / 5).sum()
}

fn module_tree(profiled: &Profiled) -> ModuleFlops {
    let mut root = ModuleFlops { name: "model".into(), ..ModuleFlops::default() };
    for (index, call) in profiled.plan().calls.iter().enumerate() {
        let flops = call.flops * profiled.runs_a_step(index);
        let module = &profiled.graph().node(NodeId(index)).module;
        let mut at = &mut root;
        count(at, call.phase, flops);
        for part in module.split('.').filter(|part| !part.is_empty()) {
            let place = match at.children.iter().position(|child| child.name == part) {
                Some(place) => place,
                None => {
                    at.children.push(ModuleFlops { name: part.into(), ..ModuleFlops::default() });
                    at.children.len() - 1
                }
            };
            at = &mut at.children[place];
            count(at, call.phase, flops);
        }
    }
    root
}

fn count(module: &mut ModuleFlops, phase: Phase, flops: u64) {
    module.flops += flops;
    match phase {
        Phase::Forward => module.forward_flops += flops,
        Phase::Backward => module.backward_flops += flops,
        Phase::Optimizer => module.optimizer_flops += flops,
    }
}

fn by_operator(profiled: &Profiled, executed: u64) -> Vec<OperatorFlops> {
    let mut rows: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
    for (index, call) in profiled.plan().calls.iter().enumerate() {
        let runs = profiled.runs_a_step(index);
        let row = rows.entry(profiled.operator_name(index)).or_default();
        row.iter_mut().zip([call.flops, call.bytes, 1]).for_each(|(sum, one)| *sum += runs * one);
    }
    let mut rows: Vec<OperatorFlops> = rows
        .into_iter()
        .map(|(name, [flops, bytes, count])| {
            let percent = 100.0 * flops as f64 / executed.max(1) as f64;
            OperatorFlops { name: name.into(), flops, percent, bytes, count }
        })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.flops));
    rows
}

/// One row an operator's name, in a mean recorded step, by time.
pub fn intensity_by_operator(profiled: &Profiled) -> Vec<OperatorIntensity> {
    let seconds = profiled.seconds_by_call();
    let steps = profiled.recorded_steps().max(1) as f64;
    let mut rows: BTreeMap<&str, (OperatorIntensity, f64, u64)> = BTreeMap::new();
    for (index, call) in profiled.plan().calls.iter().enumerate() {
        let name = profiled.operator_name(index);
        let (row, floor, count) = rows.entry(name).or_insert_with(|| {
            let bound = Bound::OverheadBound;
            let empty = OperatorIntensity {
                name: name.into(),
                flops: 0,
                bytes: 0,
                intensity: 0.0,
                time: 0.0,
                bound,
                percent_of_roof: 0.0,
            };
            (empty, 0.0, 0)
        });
        let runs = profiled.runs_a_step(index);
        row.flops += runs * call.flops;
        row.bytes += runs * call.bytes;
        row.time += seconds[index] / steps;
        *floor += runs as f64 * profiled.floor_seconds(index);
        *count += runs;
    }
    let mut rows: Vec<OperatorIntensity> = rows
        .into_values()
        .map(|(mut row, floor, count)| {
            row.intensity = row.flops as f64 / row.bytes.max(1) as f64;
            row.bound = bound(profiled, row.intensity, floor / count.max(1) as f64);
            row.percent_of_roof = if row.time > 0.0 { 100.0 * floor / row.time } else { 0.0 };
            row
        })
        .collect();
    rows.sort_by(|left, right| right.time.total_cmp(&left.time));
    rows
}

/// Shares of the step in operators that compute, memory or the cost of calling bounds.
pub fn time_by_bound(profiled: &Profiled, places: &[PlaceStats]) -> TimeByBound {
    let wall = step_breakdown(profiled).wall.max(f64::MIN_POSITIVE);
    let share = |wanted: Bound| {
        100.0 * places.iter().filter(|place| place.bound == wanted).map(|place| place.time).sum::<f64>() / wall
    };
    TimeByBound {
        compute_percent: share(Bound::ComputeBound),
        memory_percent: share(Bound::MemoryBound),
        overhead_percent: share(Bound::OverheadBound),
    }
}
