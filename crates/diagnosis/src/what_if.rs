//! Models of the cost that remains after a fix, expected and at least: attention, GEMMs, element-wise runs, the
//! optimizer, the loader, read-backs, copies on the device and idle time.

use hashbrown::HashMap;
use headroom_trace::Category;

use crate::finding::Cause;
use crate::measures::Measures;
use crate::measures::copies::is_pageable;
use crate::measures::data_loading::loading_spans;
use crate::measures::flops::{Cost, Precision, costs, element_bytes, owner_of, shapes, shares};
use crate::measures::intervals::{Span, covered, merged};
use crate::measures::kinds::{Kind, kinds_of_names, of_span};
use crate::measures::parameters::update;
use crate::measures::view::View;
use crate::peaks::links::host_link_of;
use crate::peaks::{self, PRODUCT_SHARE, Peaks};
use crate::simulation::Removal;
use crate::trace_rules::TraceFinding;

/// Share of the tensor cores' rate that fused attention reaches over both passes: 43% follows from step times on an
/// H200.
const FLASH_SHARE: f64 = 0.40;
/// Share of the time of GEMMs that write or read scores which fused attention takes, if FLOPs are unknown. It is as
/// fast for heads of 128, and nearly twice as fast for heads of 64, where moving scores bounds the GEMMs. At least a
/// fifth.
const FLASH_OF_PRODUCT: f64 = 0.6;
const LEAST_OF_PRODUCT: f64 = 0.2;
/// Share of the memory bandwidth that a fused optimizer reaches.
const STREAM_SHARE: f64 = 0.8;
/// Share of its roof that an operator may reach.
const ROOF_SHARE: f64 = 0.7;
/// Share of the link's rate that copies from pinned memory reach.
const PINNED_SHARE: f64 = 0.85;
/// Number of workers that share the loader's work.
const WORKERS: i64 = 8;
/// The share of a loader's work spent on taking batches over from workers is one in this many.
const HANDED_OVER: i64 = 32;
/// Shorter kernels produce single values and masks.
const SMALL_NANOS: i64 = 10_000;
/// No tensor-core kernel is shorter than this, however small its part in a batch.
const SHORTEST_NANOS: i64 = 500;

/// How the saving of a fix is computed, by the finding's cause. `None` if a trace cannot tell: the saving is then
/// outside the bound.
pub fn model(cause: Cause) -> Option<&'static str> {
    Some(match cause {
        Cause::HostSync => {
            "the step without the waits and the host's work on the values it read; at best the host is ahead of the device throughout"
        }
        Cause::GpuIdle => {
            "the host's work in long gaps done earlier; at best the host is ahead of the device throughout"
        }
        Cause::LaunchBound => {
            "all launches replayed together; at best all memory-bound work is also fused, calls are batched and no gap remains"
        }
        Cause::DataLoading => {
            "the loader's work done by workers during the rest of the step; at best the step takes only the device's busy time"
        }
        Cause::HostCopies => {
            "nothing waits for copies, and pageable copies run at the link's rate; at best all are hidden behind compute"
        }
        Cause::NoTensorCores => {
            "the same FLOPs at the rate that tensor cores reach; at best bf16 throughout at its full rate"
        }
        Cause::AttentionMaterialised => {
            "the GEMMs' FLOPs at the rate of fused attention; at best half of them at the full rate"
        }
        Cause::SmallKernels => {
            "each run of kernels as long as its longest kernel, loops of kernels half as long; at best only \
             GEMMs, convolutions and attention remain"
        }
        Cause::OptimizerPerParameter => "the bytes of one fused update at memory bandwidth; at best half of them",
        Cause::AllocatorChurn => "the step without the calls",
        Cause::BelowRoof => "the operator close to its roofline limit; at best at that limit",
        Cause::ConstantRebuilt => "the step without building it",
        Cause::CommunicationExposed => "collectives hidden behind the compute beside them",
        Cause::Straggler => "collectives without the wait for the last rank",
        Cause::UnevenSteps => "slow steps without their long gaps",
        Cause::CpuBoundOperator => "the step without the operator's host time",
        Cause::PassMissing => "the calls of a fused plan",
        Cause::DeviceCopies => "readers use the other layout, half of them half as fast; at best no copy remains",
        Cause::Recomputed => "the step without that pass",
        // Memory, batch size and the recording itself are not step times; what a stalled stream waits for is not in the
        // trace.
        Cause::MemoryNearLimit
        | Cause::MemoryGrows
        | Cause::BatchTooSmall
        | Cause::ProfilerOverhead
        | Cause::ColdStart
        | Cause::DeviceStalled
        | Cause::Practice => return None,
    })
}

