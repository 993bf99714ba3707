//! Facts from the plan that a trace's header carries because no event shows them.

use super::Profiled;
use super::modules::owners;
use crate::memory::MemoryNeed;
use crate::models::ModelConfig;
use headroom_engine::recorder::Timing;
use headroom_graph::plan::Buffer;
use headroom_graph::{Category, Node, NodeId, Op, Phase, Role, Source, ValueId};
use headroom_trace::run::{
    self, BirthHeader, FlopsHeader, LiveHeader, PlanHeader, ShapeHeader, TensorHeader, place_of,
};
use std::collections::{BTreeMap, BTreeSet};

/// The header with the facts that only the plan knows; the caller fills in the run's own figures.
pub fn run_header(profiled: &Profiled, model: &ModelConfig, need: &MemoryNeed) -> run::RunHeader {
    let shape = profiled.training.shape;
    run::RunHeader {
        timing: match profiled.recording.timing() {
            Timing::HostClock => run::Timing::HostClock,
            Timing::DeviceEvents => run::Timing::DeviceEvents,
            Timing::Kernels => run::Timing::Kernels,
            Timing::ReplayedKernels => run::Timing::ReplayedKernels,
        },
        shape: ShapeHeader {
            batch_size: shape.batch_size as u64,
            seq_len: shape.seq_len as u64,
            accumulation: profiled.accumulation as u64,
        },
        parameters: model.parameters().total(),
        plan: plan_header(profiled, need),
        flops: flops_header(profiled, model),
        roles: roles(profiled),
        instrumentation: instrumentation(profiled),
        ..run::RunHeader::default()
    }
}

/// The role of every kind of place in the model.
fn roles(profiled: &Profiled) -> BTreeMap<String, String> {
    let graph = profiled.graph();
    // The results of a call are listed under its own module, whatever they stand for.
    let nodes = graph.nodes().iter().map(|node| (place_of(&node.module), node.role.to_string()));
    let owners = owners(graph).into_iter().map(|owner| (place_of(&owner.module), owner.role));
    nodes.chain(owners).filter(|(_, role)| role != Role::Other.name()).collect()
}

/// Names of the operators that only observe.
fn instrumentation(profiled: &Profiled) -> Vec<String> {
    let watching = profiled.graph().nodes().iter().filter(|node| node.op.is_instrumentation());
    let names: BTreeSet<String> = watching.map(|node| node.op.name().to_string()).collect();
    names.into_iter().collect()
}

fn flops_header(profiled: &Profiled, model: &ModelConfig) -> FlopsHeader {
    let calls = &profiled.plan().calls;
    let shape = profiled.training.shape;
    let per_step = |call: usize| profiled.runs_per_step(call) * calls[call].flops;
    let needed_forward_per_step =
        model.needed_forward_flops(shape.batch_size, shape.seq_len) * profiled.accumulation as u64;
    let repeated = (0..calls.len()).filter(|&call| calls[call].is_product && is_recomputed(profiled, call));
    FlopsHeader {
        needed_forward_per_step,
        // The backward pass needs two products for each one of the forward pass.
        needed_per_step: 3 * needed_forward_per_step,
        executed_per_step: (0..calls.len()).map(per_step).sum(),
        recomputed_per_step: repeated.map(per_step).sum::<u64>() + scores_computed_again(profiled),
    }
}

/// Whether a backward call repeats one of the forward pass: the same op, in the same module, on inputs of the same
/// types.
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

/// Tiled attention does not store the scores: one of the five products of its backward pass recomputes them.
fn scores_computed_again(profiled: &Profiled) -> u64 {
    let calls = profiled.plan().calls.iter().enumerate();
    let tiled =
        calls.filter(|(index, _)| matches!(profiled.graph().node(NodeId(*index)).op, Op::FlashAttentionGrad(_)));
    tiled.map(|(index, call)| profiled.runs_per_step(index) * call.flops / 5).sum()
}

