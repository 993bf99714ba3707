//! A recorded GPU step in the trace: driver calls on the host; kernels, copies and fills on their streams; and the
//! plan's calls, each linked to its kernels.
//!
//! When calls are launched one by one, a call of the plan appears where the host launched it. When a graph is replayed,
//! the host launches the whole step at once, so calls appear on tracks of their own, at the times at which the device
//! ran them.

use super::trace_events::{Events, annotation, nanos};
use super::{Profiled, collectives};
use crate::recording::{Part, StepSpan};
use headroom_engine::recorder::{Activity, ActivityKind, CallSpan, Timing};
use headroom_trace::write::{DevicePlace, HostPlace, Queues, TraceWriter, WrittenCall, WrittenKernel, WrittenTransfer};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::io;
use std::time::Duration;

/// A run uses one GPU, and it is the first of the trace.
pub const DEVICE: u32 = 0;

/// Holistic Trace Analysis misreads smaller correlation ids.
const FIRST_CORRELATION: u32 = 100_000;

/// Number of tracks for calls as the device ran them; they come after the training loop's track.
const CALL_LANES: u32 = 4;

pub fn name_tracks(profiled: &Profiled, writer: &mut TraceWriter, process: u32) -> io::Result<()> {
    writer.process(DEVICE, "headroom", &format!("GPU {DEVICE}"))?;
    let recording = profiled.recording;
    let streams: BTreeSet<u32> =
        recording.steps().iter().flat_map(|step| recording.activities(step)).filter_map(Activity::stream).collect();
    for stream in streams {
        writer.thread(DEVICE, stream, &format!("stream {stream}"))?;
    }
    if recording.timing() == Timing::ReplayedKernels {
        writer.thread(process, process + 1, "the plan's calls, as the GPU ran them")?;
    }
    Ok(())
}

pub fn write_step(
    profiled: &Profiled,
    events: &mut Events,
    writer: &mut TraceWriter,
    step: &StepSpan,
    step_id: u32,
) -> io::Result<()> {
    let recording = profiled.recording;
    let activities: Vec<&Activity> = recording.activities(step).collect();
    write_parts(profiled, events, writer, step, &activities)?;
    let spans = recording.calls(step);
    let places = match recording.timing() {
        Timing::Kernels => places_of_launches(spans, &activities, events),
        _ => places_side_by_side(spans, events),
    };
    let mut ids = Ids { step: step_id, by_call: HashMap::new() };
    for (span, place) in spans.iter().zip(places) {
        let id = events.call_at(writer, span, place)?;
        ids.by_call.entry(span.call).or_default().push((span.start, span.end, id));
    }
    let answered: HashSet<u32> =
        activities.iter().filter(|one| one.stream().is_some()).map(|one| one.correlation).collect();
    let mut told = HashSet::new();
    let own_wait =
        activities.iter().rposition(|one| one.what == ActivityKind::DriverCall && one.name.contains("Synchronize"));
    for (index, one) in activities.iter().enumerate() {
        let (external_id, correlation) = (ids.of(one), FIRST_CORRELATION + one.correlation);
        match one.what {
            ActivityKind::DriverCall => {
                // Clocks agree only to a microsecond: clamp a call that ends the step to the step's end.
                let place = events.place(one.start, one.end.min(step.end));
                if own_wait == Some(index) {
                    writer.overhead("the recorder waits for the step", place)?;
                    continue;
                }
                let queues_work = if answered.contains(&one.correlation) { Queues::Work } else { Queues::Nothing };
                writer.call(&WrittenCall { name: &one.name, place, external_id, correlation, queues_work })?;
            }
            ActivityKind::Kernel { stream, grid, block } => {
                let place = on_device(stream, one.start, one.end);
                // Write a call's message once, with the first NCCL kernel that it launched.
                let call = one.call.filter(|_| one.name.contains("nccl") && told.insert(external_id));
                let message = call.and_then(|call| collectives::message(profiled.graph(), call.call as usize));
                let kernel = WrittenKernel { name: &one.name, place, external_id, correlation, grid, block, message };
                writer.kernel(&kernel)?;
            }
            ActivityKind::Copy { stream, bytes } => {
                let place = on_device(stream, one.start, one.end);
                writer.copy(&WrittenTransfer { name: &one.name, place, external_id, correlation, bytes })?;
            }
            ActivityKind::Fill { stream, bytes } => {
                let place = on_device(stream, one.start, one.end);
                writer.fill(&WrittenTransfer { name: &one.name, place, external_id, correlation, bytes })?;
            }
        }
    }
    Ok(())
}

