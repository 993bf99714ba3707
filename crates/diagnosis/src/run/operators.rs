//! The operator tables, the breakdown of a step, and the answers to the workshop's pattern questions.

use headroom_record::intensity::Bound;
use headroom_record::operators::{OperatorStats, Patterns, PlaceStats, StepBreakdown};
use headroom_trace::run::{Timing, place_of};
use headroom_trace::{Category, Phase};
use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::kinds::{self, Roles};
use crate::measures::Measures;
use crate::measures::calls::{Call, Calls};
use crate::measures::intervals::Span;
use crate::measures::steps::is_fetch;
use crate::measures::view::View;

/// One row per operator name, over all recorded steps, the costliest first: the operator table with the workshop's
/// keys.
pub fn operator_stats(view: &View, calls: &Calls, measures: &Measures) -> Vec<OperatorStats> {
    let table = &measures.operators;
    let timed_by_events = calls.header.timing == Timing::DeviceEvents;
    let on_gpu = calls.header.timing != Timing::HostClock;
    let mut dims: BTreeMap<&str, BTreeSet<Vec<Vec<u64>>>> = BTreeMap::new();
    for call in &calls.list {
        dims.entry(call.name).or_default().insert(view.shapes(call.at));
    }
    let share = |part: f64, all: f64| if all > 0.0 { 100.0 * part / all } else { 0.0 };
    let row = |row: &crate::measures::operators::OperatorRow| {
        let host = row.host_self_seconds;
        // With event timing, the host waited as long as the device worked.
        let device = if timed_by_events { host } else { row.device_self_seconds };
        let all_device = if timed_by_events { table.host_self_seconds } else { table.device_self_seconds };
        let born = calls.header.plan.births.iter().find(|birth| birth.name == row.name);
        let born = born.filter(|_| on_gpu).map_or(0, |birth| birth.bytes * calls.header.shape.accumulation.max(1));
        OperatorStats {
            name: row.name.clone(),
            cpu_time_total: host,
            cpu_time_avg: host / row.calls.max(1) as f64,
            cpu_time_percent: share(host, table.host_self_seconds),
            cuda_time_total: device,
            cuda_time_avg: device / row.calls.max(1) as f64,
            cuda_time_percent: share(device, all_device),
            count: row.calls,
            input_shapes: dims.get(row.name.as_str()).into_iter().flatten().cloned().collect(),
            flops: row.flops as u64,
            bytes: row.bytes as u64,
            cuda_memory_usage: born * calls.steps as u64,
        }
    };
    table.rows.iter().filter(|one| dims.contains_key(one.name.as_str())).map(row).collect()
}

/// One row per operator and kind of place, in a mean recorded step, the costliest first.
pub fn by_place(view: &View, calls: &Calls, wall: f64) -> Vec<PlaceStats> {
    let roles = Roles::new(&calls.header.roles);
    let mut rows: BTreeMap<(Phase, String, &str), PlaceStats> = BTreeMap::new();
    for call in &calls.list {
        let module = place_of(call.module);
        let row = rows.entry((call.phase, module.clone(), call.name)).or_insert_with(|| PlaceStats {
            name: call.name.into(),
            role: roles.of(&module),
            module,
            phase: call.phase.name().into(),
            count: 0,
            time: 0.0,
            host_time: 0.0,
            percent_of_step: 0.0,
            flops: 0,
            bytes: 0,
            intensity: 0.0,
            bound: Bound::OverheadBound,
            floor: 0.0,
            percent_of_roof: 0.0,
            target_time: 0.0,
            target_passes: vec![],
        });
        row.count += 1;
        row.time += call.seconds / calls.steps;
        row.host_time += match calls.header.timing {
            Timing::HostClock => call.seconds,
            _ => view.host_span(call.at).nanos() as f64 / 1e9,
        } / calls.steps;
        row.flops += call.stated.flops;
        row.bytes += call.stated.bytes;
        row.floor += call.floor / calls.steps;
    }
    let mut rows: Vec<PlaceStats> = rows.into_values().collect();
    for row in &mut rows {
        [&mut row.count, &mut row.flops, &mut row.bytes].into_iter().for_each(|sum| *sum = calls.per_step(*sum));
        row.percent_of_step = percent(row.time, wall);
        row.intensity = row.flops as f64 / row.bytes.max(1) as f64;
        row.bound = calls.bound(row.intensity, row.floor / row.count.max(1) as f64);
        row.percent_of_roof = percent(row.floor, row.time);
    }
    rows.sort_by(|left, right| right.time.total_cmp(&left.time));
    rows
}

