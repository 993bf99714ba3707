//! The model's parameters, found by the gradients that a backward pass accumulates, and updates of them one by one.

use std::collections::{BTreeSet, HashSet};

use hashbrown::HashMap;
use headroom_trace::{NONE, NameId};
use serde::Serialize;

use super::intervals::{Span, holds, merged, seconds, total};
use super::python::{frame_name, user_frame};
use super::roles::Role;
use super::view::{View, shapes};
use crate::constants::parameters::{ADAM_BYTES, FEWEST, LONGEST_PAUSE_NANOS, MOMENTUM_BYTES};

/// Parameters that got a gradient.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters {
    /// Sizes in ascending order: a gradient may be transposed.
    pub shapes: HashSet<Vec<u64>>,
    /// Number of elements in one step; with gradient accumulation, counted once for each pass.
    pub elements: f64,
}

/// Per-parameter work outside the optimizer: weight averages, hand-written norms, clipping and updates.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ParameterLoops {
    pub operators_per_step: f64,
    pub host_seconds: f64,
    /// The operators of the loops, the most frequent first.
    pub operators: Vec<String>,
    pub function: Option<String>,
    pub through: Option<String>,
    #[serde(skip)]
    pub first: i64,
    /// From the first operator of each loop to the last.
    #[serde(skip)]
    pub host: Vec<Span>,
}

/// Kernels that update parameters, and the bytes that one fused kernel would move.
#[derive(Clone, Debug, Default)]
pub struct Update {
    pub kernels: Vec<usize>,
    pub nanos: i64,
    /// Bytes of one kernel that reads and writes everything needed once; 0 if sizes are unknown.
    pub fused_bytes: f64,
}

/// The role of an operator in a loop over tensors.
fn role(operator: &str) -> Option<Role> {
    let name = operator.strip_prefix("aten::").unwrap_or(operator);
    let name = name.strip_suffix('_').unwrap_or(name);
    [Role::OverLists, Role::BesideLists].into_iter().find(|role| role.is_of_plain(name))
}

pub fn parameters(view: &View) -> Parameters {
    let host = &view.trace.host;
    let accumulated = view.host_spans_named(|name| name == "torch::autograd::AccumulateGrad");
    let mut result = Parameters::default();
    let mut of_step: Vec<NameId> = Vec::new();
    let middle = view.steps.ordered.len() / 2;
    for &at in &accumulated {
        if let Some(shape) = first_shape(view.name(host.dims[at])) {
            result.shapes.insert(shape);
            if view.step_of(at) == Some(middle) {
                of_step.push(host.dims[at]);
            }
        }
    }
    let elements = |&dims: &NameId| first_shape(view.name(dims)).map_or(0.0, |shape| count(&shape));
    result.elements = of_step.iter().map(elements).sum();
    result
}

/// Runs of operators on one parameter-sized tensor after another, on one thread, outside of `optimizer`.
pub fn parameter_loops(view: &View, parameters: &Parameters, optimizer: &[Span]) -> ParameterLoops {
    let host = &view.trace.host;
    let mut result = ParameterLoops::default();
    if parameters.shapes.len() < 2 {
        return result;
    }
    let roles: Vec<Option<Role>> = view.trace.names.iter().map(|(_, name)| role(name)).collect();
    let mut sizes: HashMap<NameId, Option<Vec<u64>>> = HashMap::new();
    // Whether each span is inside an operator.
    let mut is_held = vec![false; host.len()];
    let mut run: Vec<usize> = Vec::new();
    let mut runs: Vec<Vec<usize>> = Vec::new();
    let mut close = |run: &mut Vec<usize>| {
        let kept = std::mem::take(run);
        let often = kept.iter().filter(|&&at| host.name[at] == most_frequent(view, &kept)).count();
        let shapes: BTreeSet<NameId> = kept.iter().map(|&at| host.dims[at]).collect();
        if often >= FEWEST.get() && shapes.len() > 1 {
            runs.push(kept);
        }
    };
    for at in 0..host.len() {
        if let Some(parent) = Some(view.parent[at]).filter(|parent| *parent != NONE) {
            let parent = parent as usize;
            is_held[at] = is_held[parent] || view.is_operator(parent);
        }
        if !view.is_operator(at) || is_held[at] {
            continue;
        }
        let goes_on = |&last: &usize| {
            host.track[last] == host.track[at]
                && host.start[at] - host.end(last) < LONGEST_PAUSE_NANOS.get()
                && view.step_of(last) == view.step_of(at)
        };
        if run.last().is_some_and(|last| !goes_on(last)) {
            close(&mut run);
        }
        if view.step_of(at).is_none() || holds(optimizer, host.start[at]) {
            close(&mut run);
            continue;
        }
        match roles[host.name[at].index()] {
            None => close(&mut run),
            Some(Role::BesideLists) => {}
            Some(_) => {
                let shape = sizes.entry(host.dims[at]).or_insert_with(|| first_shape(view.name(host.dims[at])));
                match shape {
                    // A single value: the result of a norm, or a factor.
                    None => {}
                    Some(shape) if parameters.shapes.contains(shape) => run.push(at),
                    Some(_) => close(&mut run),
                }
            }
        }
    }
    close(&mut run);
    let Some(first) = runs.first().map(|run| run[0]) else { return result };
    let all: Vec<usize> = runs.concat();
    let spans = runs.iter().map(|run| Span { start: host.start[run[0]], end: host.end(run[run.len() - 1]) });
    result.host = merged(spans.collect());
    result.operators_per_step = all.len() as f64 / view.steps.count();
    result.host_seconds = seconds(total(&result.host));
    result.operators = by_count(view, &all).into_iter().map(|(name, _)| view.name(name).to_string()).collect();
    let (function, through) = user_frame(view, &view.python_stack(first));
    result.function = function.map(|at| frame_name(view.host_name(at)));
    result.through = through.map(|at| frame_name(view.host_name(at)));
    result.first = host.start[first];
    result
}