/// Replaces each finding's removal with its bound, and adds the expected removal, where there is a model of the fix.
pub fn fill(view: &View, measures: &Measures, findings: &mut [TraceFinding]) {
    let mut known = Known { view, costs: None };
    for finding in findings.iter_mut() {
        if finding.found.removal.is_empty() {
            continue;
        }
        let asked = finding.found.removal.clone();
        finding.found.asked = Some(asked.clone());
        // A rule that knows more than the cause has already set the expected removal.
        let (bound, expected) = match finding.found.expected.take() {
            Some(expected) => (asked, expected),
            None => modelled(&mut known, measures, finding.cause, asked),
        };
        finding.found.removal = least(&mut known, finding.cause, bound);
        finding.found.expected = Some(expected);
    }
}

/// Bound and expected removal, from the model of the cause.
fn modelled(known: &mut Known, measures: &Measures, cause: Cause, asked: Removal) -> (Removal, Removal) {
    let view = known.view;
    match cause {
        Cause::AttentionMaterialised => attention(known, measures, asked),
        Cause::NoTensorCores => tensor_cores(known, asked),
        Cause::OptimizerPerParameter => optimizer(view, measures, asked),
        Cause::DataLoading => loading(view, asked),
        Cause::DeviceCopies => layouts(view, asked),
        Cause::HostCopies => pinned(view, measures, asked),
        Cause::BelowRoof => at_roof(view, asked),
        _ => (asked.clone(), asked),
    }
}

/// Widens the bound so that nothing undercuts it: everything that exists only because of the cost goes too, and the
/// next process may be quicker.
fn least(known: &mut Known, cause: Cause, bound: Removal) -> Removal {
    let view = known.view;
    if !view.has_device_work() {
        return bound;
    }
    let mut bound = Removal { quick_host: true, quick_device: true, ..bound };
    match cause {
        // The host is the cause: at best it stays ahead of the device, and does its copies in parallel.
        Cause::HostSync
        | Cause::GpuIdle
        | Cause::DataLoading
        | Cause::HostCopies
        | Cause::CpuBoundOperator
        | Cause::AllocatorChurn
        | Cause::ConstantRebuilt
        | Cause::UnevenSteps => host_ahead(view, bound),
        // A program with fewer launches need not read values back in between either.
        Cause::LaunchBound => {
            bound.host = vec![view.steps.host_range()];
            fused(known, bound)
        }
        Cause::SmallKernels => fused(known, bound),
        // Without the extra pass, less is kept for it as well, and the host may get ahead of the rest.
        Cause::Recomputed => {
            bound.host = vec![view.steps.host_range()];
            Removal { without_gaps: true, ..bound }
        }
        // Kernels are the cause: the host code that launches them may go with them.
        _ => {
            let launchers = bound.device.keys().filter_map(|&at| view.operator_of_device(at));
            bound.launchers = merged(launchers.map(|at| view.host_span(at)).collect());
            bound.without_gaps |= !bound.device.is_empty();
            bound
        }
    }
}

/// Figures that several models need, computed on first use.
struct Known<'v, 't> {
    view: &'v View<'t>,
    costs: Option<Vec<Cost>>,
}

impl Known<'_, '_> {
    /// Each span's share of its operator's FLOPs.
    fn shares(&mut self, spans: impl Iterator<Item = usize>) -> HashMap<usize, f64> {
        let view = self.view;
        shares(view, self.costs.get_or_insert_with(|| costs(view)), spans)
    }

    /// The operator whose FLOPs a device span computes, and its cost.
    fn cost_of(&mut self, at: usize) -> Option<(usize, Cost)> {
        let view = self.view;
        let costs = self.costs.get_or_insert_with(|| costs(view));
        let owner = owner_of(view, costs, at)?;
        Some((owner, costs[owner]))
    }
}

fn part(view: &View) -> Option<&'static Peaks> {
    peaks::find(&view.trace.header.devices.first()?.name)
}

/// Models fused attention by its roof: the GEMMs' FLOPs at the rate that fused attention reaches, and nothing else. The
/// bound is half of them (a causal mask) at the full rate.
fn attention(known: &mut Known, measures: &Measures, asked: Removal) -> (Removal, Removal) {
    let view = known.view;
    let Some(part) = part(view) else { return (asked.clone(), asked) };
    let (mut bound, mut expected) = (asked.clone(), asked);
    // Copies that reorder heads for a GEMM may go with it.
    let device = &view.trace.device;
    let copies: Vec<bool> = view.trace.names.iter().map(|(_, name)| name.contains("copy_kernel")).collect();
    bound.device.extend(device.busy().filter(|&at| copies[device.name[at].index()]).map(|at| (at, 0)));
    let products = &measures.patterns.attention.products;
    let shares = known.shares(products.iter().copied());
    for &at in products {
        let (Some((_, cost)), Some(share)) = (known.cost_of(at), shares.get(&at)) else {
            // Replayed from a graph: only its duration is known.
            let left = |share: f64| (share * view.trace.device.duration[at] as f64) as i64;
            bound.device.insert(at, left(LEAST_OF_PRODUCT));
            expected.device.insert(at, left(FLASH_OF_PRODUCT));
            continue;
        };
        let rate = match cost.precision {
            Precision::Half => part.bf16,
            _ => part.tf32.max(part.fp32),
        };
        bound.device.insert(at, nanos(share * 0.5 * cost.flops / rate));
        expected.device.insert(at, nanos(share * cost.flops / (FLASH_SHARE * rate)));
    }
    (bound, expected)
}

