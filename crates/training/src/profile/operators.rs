//! The operator tables, the breakdown of a step, and the shares of the workshop's pattern questions.

use super::device_work::device_work;
use super::{Profiled, place_of, seconds};
use crate::recording::Part;
use headroom_engine::recorder::Timing;
use headroom_graph::{Category, NodeId, Phase, Source};
use headroom_record::intensity::Bound;
use headroom_record::operators::{OperatorStats, Patterns, PlaceStats, StepBreakdown};
use std::collections::{BTreeMap, BTreeSet};

/// The sizes of every input of a call.
type InputShapes = Vec<Vec<u64>>;

/// One row an operator's name, over all recorded steps, the costliest first.
pub fn operator_stats(profiled: &Profiled) -> Vec<OperatorStats> {
    let graph = profiled.graph();
    let Columns { host, device, born } = columns(profiled);
    let all = [&host, &device].map(|seconds| seconds.iter().sum::<f64>());
    let share = |part: f64, all: f64| if all > 0.0 { 100.0 * part / all } else { 0.0 };
    let steps = profiled.recorded_steps() as u64;
    let mut rows: BTreeMap<&str, (OperatorStats, BTreeSet<InputShapes>)> = BTreeMap::new();
    for (index, call) in profiled.plan().calls.iter().enumerate() {
        let name = profiled.operator_name(index);
        let (row, shapes) = rows.entry(name).or_insert_with(|| (empty(name), BTreeSet::new()));
        let runs = steps * profiled.runs_a_step(index);
        row.cpu_time_total += host[index];
        row.cuda_time_total += device[index];
        row.cuda_memory_usage += runs * born[index];
        row.count += runs;
        row.flops += runs * call.flops;
        row.bytes += runs * call.bytes;
        let sizes = |id: &headroom_graph::ValueId| graph.ty(*id).sizes().iter().map(|size| *size as u64).collect();
        shapes.insert(graph.node(NodeId(index)).inputs.iter().map(sizes).collect());
    }
    let mut rows: Vec<OperatorStats> = rows
        .into_values()
        .map(|(mut row, shapes)| {
            row.cpu_time_avg = row.cpu_time_total / row.count.max(1) as f64;
            row.cpu_time_percent = share(row.cpu_time_total, all[0]);
            row.cuda_time_avg = row.cuda_time_total / row.count.max(1) as f64;
            row.cuda_time_percent = share(row.cuda_time_total, all[1]);
            row.input_shapes = shapes.into_iter().collect();
            row
        })
        .collect();
    let key = |row: &OperatorStats| if all[1] > 0.0 { row.cuda_time_total } else { row.cpu_time_total };
    rows.sort_by(|left, right| key(right).total_cmp(&key(left)));
    rows
}

/// Over all recorded steps, by call: seconds of the host and of the device, and bytes of a GPU that come to life with it.
struct Columns {
    host: Vec<f64>,
    device: Vec<f64>,
    born: Vec<u64>,
}

fn columns(profiled: &Profiled) -> Columns {
    let (spans, calls) = (profiled.seconds_by_call(), profiled.plan().calls.len());
    let none = vec![0.0; calls];
    let (host, device) = match (profiled.recording.timing(), device_work(profiled)) {
        (Timing::HostClock, _) => return Columns { host: spans, device: none, born: vec![0; calls] },
        (_, Some(work)) => (work.host_seconds, work.kernel_seconds),
        // Timed by events: the host waited as long as the device worked.
        (_, None) => (spans.clone(), spans),
    };
    let mut born = vec![0; calls];
    for buffer in profiled.plan().buffers.iter().flatten().filter(|buffer| !buffer.kept && !buffer.alive.is_empty()) {
        born[buffer.alive.start] += buffer.bytes as u64;
    }
    Columns { host, device, born }
}

/// Seconds of a mean recorded step in which something ran: a kernel, a copy or a fill on a GPU, else a call.
pub fn busy_seconds(profiled: &Profiled) -> f64 {
    match device_work(profiled) {
        Some(work) => work.busy_seconds / profiled.recorded_steps().max(1) as f64,
        None => step_breakdown(profiled).operators(),
    }
}

fn empty(name: &str) -> OperatorStats {
    OperatorStats {
        name: name.into(),
        cpu_time_total: 0.0,
        cpu_time_avg: 0.0,
        cpu_time_percent: 0.0,
        cuda_time_total: 0.0,
        cuda_time_avg: 0.0,
        cuda_time_percent: 0.0,
        count: 0,
        input_shapes: vec![],
        flops: 0,
        bytes: 0,
        cuda_memory_usage: 0,
    }
}

