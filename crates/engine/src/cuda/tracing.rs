//! Recorded steps on a GPU: CUPTI is started before each step and read after it, and its records become spans of the
//! plan's calls. Without CUPTI, calls run one by one between events.

use super::activity::{Pushed, resolve};
use super::cupti::Tracer;
use super::driver::{Event, Stream};
use super::nvtx::Ranges;
use super::{Cuda, CudaError, FirstUses};
use crate::device::Walk;
use crate::recorder::{CallId, CallSpan, Recorder, Timing};
use std::ops::Range;
use std::time::Duration;

#[derive(Default)]
pub enum Tracing {
    /// Nothing was recorded yet.
    #[default]
    NotAsked,
    /// Why CUPTI is not available.
    Missing(String),
    Ready(Tracer),
}

impl Tracing {
    fn open() -> Tracing {
        match Tracer::open() {
            Ok(tracer) => Tracing::Ready(tracer),
            Err(why) => Tracing::Missing(why),
        }
    }

    pub fn tracer(&self) -> Option<&Tracer> {
        match self {
            Tracing::Ready(tracer) => Some(tracer),
            _ => None,
        }
    }
}

/// Notes taken while a step is queued.
pub enum Noted<'a> {
    Nothing,
    /// During a capture: the call that each node belongs to.
    Nodes(&'a mut Vec<Option<CallId>>),
    /// During launches call by call: the purpose of each launch, for CUPTI.
    Launches(&'a Tracer),
}

impl Noted<'_> {
    pub fn around(
        &mut self,
        call: Option<CallId>,
        stream: &Stream,
        run: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        match self {
            Noted::Nothing => run(),
            Noted::Nodes(nodes) => {
                let before = stream.captured_nodes()?;
                run()?;
                let more = stream.captured_nodes()?.saturating_sub(before);
                nodes.extend(std::iter::repeat_n(call, more));
                Ok(())
            }
            Noted::Launches(tracer) => {
                tracer.push(Pushed::Call(call));
                let ran = run();
                tracer.pop();
                ran
            }
        }
    }
}

impl Cuda {
    /// CUPTI, while a step is recorded with it.
    pub(super) fn tracer(&self) -> Option<&Tracer> {
        self.tracing.tracer().filter(|_| self.recorder.is_some())
    }

    /// Call before work that is not recorded.
    pub(super) fn rest_tracing(&mut self) {
        if self.recorder.is_none()
            && let Some(Err(why)) = self.tracing.tracer().map(Tracer::rest)
        {
            self.tracing = Tracing::Missing(why);
        }
    }

    pub(super) fn start_recording(&mut self, recorder: &mut Recorder) {
        if matches!(self.tracing, Tracing::NotAsked) {
            self.tracing = Tracing::open();
        }
        recorder.set_timing(Timing::DeviceEvents);
        // Earlier queued work belongs to no recorded step.
        let waited = self.wait_patiently();
        self.note(waited);
        if let Some(Err(why)) = self.tracing.tracer().map(Tracer::start) {
            self.tracing = Tracing::Missing(why);
        }
    }

    pub(super) fn stop_recording(&mut self, recorder: &mut Recorder) {
        let waited = self.wait_patiently();
        self.note(waited);
        let Some(tracer) = self.tracing.tracer() else { return };
        let stopped = tracer.stop().and_then(|told| {
            let alignment = tracer.alignment(self.started).ok_or("cuptiGetTimestamp was refused")?;
            Ok((told, alignment))
        });
        let ((records, pushed), alignment) = match stopped {
            Ok(told) => told,
            Err(why) => {
                self.tracing = Tracing::Missing(why);
                return;
            }
        };
        let replays: Vec<_> = self.submitted.iter().flat_map(|one| one.replay_nodes()).collect();
        let resolved = resolve(records, &pushed, &replays, alignment);
        let timing = match self.walk {
            Walk::CallByCall => Timing::Kernels,
            Walk::Replayed => Timing::ReplayedKernels,
        };
        self.untied += resolved.untied;
        resolved.spans.into_iter().for_each(|span| recorder.push(span));
        recorder.push_activities(timing, resolved.activities);
    }

    /// Queues calls one by one; while recording, each between two events.
    pub(super) fn run_calls(&mut self, program: usize, calls: Range<usize>) -> Result<(), CudaError> {
        if self.recorder.is_none() {
            return calls
                .into_iter()
                .try_for_each(|call| self.run_call(program, call, (&self.stream, 0), FirstUses::Run));
        }
        if let Some(tracer) = self.tracer() {
            let mut noted = Noted::Launches(tracer);
            return calls.into_iter().try_for_each(|call| {
                let id = CallId { program: program as u32, call: call as u32 };
                noted.around(Some(id), &self.stream, || self.run_call(program, call, (&self.stream, 0), FirstUses::Run))
            });
        }
        let mut events = vec![Event::timed()?];
        let begun = self.started.elapsed();
        events[0].record(&self.stream)?;
        for call in calls.clone() {
            self.run_call(program, call, (&self.stream, 0), FirstUses::Run)?;
            let end = Event::timed()?;
            end.record(&self.stream)?;
            events.push(end);
        }
        self.stream.wait()?;
        let Some(recorder) = &mut self.recorder else { return Ok(()) };
        let mut start = begun;
        for (call, event) in calls.zip(&events[1..]) {
            let end = begun + Duration::from_secs_f64(event.seconds_since(&events[0])?);
            recorder.push(CallSpan { program: program as u32, call: call as u32, start, end });
            start = end;
        }
        Ok(())
    }

    /// Notes for the reader on how steps were recorded.
    pub(super) fn recording_notes(&self) -> Vec<String> {
        let mut notes = vec![];
        if let Tracing::Missing(why) = &self.tracing {
            notes.push(format!(
                "calls were timed by events, one by one and not replayed, because CUPTI cannot be used: {why}"
            ));
        }
        if self.untied > 0 {
            notes.push(format!("{} replayed kernels could not be told apart and count for no operator", self.untied));
        }
        if let Some(note) = self.ranges.as_ref().and_then(Ranges::note) {
            notes.push(note);
        }
        notes
    }
}
