//! Time by operator: self and total, on the host and on the device, per input shape.

use std::collections::HashSet;

use hashbrown::HashMap;
use headroom_trace::{NONE, NameId};
use serde::Serialize;

use super::flops::Cost;
use super::intervals::seconds;
use super::view::View;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Operators {
    /// By name, sorted by device time, then by self time, the largest first.
    pub rows: Vec<OperatorRow>,
    pub host_self_seconds: f64,
    pub device_self_seconds: f64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct OperatorRow {
    pub name: String,
    pub calls: u64,
    /// Host time without that of the operators inside it.
    pub host_self_seconds: f64,
    pub host_total_seconds: f64,
    /// Device time of the kernels, copies and fills it queued itself, and including those of the operators inside it.
    pub device_self_seconds: f64,
    pub device_total_seconds: f64,
    /// Share of all device self time; of host self time if there is no device.
    pub share: f64,
    pub flops: f64,
    /// Bytes moved, if known.
    pub bytes: f64,
    pub shapes: Vec<ShapeRow>,
    /// Self time in each step, so that a change can be compared with its spread.
    #[serde(skip)]
    pub host_seconds_by_step: Vec<f64>,
    #[serde(skip)]
    pub device_seconds_by_step: Vec<f64>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct ShapeRow {
    pub input_dims: String,
    pub calls: u64,
    pub host_self_seconds: f64,
    pub device_self_seconds: f64,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    calls: u64,
    host_self: i64,
    host_total: i64,
    device_self: i64,
    device_total: i64,
    flops: f64,
    bytes: f64,
}

/// Self time per operator name and step, on the host and on the device.
#[derive(Default)]
struct BySteps(HashMap<NameId, Vec<[i64; 2]>>);

const HOST: usize = 0;
const DEVICE: usize = 1;

impl BySteps {
    fn add(&mut self, view: &View, operator: usize, side: usize, nanos: i64) {
        let host = &view.trace.host;
        let Some(step) = view.step_of(operator) else { return };
        let steps = self.0.entry(host.name[operator]).or_insert_with(|| vec![[0; 2]; view.steps.list.len()]);
        if let Some(sums) = steps.get_mut(step) {
            sums[side] += nanos;
        }
    }

    fn seconds(&self, name: NameId, side: usize) -> Vec<f64> {
        self.0.get(&name).map_or_else(Vec::new, |steps| steps.iter().map(|sums| seconds(sums[side])).collect())
    }
}

/// Only the most common shapes are listed.
const MOST_SHAPES: usize = 8;

pub fn operators(view: &View, costs: &[Cost]) -> Operators {
    let host = &view.trace.host;
    let range = view.steps.host_range();
    let inside = |at: usize| host.start[at] >= range.start && host.start[at] < range.end;
    let is_operator = |at: usize| view.is_operator(at);

    // For each operator, the time of the operators directly inside it.
    let mut children = vec![0i64; host.len()];
    for at in (0..host.len()).filter(|&at| is_operator(at)) {
        if let Some(outer) = view.ancestors(at).skip(1).find(|&outer| is_operator(outer)) {
            children[outer] += host.duration[at].min(host.end(outer) - host.start[at]);
        }
    }
    // Operators whose work is replayed from a graph did not launch it: they have device time, but no host time.
    let device = &view.trace.device;
    let launched_whole = |&at: &usize| {
        let call = view.call_of[at];
        call != NONE && view.operator_of(call as usize).is_none()
    };
    let replayed: HashSet<usize> =
        device.busy().filter(launched_whole).filter_map(|at| view.operator_of_device(at)).collect();
    let mut sums: HashMap<(NameId, NameId), Sum> = HashMap::new();
    let mut by_steps = BySteps::default();
    for at in (0..host.len()).filter(|&at| is_operator(at) && inside(at)) {
        let sum = sums.entry((host.name[at], host.dims[at])).or_default();
        sum.calls += 1;
        sum.flops += costs[at].flops;
        sum.bytes += costs[at].bytes;
        if replayed.contains(&at) {
            continue;
        }
        let own = (host.duration[at] - children[at]).max(0);
        sum.host_self += own;
        by_steps.add(view, at, HOST, own);
        // Recursion through the same name must count only once.
        let mut outer = view.ancestors(at).skip(1).filter(|&outer| is_operator(outer));
        if !outer.any(|outer| host.name[outer] == host.name[at]) {
            sum.host_total += host.duration[at];
        }
    }
    add_device_time(view, &mut sums, &mut by_steps);
    share_graph_launches(view, &mut sums);
    table(view, sums, &by_steps)
}

fn add_device_time(view: &View, sums: &mut HashMap<(NameId, NameId), Sum>, by_steps: &mut BySteps) {
    let (host, device) = (&view.trace.host, &view.trace.device);
    let range = view.steps.host_range();
    let mut seen: Vec<NameId> = Vec::new();
    for at in device.busy() {
        let call = view.call_of[at];
        if call == NONE || host.start[call as usize] < range.start || host.start[call as usize] >= range.end {
            continue;
        }
        seen.clear();
        let Some(operator) = view.operator_of_device(at) else { continue };
        let around = view.ancestors(operator).filter(|&at| view.is_operator(at));
        for (depth, outer) in around.enumerate() {
            let sum = sums.entry((host.name[outer], host.dims[outer])).or_default();
            if depth == 0 {
                sum.device_self += device.duration[at];
                by_steps.add(view, outer, DEVICE, device.duration[at]);
            }
            if !seen.contains(&host.name[outer]) {
                seen.push(host.name[outer]);
                sum.device_total += device.duration[at];
            }
        }
    }
}

/// Divides the launch of a graph among its operators, equally for each of their kernels.
fn share_graph_launches(view: &View, sums: &mut HashMap<(NameId, NameId), Sum>) {
    let (host, device) = (&view.trace.host, &view.trace.device);
    let range = view.steps.host_range();
    let mut launches: HashMap<u32, HashMap<usize, u32>> = HashMap::new();
    for at in device.busy() {
        let call = view.call_of[at];
        if call == NONE || view.operator_of(call as usize).is_some() || host.start[call as usize] >= range.end {
            continue;
        }
        if let Some(operator) = view.operator_of_device(at).filter(|_| host.start[call as usize] >= range.start) {
            *launches.entry(call).or_default().entry(operator).or_default() += 1;
        }
    }
    for (call, operators) in launches {
        let kernels: u32 = operators.values().sum();
        for (operator, own) in operators {
            let share = host.duration[call as usize] as f64 * f64::from(own) / f64::from(kernels);
            let sum = sums.entry((host.name[operator], host.dims[operator])).or_default();
            sum.host_self += share as i64;
            sum.host_total += share as i64;
        }
    }
}

fn table(view: &View, sums: HashMap<(NameId, NameId), Sum>, by_steps: &BySteps) -> Operators {
    let mut shapes: Vec<((NameId, NameId), Sum)> = sums.into_iter().collect();
    shapes.sort_by_key(|(key, sum)| (key.0, std::cmp::Reverse((sum.device_self, sum.host_self)), key.1));
    let mut table = Operators::default();
    for group in shapes.chunk_by(|left, right| left.0.0 == right.0.0) {
        let name = group[0].0.0;
        let mut row = OperatorRow {
            name: view.name(name).to_string(),
            host_seconds_by_step: by_steps.seconds(name, HOST),
            device_seconds_by_step: by_steps.seconds(name, DEVICE),
            ..OperatorRow::default()
        };
        for ((_, dims), sum) in group {
            row.calls += sum.calls;
            row.host_self_seconds += seconds(sum.host_self);
            row.host_total_seconds += seconds(sum.host_total);
            row.device_self_seconds += seconds(sum.device_self);
            row.device_total_seconds += seconds(sum.device_total);
            row.flops += sum.flops;
            row.bytes += sum.bytes;
            if row.shapes.len() < MOST_SHAPES && !dims.is_none() {
                row.shapes.push(ShapeRow {
                    input_dims: view.name(*dims).to_string(),
                    calls: sum.calls,
                    host_self_seconds: seconds(sum.host_self),
                    device_self_seconds: seconds(sum.device_self),
                });
            }
        }
        table.host_self_seconds += row.host_self_seconds;
        table.device_self_seconds += row.device_self_seconds;
        table.rows.push(row);
    }
    let on_device = table.device_self_seconds > 0.0;
    for row in &mut table.rows {
        row.share = match on_device {
            true => row.device_self_seconds / table.device_self_seconds,
            false => row.host_self_seconds / table.host_self_seconds.max(f64::MIN_POSITIVE),
        };
    }
    table.rows.sort_by(|left, right| {
        let key = |row: &OperatorRow| (row.device_self_seconds, row.host_self_seconds);
        key(right).partial_cmp(&key(left)).unwrap_or(std::cmp::Ordering::Equal).then(left.name.cmp(&right.name))
    });
    table
}