/// One row an operator at one kind of place, in a mean recorded step, the costliest first.
pub fn by_place(profiled: &Profiled) -> Vec<PlaceStats> {
    let seconds = profiled.seconds_by_call();
    let steps = profiled.recorded_steps().max(1) as f64;
    let wall = step_breakdown(profiled).wall;
    let mut rows: BTreeMap<(Phase, String, &str), PlaceStats> = BTreeMap::new();
    for (index, call) in profiled.plan().calls.iter().enumerate() {
        let node = profiled.graph().node(NodeId(index));
        let (module, name) = (place_of(&node.module), node.op.name());
        let row = rows.entry((call.phase, module.clone(), name)).or_insert_with(|| PlaceStats {
            name: name.into(),
            module,
            phase: call.phase.name().into(),
            count: 0,
            time: 0.0,
            percent_of_step: 0.0,
            flops: 0,
            bytes: 0,
            intensity: 0.0,
            bound: Bound::OverheadBound,
            floor: 0.0,
            percent_of_roof: 0.0,
        });
        let runs = profiled.runs_a_step(index);
        row.count += runs;
        row.time += seconds[index] / steps;
        row.flops += runs * call.flops;
        row.bytes += runs * call.bytes;
        row.floor += runs as f64 * profiled.floor_seconds(index);
    }
    let mut rows: Vec<PlaceStats> = rows.into_values().collect();
    for row in &mut rows {
        row.percent_of_step = percent(row.time, wall);
        row.intensity = row.flops as f64 / row.bytes.max(1) as f64;
        row.bound = bound(profiled, row.intensity, row.floor / row.count.max(1) as f64);
        row.percent_of_roof = percent(row.floor, row.time);
    }
    rows.sort_by(|left, right| right.time.total_cmp(&left.time));
    rows
}

/// FLOPs a second of the products of the fastest kind of place. By their whole spans: beside another call a product has
/// less than the whole device, and its share of their time would make it look faster than it was.
pub fn fastest_products(profiled: &Profiled) -> f64 {
    let mut places: BTreeMap<(Phase, String, &str), (f64, f64)> = BTreeMap::new();
    let recording = profiled.recording;
    for span in recording.steps().iter().flat_map(|step| recording.calls(step)) {
        let index = span.call as usize;
        let (call, node) = (&profiled.plan().calls[index], profiled.graph().node(NodeId(index)));
        let intensity = call.flops as f64 / call.bytes.max(1) as f64;
        if bound(profiled, intensity, profiled.floor_seconds(index)) == Bound::ComputeBound {
            let place = places.entry((call.phase, place_of(&node.module), node.op.name())).or_default();
            *place = (place.0 + call.flops as f64, place.1 + seconds(span.duration()));
        }
    }
    places.into_values().map(|(flops, time)| flops / time.max(f64::MIN_POSITIVE)).fold(0.0, f64::max)
}

/// What bounds a call: the cost of calling at all where the roofs allow it less time than that, else its own roof.
pub fn bound(profiled: &Profiled, intensity: f64, floor_seconds: f64) -> Bound {
    let rates = &profiled.rates;
    if floor_seconds < rates.call_seconds {
        Bound::OverheadBound
    } else if intensity < rates.product_flops / rates.bytes {
        Bound::MemoryBound
    } else {
        Bound::ComputeBound
    }
}

/// A mean recorded step, taken apart.
pub fn step_breakdown(profiled: &Profiled) -> StepBreakdown {
    let recording = profiled.recording;
    let steps = recording.steps();
    let mut sum = StepBreakdown { steps: steps.len() as u64, ..StepBreakdown::default() };
    for step in steps {
        sum.wall += seconds(step.end - step.start);
        let calls = recording.calls(step);
        let shares = profiled.seconds_by_span(calls);
        for (span, share) in calls.iter().zip(&shares) {
            let operators = match profiled.plan().calls[span.call as usize].phase {
                Phase::Forward => &mut sum.forward_operators,
                Phase::Backward => &mut sum.backward_operators,
                Phase::Optimizer => &mut sum.optimizer_operators,
            };
            *operators += share;
        }
        let mut next = 0;
        for part in recording.parts(step) {
            let length = seconds(part.end.saturating_sub(part.start));
            match part.part {
                Part::DataWait => sum.data_wait += length,
                Part::Inputs | Part::LossRead => sum.host_copies += length,
                Part::Forward | Part::Backward | Part::Optimizer => {
                    // Calls lie in order of time, and a phase's lie inside it.
                    let inside = calls[next..].iter().take_while(|span| span.start < part.end);
                    let count = inside.count();
                    let busy: f64 = shares[next..next + count].iter().sum();
                    next += count;
                    sum.between_calls += (length - busy).max(0.0);
                }
            }
        }
    }
    let over = steps.len().max(1) as f64;
    let mut mean = StepBreakdown {
        steps: sum.steps,
        wall: sum.wall / over,
        forward_operators: sum.forward_operators / over,
        backward_operators: sum.backward_operators / over,
        optimizer_operators: sum.optimizer_operators / over,
        between_calls: sum.between_calls / over,
        data_wait: sum.data_wait / over,
        host_copies: sum.host_copies / over,
        other: 0.0,
    };
    mean.other = mean.wall - mean.accounted();
    mean
}

