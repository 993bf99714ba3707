//! What a device writes down while it runs: when each call began and ended.

use std::ops::Range;
use std::time::Duration;

/// One call as it ran, on the device's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSpan {
    /// Which of the device's programs, and which of its calls.
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

/// The calls of the steps being recorded. Room is made beforehand, so that recording allocates nothing while a step runs.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    spans: Vec<CallSpan>,
}

impl Recorder {
    pub fn with_room_for(calls: usize) -> Recorder {
        Recorder { spans: Vec::with_capacity(calls) }
    }

    /// How many calls were written down so far: where the next step's begin.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    pub fn spans(&self, of: Range<usize>) -> &[CallSpan] {
        &self.spans[of]
    }

    /// Forgets what came after, and keeps the room.
    pub fn truncate(&mut self, calls: usize) {
        self.spans.truncate(calls);
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
        recorder.truncate(40);
        assert_eq!((recorder.len(), recorder.spans(30..40).len()), (40, 10));
    }
}
