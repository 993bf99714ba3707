//! Models of the time that a remedy leaves: attention, GEMMs, the optimizer, the loader, copies and passes.

use hashbrown::HashMap;
use headroom_trace::Category;

use crate::constants::cost::*;
use crate::constants::peaks::PRODUCT_SHARE;
use crate::finding::Cause;
use crate::measures::Measures;
use crate::measures::copies::is_pageable;
use crate::measures::data_loading::{loading_spans, workers};
use crate::measures::flops::{Cost, Precision, costs, element_bytes, owner_of, shares};
use crate::measures::intervals::{Span, covered};
use crate::measures::parameters::update;
use crate::measures::view::View;
use crate::peaks::links::host_link_of;
use crate::peaks::{self, Peaks};
use crate::simulation::Removal;
use crate::trace_rules::TraceFinding;

/// How the saving of a fix is computed, by the finding's cause. `None` if a trace cannot tell: the saving is then
/// outside the bound.
pub fn model(cause: Cause) -> Option<&'static str> {
    Some(match cause {
        Cause::HostSync => "the step without the waits and the host's work on the values it read",
        Cause::GpuIdle => "the host's work in long gaps done earlier; at best all of these gaps are gone",
        Cause::LaunchBound => "all launches replayed together, and loops of short kernels as one call",
        Cause::DataLoading => "the loader's work done by workers beside the step; at best no wait for a batch",
        Cause::HostCopies => "copies at the link's rate that nothing waits for; at best hidden behind compute",
        Cause::NoTensorCores => "the same FLOPs at the tensor cores' usual rate; at best at bf16's full rate",
        Cause::AttentionMaterialised => "the GEMMs' FLOPs at fused attention's rate; at best half at the full rate",
        Cause::SmallKernels => "each run of kernels as long as its longest kernel; loops of kernels half as long",
        Cause::OptimizerPerParameter => "the bytes of one fused update at its rate; at best at the bandwidth",
        Cause::AllocatorChurn => "the step without the calls",
        Cause::BelowRoof => "the operator close to its roofline limit; at best at that limit",
        Cause::ConstantRebuilt => "the step without building it",
        Cause::CommunicationExposed => "collectives hidden behind the compute beside them",
        Cause::Straggler => "collectives without the wait for the last rank",
        Cause::UnevenSteps => "slow steps without their long gaps",
        Cause::CpuBoundOperator => "the step without the operator's host time",
        Cause::PassMissing => "62% of what a fused plan saves at its roofline limit; at best all of it",
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

/// Reduces each finding's removal to what physics allows, and adds what its remedy is expected to remove. A rule that
/// knows more than the cause has already set the latter.
pub fn fill(view: &View, measures: &Measures, findings: &mut [TraceFinding]) {
    let mut known = Known { view, costs: None };
    for finding in findings.iter_mut() {
        let (cause, found) = (finding.cause, &mut finding.found);
        if !found.removal.is_empty() && found.expected.is_none() {
            let (bound, expected) = modelled(&mut known, measures, cause, std::mem::take(&mut found.removal));
            (found.removal, found.expected) = (bound, Some(expected));
        }
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
        Cause::PassMissing => by_a_pass(view, asked),
        _ => (asked.clone(), asked),
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
    let products = &measures.patterns.attention.products;
    let shares = known.shares(products.iter().copied());
    for &at in products {
        let (Some((_, cost)), Some(share)) = (known.cost_of(at), shares.get(&at)) else {
            // Replayed from a graph: only its duration is known.
            let left = |share: f64| (share * view.trace.device.duration[at] as f64) as i64;
            bound.device.insert(at, left(LEAST_OF_PRODUCT.get()));
            expected.device.insert(at, left(FLASH_OF_PRODUCT.get()));
            continue;
        };
        let rate = match cost.precision {
            Precision::Half => part.bf16,
            _ => part.tf32.max(part.fp32),
        };
        bound.device.insert(at, nanos(share * 0.5 * cost.flops / rate));
        expected.device.insert(at, nanos(share * cost.flops / (FLASH_SHARE.get() * rate)));
    }
    (bound, expected)
}

/// Models GEMMs at the tensor cores' rate for the same device and shape; TF32 for single precision. The bound is bf16's
/// full rate.
fn tensor_cores(known: &mut Known, asked: Removal) -> (Removal, Removal) {
    let view = known.view;
    let Some(part) = part(view) else { return (asked.clone(), asked) };
    let device = &view.trace.device;
    let (mut bound, mut expected) = (asked.clone(), asked.clone());
    let shares = known.shares(asked.device.keys().copied());
    for &at in asked.device.keys() {
        let (Some((_, cost)), Some(share)) = (known.cost_of(at), shares.get(&at)) else { continue };
        let tensor = if part.tf32 > 0.0 { part.tf32 } else { part.bf16 };
        let least = share * (cost.flops / (PRODUCT_SHARE.get() * tensor)).max(cost.bytes / part.bytes_per_second);
        expected.device.insert(at, nanos(least).min(device.duration[at]));
        bound.device.insert(at, nanos(share * cost.flops / part.bf16).min(device.duration[at]));
    }
    (bound, expected)
}

/// Models the bytes that one kernel for all parameters moves, at the rate that it reaches. The bound is the memory
/// bandwidth.
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
    let bound = Removal { device: scaled(least / update.nanos as f64), ..asked.clone() };
    (bound, Removal { device: scaled(least / STREAM_SHARE.get() / update.nanos as f64), ..asked })
}

/// Models overlap: workers prepare batches while the rest of the step runs, one per core. The step waits
/// for what they do not finish by then, and for handing over each batch.
fn loading(view: &View, asked: Removal) -> (Removal, Removal) {
    let spans = loading_spans(view);
    let in_steps: i64 = view.steps.ordered.iter().map(|step| covered(&spans, *step)).sum();
    let beside = view.steps.wall_nanos() - in_steps;
    let waited_for = (in_steps / workers(view).0 as i64 - beside).max(in_steps / HANDED_OVER.get());
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
    let device = &view.trace.device;
    let tensor_bytes = |at: usize| {
        let owner = view.operator_of_device(at)?;
        let first = view.shapes(owner).into_iter().find(|shape| !shape.is_empty())?;
        let types = view.types(owner);
        let element = types.first().map_or(0.0, |kind| element_bytes(kind));
        Some(first.iter().map(|size| *size as f64).product::<f64>() * element).filter(|bytes| *bytes > 0.0)
    };
    let rate = part(view).map(|part| STREAM_SHARE.get() * part.bytes_per_second);
    let left = |at: usize| {
        if device.category[at] == Category::Memcpy {
            return 0;
        }
        let read_once = tensor_bytes(at).zip(rate).map(|(bytes, rate)| nanos(bytes / rate));
        read_once.map_or(device.duration[at] / 4, |nanos| nanos / 2).min(device.duration[at])
    };
    leaving(asked, |at, _| left(at))
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
        let on_the_link = bytes.zip(link).map(|(bytes, link)| nanos(bytes / (PINNED_SHARE.get() * link)));
        on_the_link.unwrap_or(0).min(device.duration[at])
    };
    leaving(asked, |at, _| left(at))
}

/// At best the operator reaches its roof; `ROOF_SHARE` of it is expected.
fn at_roof(view: &View, asked: Removal) -> (Removal, Removal) {
    let duration = &view.trace.device.duration;
    leaving(asked, |at, least| ((least as f64 / ROOF_SHARE.get()) as i64).min(duration[at]))
}

/// The removal as it is, and with what is `left` of each device span, by its index and the least of it.
fn leaving(asked: Removal, left: impl Fn(usize, i64) -> i64) -> (Removal, Removal) {
    let device = asked.device.iter().map(|(&at, &least)| (at, left(at, least))).collect();
    let expected = Removal { device, ..asked.clone() };
    (asked, expected)
}

/// Models a pass of ours: it saves `PASS_SHARE` of the time that remains above the roof.
fn by_a_pass(view: &View, asked: Removal) -> (Removal, Removal) {
    let duration = &view.trace.device.duration;
    let part = |nanos: i64| (PASS_SHARE.get() * nanos as f64) as i64;
    let (asked, mut expected) = leaving(asked, |at, least| duration[at] - part(duration[at] - least));
    expected.host.iter_mut().for_each(|span| span.start = span.end - part(span.nanos()));
    (asked, expected)
}

fn nanos(seconds: f64) -> i64 {
    (1e9 * seconds) as i64
}

#[cfg(test)]
mod tests;