/// Models GEMMs at the tensor cores' rate for the same device and shape; TF32 for single precision. The bound is bf16's
/// full rate, at which stored data may also be half as long.
fn tensor_cores(known: &mut Known, asked: Removal) -> (Removal, Removal) {
    let view = known.view;
    let Some(part) = part(view) else { return (asked.clone(), asked) };
    let device = &view.trace.device;
    let (mut bound, mut expected) = (asked.clone(), asked.clone());
    let shares = known.shares(asked.device.keys().copied());
    for at in device.busy().filter(|&at| device.category[at] == Category::Kernel) {
        bound.device.insert(at, device.duration[at] / 2);
    }
    for &at in asked.device.keys() {
        let (Some((_, cost)), Some(share)) = (known.cost_of(at), shares.get(&at)) else { continue };
        let tensor = if part.tf32 > 0.0 { part.tf32 } else { part.bf16 };
        let least = share * (cost.flops / (PRODUCT_SHARE * tensor)).max(cost.bytes / part.bytes_per_second);
        expected.device.insert(at, nanos(least).min(device.duration[at]));
        bound.device.insert(at, nanos(share * cost.flops / part.bf16).min(device.duration[at]));
    }
    (bound, expected)
}

/// Bound for fusion: a compiler may fuse all memory-bound work into its neighbours (element-wise work, sums, norms,
/// gathers, copies), one call may replace a loop of small ones, and a graph may leave next to nothing between the rest.
fn fused(known: &mut Known, asked: Removal) -> Removal {
    let view = known.view;
    let device = &view.trace.device;
    let kinds = kinds_of_names(view);
    let mut bound = Removal { without_gaps: true, ..asked };
    let spans: Vec<usize> = device.busy().collect();
    let shares = known.shares(spans.iter().copied());
    for &at in &spans {
        let kind = of_span(view, &kinds, at);
        let is_fused = matches!(
            kind,
            Kind::ElementWise | Kind::Reduction | Kind::Normalisation | Kind::Indexing | Kind::CopyOnDevice
        );
        let left = if is_fused { 0 } else { batched(known, &shares, at) };
        bound.device.entry(at).and_modify(|kept| *kept = (*kept).min(left)).or_insert(left);
    }
    bound
}

/// The time of a kernel that remains when it is batched with others of its kind: it fills the device, and is not faster
/// than its FLOPs allow.
fn batched(known: &mut Known, shares: &HashMap<usize, f64>, at: usize) -> i64 {
    let view = known.view;
    let device = &view.trace.device;
    let duration = device.duration[at];
    let by_flops = part(view).zip(known.cost_of(at)).zip(shares.get(&at)).map(|((part, (_, cost)), share)| {
        let rate = if cost.precision == Precision::Half { part.bf16 } else { part.tf32.max(part.fp32) };
        nanos(share * cost.flops / rate)
    });
    by_flops.unwrap_or((view.filled_share(at) * duration as f64) as i64).max(SHORTEST_NANOS).min(duration)
}

/// Models the bytes that one kernel for all parameters moves, at the memory bandwidth. The bound is half of them at the
/// full rate.
fn optimizer(view: &View, measures: &Measures, asked: Removal) -> (Removal, Removal) {
    let Some(part) = part(view) else { return (asked.clone(), asked) };
    let device = &view.trace.device;
    let update = update(view, &measures.patterns.parameters, &asked.host);
    let least = update.fused_bytes / part.bytes_per_second * 1e9;
    if update.nanos == 0 || least == 0.0 {
        return (asked.clone(), asked);
    }
    let scaled = |share: f64| -> HashMap<usize, i64> {
        let left = |at: usize| (share.min(1.0) * device.duration[at] as f64) as i64;
        update.kernels.iter().map(|&at| (at, left(at))).collect()
    };
    let bound = Removal { device: scaled(0.5 * least / update.nanos as f64), ..asked.clone() };
    (bound, Removal { device: scaled(least / STREAM_SHARE / update.nanos as f64), ..asked })
}

