//! Collectives: how much of them compute hides, and which rank keeps the others waiting.

use headroom_trace::{Category, Trace};
use serde::Serialize;

use super::intervals::{covered, merged, seconds, total};
use super::view::View;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Communication {
    pub collectives: usize,
    pub seconds: f64,
    /// The part that compute runs beside.
    pub hidden_seconds: f64,
    pub exposed_seconds: f64,
    pub overlap_share: f64,
    pub exposed_share_of_steps: f64,
}

pub fn communication(view: &View) -> Communication {
    let device = &view.trace.device;
    let range = view.steps.range();
    let collective: Vec<bool> = view.trace.names.iter().map(|(_, name)| is_collective(name)).collect();
    let kernels: Vec<usize> = device
        .busy()
        .filter(|&at| device.category[at] == Category::Kernel)
        .filter(|&at| device.start[at] >= range.start && device.start[at] < range.end)
        .collect();
    let set = |wanted: bool| {
        let chosen = kernels.iter().filter(|&&at| collective[device.name[at].index()] == wanted);
        merged(chosen.map(|&at| view.device_span(at)).collect())
    };
    let (communication, compute) = (set(true), set(false));
    let all = total(&communication);
    let hidden: i64 = communication.iter().map(|span| covered(&compute, *span)).sum();
    Communication {
        collectives: kernels.iter().filter(|&&at| collective[device.name[at].index()]).count(),
        seconds: seconds(all),
        hidden_seconds: seconds(hidden),
        exposed_seconds: seconds(all - hidden),
        overlap_share: if all > 0 { hidden as f64 / all as f64 } else { 0.0 },
        exposed_share_of_steps: view.steps.share(all - hidden),
    }
}

pub fn is_collective(kernel: &str) -> bool {
    let lower = |part: &str| kernel.len() >= part.len() && kernel.to_ascii_lowercase().contains(part);
    lower("nccl") || lower("rccl") || lower("oneccl") || lower("c10d::")
}

/// Ranks compared: collectives are met in the same order everywhere, and who starts one last kept the others waiting.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Ranks {
    pub ranks: Vec<RankRow>,
    /// Time that the ranks before the last one spent waiting inside collectives, a step, the largest of them.
    pub waiting_seconds: f64,
    pub straggler: Option<u32>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct RankRow {
    pub rank: u32,
    pub step_seconds: f64,
    pub collectives: usize,
    pub collective_seconds: f64,
    /// Share of collectives that this rank spent least time in: it came last, and all others waited for it.
    pub last_share: f64,
    /// Time in collectives beyond what the last to arrive needed.
    pub waited_seconds: f64,
}

/// `None` for a single rank, or where the ranks met no collective in common. Clocks of different machines do not agree, so
/// arrival is read from durations: a collective ends everywhere at once, and the rank with the shortest came last.
pub fn ranks(traces: &[Trace], views: &[View]) -> Option<Ranks> {
    let durations: Vec<Vec<i64>> = views.iter().map(collective_durations).collect();
    let common = durations.iter().map(Vec::len).min().unwrap_or(0);
    if traces.len() < 2 || common == 0 {
        return None;
    }
    let mut last = vec![0usize; traces.len()];
    let mut waited = vec![0i64; traces.len()];
    for index in 0..common {
        let shortest = durations.iter().map(|list| list[index]).min().unwrap_or(0);
        let who = durations.iter().position(|list| list[index] == shortest).unwrap_or(0);
        last[who] += 1;
        for (rank, list) in durations.iter().enumerate() {
            waited[rank] += list[index] - shortest;
        }
    }
    let rows: Vec<RankRow> = views
        .iter()
        .enumerate()
        .map(|(index, view)| RankRow {
            rank: traces[index].rank(),
            step_seconds: seconds(view.steps.wall_nanos()) / view.steps.count(),
            collectives: durations[index].len(),
            collective_seconds: seconds(durations[index].iter().sum()),
            last_share: last[index] as f64 / common as f64,
            waited_seconds: seconds(waited[index]),
        })
        .collect();
    let steps = views.iter().map(|view| view.steps.count()).fold(1.0, f64::max);
    let waiting = rows.iter().map(|row| row.waited_seconds).fold(0.0, f64::max) / steps;
    let most = rows.iter().max_by(|left, right| left.last_share.total_cmp(&right.last_share));
    let straggler = most.filter(|row| row.last_share > 0.5).map(|row| row.rank);
    Some(Ranks { ranks: rows, waiting_seconds: waiting, straggler })
}

fn collective_durations(view: &View) -> Vec<i64> {
    let device = &view.trace.device;
    let range = view.steps.range();
    let collective: Vec<bool> = view.trace.names.iter().map(|(_, name)| is_collective(name)).collect();
    let mut found: Vec<(i64, i64)> = device
        .busy()
        .filter(|&at| collective[device.name[at].index()] && device.category[at] == Category::Kernel)
        .filter(|&at| device.start[at] >= range.start && device.start[at] < range.end)
        .map(|at| (device.start[at], device.duration[at]))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, duration)| duration).collect()
}
