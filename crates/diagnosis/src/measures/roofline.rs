//! How far operators, and the whole step (MFU), are from the device's limits.

use std::collections::BTreeMap;

use headroom_record::intensity::Bound;
use headroom_trace::NONE;
use serde::Serialize;

use super::calls::Calls;
use super::flops::{Cost, Precision};
pub use super::rates::{Rates, roof};
use super::recorded::unrecorded_device;
use super::shapes::{ShapeRow, by_shape};
use super::view::View;
use crate::peaks;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Roofline {
    /// Executed FLOPs, as far as operators state or show them.
    pub flops_per_step: f64,
    /// FLOPs that the model needs, which MFU counts. A headroom trace states them; for other traces they are the
    /// executed FLOPs.
    pub needed_flops_per_step: f64,
    pub achieved_flops_per_second: f64,
    /// Percentage of the peak for the step's main precision; `None` if the device is not in the table.
    pub mfu_percent: Option<f64>,
    pub peak_flops_per_second: Option<f64>,
    pub peak_bytes_per_second: Option<f64>,
    pub peak_source: Option<String>,
    pub ridge_flops_per_byte: Option<f64>,
    /// Sorted by time beyond the roofline limit, the largest first.
    pub rows: Vec<RooflineRow>,
    /// GEMMs, convolutions and attention by shape, the longest first.
    pub by_shape: Vec<ShapeRow>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct RooflineRow {
    pub name: String,
    pub calls: u64,
    pub seconds: f64,
    pub flops: f64,
    pub bytes: f64,
    pub intensity: f64,
    /// `None` if no peak of the device is known.
    pub bound: Option<Bound>,
    /// The least time that the device's peaks allow, and its share of the time taken.
    pub roof_seconds: f64,
    pub percent_of_roof: f64,
}

pub fn roofline(view: &View, costs: &[Cost], calls: Option<&Calls>) -> Roofline {
    let host = &view.trace.host;
    let range = view.steps.host_range();
    let inside = |at: usize| host.start[at] >= range.start && host.start[at] < range.end;
    let seconds = match calls {
        Some(calls) => times_of_calls(calls, host.len()),
        None => times(view, costs),
    };
    // Host times of work that a device did say nothing about that device.
    let is_unrecorded = unrecorded_device(view).is_some();
    let known = rates(view).filter(|_| !is_unrecorded);
    let mut result = Roofline::default();
    let mut total = 0.0;
    let mut by_precision: [(Precision, f64); 3] =
        [Precision::Half, Precision::Fp8, Precision::Int8].map(|precision| (precision, 0.0));
    let mut rows: BTreeMap<&str, RooflineRow> = BTreeMap::new();
    for at in (0..host.len()).filter(|&at| costs[at].flops > 0.0 && inside(at)) {
        let cost = costs[at];
        total += cost.flops;
        for (precision, flops) in &mut by_precision {
            *flops += if cost.precision == *precision { cost.flops } else { 0.0 };
        }
        let row = rows.entry(view.host_name(at)).or_default();
        row.calls += 1;
        row.flops += cost.flops;
        row.bytes += cost.bytes;
        row.seconds += seconds[at];
        if let Some((rates, _)) = &known {
            row.roof_seconds += roof(rates, cost);
        }
    }
    result.flops_per_step = total / view.steps.count();
    if is_unrecorded {
        return result;
    }
    result.by_shape = by_shape(view, costs, &seconds, known.as_ref().map(|(rates, _)| rates));
    let wall = view.steps.wall_nanos().max(1) as f64 / 1e9;
    result.achieved_flops_per_second = total / wall;
    result.needed_flops_per_step = result.flops_per_step;
    let mut step_seconds = wall / view.steps.count();
    if let Some(ours) = calls.map(|calls| calls.header).filter(|ours| ours.flops.needed_per_step > 0) {
        result.needed_flops_per_step = ours.flops.needed_per_step as f64;
        // Over the steps of the whole run, which no recorder slowed down.
        step_seconds = ours.run.mean_step_seconds.unwrap_or(step_seconds);
    }
    if let Some((rates, source)) = known {
        // The precision of more than half of the FLOPs.
        let main = by_precision.into_iter().find(|(_, flops)| flops * 2.0 > total);
        let (peak, word) = match main.map(|(precision, _)| precision) {
            Some(Precision::Half) => (rates.half, "bf16"),
            Some(Precision::Fp8) => (rates.fp8, "fp8"),
            Some(Precision::Int8) => (rates.int8, "int8"),
            _ => (rates.fp32, single(view)),
        };
        result.peak_flops_per_second = Some(peak);
        result.peak_bytes_per_second = Some(rates.bytes);
        result.peak_source = Some(match calls {
            // The header names the one peak that the run is compared with.
            Some(_) => source,
            None => format!("{source}; MFU refers to the {} peak", word),
        });
        result.ridge_flops_per_byte = Some(peak / rates.bytes);
        result.mfu_percent = Some(100.0 * result.needed_flops_per_step / step_seconds / peak);
    }
    let ridge = result.ridge_flops_per_byte;
    let bound = |row: &RooflineRow, intensity: f64| match calls {
        Some(calls) => Some(calls.bound(intensity, row.roof_seconds / row.calls.max(1) as f64)),
        None => ridge.map(|ridge| if intensity < ridge { Bound::MemoryBound } else { Bound::ComputeBound }),
    };
    result.rows = rows.into_iter().map(|(name, row)| finished(name, row, bound)).collect();
    result.rows.sort_by(|left, right| {
        let above = |row: &RooflineRow| row.seconds - row.roof_seconds;
        above(right).total_cmp(&above(left)).then(left.name.cmp(&right.name))
    });
    result
}

fn finished(name: &str, row: RooflineRow, bound: impl Fn(&RooflineRow, f64) -> Option<Bound>) -> RooflineRow {
    let intensity = row.flops / row.bytes.max(1.0);
    RooflineRow {
        name: name.to_string(),
        intensity,
        bound: bound(&row, intensity),
        percent_of_roof: 100.0 * row.roof_seconds / row.seconds.max(f64::MIN_POSITIVE),
        ..row
    }
}

/// By host span: the own time of each call of a headroom run.
fn times_of_calls(calls: &Calls, spans: usize) -> Vec<f64> {
    let mut seconds = vec![0.0; spans];
    calls.list.iter().for_each(|call| seconds[call.at] = call.seconds);
    seconds
}

/// Device time of each operator with a cost, including everything that runs inside it; host time if there is no device.
fn times(view: &View, costs: &[Cost]) -> Vec<f64> {
    let (host, device) = (&view.trace.host, &view.trace.device);
    let mut seconds = vec![0.0; host.len()];
    if !view.has_device_work() {
        for at in (0..host.len()).filter(|&at| costs[at].flops > 0.0) {
            seconds[at] = host.duration[at] as f64 / 1e9;
        }
        return seconds;
    }
    for at in device.busy().filter(|&at| view.call_of[at] != NONE) {
        let owner = view.ancestors(view.call_of[at] as usize).find(|&outer| costs[outer].flops > 0.0);
        if let Some(owner) = owner {
            seconds[owner] += device.duration[at] as f64 / 1e9;
        }
    }
    seconds
}

/// Measured peaks from the trace's own header, otherwise the datasheet's; `None` if the work ran on a processor whose
/// peaks no header gives.
pub fn rates(view: &View) -> Option<(Rates, String)> {
    let header = &view.trace.header;
    if let Some(ours) = &header.headroom
        && ours.peaks.product_flops > 0.0
        && ours.peaks.memory_bandwidth_bytes > 0.0
    {
        let (flops, bytes) = (ours.peaks.product_flops, ours.peaks.memory_bandwidth_bytes);
        return Some((Rates { fp32: flops, half: flops, fp8: flops, int8: flops, bytes }, ours.peaks.source.clone()));
    }
    let part = peaks::find(&header.devices.first()?.name).filter(|_| view.has_device_work())?;
    // Single precision is compared with tensor cores only if its GEMMs used them.
    let fp32 = if uses_tf32(view) { part.tf32 } else { part.fp32 };
    let source = format!("{}, dense: bf16 and {} peaks", part.source, single(view));
    // Where a vendor states no rate for eight bits, that of 16 bits is the least that they reach.
    let [fp8, int8] = [part.fp8, part.int8].map(|rate| rate.max(part.bf16));
    Some((Rates { fp32, half: part.bf16, fp8, int8, bytes: part.bytes_per_second }, source))
}

/// The units that single-precision GEMMs ran on.
fn single(view: &View) -> &'static str {
    if uses_tf32(view) { "tf32" } else { "fp32" }
}

/// Whether a kernel that ran uses TF32, by its name.
fn uses_tf32(view: &View) -> bool {
    let device = &view.trace.device;
    let named: Vec<bool> = view.trace.names.iter().map(|(_, name)| is_tf32(name)).collect();
    device.busy().any(|at| named[device.name[at].index()])
}

fn is_tf32(kernel: &str) -> bool {
    ["tf32", "xf32", "s1688gemm_"].iter().any(|mark| kernel.contains(mark))
}
