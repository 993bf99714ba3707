//! Known patterns of waste: per-parameter optimizers, attention with scores in memory, runs of small kernels,
//! allocation inside steps, GEMMs and convolutions without tensor cores.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashSet;
use headroom_trace::{CallKind, Category, NONE};
use serde::Serialize;

use super::anomaly::{AnomalyChecks, anomaly_checks};
use super::attention_by_kernels::attention_by_kernels;
use super::flops::{Cost, Precision, element_bytes};
use super::held_between::{HeldBetween, held_between};
use super::intervals::{Span, covered, merged, seconds, total, without};
use super::kinds::{Kind, kinds_of_names, uses_matrix_units};
use super::memory_bound::{MemoryBoundRow, memory_bound};
use super::norms::{Norms, norms};
use super::parameters::{ParameterLoops, Parameters, parameter_loops, parameters};
use super::recomputed::{Recomputed, recomputed};
use super::repeats::{Repeats, repeats};
use super::rounds::{Rounds, rounds};
use super::tables::{DenseTable, dense_table};
use super::unaligned::{Unaligned, unaligned};
use super::view::{View, is_backward_node};
use crate::constants::breakdown::LONG_GAP_NANOS;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Patterns {
    pub optimizer: OptimizerWork,
    pub attention: MaterialisedAttention,
    pub small_kernels: SmallKernels,
    pub allocator: AllocatorCalls,
    pub tensor_cores: TensorCores,
    pub recomputed: Recomputed,
    pub norms: Norms,
    /// Memory-bound operators, the one with the most time beyond its bytes first.
    pub memory_bound: Vec<MemoryBoundRow>,
    pub parameter_loops: ParameterLoops,
    #[serde(skip)]
    pub parameters: Parameters,
    #[serde(skip)]
    pub dense_table: Option<DenseTable>,
    #[serde(skip)]
    pub repeats: Repeats,
    #[serde(skip)]
    pub rounds: Rounds,
    #[serde(skip)]
    pub anomaly: AnomalyChecks,
    #[serde(skip)]
    pub unaligned: Unaligned,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct OptimizerWork {
    pub kernels_per_step: f64,
    pub device_seconds: f64,
    pub host_seconds: f64,
    pub share_of_steps: f64,
    /// `aten::zero_` calls per step inside `zero_grad`.
    pub zeroed_per_step: f64,
    /// Fused updates, one per parameter group.
    #[serde(skip)]
    pub fused_per_step: f64,
    /// Operators that the optimizer calls itself.
    #[serde(skip)]
    pub operators_per_step: f64,
    /// When the host was in the optimizer's own code.
    #[serde(skip)]
    pub host: Vec<Span>,
    /// When the host was in `zero_grad`.
    #[serde(skip)]
    pub zeroing: Vec<Span>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct MaterialisedAttention {
    pub softmaxes_per_step: f64,
    /// Device time of the softmax, the GEMMs around it and the kernels that scale and mask the scores, forward and
    /// backward.
    pub device_seconds: f64,
    pub share_of_steps: f64,
    /// Bytes of one score matrix.
    pub score_bytes: f64,
    pub score_dims: Option<String>,
    /// Device spans that fused attention avoids: everything that touches scores except the GEMMs.
    #[serde(skip)]
    pub beside_products: Vec<usize>,
    /// Device spans of the GEMMs that write or read scores.
    #[serde(skip)]
    pub products: Vec<usize>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct SmallKernels {
    /// Runs of two or more consecutive element-wise kernels and reductions on a stream.
    pub runs_per_step: f64,
    pub kernels_per_step: f64,
    pub device_seconds: f64,
    /// From each run's start to its end.
    pub span_seconds: f64,
    /// Device time of the runs minus the longest kernel of each, which a fused kernel needs at least.
    pub beyond_longest_seconds: f64,
    /// Time beyond the longest kernels, as a share of the steps.
    pub share_of_steps: f64,
    /// Share of all device time in element-wise kernels.
    pub elementwise_share_of_device: f64,
    /// The kernels of the runs except the longest of each.
    #[serde(skip)]
    pub beside_longest: Vec<usize>,
    /// Chains of which hardly anything would remain: not among the runs.
    #[serde(skip)]
    pub held_between: HeldBetween,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct AllocatorCalls {
    pub calls_per_step: f64,
    pub host_seconds: f64,
    pub share_of_steps: f64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct TensorCores {
    /// Device time of GEMMs that tensor cores could run.
    pub eligible_seconds: f64,
    /// The part in kernels that do not use them.
    pub without_seconds: f64,
    pub without_share_of_steps: f64,
    /// The part of `without_seconds` in convolutions.
    pub convolution_seconds: f64,
    pub kernels: Vec<String>,
    /// The device spans of these kernels.
    #[serde(skip)]
    pub spans: Vec<usize>,
}

pub fn patterns(view: &View, costs: &[Cost]) -> Patterns {
    let (optimizer, parameters) = (optimizer(view), parameters(view));
    let in_optimizer = merged([optimizer.host.clone(), optimizer.zeroing.clone()].concat());
    Patterns {
        recomputed: recomputed(view),
        norms: norms(view),
        memory_bound: memory_bound(view),
        parameter_loops: parameter_loops(view, &parameters, &in_optimizer),
        dense_table: dense_table(view, &parameters, &optimizer.host),
        repeats: repeats(view),
        rounds: rounds(view, costs, &in_optimizer),
        anomaly: anomaly_checks(view),
        unaligned: unaligned(view, costs),
        parameters,
        optimizer,
        attention: with_kernels_alone(view, attention(view)),
        small_kernels: small_kernels(view),
        allocator: allocator(view),
        tensor_cores: tensor_cores(view, costs),
    }
}

fn optimizer(view: &View) -> OptimizerWork {
    let (host, device) = (&view.trace.host, &view.trace.device);
    // If the profiler is stopped in a hook of the optimizer's last step, that step's mark stays open while it stops.
    let last = view.steps.host_range().end;
    let named = |start: &str| {
        let spans = view.host_spans_named(|name| name.starts_with(start));
        let spans = spans.into_iter().filter(|&at| view.step_of(at).is_some());
        merged(spans.map(|at| Span { start: host.start[at], end: host.end(at).min(last) }).collect())
    };
    let zeroing = named("Optimizer.zero_grad");
    // A closure runs forward and backward inside the optimizer's step: its content is not the optimizer's.
    let steps = without(&named("Optimizer.step"), &closures(view));
    let holds = |set: &[Span], time: i64| covered(set, Span { start: time, end: time + 1 }) > 0;
    let mut work = OptimizerWork::default();
    let mut nanos = 0;
    for at in device.busy().filter(|&at| device.category[at] == Category::Kernel && view.call_of[at] != NONE) {
        if holds(&steps, host.start[view.call_of[at] as usize]) {
            work.kernels_per_step += 1.0 / view.steps.count();
            nanos += device.duration[at];
        }
    }
    let zeroed = view.host_spans_named(|name| name == "aten::zero_");
    let zeroed = zeroed.into_iter().filter(|&at| holds(&zeroing, host.start[at])).count();
    let host_nanos = total(&steps);
    work.zeroed_per_step = zeroed as f64 / view.steps.count();
    let fused = view.host_spans_named(|name| name.starts_with("aten::_fused_"));
    let fused = fused.into_iter().filter(|&at| holds(&steps, host.start[at])).count();
    work.fused_per_step = fused as f64 / view.steps.count();
    let is_operator = |at: usize| view.is_operator(at);
    let called = (0..host.len()).filter(|&at| is_operator(at) && holds(&steps, host.start[at]));
    let called = called.filter(|&at| !view.ancestors(at).skip(1).any(is_operator)).count();
    work.operators_per_step = called as f64 / view.steps.count();
    work.device_seconds = seconds(nanos);
    work.host_seconds = seconds(host_nanos);
    work.share_of_steps = view.steps.share(host_nanos.max(nanos)).min(1.0);
    (work.host, work.zeroing) = (steps, zeroing);
    work
}

/// Time inside an optimizer's step in which its closure ran: the function itself if stacks are recorded, otherwise
/// everything up to the last operator of a backward pass or of `zero_grad` in it.
fn closures(view: &View) -> Vec<Span> {
    let host = &view.trace.host;
    let steps = view.host_spans_named(|name| name.starts_with("Optimizer.step"));
    let steps: Vec<Span> = steps.into_iter().map(|at| view.host_span(at)).collect();
    let steps = merged(steps);
    let inside = |at: &usize| {
        let next = steps.partition_point(|step| step.end <= host.start[*at]);
        steps.get(next).copied().filter(|step| step.start <= host.start[*at])
    };
    // Lightning wraps the closure: hooks before the update run in the wrapper, after the closure itself.
    let functions = view
        .host_spans_named(|name| [": closure", "]closure", ": _wrap_closure"].iter().any(|end| name.ends_with(end)));
    let functions: Vec<Span> =
        functions.into_iter().filter(|at| inside(at).is_some()).map(|at| view.host_span(at)).collect();
    if !functions.is_empty() {
        return merged(functions);
    }
    let backward = view.host_spans_named(|name| is_backward_node(name) || name.starts_with("Optimizer.zero_grad"));
    // The backward pass runs on a separate thread, so only time can tell.
    let held =
        backward.into_iter().filter_map(|at| inside(&at).map(|step| Span { start: step.start, end: host.end(at) }));
    merged(held.collect())
}

fn attention(view: &View) -> MaterialisedAttention {
    let mut result = MaterialisedAttention::default();
    // A score matrix is recognised by its last two sizes and the number of its elements.
    let mut scores: BTreeSet<(u64, u64, u64)> = BTreeSet::new();
    let softmaxes = view.host_spans_named(|name| name == "aten::_softmax");
    let products = view.host_spans_named(|name| matches!(name, "aten::bmm" | "aten::baddbmm"));
    let made_by_products: BTreeSet<(u64, u64, u64)> =
        products.iter().filter_map(|&at| product_shape(view, at)).collect();
    for &at in softmaxes.iter().filter(|&&at| view.step_of(at).is_some()) {
        let inputs = view.shapes(at);
        let Some([.., rows, columns]) = inputs.first().map(Vec::as_slice) else { continue };
        let key = (inputs[0].iter().product(), *rows, *columns);
        if !made_by_products.contains(&key) || key.0 == rows * columns {
            continue;
        }
        let kinds = view.types(at);
        let element = kinds.first().map_or(4.0, |kind| element_bytes(kind));
        result.softmaxes_per_step += 1.0 / view.steps.count();
        result.score_bytes = result.score_bytes.max(key.0 as f64 * element);
        result.score_dims = Some(format!("{:?}", inputs[0]));
        scores.insert(key);
    }
    if scores.is_empty() {
        return result;
    }
    let is_scores = |shape: &Vec<u64>| match shape.as_slice() {
        [.., rows, columns] => {
            let elements = shape.iter().product();
            scores.contains(&(elements, *rows, *columns)) || scores.contains(&(elements, *columns, *rows))
        }
        _ => false,
    };
    let mut touches: BTreeMap<usize, bool> = BTreeMap::new();
    let device = &view.trace.device;
    let inside = view.in_steps();
    let mut nanos = 0;
    for at in inside {
        let Some(operator) = view.operator_of_device(at) else { continue };
        let is_product = matches!(view.host_name(operator), "aten::bmm" | "aten::baddbmm");
        let is_touched = *touches.entry(operator).or_insert_with(|| {
            let made = || product_shape(view, operator).is_some_and(|made| scores.contains(&made));
            view.shapes(operator).iter().any(is_scores) || (is_product && made())
        });
        if is_touched {
            nanos += device.duration[at];
            match is_product {
                true => result.products.push(at),
                false => result.beside_products.push(at),
            }
        }
    }
    result.device_seconds = seconds(nanos);
    result.share_of_steps = view.steps.share(nanos);
    result
}

/// Adds attention that only its kernels reveal.
fn with_kernels_alone(view: &View, attention: MaterialisedAttention) -> MaterialisedAttention {
    let device = &view.trace.device;
    let found = attention_by_kernels(view);
    let mut all = attention;
    let known: BTreeSet<usize> = all.products.iter().chain(&all.beside_products).copied().collect();
    let (products, beside) = (found.products.difference(&known), found.beside_products.difference(&known));
    let nanos: i64 = products.clone().chain(beside.clone()).map(|&at| device.duration[at]).sum();
    all.products.extend(products);
    all.beside_products.extend(beside);
    all.softmaxes_per_step += found.softmaxes as f64 / view.steps.count();
    all.device_seconds += seconds(nanos);
    all.share_of_steps += view.steps.share(nanos);
    all
}

/// Elements, rows and columns of a batched GEMM's result.
fn product_shape(view: &View, at: usize) -> Option<(u64, u64, u64)> {
    let inputs = view.shapes(at);
    let first = if view.host_name(at) == "aten::baddbmm" { 1 } else { 0 };
    let ([batch, rows, _], [_, _, columns]) = (inputs.get(first)?.as_slice(), inputs.get(first + 1)?.as_slice()) else {
        return None;
    };
    Some((batch * rows * columns, *rows, *columns))
}

fn small_kernels(view: &View) -> SmallKernels {
    let device = &view.trace.device;
    let kinds = kinds_of_names(view);
    let range = view.steps.range();
    let mut result = SmallKernels { held_between: held_between(view), ..SmallKernels::default() };
    let held: HashSet<usize> = result.held_between.kernels.iter().copied().collect();
    let mut run: Vec<usize> = Vec::new();
    let mut close = |run: &mut Vec<usize>| {
        let elementwise = run.iter().filter(|&&at| kinds[device.name[at].index()] == Kind::ElementWise).count();
        // One operator on tensor after tensor is a loop: nothing between its kernels can be fused.
        let is_chain = run.iter().any(|&at| device.name[at] != device.name[run[0]]);
        if is_chain && elementwise * 2 >= run.len() {
            result.runs_per_step += 1.0 / view.steps.count();
            result.kernels_per_step += run.len() as f64 / view.steps.count();
            let all: f64 = run.iter().map(|&at| seconds(device.duration[at])).sum();
            let (first, last) = (run[0], run[run.len() - 1]);
            let longest = run.iter().copied().max_by_key(|&at| device.duration[at]).unwrap_or(first);
            result.device_seconds += all;
            result.span_seconds += seconds(device.end(last) - device.start[first]);
            result.beyond_longest_seconds += all - seconds(device.duration[longest]);
            result.beside_longest.extend(run.iter().filter(|&&at| at != longest));
        }
        run.clear();
    };
    let (mut elementwise_nanos, mut all_nanos) = (0, 0);
    for at in device.busy() {
        if device.start[at] < range.start || device.start[at] >= range.end {
            continue;
        }
        all_nanos += device.duration[at];
        let kind = kinds[device.name[at].index()];
        let is_kernel = device.category[at] == Category::Kernel;
        elementwise_nanos += if is_kernel && kind == Kind::ElementWise { device.duration[at] } else { 0 };
        // A reduction over the same elements can be fused with its neighbours.
        let fits = is_kernel && matches!(kind, Kind::ElementWise | Kind::Reduction) && !held.contains(&at);
        let goes_on = |&last: &usize| {
            device.track[last] == device.track[at] && device.start[at] - device.end(last) < LONG_GAP_NANOS.get()
        };
        let repeats = run.len() >= 2 && run[run.len() - 2..].iter().all(|&last| device.name[last] == device.name[at]);
        if !fits || repeats || !run.last().is_some_and(goes_on) {
            close(&mut run);
        }
        if fits {
            run.push(at);
        }
    }
    close(&mut run);
    result.elementwise_share_of_device = elementwise_nanos as f64 / all_nanos.max(1) as f64;
    result.share_of_steps = result.beyond_longest_seconds * 1e9 / view.steps.wall_nanos().max(1) as f64;
    result
}

fn allocator(view: &View) -> AllocatorCalls {
    let host = &view.trace.host;
    let calls: Vec<usize> = (0..host.len())
        .filter(|&at| matches!(view.call_kind(at), Some(CallKind::Allocate | CallKind::Free)))
        .filter(|&at| view.step_of(at).is_some())
        .collect();
    // Filling the pool for the first time is not churn.
    let nanos = calls.iter().map(|&at| host.duration[at] - covered(&view.cold.spans, view.host_span(at))).sum();
    AllocatorCalls {
        calls_per_step: calls.len() as f64 / view.steps.count(),
        host_seconds: seconds(nanos),
        share_of_steps: view.steps.share(nanos),
    }
}

fn tensor_cores(view: &View, costs: &[Cost]) -> TensorCores {
    let device = &view.trace.device;
    let range = view.steps.range();
    let kinds = kinds_of_names(view);
    let uses: Vec<Option<bool>> = view.of_kernels(uses_matrix_units);
    let (mut eligible, mut without, mut convolutions) = (0, 0, 0);
    let mut spans = Vec::new();
    let mut kernels: BTreeMap<&str, i64> = BTreeMap::new();
    for at in device.busy().filter(|&at| device.category[at] == Category::Kernel) {
        let (name, kind) = (device.name[at].index(), kinds[device.name[at].index()]);
        let inside = device.start[at] >= range.start && device.start[at] < range.end;
        if !inside || !kind.is_for_matrix_units() || is_double(view.name(device.name[at])) {
            continue;
        }
        let call = Some(view.call_of[at]).filter(|call| *call != NONE);
        let owner = call.and_then(|call| view.ancestors(call as usize).find(|&outer| costs[outer].flops > 0.0));
        if owner.is_some_and(|owner| costs[owner].precision == Precision::Fp64) {
            continue;
        }
        eligible += device.duration[at];
        if uses[name] == Some(false) {
            without += device.duration[at];
            convolutions += if kind == Kind::Convolution { device.duration[at] } else { 0 };
            spans.push(at);
            *kernels.entry(view.name(device.name[at])).or_default() += device.duration[at];
        }
    }
    let mut kernels: Vec<(i64, &str)> = kernels.into_iter().map(|(name, nanos)| (nanos, name)).collect();
    kernels.sort_by_key(|(nanos, name)| (std::cmp::Reverse(*nanos), *name));
    TensorCores {
        eligible_seconds: seconds(eligible),
        without_seconds: seconds(without),
        without_share_of_steps: view.steps.share(without),
        convolution_seconds: seconds(convolutions),
        kernels: kernels.into_iter().take(3).map(|(_, name)| name.to_string()).collect(),
        spans,
    }
}

fn is_double(kernel: &str) -> bool {
    kernel.contains("dgemm") || kernel.contains("f64") || kernel.contains("_DB_") || kernel.contains("<double")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};

    #[test]
    fn fused_updates_are_counted_inside_the_optimizer_alone() {
        let mut made = Fabricated::on("NVIDIA H200");
        for step in 0..2 {
            let start = step * 10_000 * MICRO;
            made.step(step as u32 + 1, start, start + 10_000 * MICRO);
            let mark = start + 5_000 * MICRO;
            made.span("user_annotation", "Optimizer.step#AdamW.step", 1, mark, mark + 3_000 * MICRO, "");
            for group in 0..60 {
                let call = mark + (10 + 40 * group) * MICRO;
                made.operator("aten::_fused_adamw_", call, call + 20 * MICRO);
            }
            made.operator("aten::_fused_sdp_choice", start + 100 * MICRO, start + 110 * MICRO);
        }
        let trace = made.trace();
        let work = optimizer(&View::new(&trace));
        assert!((work.fused_per_step - 60.0).abs() < 1e-9);
    }
}