/// A part of a step other than an operator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    DataWait,
    HostCopy,
    Phase,
}

/// Splits a mean recorded step into parts.
pub fn step_breakdown(view: &View, calls: &Calls) -> StepBreakdown {
    let mut mean = StepBreakdown { steps: view.steps.list.len() as u64, ..StepBreakdown::default() };
    let seconds = |nanos: i64| nanos as f64 / 1e9 / calls.steps;
    let annotations = annotations(view);
    for (index, step) in view.steps.list.iter().enumerate() {
        mean.wall += seconds(step.span.nanos());
        let first = calls.list.partition_point(|call| call.step < index);
        let last = calls.list.partition_point(|call| call.step <= index);
        let own = &calls.list[first..last];
        for call in own {
            let operators = match call.phase {
                Phase::Forward => &mut mean.forward_operators,
                Phase::Backward => &mut mean.backward_operators,
                Phase::Optimizer => &mut mean.optimizer_operators,
            };
            *operators += call.seconds / calls.steps;
        }
        let marked: Vec<(Part, Span)> = annotations
            .iter()
            .filter(|(_, span)| (step.span.start..step.span.end).contains(&span.start))
            .copied()
            .collect();
        let parts = match marked.iter().any(|(part, _)| *part == Part::Phase) {
            true => marked,
            false => parts_of_calls(own, &marked, step.span),
        };
        let mut next = 0;
        for (part, span) in parts {
            let length = seconds(span.nanos().max(0));
            match part {
                Part::DataWait => mean.data_wait += length,
                Part::HostCopy => mean.host_copies += length,
                Part::Phase => {
                    // Calls are in order of time, and a phase's calls lie inside it.
                    let count = own[next..].iter().take_while(|call| call.span.start < span.end).count();
                    let busy: f64 = own[next..next + count].iter().map(|call| call.seconds / calls.steps).sum();
                    next += count;
                    mean.between_calls += (length - busy).max(0.0);
                }
            }
        }
    }
    mean.other = mean.wall - mean.accounted();
    mean
}

/// The parts of the steps that the host annotated, in order of time.
fn annotations(view: &View) -> Vec<(Part, Span)> {
    let host = &view.trace.host;
    let mut marked: Vec<(Part, Span)> = (0..host.len())
        .filter(|&at| host.category[at] == Category::UserAnnotation)
        .filter_map(|at| {
            let part = match view.host_name(at) {
                name if is_fetch(name) => Part::DataWait,
                "inputs" | "loss" => Part::HostCopy,
                "forward" | "backward" => Part::Phase,
                name if name.starts_with("Optimizer.step") => Part::Phase,
                _ => return None,
            };
            Some((part, view.host_span(at)))
        })
        .collect();
    marked.sort_by_key(|(_, span)| span.start);
    marked
}

