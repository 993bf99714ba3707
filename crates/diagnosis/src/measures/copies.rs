//! Copies between host and device: bytes, speed, kind of memory, and overlap with other work.

use std::collections::BTreeMap;

use headroom_trace::Category;
use serde::Serialize;

use super::intervals::{covered, merged, seconds};
use super::view::View;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Copies {
    pub rows: Vec<CopyRow>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct CopyRow {
    /// The profiler's name: `Memcpy HtoD (Pageable -> Device)`.
    pub name: String,
    pub direction: Direction,
    pub pageable: bool,
    pub count: u64,
    pub bytes: u64,
    pub device_seconds: f64,
    pub gigabytes_per_second: f64,
    /// The part of the device time in which nothing else ran on it.
    pub exposed_seconds: f64,
    /// Time of the host's calls that started them: a pageable copy holds the host until it is staged.
    pub host_seconds: f64,
    pub largest_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    HostToDevice,
    DeviceToHost,
    #[default]
    Within,
}

pub fn copies(view: &View) -> Copies {
    let (host, device) = (&view.trace.host, &view.trace.device);
    let range = view.steps.range();
    let kernels = merged(
        device.busy().filter(|&at| device.category[at] == Category::Kernel).map(|at| view.device_span(at)).collect(),
    );
    let mut rows: BTreeMap<&str, (CopyRow, i64)> = BTreeMap::new();
    for at in device.busy().filter(|&at| device.category[at] == Category::Memcpy) {
        let span = view.device_span(at);
        if span.start < range.start || span.start >= range.end {
            continue;
        }
        let name = view.name(device.name[at]);
        let (row, nanos) = rows.entry(name).or_default();
        row.count += 1;
        row.bytes += device.bytes[at];
        row.largest_bytes = row.largest_bytes.max(device.bytes[at]);
        *nanos += span.nanos();
        row.exposed_seconds += seconds(span.nanos() - covered(&kernels, span));
        if view.call_of[at] != headroom_trace::NONE {
            row.host_seconds += seconds(host.duration[view.call_of[at] as usize]);
        }
    }
    let rows = rows.into_iter().map(|(name, (mut row, nanos))| {
        row.name = name.to_string();
        row.direction = direction(name);
        row.pageable = is_pageable(name);
        row.device_seconds = seconds(nanos);
        row.gigabytes_per_second = row.bytes as f64 / nanos.max(1) as f64;
        row
    });
    Copies { rows: rows.collect() }
}

pub fn is_pageable(name: &str) -> bool {
    name.contains("Pageable")
}

/// A copy to the device from pageable memory: the host stages it before the call returns.
pub fn is_from_pageable(name: &str) -> bool {
    is_pageable(name) && direction(name) == Direction::HostToDevice
}

/// NVIDIA writes `Memcpy HtoD (…)`, AMD `CopyHostToDevice`.
pub fn direction(name: &str) -> Direction {
    if name.contains("HtoD") || name.contains("HostToDevice") {
        Direction::HostToDevice
    } else if name.contains("DtoH") || name.contains("DeviceToHost") {
        Direction::DeviceToHost
    } else {
        Direction::Within
    }
}