/// Kernels launched within `spans`, and the bytes of one that does the same to all parameters.
pub fn update(view: &View, parameters: &Parameters, spans: &[Span]) -> Update {
    let host = &view.trace.host;
    let spans = merged(spans.to_vec());
    let kernels = view.ordered_in(&spans);
    // The operator that touches the most elements touches every parameter.
    let mut elements: HashMap<NameId, (f64, usize)> = HashMap::new();
    let owners: BTreeSet<usize> = kernels.iter().filter_map(|&at| view.operator_of_device(at)).collect();
    let (mut is_of_lists, mut has_moments) = (false, false);
    for &owner in &owners {
        let name = view.host_name(owner);
        is_of_lists |= name.starts_with("aten::_foreach") || name.starts_with("aten::_fused");
        has_moments |= name.contains("addcdiv") || name.contains("adam");
        let is_float = view.name(host.types[owner]).starts_with("[\"float");
        let size = first_shape(view.name(host.dims[owner])).filter(|_| is_float).map_or(0.0, |shape| count(&shape));
        let sum = elements.entry(host.name[owner]).or_default();
        *sum = (sum.0 + size, sum.1 + 1);
    }
    let (touched, tensors) =
        elements.values().copied().fold((0.0, 0), |most, one| if one.0 > most.0 { one } else { most });
    // One operator may touch a parameter several times: both moments are scaled, and all are added to.
    let all = view.steps.count() * parameters.elements;
    let touched = if all > 0.0 { touched.min(all) } else { touched };
    // Lists of tensors have no sizes in a trace.
    let fused_bytes = match is_of_lists {
        true => {
            view.steps.count() * parameters.elements * if has_moments { ADAM_BYTES.get() } else { MOMENTUM_BYTES.get() }
        }
        false if has_moments => touched * ADAM_BYTES.get(),
        // Each operator per tensor adds one more tensor, up to as many as AdamW has.
        false => touched * (4.0 * (owners.len() as f64 / tensors.max(1) as f64 + 2.0)).min(ADAM_BYTES.get()),
    };
    Update { nanos: view.device_nanos(&kernels), kernels, fused_bytes }
}

/// Sizes of the first tensor among an operator's inputs, in ascending order.
fn first_shape(dims: &str) -> Option<Vec<u64>> {
    let mut shape = shapes(dims).into_iter().next().filter(|shape| !shape.is_empty())?;
    shape.sort_unstable();
    Some(shape)
}

fn count(shape: &[u64]) -> f64 {
    shape.iter().map(|size| *size as f64).product()
}

fn by_count(view: &View, spans: &[usize]) -> Vec<(NameId, usize)> {
    let mut counts: HashMap<NameId, usize> = HashMap::new();
    spans.iter().for_each(|&at| *counts.entry(view.trace.host.name[at]).or_default() += 1);
    let mut counts: Vec<(NameId, usize)> = counts.into_iter().collect();
    counts.sort_by(|left, right| right.1.cmp(&left.1).then(left.0.cmp(&right.0)));
    counts
}

fn most_frequent(view: &View, spans: &[usize]) -> NameId {
    by_count(view, spans).first().map_or(NameId::default(), |(name, _)| *name)
}

#[cfg(test)]
mod tests;