fn plan_header(profiled: &Profiled, need: &MemoryNeed) -> PlanHeader {
    let plan = profiled.plan();
    let moving: Vec<(ValueId, &Buffer)> = profiled
        .graph()
        .value_ids()
        .filter_map(|id| Some((id, plan.buffer(id)?)))
        .filter(|(_, buffer)| !buffer.kept)
        .collect();
    PlanHeader {
        peak_bytes: plan.peak.total() as u64,
        arena_bytes: plan.arena_bytes as u64,
        arena_reserved_bytes: need.arena as u64,
        reserved_bytes: need.total() as u64,
        scratch_bytes: need.scratch as u64,
        average_bytes: Some(need.average as u64),
        largest_batch_that_fits: None,
        allocations: moving.len() as u64,
        allocated_bytes: moving.iter().map(|(_, buffer)| buffer.bytes as u64).sum(),
        largest_tensor: largest_tensor(profiled),
        births: births(profiled, &moving),
        live_at_peak: live_at_peak(profiled, &moving),
        linear_projections: linear_projections(profiled),
    }
}

/// Weight products of one forward pass.
fn linear_projections(profiled: &Profiled) -> u64 {
    let graph = profiled.graph();
    // A weight, or the half-precision copy that products read instead.
    let is_weight = |source: Source| matches!(source, Source::Parameter | Source::State(Category::Parameters));
    let calls = profiled.plan().calls.iter().enumerate();
    let projections = calls.filter(|(index, call)| {
        let inputs = &graph.node(NodeId(*index)).inputs;
        call.phase == Phase::Forward && call.is_product && inputs.iter().any(|id| is_weight(graph.get(*id).source))
    });
    projections.count() as u64
}

fn largest_tensor(profiled: &Profiled) -> TensorHeader {
    let graph = profiled.graph();
    let sized = graph.value_ids().filter(|id| profiled.plan().buffer(*id).is_some());
    // The first of the largest: values are numbered in the order in which they are produced.
    let Some(id) = sized.max_by_key(|id| (graph.ty(*id).bytes(), std::cmp::Reverse(*id))) else {
        return TensorHeader { name: "none".into(), ..TensorHeader::default() };
    };
    let value = graph.get(id);
    let name = match value.source {
        Source::Node(maker) => {
            let node = graph.node(maker);
            format!("made by {} in {}", node.op.name(), node.module)
        }
        _ => value.name.to_string(),
    };
    let shape = value.ty.sizes().iter().map(|size| *size as u64).collect();
    TensorHeader { name, shape, bytes: value.ty.bytes() as u64 }
}

/// The operator and place that produce a value; `inputs` for values written by the host.
fn maker(profiled: &Profiled, id: ValueId) -> (&'static str, String) {
    let graph = profiled.graph();
    match graph.get(id).source {
        Source::Node(maker) => {
            let node = graph.node(maker);
            (node.op.name(), place_of(&node.module))
        }
        _ => ("inputs", String::new()),
    }
}

fn live_at_peak(profiled: &Profiled, moving: &[(ValueId, &Buffer)]) -> Vec<LiveHeader> {
    let peak = profiled.plan().peak_call;
    let mut rows: BTreeMap<(&str, String), u64> = BTreeMap::new();
    for (id, buffer) in moving.iter().filter(|(_, buffer)| buffer.alive.contains(&peak)) {
        *rows.entry(maker(profiled, *id)).or_default() += buffer.bytes as u64;
    }
    let row = |((name, module), bytes): ((&str, String), u64)| LiveHeader { name: name.into(), module, bytes };
    let mut rows: Vec<LiveHeader> = rows.into_iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    rows
}

/// Buffers that each kind of operator allocates, most bytes first.
fn births(profiled: &Profiled, moving: &[(ValueId, &Buffer)]) -> Vec<BirthHeader> {
    let peak = profiled.plan().peak_call;
    let mut rows: BTreeMap<&str, BirthHeader> = BTreeMap::new();
    for (id, buffer) in moving {
        let name = maker(profiled, *id).0;
        let row = rows.entry(name).or_insert_with(|| BirthHeader { name: name.into(), ..BirthHeader::default() });
        row.bytes += buffer.bytes as u64;
        row.count += 1;
        if buffer.alive.contains(&peak) {
            row.live_at_peak += buffer.bytes as u64;
        }
    }
    let mut rows: Vec<BirthHeader> = rows.into_values().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    rows
}
