//! Memory over time by category, and the memory alive at one moment.

use std::collections::BTreeMap;
use std::collections::HashMap;

use headroom_diagnosis::Analysis;
use headroom_diagnosis::measures::view::View;
use headroom_record::timeline::TimelineRecord;
use headroom_trace::{HOST_MEMORY, MemoryEvents, NONE, Trace};
use serde::Serialize;

use crate::analyze::facts::BANDS;

#[derive(Clone, Debug, Default, Serialize)]
pub struct MemoryChart {
    pub categories: Vec<String>,
    /// From the start of the first recorded step.
    pub seconds: Vec<f64>,
    /// Bytes, one list per category.
    pub bytes: Vec<Vec<f64>>,
    /// The operator that runs at each point, if known.
    pub labels: Vec<String>,
    pub peak_bytes: f64,
    pub capacity_bytes: Option<f64>,
    pub note: String,
}

const MIB: f64 = 1024.0 * 1024.0;

pub fn of_run(record: &TimelineRecord) -> MemoryChart {
    let points = &record.points;
    let category = |at: usize| points.iter().map(|point| point.live_mb.entries()[at].1 * MIB).collect();
    MemoryChart {
        categories: record.categories.iter().map(|name| name.replace('_', " ")).collect(),
        seconds: points.iter().map(|point| point.time_us / 1e6).collect(),
        bytes: (0..record.categories.len().min(5)).map(category).collect(),
        labels: points
            .iter()
            .map(|point| format!("step {}, {}: {}", point.step, point.phase, point.operator))
            .collect(),
        peak_bytes: record.peak().map_or(0.0, |point| point.live_mb.total() * MIB),
        capacity_bytes: None,
        note: "at the start of every call of the recorded steps, from the plan".into(),
    }
}

pub fn of_trace(analysis: &Analysis) -> MemoryChart {
    let memory = &analysis.measures.memory;
    let series = |of: fn(&headroom_diagnosis::measures::memory::Point) -> u64| {
        memory.curve.iter().map(|point| of(point) as f64).collect()
    };
    MemoryChart {
        categories: BANDS.iter().map(|(_, name, _)| name.to_string()).collect(),
        seconds: memory.curve.iter().map(|point| point.seconds).collect(),
        bytes: BANDS.iter().map(|(_, _, of)| series(*of)).collect(),
        labels: vec![],
        peak_bytes: memory.peak_bytes as f64,
        capacity_bytes: memory.capacity_bytes.map(|bytes| bytes as f64),
        note: match &memory.device {
            Some(device) => format!("on {device}, by purpose; {} allocations", memory.allocations),
            None => "the trace holds no memory events".into(),
        },
    }
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Alive {
    pub seconds: f64,
    /// Live bytes according to the allocator.
    pub total_bytes: u64,
    /// The part of them whose allocation is in the trace.
    pub seen_bytes: u64,
    /// The largest first.
    pub rows: Vec<AliveRow>,
    /// Number of rows beyond those listed.
    pub left_out: usize,
}

/// Live blocks that one operator in one module allocated.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AliveRow {
    pub operator: String,
    pub module: String,
    pub blocks: u64,
    pub bytes: u64,
    /// When the oldest of them was allocated.
    pub since_seconds: f64,
}

const MOST_ROWS: usize = 60;

/// Memory alive `seconds` after the start of the first step, by the operator that allocated it.
pub fn alive(trace: &Trace, seconds: f64) -> Alive {
    let view = View::new(trace);
    let origin = view.steps.host_range().start;
    // Rounded up: times in JSON have three decimals of a microsecond, and an event at exactly this time counts.
    let until = origin.saturating_add((seconds * 1e9).ceil() as i64);
    let events = &trace.memory;
    let mut answer = Alive { seconds, ..Alive::default() };
    let Some(device) = busiest_device(events) else { return answer };
    let mut live: HashMap<u64, usize> = HashMap::new();
    for at in (0..events.len()).filter(|&at| events.device[at] == device) {
        if events.time[at] > until {
            break;
        }
        answer.total_bytes = events.allocated[at];
        match events.bytes[at] {
            bytes if bytes > 0 => live.insert(events.address[at], at),
            _ => live.remove(&events.address[at]),
        };
    }
    let mut rows: BTreeMap<(String, String), AliveRow> = BTreeMap::new();
    for &at in live.values() {
        let (operator, module) = allocator(&view, at);
        let since = (events.time[at] - origin) as f64 / 1e9;
        let row = rows.entry((operator.clone(), module.clone())).or_insert_with(|| AliveRow {
            operator,
            module,
            since_seconds: since,
            ..AliveRow::default()
        });
        row.blocks += 1;
        row.bytes += events.bytes[at].unsigned_abs();
        row.since_seconds = row.since_seconds.min(since);
    }
    answer.rows = rows.into_values().collect();
    answer.rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    answer.seen_bytes = answer.rows.iter().map(|row| row.bytes).sum();
    answer.left_out = answer.rows.len().saturating_sub(MOST_ROWS);
    answer.rows.truncate(MOST_ROWS);
    answer
}