/// Writes the wait for data on the host, and the phases on the device from their first kernel to their last.
fn write_parts(
    profiled: &Profiled,
    events: &mut Events,
    writer: &mut TraceWriter,
    step: &StepSpan,
    activities: &[&Activity],
) -> io::Result<()> {
    for part in profiled.recording.parts(step) {
        let id = events.next_id();
        if part.part == Part::DataWait {
            writer.annotation(&annotation(part, profiled.graph()), events.place(part.start, part.end), id)?;
            continue;
        }
        if matches!(part.part, Part::Inputs | Part::LossRead) {
            continue;
        }
        let within = |one: &&&Activity| one.start >= part.start && one.start < part.end;
        // The phase is shown on the stream that has most of its kernels; other streams show only their kernels.
        let mut streams: BTreeMap<u32, (usize, Duration, Duration)> = BTreeMap::new();
        for one in activities.iter().filter(within) {
            let Some(stream) = one.stream() else { continue };
            let known = streams.entry(stream).or_insert((0, one.start, one.end));
            *known = (known.0 + 1, known.1.min(one.start), known.2.max(one.end));
        }
        if let Some((stream, (_, start, end))) = streams.into_iter().max_by_key(|(_, (count, ..))| *count) {
            writer.device_annotation(&annotation(part, profiled.graph()), on_device(stream, start, end), id)?;
        }
    }
    Ok(())
}

/// Ids of the calls of a step; activities that belong to no call get the id of the step.
struct Ids {
    step: u32,
    by_call: HashMap<u32, Vec<(Duration, Duration, u32)>>,
}

impl Ids {
    /// Id of the run of the call that contains the activity. A launch lies before its run.
    fn of(&self, one: &Activity) -> u32 {
        let Some(runs) = one.call.and_then(|call| self.by_call.get(&call.call)) else { return self.step };
        let within = runs.iter().find(|(start, end, _)| (*start..=*end).contains(&one.start));
        let after = || runs.iter().find(|(start, ..)| *start >= one.start);
        within.or_else(after).or(runs.last()).map_or(self.step, |(.., id)| *id)
    }
}

fn on_device(stream: u32, start: Duration, end: Duration) -> DevicePlace {
    let (start_nanos, duration_nanos) = (nanos(start), nanos(end).saturating_sub(nanos(start)));
    DevicePlace { device: DEVICE, stream, start_nanos, duration_nanos }
}

/// Where the host launched each call: from the start of its first launch to the end of its last.
fn places_of_launches(spans: &[CallSpan], activities: &[&Activity], events: &Events) -> Vec<HostPlace> {
    let mut runs: HashMap<u32, VecDeque<(Duration, Duration)>> = HashMap::new();
    let launches: Vec<&&Activity> =
        activities.iter().filter(|one| one.what == ActivityKind::DriverCall && one.call.is_some()).collect();
    for run in launches.chunk_by(|left, right| left.call == right.call) {
        if let (Some(call), Some(last)) = (run[0].call, run.last()) {
            runs.entry(call.call).or_default().push_back((run[0].start, last.end));
        }
    }
    let place = |span: &CallSpan| {
        let launched = runs.get_mut(&span.call).and_then(VecDeque::pop_front);
        let (start, end) = launched.unwrap_or((span.start, span.start));
        events.place(start, end)
    };
    spans.iter().map(place).collect()
}

/// Puts each call on the first track that is free at the time: calls on several streams overlap.
fn places_side_by_side(spans: &[CallSpan], events: &Events) -> Vec<HostPlace> {
    let mut ends = [Duration::ZERO; CALL_LANES as usize];
    let place = |span: &CallSpan| {
        let track = ends.iter().position(|end| *end <= span.start).unwrap_or(0);
        // If all tracks are taken, the call begins when the first becomes free, so that tracks stay in order.
        let start = span.start.max(ends[track]);
        ends[track] = span.end.max(start);
        HostPlace { thread: events.process + 1 + track as u32, ..events.place(start, ends[track]) }
    };
    spans.iter().map(place).collect()
}

#[cfg(test)]
#[path = "device_tracks_tests.rs"]
mod tests;
