//! How far operators are from what the device allows, and the whole step (MFU).

use std::collections::BTreeMap;

use headroom_trace::NONE;
use serde::Serialize;

use super::flops::{Cost, Precision};
use super::recorded::unrecorded_device;
use super::view::View;
use crate::peaks;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Roofline {
    pub flops_per_step: f64,
    pub achieved_flops_per_second: f64,
    /// Of the rate that the step's main precision allows; `None` where the device is not in the table.
    pub mfu_percent: Option<f64>,
    pub peak_flops_per_second: Option<f64>,
    pub peak_bytes_per_second: Option<f64>,
    pub peak_source: Option<String>,
    pub ridge_flops_per_byte: Option<f64>,
    /// The operator with the most time above its roof first.
    pub rows: Vec<RooflineRow>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct RooflineRow {
    pub name: String,
    pub calls: u64,
    pub seconds: f64,
    pub flops: f64,
    pub bytes: f64,
    pub intensity: f64,
    pub bound: &'static str,
    /// The least time that the device's peaks allow, and what share of the time taken that is.
    pub roof_seconds: f64,
    pub percent_of_roof: f64,
}

/// Rates against which work is measured.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    pub fp32: f64,
    pub half: f64,
    pub bytes: f64,
}

pub fn roofline(view: &View, costs: &[Cost]) -> Roofline {
    let host = &view.trace.host;
    let range = view.steps.host_range();
    let inside = |at: usize| host.start[at] >= range.start && host.start[at] < range.end;
    let seconds = times(view, costs);
    // Host times of work that a device did say nothing about that device.
    let is_unrecorded = unrecorded_device(view).is_some();
    let known = rates(view).filter(|_| !is_unrecorded);
    let mut result = Roofline::default();
    let (mut total, mut in_half) = (0.0, 0.0);
    let mut rows: BTreeMap<&str, RooflineRow> = BTreeMap::new();
    for at in (0..host.len()).filter(|&at| costs[at].flops > 0.0 && inside(at)) {
        let cost = costs[at];
        total += cost.flops;
        in_half += if cost.precision == Precision::Half { cost.flops } else { 0.0 };
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
    let wall = view.steps.wall_nanos().max(1) as f64 / 1e9;
    result.achieved_flops_per_second = total / wall;
    if let Some((rates, source)) = known {
        let peak = if in_half * 2.0 > total { rates.half } else { rates.fp32 };
        result.peak_flops_per_second = Some(peak);
        result.peak_bytes_per_second = Some(rates.bytes);
        result.peak_source = Some(source);
        result.ridge_flops_per_byte = Some(peak / rates.bytes);
        result.mfu_percent = Some(100.0 * total / wall / peak);
    }
    result.rows = rows.into_iter().map(|(name, row)| finished(name, row, result.ridge_flops_per_byte)).collect();
    result.rows.sort_by(|left, right| {
        let above = |row: &RooflineRow| row.seconds - row.roof_seconds;
        above(right).total_cmp(&above(left)).then(left.name.cmp(&right.name))
    });
    result
}

fn finished(name: &str, row: RooflineRow, ridge: Option<f64>) -> RooflineRow {
    let intensity = row.flops / row.bytes.max(1.0);
    RooflineRow {
        name: name.to_string(),
        intensity,
        bound: match ridge {
            Some(ridge) if intensity < ridge => "memory",
            Some(_) => "compute",
            None => "unknown",
        },
        percent_of_roof: 100.0 * row.roof_seconds / row.seconds.max(f64::MIN_POSITIVE),
        ..row
    }
}

/// The least time that the work can take.
pub fn roof(rates: &Rates, cost: Cost) -> f64 {
    let compute = match cost.precision {
        Precision::Half => rates.half,
        Precision::Fp32 => rates.fp32,
        Precision::Fp64 => rates.fp32 / 2.0,
    };
    (cost.flops / compute).max(cost.bytes / rates.bytes)
}

/// Device time of each operator with a cost, with all that runs inside it; host time where there is no device.
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

/// Measured peaks from the trace's own header, else the datasheet's.
pub fn rates(view: &View) -> Option<(Rates, String)> {
    let header = &view.trace.header;
    if let Some(ours) = &header.headroom
        && let (Some(flops), Some(bytes)) = (ours["peak_flops"].as_f64(), ours["peak_memory_bandwidth"].as_f64())
    {
        let half = ours["peak_flops_bf16"].as_f64().unwrap_or(flops);
        return Some((Rates { fp32: flops, half, bytes }, "measured, from the trace's header".into()));
    }
    let part = peaks::find(&header.devices.first()?.name)?;
    // fp32 products may use tensor cores when asked to: that is the roof.
    let fp32 = part.fp32.max(part.tf32);
    Some((Rates { fp32, half: part.bf16, bytes: part.bytes_per_second }, format!("{}, dense", part.source)))
}