/// Splits a step that the device ran by itself, from the times of its calls: the batch transfer until the first call,
/// each phase until the next one's first call, and the results' transfer after the last call.
fn parts_of_calls(calls: &[Call], marked: &[(Part, Span)], step: Span) -> Vec<(Part, Span)> {
    let mut parts: Vec<(Part, Span)> = marked.to_vec();
    let waited_until = marked.iter().map(|(_, span)| span.end).max().unwrap_or(step.start);
    let Some(first) = calls.first() else { return parts };
    let begins = first.span.start;
    parts.push((Part::HostCopy, Span { start: waited_until.min(begins), end: begins }));
    let runs: Vec<&[Call]> = calls.chunk_by(|left, right| left.phase == right.phase).collect();
    for (index, run) in runs.iter().enumerate() {
        let ends = run.iter().map(|call| call.span.end).max().unwrap_or(begins);
        let end = runs.get(index + 1).map_or(ends, |next| next[0].span.start);
        parts.push((Part::Phase, Span { start: run[0].span.start, end }));
    }
    let done = parts.last().map_or(step.start, |(_, span)| span.end);
    parts.push((Part::HostCopy, Span { start: done, end: step.end.max(done) }));
    parts
}

/// Answers the workshop's pattern questions.
pub fn patterns(view: &View, calls: &Calls, measures: &Measures, breakdown: &StepBreakdown) -> Patterns {
    let wall = breakdown.wall;
    let mut patterns = Patterns {
        idle_percent: 100.0 * (1.0 - measures.breakdown.busy_share).max(0.0),
        linear_projections: calls.header.plan.linear_projections,
        ..Patterns::default()
    };
    let watches = |call: &&Call| calls.header.instrumentation.iter().any(|name| name == call.name);
    let roles = Roles::new(&calls.header.roles);
    let mut names = BTreeSet::new();
    for call in &calls.list {
        let share = percent(call.seconds / calls.steps, wall);
        let role = roles.of(&place_of(call.module));
        let add = |belongs: bool, to: &mut f64| {
            if belongs {
                *to += share;
            }
        };
        add(call.stated.is_product, &mut patterns.gemm_percent);
        add(kinds::is_qkv(&role), &mut patterns.qkv_projection_percent);
        add(kinds::is_gate_up(&role), &mut patterns.gate_up_percent);
        add(kinds::is_softmax(call.name), &mut patterns.softmax_percent);
        add(kinds::is_in_attention(&role), &mut patterns.attention_percent);
        add(kinds::is_attention(&role), &mut patterns.attention_core_percent);
        add(kinds::is_in_feed_forward(&role), &mut patterns.ffn_percent);
        add(kinds::is_norm(call.name) && call.phase != Phase::Optimizer, &mut patterns.norm_percent);
        add(call.phase == Phase::Optimizer && !watches(&call), &mut patterns.optimizer_percent);
        names.insert(call.name);
    }
    let watching: Vec<&Call> = calls.list.iter().filter(watches).collect();
    if measures.kernels.count > 0 {
        let ids: HashSet<u32> = watching.iter().map(|call| view.trace.host.id[call.at]).collect();
        let device = &view.trace.device;
        let is_kernel = |at: &usize| device.category[*at] == Category::Kernel && ids.contains(&device.external[*at]);
        let apart = calls.per_step((0..device.len()).filter(is_kernel).count() as u64);
        // Measured: the gaps between kernels include the cost of launching them.
        patterns.launch_overhead_percent = percent(breakdown.between_calls, wall);
        patterns.kernels_per_step = (measures.kernels.per_step.round() as u64).saturating_sub(apart);
        patterns.instrumentation_kernels = apart;
        patterns.distinct_kernels = measures.kernels.rows.len() as u64;
    } else {
        let started = calls.per_step(calls.list.len() as u64);
        patterns.instrumentation_kernels = calls.per_step(watching.len() as u64);
        patterns.kernels_per_step = started - patterns.instrumentation_kernels;
        patterns.distinct_kernels = names.len() as u64;
        let starting = started as f64 * calls.header.peaks.call_seconds;
        patterns.launch_overhead_percent = percent(breakdown.between_calls + starting, wall);
    }
    patterns
}

pub fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { 100.0 * part / whole } else { 0.0 }
}
