//! A device's recording of a run: when each call began and ended, and on a GPU every kernel, copy and launch.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// One call as it ran, on the device's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSpan {
    /// Index of the device's program, and of the call within it.
    pub program: u32,
    pub call: u32,
    pub start: Duration,
    pub end: Duration,
}

impl CallSpan {
    pub fn duration(&self) -> Duration {
        self.end.saturating_sub(self.start)
    }
}

/// One operation of a GPU or its driver, on the device's own clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    pub what: ActivityKind,
    /// Name of the kernel or driver call.
    pub name: Arc<str>,
    pub start: Duration,
    pub end: Duration,
    /// Links a driver call to the GPU work it launched.
    pub correlation: u32,
    /// The plan's call that it belongs to; `None` for transfers of batches and losses.
    pub call: Option<CallId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId {
    pub program: u32,
    pub call: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivityKind {
    Kernel {
        stream: u32,
        grid: [u32; 3],
        block: [u32; 3],
    },
    Copy {
        stream: u32,
        bytes: u64,
    },
    Fill {
        stream: u32,
        bytes: u64,
    },
    /// Time that the host spends in a driver call.
    DriverCall,
}

impl Activity {
    /// The stream it ran on; absent for host activities.
    pub fn stream(&self) -> Option<u32> {
        match self.what {
            ActivityKind::Kernel { stream, .. }
            | ActivityKind::Copy { stream, .. }
            | ActivityKind::Fill { stream, .. } => Some(stream),
            ActivityKind::DriverCall => None,
        }
    }
}

/// How calls were timed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Timing {
    /// By the host's clock around each call.
    #[default]
    HostClock,
    /// By events around each call, one call at a time: kernels are not distinguished, and steps are not replayed.
    DeviceEvents,
    /// By the kernels' own timestamps, with steps launched call by call, or replayed as usual.
    Kernels,
    ReplayedKernels,
}

/// The calls of the recorded steps. Capacity is reserved in advance, so that recording allocates nothing during a step.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    spans: Vec<CallSpan>,
    activities: Vec<Activity>,
    timing: Timing,
}

impl Recorder {
    pub fn with_room_for(calls: usize) -> Recorder {
        Recorder { spans: Vec::with_capacity(calls), activities: vec![], timing: Timing::HostClock }
    }

    /// Wraps spans and activities that were recorded elsewhere, in time order.
    pub fn of(timing: Timing, spans: Vec<CallSpan>, activities: Vec<Activity>) -> Recorder {
        Recorder { spans, activities, timing }
    }

    pub fn timing(&self) -> Timing {
        self.timing
    }

    /// All GPU activities that started between `from` and `to`, in order of start; empty on other devices.
    pub fn activities_between(&self, from: Duration, to: Duration) -> impl Iterator<Item = &Activity> {
        self.activities.iter().filter(move |one| one.start >= from && one.start < to)
    }

    /// Adds activities after a step, once the GPU has reported them.
    pub(crate) fn push_activities(&mut self, timing: Timing, activities: Vec<Activity>) {
        self.timing = timing;
        self.activities.extend(activities);
    }

    pub(crate) fn set_timing(&mut self, timing: Timing) {
        self.timing = timing;
    }

    /// Number of calls recorded so far: the index at which the next step begins.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    pub fn spans(&self, of: Range<usize>) -> &[CallSpan] {
        &self.spans[of]
    }

    /// Drops everything after the first `calls` calls and all activities from `since` on; keeps the capacity.
    pub fn truncate(&mut self, calls: usize, since: Duration) {
        self.spans.truncate(calls);
        self.activities.retain(|one| one.start < since);
    }

    pub(crate) fn push(&mut self, span: CallSpan) {
        self.spans.push(span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recording_within_the_room_made_beforehand_moves_nothing() {
        let mut recorder = Recorder::with_room_for(100);
        let before = recorder.spans.as_ptr();
        for call in 0..100 {
            recorder.push(CallSpan { program: 0, call, start: Duration::ZERO, end: Duration::from_nanos(1) });
        }
        assert_eq!(recorder.spans.as_ptr(), before);
        recorder.truncate(40, Duration::ZERO);
        assert_eq!((recorder.len(), recorder.spans(30..40).len()), (40, 10));
    }
}
