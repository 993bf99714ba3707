//! Time by kernel, with the operator and module that launched it.

use std::collections::HashMap;

use headroom_trace::NameId;
use serde::Serialize;

use super::intervals::seconds;
use super::view::View;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Kernels {
    /// The largest first.
    pub rows: Vec<KernelRow>,
    pub count: u64,
    pub per_step: f64,
    pub distinct: usize,
    pub total_seconds: f64,
    pub median_micros: f64,
    /// Share of the time in kernels launched by replaying a CUDA graph.
    pub in_graphs_share: f64,
    /// Share of the time in kernels with fewer blocks than the device has multiprocessors; `None` if the trace does not
    /// give both numbers.
    pub underfilled_share: Option<f64>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct KernelRow {
    pub name: String,
    pub calls: u64,
    pub seconds: f64,
    pub share: f64,
    /// The operator that launched most of its time, and the module around it.
    pub operator: Option<String>,
    pub module: Option<String>,
    pub occupancy_percent: Option<f64>,
}

#[derive(Default)]
struct Sum {
    calls: u64,
    nanos: i64,
    launchers: HashMap<Option<NameId>, (i64, usize)>,
    occupancy_nanos: f64,
    occupancy_of_nanos: f64,
}

pub fn kernels(view: &View) -> Kernels {
    let device = &view.trace.device;
    let mut sums: HashMap<NameId, Sum> = HashMap::new();
    let mut durations: Vec<i64> = Vec::new();
    let mut in_graphs = 0;
    let multiprocessors = view.trace.header.devices.first().map_or(0, |device| u64::from(device.multiprocessors));
    let (mut underfilled, mut with_blocks) = (0, 0);
    for at in view.kernels() {
        let nanos = device.duration[at];
        durations.push(nanos);
        let sum = sums.entry(device.name[at]).or_default();
        sum.calls += 1;
        sum.nanos += nanos;
        let operator = view.operator_of_device(at);
        let launcher = sum.launchers.entry(operator.map(|at| view.trace.host.name[at])).or_default();
        launcher.0 += nanos;
        launcher.1 = at;
        if device.occupancy[at] != 255 {
            sum.occupancy_nanos += f64::from(device.occupancy[at]) * nanos as f64;
            sum.occupancy_of_nanos += nanos as f64;
        }
        let blocks = device.grid[at].iter().map(|&size| u64::from(size)).fold(1, u64::saturating_mul);
        if blocks > 0 && multiprocessors > 0 {
            with_blocks += nanos;
            underfilled += if blocks < multiprocessors { nanos } else { 0 };
        }
        let call = view.call_of[at];
        if call != headroom_trace::NONE && view.call_kind(call as usize) == Some(headroom_trace::CallKind::GraphLaunch)
        {
            in_graphs += nanos;
        }
    }
    let total: i64 = durations.iter().sum();
    durations.sort_unstable();
    let mut rows: Vec<KernelRow> = sums.into_iter().map(|(name, sum)| row(view, name, &sum, total)).collect();
    rows.sort_by(|left, right| right.seconds.total_cmp(&left.seconds).then(left.name.cmp(&right.name)));
    Kernels {
        count: durations.len() as u64,
        per_step: durations.len() as f64 / view.steps.count(),
        distinct: rows.len(),
        total_seconds: seconds(total),
        median_micros: durations.get(durations.len() / 2).map_or(0.0, |nanos| *nanos as f64 / 1e3),
        in_graphs_share: in_graphs as f64 / total.max(1) as f64,
        underfilled_share: (with_blocks > 0).then(|| underfilled as f64 / with_blocks as f64),
        rows,
    }
}

fn row(view: &View, name: NameId, sum: &Sum, total: i64) -> KernelRow {
    let main = sum.launchers.iter().max_by_key(|(name, (nanos, _))| (*nanos, **name));
    let launched = main.map(|(_, (_, at))| *at);
    let call = launched.map(|at| view.call_of[at]).filter(|call| *call != headroom_trace::NONE);
    KernelRow {
        name: view.name(name).to_string(),
        calls: sum.calls,
        seconds: seconds(sum.nanos),
        share: sum.nanos as f64 / total.max(1) as f64,
        operator: main.and_then(|(name, _)| *name).map(|name| view.name(name).to_string()),
        module: call.and_then(|call| view.module_of(call as usize)),
        occupancy_percent: (sum.occupancy_of_nanos > 0.0).then(|| sum.occupancy_nanos / sum.occupancy_of_nanos),
    }
}