/// The device with the most events; the host only if no device has any.
fn busiest_device(events: &MemoryEvents) -> Option<u16> {
    let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
    events.device.iter().for_each(|device| *counts.entry(*device).or_default() += 1);
    counts.into_iter().max_by_key(|(device, count)| (*device != HOST_MEMORY, *count)).map(|(device, _)| device)
}

/// The innermost operator on the event's thread at its time.
fn allocator(view: &View, event: usize) -> (String, String) {
    let (host, events) = (&view.trace.host, &view.trace.memory);
    let (track, time) = (events.track[event], events.time[event]);
    let before = host.track.partition_point(|&other| other < track);
    let after = host.track.partition_point(|&other| other <= track);
    let next = before + host.start[before..after].partition_point(|&start| start <= time);
    let mut around = if next > before { next as u32 - 1 } else { NONE };
    while around != NONE && host.end(around as usize) < time {
        around = view.parent[around as usize];
    }
    let operator = (around != NONE).then_some(around as usize).and_then(|at| view.operator_of(at));
    match operator {
        Some(at) => (view.host_name(at).to_string(), view.module_of(at).unwrap_or_default()),
        None => ("outside any operator".into(), String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_trace::read_bytes;

    /// Two operators in one step; the first allocates 300 bytes and frees 100 of them before the second allocates 50.
    fn trace() -> Trace {
        let span = |name: &str, category: &str, start: u32, length: u32| {
            format!(r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":1,"tid":1,"ts":{start},"dur":{length}}}"#)
        };
        let memory = |time: u32, address: u32, bytes: i32, total: u32| {
            format!(
                r#"{{"ph":"i","s":"t","cat":"cpu_instant_event","name":"[memory]","pid":1,"tid":1,"ts":{time},"args":{{"Addr":{address},"Bytes":{bytes},"Total Allocated":{total},"Total Reserved":4096,"Device Type":1,"Device Id":0}}}}"#
            )
        };
        let events = [
            span("ProfilerStep#1", "user_annotation", 0, 100),
            span("aten::mm", "cpu_op", 10, 20),
            span("aten::add", "cpu_op", 50, 20),
            memory(12, 1, 100, 1100),
            memory(14, 2, 200, 1300),
            memory(40, 1, -100, 1200),
            memory(55, 1, 50, 1250),
        ];
        read_bytes(format!(r#"{{"traceEvents":[{}]}}"#, events.join(",")).as_bytes()).unwrap()
    }

    fn rows(alive: &Alive) -> Vec<(&str, u64, u64)> {
        alive.rows.iter().map(|row| (row.operator.as_str(), row.blocks, row.bytes)).collect()
    }

    #[test]
    fn what_is_alive_at_a_moment_is_what_was_allocated_and_not_freed_until_then() {
        let trace = trace();
        let early = alive(&trace, 20e-6);
        assert_eq!((rows(&early), early.total_bytes, early.seen_bytes), (vec![("aten::mm", 2, 300)], 1300, 300));
        assert_eq!(rows(&alive(&trace, 45e-6)), [("aten::mm", 1, 200)]);
        let late = alive(&trace, 60e-6);
        assert_eq!(rows(&late), [("aten::mm", 1, 200), ("aten::add", 1, 50)]);
        assert_eq!(late.rows[1].since_seconds, 55e-6);
        assert_eq!(rows(&alive(&trace, 1e-6)), []);
    }

    #[test]
    fn a_trace_without_memory_events_has_nothing_alive() {
        assert_eq!(alive(&Trace::default(), 1.0).rows, []);
    }
}
