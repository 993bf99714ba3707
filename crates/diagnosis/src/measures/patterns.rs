//! Known shapes of waste: the optimizer one parameter at a time, attention with its scores in memory, runs of small kernels,
//! allocation inside steps, products without tensor cores.

use std::collections::{BTreeMap, BTreeSet};

use headroom_trace::{CallKind, Category, NONE};
use serde::Serialize;

use super::breakdown::LONG_GAP_NANOS;
use super::flops::{Cost, Precision, element_bytes, shapes};
use super::intervals::{Span, covered, merged, seconds};
use super::view::View;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Patterns {
    pub optimizer: OptimizerWork,
    pub attention: MaterialisedAttention,
    pub small_kernels: SmallKernels,
    pub allocator: AllocatorCalls,
    pub tensor_cores: TensorCores,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct OptimizerWork {
    pub kernels_per_step: f64,
    pub device_seconds: f64,
    pub host_seconds: f64,
    pub share_of_steps: f64,
    /// `aten::zero_` calls a step inside `zero_grad`.
    pub zeroed_per_step: f64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct MaterialisedAttention {
    pub softmaxes_per_step: f64,
    /// Device time of softmax, of the products around it and of what scales and masks the scores, forward and backward.
    pub device_seconds: f64,
    pub share_of_steps: f64,
    /// Of one matrix of scores.
    pub score_bytes: f64,
    pub score_dims: Option<String>,
    /// Device spans that fused attention does without: all that touches scores but the products.
    #[serde(skip)]
    pub beside_products: Vec<usize>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct SmallKernels {
    /// Runs of three or more element-wise kernels, each shorter than 10 µs, one after another on a stream.
    pub runs_per_step: f64,
    pub kernels_per_step: f64,
    pub device_seconds: f64,
    /// From each run's start to its end.
    pub span_seconds: f64,
    /// The same less the longest kernel of each run, which a fused one takes at least.
    pub beyond_longest_seconds: f64,
    /// Of the time beyond the longest kernels.
    pub share_of_steps: f64,
    /// The kernels of the runs but the longest of each.
    #[serde(skip)]
    pub beside_longest: Vec<usize>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct AllocatorCalls {
    pub calls_per_step: f64,
    pub host_seconds: f64,
    pub share_of_steps: f64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct TensorCores {
    /// Device time of products that tensor cores could do.
    pub eligible_seconds: f64,
    /// The part in kernels that do not use them.
    pub without_seconds: f64,
    pub without_share_of_steps: f64,
    pub kernels: Vec<String>,
    /// The device spans of those kernels.
    #[serde(skip)]
    pub spans: Vec<usize>,
}

pub fn patterns(view: &View, costs: &[Cost]) -> Patterns {
    Patterns {
        optimizer: optimizer(view),
        attention: attention(view),
        small_kernels: small_kernels(view),
        allocator: allocator(view),
        tensor_cores: tensor_cores(view, costs),
    }
}

fn optimizer(view: &View) -> OptimizerWork {
    let (host, device) = (&view.trace.host, &view.trace.device);
    let named = |start: &str| {
        let spans = view.host_spans_named(|name| name.starts_with(start));
        merged(
            spans
                .into_iter()
                .filter(|&at| view.steps.at_host(host.start[at]).is_some())
                .map(|at| view.host_span(at))
                .collect(),
        )
    };
    let steps = named("Optimizer.step");
    let zeroing = named("Optimizer.zero_grad");
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
    let host_nanos = super::intervals::total(&steps);
    work.zeroed_per_step = zeroed as f64 / view.steps.count();
    work.device_seconds = seconds(nanos);
    work.host_seconds = seconds(host_nanos);
    work.share_of_steps = view.steps.share(host_nanos.max(nanos));
    work
}

fn attention(view: &View) -> MaterialisedAttention {
    let host = &view.trace.host;
    let mut result = MaterialisedAttention::default();
    // A score matrix is recognised by its last two sizes and the number of its elements.
    let mut scores: BTreeSet<(u64, u64, u64)> = BTreeSet::new();
    let softmaxes = view.host_spans_named(|name| name == "aten::_softmax");
    let products = view.host_spans_named(|name| matches!(name, "aten::bmm" | "aten::baddbmm"));
    let made_by_products: BTreeSet<(u64, u64, u64)> =
        products.iter().filter_map(|&at| product_shape(view, at)).collect();
    for &at in softmaxes.iter().filter(|&&at| view.steps.at_host(host.start[at]).is_some()) {
        let inputs = shapes(view.name(host.dims[at]));
        let Some([.., rows, columns]) = inputs.first().map(Vec::as_slice) else { continue };
        let key = (inputs[0].iter().product(), *rows, *columns);
        if !made_by_products.contains(&key) || key.0 == rows * columns {
            continue;
        }
        let kinds: Vec<String> = serde_json::from_str(view.name(host.types[at])).unwrap_or_default();
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
    let range = view.steps.range();
    let inside = device.busy().filter(|&at| device.start[at] >= range.start && device.start[at] < range.end);
    let mut nanos = 0;
    for at in inside {
        let Some(operator) = view.operator_of_device(at) else { continue };
        let is_product = matches!(view.host_name(operator), "aten::bmm" | "aten::baddbmm");
        let is_touched = *touches.entry(operator).or_insert_with(|| {
            let made = || product_shape(view, operator).is_some_and(|made| scores.contains(&made));
            shapes(view.name(host.dims[operator])).iter().any(is_scores) || (is_product && made())
        });
        if is_touched {
            nanos += device.duration[at];
            if !is_product {
                result.beside_products.push(at);
            }
        }
    }
    result.device_seconds = seconds(nanos);
    result.share_of_steps = view.steps.share(nanos);
    result
}

/// Elements, rows and columns of what a batched product makes.
fn product_shape(view: &View, at: usize) -> Option<(u64, u64, u64)> {
    let inputs = shapes(view.name(view.trace.host.dims[at]));
    let first = if view.host_name(at) == "aten::baddbmm" { 1 } else { 0 };
    let ([batch, rows, _], [_, _, columns]) = (inputs.get(first)?.as_slice(), inputs.get(first + 1)?.as_slice()) else {
        return None;
    };
    Some((batch * rows * columns, *rows, *columns))
}

const SHORT_KERNEL_NANOS: i64 = 10_000;

fn small_kernels(view: &View) -> SmallKernels {
    let device = &view.trace.device;
    let elementwise: Vec<bool> = view.trace.names.iter().map(|(_, name)| is_elementwise(name)).collect();
    let range = view.steps.range();
    let mut result = SmallKernels::default();
    let mut run: Vec<usize> = Vec::new();
    let mut close = |run: &mut Vec<usize>| {
        if run.len() >= 3 {
            result.runs_per_step += 1.0 / view.steps.count();
            result.kernels_per_step += run.len() as f64 / view.steps.count();
            result.device_seconds += run.iter().map(|&at| seconds(device.duration[at])).sum::<f64>();
            let (first, last) = (run[0], run[run.len() - 1]);
            let span = device.end(last) - device.start[first];
            let longest = run.iter().copied().max_by_key(|&at| device.duration[at]).unwrap_or(first);
            result.span_seconds += seconds(span);
            result.beyond_longest_seconds += seconds(span - device.duration[longest]);
            result.beside_longest.extend(run.iter().filter(|&&at| at != longest));
        }
        run.clear();
    };
    for at in device.busy() {
        if device.start[at] < range.start || device.start[at] >= range.end {
            continue;
        }
        let fits = device.category[at] == Category::Kernel
            && elementwise[device.name[at].index()]
            && device.duration[at] < SHORT_KERNEL_NANOS;
        let goes_on = |&last: &usize| {
            device.lane[last] == device.lane[at] && device.start[at] - device.end(last) < LONG_GAP_NANOS
        };
        if !fits || !run.last().is_some_and(goes_on) {
            close(&mut run);
        }
        if fits {
            run.push(at);
        }
    }
    close(&mut run);
    result.share_of_steps = result.beyond_longest_seconds * 1e9 / view.steps.wall_nanos().max(1) as f64;
    result
}

/// Work that reads and writes each element once: what a compiler fuses.
fn is_elementwise(kernel: &str) -> bool {
    kernel.contains("elementwise_kernel") || kernel.contains("CatArrayBatchedCopy") || kernel.contains("triton_poi")
}

fn allocator(view: &View) -> AllocatorCalls {
    let host = &view.trace.host;
    let calls: Vec<usize> = (0..host.len())
        .filter(|&at| matches!(view.call_kind(at), Some(CallKind::Allocate | CallKind::Free)))
        .filter(|&at| view.steps.at_host(host.start[at]).is_some())
        .collect();
    let nanos = calls.iter().map(|&at| host.duration[at]).sum();
    AllocatorCalls {
        calls_per_step: calls.len() as f64 / view.steps.count(),
        host_seconds: seconds(nanos),
        share_of_steps: view.steps.share(nanos),
    }
}

fn tensor_cores(view: &View, costs: &[Cost]) -> TensorCores {
    let device = &view.trace.device;
    let range = view.steps.range();
    let uses: Vec<bool> = view.trace.names.iter().map(|(_, name)| uses_tensor_cores(name)).collect();
    let (mut eligible, mut without) = (0, 0);
    let mut spans = Vec::new();
    let mut kernels: BTreeMap<&str, i64> = BTreeMap::new();
    for at in device.busy().filter(|&at| device.category[at] == Category::Kernel && view.call_of[at] != NONE) {
        if device.start[at] < range.start || device.start[at] >= range.end {
            continue;
        }
        let owner = view.ancestors(view.call_of[at] as usize).find(|&outer| costs[outer].flops > 0.0);
        let Some(owner) = owner.filter(|&owner| costs[owner].precision != Precision::Fp64) else { continue };
        if !is_product(view.name(device.name[at])) && !view.host_name(owner).contains("attention") {
            continue; // a reduction or copy beside the product
        }
        eligible += device.duration[at];
        if !uses[device.name[at].index()] {
            without += device.duration[at];
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
        kernels: kernels.into_iter().take(3).map(|(_, name)| name.to_string()).collect(),
        spans,
    }
}

fn is_product(kernel: &str) -> bool {
    ["gemm", "Gemm", "GEMM", "xmma", "nvjet", "Cijk", "cutlass", "conv", "fmha", "flash"]
        .iter()
        .any(|part| kernel.contains(part))
}

/// By the marks that makers put into the names of such kernels.
fn uses_tensor_cores(kernel: &str) -> bool {
    let plain_fp32 = kernel.contains("f32f32_f32f32_f32") || kernel.contains("sgemm") || kernel.contains("simt");
    if plain_fp32 && !kernel.contains("tf32") {
        return false;
    }
    [
        "tensorop",
        "s16816",
        "s1688",
        "h16816",
        "h1688",
        "884",
        "tf32",
        "bf16",
        "f16",
        "hmma",
        "imma",
        "wgmma",
        "sm90_xmma",
        "nvjet",
        "flash",
        "fmha",
        "_MI16x16",
        "_MI32x32",
        "_MI4x4",
        "mfma",
        "Sm90",
        "e4m3",
    ]
    .iter()
    .any(|mark| kernel.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_say_in_their_names_whether_they_use_tensor_cores() {
        let with = [
            "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16",
            "nvjet_tst_128x64_64x7_1x2_h_bz_TNN",
            "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
            "Cijk_Ailk_Bljk_BBS_BH_MT128x128x32_MI32x32x8x1",
        ];
        let without = ["sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8", "ampere_sgemm_128x64_nn"];
        assert!(with.iter().all(|name| uses_tensor_cores(name)));
        assert!(without.iter().all(|name| !uses_tensor_cores(name)));
    }
}
