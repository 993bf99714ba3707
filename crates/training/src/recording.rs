//! What is written down of chosen steps: when they, their parts and their calls began and ended.
//!
//! After the steps that are kept, every other one is recorded and forgotten again: the difference between the two kinds,
//! taken in turns, is what recording costs.

use headroom_engine::recorder::{CallSpan, Recorder};
use headroom_engine::{Device, Program};
use headroom_graph::Phase;
use std::ops::{Range, RangeInclusive};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A part of a step as the host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// Waiting for the next batch.
    DataWait,
    /// The batch on its way to the device.
    Inputs,
    Forward,
    /// The loss on its way back.
    LossRead,
    Backward,
    Optimizer,
}

impl Part {
    pub const ALL: [Part; 6] =
        [Part::DataWait, Part::Inputs, Part::Forward, Part::LossRead, Part::Backward, Part::Optimizer];

    pub fn name(self) -> &'static str {
        match self {
            Part::DataWait => "data_wait",
            Part::Inputs => "inputs",
            Part::Forward => "forward",
            Part::LossRead => "loss_read",
            Part::Backward => "backward",
            Part::Optimizer => "optimizer",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartSpan {
    pub part: Part,
    pub start: Duration,
    pub end: Duration,
}

/// A recorded step; its parts and calls are ranges of the recording's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepSpan {
    pub step: u64,
    pub start: Duration,
    pub end: Duration,
    parts: Range<usize>,
    calls: Range<usize>,
}

/// Seconds of steps that were recorded and of steps that were not, taken in turns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turns {
    pub recorded: Vec<f64>,
    pub unrecorded: Vec<f64>,
}

impl Turns {
    /// What recording adds to the median step, in percent; none before three steps of each kind.
    pub fn overhead_percent(&self) -> Option<f64> {
        let median = |seconds: &[f64]| {
            let mut sorted = seconds.to_vec();
            sorted.sort_by(f64::total_cmp);
            (sorted.len() >= 3).then(|| (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0)
        };
        let (with, without) = (median(&self.recorded)?, median(&self.unrecorded)?);
        (without > 0.0).then(|| 100.0 * (with / without - 1.0))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Off,
    Kept,
    Forgotten,
}

#[derive(Debug)]
pub struct Recording {
    wanted: RangeInclusive<u64>,
    steps: Vec<StepSpan>,
    parts: Vec<PartSpan>,
    /// Here while no step is recorded, with the device while one is.
    recorder: Option<Recorder>,
    mode: Mode,
    begun: (Duration, usize, usize),
    turns: Turns,
    /// Wall clock, in nanoseconds since 1970, at the zero of the device's clock.
    pub base_unix_nanos: u64,
}

impl Recording {
    /// Keeps the steps `wanted`, counted from 1, of a run whose steps take `calls_a_step` calls.
    pub fn of_steps(wanted: RangeInclusive<u64>, calls_a_step: usize, accumulation: usize) -> Recording {
        // One step more than is kept, for those that are forgotten.
        let steps = (wanted.end() + 1).saturating_sub(*wanted.start()) as usize + 1;
        Recording {
            wanted,
            steps: Vec::with_capacity(steps),
            parts: Vec::with_capacity(steps * (5 * accumulation + 1)),
            recorder: Some(Recorder::with_room_for(steps * calls_a_step)),
            mode: Mode::Off,
            begun: (Duration::ZERO, 0, 0),
            turns: Turns::default(),
            base_unix_nanos: 0,
        }
    }

    pub fn steps(&self) -> &[StepSpan] {
        &self.steps
    }

    pub fn parts(&self, step: &StepSpan) -> &[PartSpan] {
        &self.parts[step.parts.clone()]
    }

    pub fn calls(&self, step: &StepSpan) -> &[CallSpan] {
        self.recorder.as_ref().map_or(&[], |recorder| recorder.spans(step.calls.clone()))
    }

    pub fn turns(&self) -> &Turns {
        &self.turns
    }

    pub fn keeps(&self, step: u64) -> bool {
        self.wanted.contains(&step)
    }

    /// To be called before a step: lends the device its recorder where the step is to be recorded.
    pub fn begin(&mut self, step: u64, device: &mut dyn Device) {
        let after = step.saturating_sub(*self.wanted.end());
        self.mode = if self.keeps(step) {
            Mode::Kept
        } else if after > 0 && after.is_multiple_of(2) {
            Mode::Forgotten
        } else {
            Mode::Off
        };
        if self.mode == Mode::Off {
            return;
        }
        if self.steps.is_empty() {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.base_unix_nanos = now.saturating_sub(device.clock()).as_nanos() as u64;
        }
        let calls = self.recorder.as_ref().map_or(0, Recorder::len);
        device.record(self.recorder.take());
        self.begun = (device.clock(), self.parts.len(), calls);
    }

    pub(crate) fn mark(&mut self, part: Part, start: Duration, end: Duration) {
        if self.mode != Mode::Off {
            self.parts.push(PartSpan { part, start, end });
        }
    }

    /// To be called after a step, whether it succeeded or not; one that failed is forgotten.
    pub fn end(&mut self, step: u64, taken: Option<Duration>, device: &mut dyn Device) {
        let mode = std::mem::replace(&mut self.mode, Mode::Off);
        let (start, parts, calls) = self.begun;
        if mode != Mode::Off {
            let end = device.clock();
            self.recorder = device.record(None);
            let (last_part, last_call) = (self.parts.len(), self.recorder.as_ref().map_or(0, Recorder::len));
            if mode == Mode::Kept && taken.is_some() {
                self.steps.push(StepSpan { step, start, end, parts: parts..last_part, calls: calls..last_call });
            } else {
                self.parts.truncate(parts);
                self.recorder.iter_mut().for_each(|recorder| recorder.truncate(calls));
            }
        }
        let Some(taken) = taken else { return };
        match mode {
            Mode::Forgotten => self.turns.recorded.push(taken.as_secs_f64()),
            Mode::Off if step > *self.wanted.end() => self.turns.unrecorded.push(taken.as_secs_f64()),
            _ => {}
        }
    }
}

/// Calls that one optimizer step runs: forward and backward once a micro-batch, then the update.
pub fn calls_a_step(program: &Program, accumulation: usize) -> usize {
    let of = |phase: Phase| program.plan.phase(phase).len();
    (of(Phase::Forward) + of(Phase::Backward)) * accumulation + of(Phase::Optimizer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overhead_is_the_difference_of_the_medians() {
        let turns = Turns { recorded: vec![1.02, 1.03, 9.0], unrecorded: vec![1.0, 1.0, 5.0] };
        assert!((turns.overhead_percent().unwrap() - 3.0).abs() < 1e-9);
        assert_eq!(Turns { recorded: vec![1.0; 2], unrecorded: vec![1.0; 9] }.overhead_percent(), None);
    }
}