/// The workshop's pattern questions, answered.
pub fn patterns(profiled: &Profiled) -> Patterns {
    let graph = profiled.graph();
    let breakdown = step_breakdown(profiled);
    let seconds = profiled.seconds_by_call();
    let steps = profiled.recorded_steps().max(1) as f64;
    let mut patterns = Patterns {
        idle_percent: percent((breakdown.wall - busy_seconds(profiled)).max(0.0), breakdown.wall),
        ..Patterns::default()
    };
    let mut kinds = BTreeSet::new();
    for (index, call) in profiled.plan().calls.iter().enumerate() {
        let node = graph.node(NodeId(index));
        let share = percent(seconds[index] / steps, breakdown.wall);
        let (name, place) = (node.op.name(), place_of(&node.module));
        let leaf = place.rsplit('.').next().unwrap_or_default().to_string();
        let in_attention = place.contains("self_attn");
        let add = |belongs: bool, to: &mut f64| {
            if belongs {
                *to += share;
            }
        };
        add(call.is_product, &mut patterns.gemm_percent);
        add(is_qkv(&leaf), &mut patterns.qkv_projection_percent);
        add(is_gate_up(&leaf), &mut patterns.gate_up_percent);
        add(name.contains("softmax"), &mut patterns.softmax_percent);
        add(in_attention, &mut patterns.attention_percent);
        add(in_attention && leaf == "self_attn", &mut patterns.attention_core_percent);
        add(place.contains("mlp"), &mut patterns.ffn_percent);
        add(name.contains("norm") && call.phase != Phase::Optimizer, &mut patterns.norm_percent);
        add(call.phase == Phase::Optimizer, &mut patterns.optimizer_percent);
        match node.op.is_instrumentation() {
            true => patterns.instrumentation_kernels += profiled.runs_a_step(index),
            false => patterns.kernels_per_step += profiled.runs_a_step(index),
        }
        kinds.insert(name);
        let reads_weight = node.inputs.iter().any(|input| is_weight(graph.get(*input).source));
        if call.phase == Phase::Forward && call.is_product && reads_weight {
            patterns.linear_projections += 1;
        }
    }
    let started = patterns.kernels_per_step + patterns.instrumentation_kernels;
    let starting = started as f64 * profiled.rates.call_seconds;
    patterns.launch_overhead_percent = percent(breakdown.between_calls + starting, breakdown.wall);
    patterns.distinct_kernels = kinds.len() as u64;
    if let Some(work) = device_work(profiled) {
        // Measured: gaps between kernels hold what starting them costs.
        patterns.launch_overhead_percent = percent(breakdown.between_calls, breakdown.wall);
        let watching = work.kernels_by_call.iter().enumerate();
        let watching = watching.filter(|(call, _)| graph.node(NodeId(*call)).op.is_instrumentation());
        let watching: usize = watching.map(|(_, kernels)| *kernels).sum();
        let per_step = |kernels: usize| (kernels as f64 / steps).round() as u64;
        patterns.kernels_per_step = per_step(work.kernels.saturating_sub(watching));
        patterns.instrumentation_kernels = per_step(watching);
        patterns.distinct_kernels = work.distinct_kernels as u64;
    }
    patterns
}

/// Or the copy in half precision that products read in its place.
fn is_weight(source: Source) -> bool {
    matches!(source, Source::Parameter | Source::State(Category::Parameters))
}

fn is_qkv(leaf: &str) -> bool {
    matches!(leaf, "q_proj" | "k_proj" | "v_proj") || leaf.contains("qkv")
}

fn is_gate_up(leaf: &str) -> bool {
    matches!(leaf, "gate_proj" | "up_proj") || leaf.contains("gate_up")
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { 100.0 * part / whole } else { 0.0 }
}
