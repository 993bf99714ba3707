//! What a step holds in memory, from the plan, at the times that were recorded.

use super::{Profiled, place_of, seconds};
use crate::memory::MemoryNeed;
use headroom_graph::plan::{Buffer, Usage};
use headroom_graph::{Category, NodeId, Phase, Source, ValueId};
use headroom_record::memory::{ByCategory, LargestTensor, LivePlace, MemoryEvent};
use headroom_record::timeline::TimelinePoint;
use std::collections::BTreeMap;

pub const MIB: f64 = 1024.0 * 1024.0;

/// The figures of `memory_analysis.json` that come from the plan and the times of its calls.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryFigures {
    pub peak: ByCategory,
    pub average_mb: f64,
    pub fragmentation_percent: f64,
    pub peak_phase: &'static str,
    pub peak_operator: String,
    /// Forward, backward, optimizer.
    pub at_phase_mb: [f64; 3],
    pub allocations: u64,
    pub total_allocated: u64,
    pub largest: LargestTensor,
    pub events: Vec<MemoryEvent>,
    pub live_at_peak: Vec<LivePlace>,
}

pub fn memory_figures(profiled: &Profiled, need: &MemoryNeed) -> MemoryFigures {
    let plan = profiled.plan();
    let usage = plan.usage();
    let moving: Vec<(ValueId, &Buffer)> = profiled
        .graph()
        .value_ids()
        .filter_map(|id| Some((id, plan.buffer(id)?)))
        .filter(|(_, buffer)| !buffer.kept)
        .collect();
    let fullest = |phase: Phase| usage[plan.phase(phase)].iter().map(Usage::total).max().unwrap_or(0) as f64 / MIB;
    let live = plan.peak.total();
    MemoryFigures {
        peak: in_mib(&plan.peak),
        average_mb: average_mb(profiled, &usage),
        fragmentation_percent: 100.0 * plan.arena_bytes.saturating_sub(live) as f64 / need.arena.max(1) as f64,
        peak_phase: plan.calls.get(plan.peak_call).map_or("none", |call| call.phase.name()),
        peak_operator: describe_call(profiled, plan.peak_call),
        at_phase_mb: Phase::ALL.map(fullest),
        allocations: moving.len() as u64,
        total_allocated: moving.iter().map(|(_, buffer)| buffer.bytes as u64).sum(),
        largest: largest_tensor(profiled),
        events: events(profiled, &moving),
        live_at_peak: live_at_peak(profiled, &moving),
    }
}

/// What is live at the start of every recorded call; times count from the start of the first recorded step.
pub fn timeline(profiled: &Profiled) -> Vec<TimelinePoint> {
    let usage = profiled.plan().usage();
    let Some(zero) = profiled.recording.steps().first().map(|step| step.start) else { return vec![] };
    let point = |step: u64, span: &headroom_engine::recorder::CallSpan| TimelinePoint {
        time_us: span.start.saturating_sub(zero).as_nanos() as f64 / 1e3,
        step,
        phase: profiled.plan().calls[span.call as usize].phase.name().into(),
        operator: describe_call(profiled, span.call as usize),
        live_mb: in_mib(&usage[span.call as usize]),
    };
    let recording = profiled.recording;
    let of_step = |step| recording.calls(step).iter().map(move |span| point(step.step, span));
    recording.steps().iter().flat_map(of_step).collect()
}

/// `matmul in layers.0.mlp.up_proj`.
fn describe_call(profiled: &Profiled, call: usize) -> String {
    match profiled.graph().nodes().get(call) {
        Some(node) => format!("{} in {}", node.op.name(), node.module),
        None => "nothing".into(),
    }
}

pub fn in_mib(usage: &Usage) -> ByCategory {
    let of = |category: Category| usage.get(category) as f64 / MIB;
    ByCategory {
        parameters: of(Category::Parameters),
        gradients: of(Category::Gradients),
        optimizer_state: of(Category::OptimizerState),
        activations: of(Category::Activations),
        temporaries: of(Category::Temporaries),
    }
}

/// Each call's live bytes, weighted with the time it took.
fn average_mb(profiled: &Profiled, usage: &[Usage]) -> f64 {
    let (mut weighted, mut whole) = (0.0, 0.0);
    for step in profiled.recording.steps() {
        for span in profiled.recording.calls(step) {
            let time = seconds(span.duration());
            weighted += time * usage[span.call as usize].total() as f64;
            whole += time;
        }
    }
    if whole > 0.0 { weighted / whole / MIB } else { 0.0 }
}

fn largest_tensor(profiled: &Profiled) -> LargestTensor {
    let graph = profiled.graph();
    let sized = graph.value_ids().filter(|id| profiled.plan().buffer(*id).is_some());
    // The first of the largest: values are numbered in the order in which they are made.
    let Some(id) = sized.max_by_key(|id| (graph.ty(*id).bytes(), std::cmp::Reverse(*id))) else {
        return LargestTensor { name: "none".into(), shape: vec![], mb: 0.0 };
    };
    let value = graph.get(id);
    let name = match value.source {
        Source::Node(NodeId(call)) => format!("made by {}", describe_call(profiled, call)),
        _ => value.name.to_string(),
    };
    let shape = value.ty.sizes().iter().map(|size| *size as u64).collect();
    LargestTensor { name, shape, mb: value.ty.bytes() as f64 / MIB }
}

fn live_at_peak(profiled: &Profiled, moving: &[(ValueId, &Buffer)]) -> Vec<LivePlace> {
    let graph = profiled.graph();
    let peak = profiled.plan().peak_call;
    let mut rows: BTreeMap<(String, String), f64> = BTreeMap::new();
    for (id, buffer) in moving.iter().filter(|(_, buffer)| buffer.alive.contains(&peak)) {
        let place = match graph.get(*id).source {
            Source::Node(maker) => {
                let node = graph.node(maker);
                (node.op.name().to_string(), place_of(&node.module))
            }
            _ => ("inputs".to_string(), String::new()),
        };
        *rows.entry(place).or_default() += buffer.bytes as f64 / MIB;
    }
    let mut rows: Vec<LivePlace> =
        rows.into_iter().map(|((name, module), mb)| LivePlace { name, module, mb }).collect();
    rows.sort_by(|left, right| right.mb.total_cmp(&left.mb));
    rows
}

/// What each kind of operator brings to life, most first.
fn events(profiled: &Profiled, moving: &[(ValueId, &Buffer)]) -> Vec<MemoryEvent> {
    let graph = profiled.graph();
    let peak = profiled.plan().peak_call;
    let mut rows: BTreeMap<&str, MemoryEvent> = BTreeMap::new();
    for (id, buffer) in moving {
        let name = match graph.get(*id).source {
            Source::Node(NodeId(call)) => profiled.operator_name(call),
            _ => "inputs",
        };
        let row = rows.entry(name).or_insert_with(|| MemoryEvent {
            name: name.into(),
            memory_usage: 0,
            count: 0,
            avg_memory_per_call: 0,
            live_at_peak: 0,
        });
        row.memory_usage += buffer.bytes as u64;
        row.count += 1;
        if buffer.alive.contains(&peak) {
            row.live_at_peak += buffer.bytes as u64;
        }
    }
    let mut rows: Vec<MemoryEvent> = rows.into_values().collect();
    rows.iter_mut().for_each(|row| row.avg_memory_per_call = row.memory_usage / row.count.max(1));
    rows.sort_by_key(|row| std::cmp::Reverse(row.memory_usage));
    rows
}
