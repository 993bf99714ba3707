//! The recorded steps as a Kineto trace: steps, parts, operators and memory on the thread that runs them, plus kernels
//! and driver calls for a GPU.

use super::Profiled;
use super::device_tracks::{self, DEVICE};
use super::trace_events::{Events, annotation};
use headroom_engine::recorder::Timing;
use headroom_trace::write::{TraceWriter, WrittenHeader};
use headroom_trace::{DeviceProperties, Distributed, ReadError, RunHeader, Trace, read_bytes};
use std::io::{self, Write};
use std::time::Duration;

/// Facts that the trace states besides its events.
#[derive(Clone, Debug)]
pub struct TraceAbout {
    pub process: u32,
    pub name: String,
    /// The run's facts.
    pub headroom: RunHeader,
    /// The GPU, if one computed.
    pub device: Option<DeviceProperties>,
    /// This process among those that train together.
    pub distributed: Distributed,
}

/// A process that trains alone.
pub fn alone() -> Distributed {
    Distributed { backend: "none".into(), rank: 0, world_size: 1 }
}

/// Length of the step mark after the last recorded step: readers drop the last mark, so it is an empty one.
const CLOSING_MARK: Duration = Duration::from_micros(1);

/// The trace as a reader of the file sees it.
pub fn trace(profiled: &Profiled, about: &TraceAbout) -> Result<Trace, ReadError> {
    let mut text = vec![];
    // Writing to memory does not fail.
    write_trace(profiled, about, &mut text)
        .map_err(|source| ReadError::Unreadable { path: "memory".into(), source })?;
    let mut trace = read_bytes(&text)?;
    trace.name = about.name.clone();
    Ok(trace)
}

pub fn write_trace(profiled: &Profiled, about: &TraceAbout, out: &mut dyn Write) -> io::Result<()> {
    let header = WrittenHeader {
        devices: about.device.iter().cloned().collect(),
        distributed: about.distributed.clone(),
        base_nanos: profiled.recording.base_unix_nanos,
        headroom: Some(about.headroom.clone()),
    };
    let mut writer = TraceWriter::start(out, &header)?;
    writer.process(about.process, "headroom", "CPU")?;
    writer.thread(about.process, about.process, "training loop")?;
    let mut events = Events::new(profiled, about.process, about.device.as_ref().map(|_| DEVICE));
    let kernels_are_known = matches!(profiled.recording.timing(), Timing::Kernels | Timing::ReplayedKernels);
    if kernels_are_known {
        device_tracks::name_tracks(profiled, &mut writer, about.process)?;
    }
    for step in profiled.recording.steps() {
        let id = events.next_id();
        writer.step(step.step as u32, events.place(step.start, step.end), id)?;
        if kernels_are_known {
            device_tracks::write_step(profiled, &mut events, &mut writer, step, id)?;
            continue;
        }
        let mut calls = profiled.recording.calls(step).iter().peekable();
        for part in profiled.recording.parts(step) {
            let id = events.next_id();
            writer.annotation(&annotation(part, profiled.graph()), events.place(part.start, part.end), id)?;
            while let Some(span) = calls.next_if(|span| span.start < part.end) {
                events.call(&mut writer, span)?;
            }
        }
    }
    if let Some(last) = profiled.recording.steps().last() {
        let id = events.next_id();
        writer.step(last.step as u32 + 1, events.place(last.end, last.end + CLOSING_MARK), id)?;
    }
    writer.finish(&about.name)
}