/// Models overlap: workers prepare batches while the rest of the step runs, each doing its share. The step waits for
/// what they do not finish by then, and for handing over each batch.
fn loading(view: &View, asked: Removal) -> (Removal, Removal) {
    let spans = loading_spans(view);
    let in_steps: i64 = view.steps.ordered.iter().map(|step| covered(&spans, *step)).sum();
    let beside = view.steps.wall_nanos() - in_steps;
    let waited_for = (in_steps / WORKERS - beside).max(in_steps / HANDED_OVER);
    let left = (waited_for as f64 / in_steps.max(1) as f64).min(1.0);
    let shorter = |span: &Span| Span { start: span.start + (left * span.nanos() as f64) as i64, end: span.end };
    let expected = Removal { host: spans.iter().map(shorter).collect(), ..asked.clone() };
    (asked, expected)
}

/// Models strided reads instead of copies: a GEMM reads a tensor in another order for free, other operators at about
/// half the speed, which costs as much again as reading it once; on average half of that remains. A copy that keeps the
/// order is useless and goes away. At best no copy is left. Without sizes or a known part, a quarter of the copy's time
/// remains.
fn layouts(view: &View, asked: Removal) -> (Removal, Removal) {
    let (host, device) = (&view.trace.host, &view.trace.device);
    let tensor_bytes = |at: usize| {
        let owner = view.operator_of_device(at)?;
        let first = shapes(view.name(host.dims[owner])).into_iter().find(|shape| !shape.is_empty())?;
        let types: Vec<String> = serde_json::from_str(view.name(host.types[owner])).unwrap_or_default();
        let element = types.first().map_or(0.0, |kind| element_bytes(kind));
        Some(first.iter().map(|size| *size as f64).product::<f64>() * element).filter(|bytes| *bytes > 0.0)
    };
    let rate = part(view).map(|part| STREAM_SHARE * part.bytes_per_second);
    let left = |at: usize| {
        if device.category[at] == Category::Memcpy {
            return 0;
        }
        let read_once = tensor_bytes(at).zip(rate).map(|(bytes, rate)| nanos(bytes / rate));
        read_once.map_or(device.duration[at] / 4, |nanos| nanos / 2).min(device.duration[at])
    };
    let expected = Removal { device: asked.device.keys().map(|&at| (at, left(at))).collect(), ..asked.clone() };
    (asked, expected)
}

/// Models copies at the link's rate: pinned memory is copied without staging, on the same stream, before the work that
/// needs it and before the host makes it longer. At best, and if it is already pinned, the copy is hidden behind
/// compute.
fn pinned(view: &View, measures: &Measures, asked: Removal) -> (Removal, Removal) {
    let device = &view.trace.device;
    let link = view.trace.header.devices.first().and_then(|device| host_link_of(&device.name));
    let left = |at: usize| {
        let share = measures.converted.copies.get(&at).copied().unwrap_or(1.0);
        let bytes = Some(share * device.bytes[at] as f64).filter(|_| is_pageable(view.name(device.name[at])));
        let on_the_link = bytes.zip(link).map(|(bytes, link)| nanos(bytes / (PINNED_SHARE * link)));
        on_the_link.unwrap_or(0).min(device.duration[at])
    };
    let expected = Removal { device: asked.device.keys().map(|&at| (at, left(at))).collect(), ..asked.clone() };
    (asked, expected)
}

/// Bound by the device's busy time: at best the host is always ahead, copies are avoided or hidden, and the small
/// kernels that computed what the host asked for are gone.
fn host_ahead(view: &View, asked: Removal) -> Removal {
    let device = &view.trace.device;
    let kinds = kinds_of_names(view);
    let mut bound = Removal { host: vec![view.steps.host_range()], without_gaps: true, ..asked };
    let goes = |&at: &usize| match of_span(view, &kinds, at) {
        Kind::CopyToOrFromHost => true,
        Kind::ElementWise | Kind::Reduction | Kind::Indexing | Kind::CopyOnDevice => device.duration[at] <= SMALL_NANOS,
        _ => false,
    };
    bound.device.extend(device.busy().filter(goes).map(|at| (at, 0)));
    bound
}

/// At best the operator reaches its roof; `ROOF_SHARE` of it is expected.
fn at_roof(view: &View, asked: Removal) -> (Removal, Removal) {
    let device = &view.trace.device;
    let near =
        asked.device.iter().map(|(&at, &least)| (at, ((least as f64 / ROOF_SHARE) as i64).min(device.duration[at])));
    let expected = Removal { device: near.collect(), ..asked.clone() };
    (asked, expected)
}

fn nanos(seconds: f64) -> i64 {
    (1e9 * seconds) as i64
}

#[cfg(test)]
mod tests;
