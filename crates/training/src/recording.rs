//! Records chosen steps: when they, their parts and their calls began and ended.
//!
//! After the steps that are kept, every other step is recorded and discarded: the difference between recorded and
//! unrecorded steps, in alternation, is the overhead of recording.

use headroom_engine::recorder::{Activity, CallSpan, Recorder, Timing};
use headroom_engine::{Device, Program};
use headroom_graph::Phase;
use headroom_record::statistics::{ratio_of_medians, step_statistics};
use std::ops::{Range, RangeInclusive};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A part of a step as the host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// Waiting for the next batch.
    DataWait,
    /// Copying the batch to the device.
    Inputs,
    Forward,
    /// Reading the loss back.
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

/// A recorded step; its parts and calls are ranges into the recording's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepSpan {
    pub step: u64,
    pub start: Duration,
    pub end: Duration,
    parts: Range<usize>,
    calls: Range<usize>,
}

/// Seconds of recorded and of unrecorded steps, taken alternately.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turns {
    pub recorded: Vec<f64>,
    pub unrecorded: Vec<f64>,
}

impl Turns {
    /// Overhead of recording on the median step, in percent; `None` with fewer than three steps of each kind.
    pub fn overhead_percent(&self) -> Option<f64> {
        let median = |seconds: &[f64]| step_statistics(seconds).median.filter(|_| seconds.len() >= 3);
        let (with, without) = (median(&self.recorded)?, median(&self.unrecorded)?);
        (without > 0.0).then(|| 100.0 * (with / without - 1.0))
    }

    /// The 95% confidence interval of the overhead; `None` with fewer than six steps of each kind.
    pub fn overhead_interval(&self) -> Option<(f64, f64)> {
        let percent = ratio_of_medians(&self.recorded, &self.unrecorded)?.map(|ratio| 100.0 * (ratio - 1.0));
        Some((percent.low, percent.high))
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
    /// By call.
    phases: Vec<Phase>,
    /// Whether the device works ahead of the host, so that a step's time is known only later.
    queued: bool,
    steps: Vec<StepSpan>,
    parts: Vec<PartSpan>,
    /// Held here while no step is recorded, and by the device while one is.
    recorder: Option<Recorder>,
    mode: Mode,
    begun: (Duration, usize, usize),
    turns: Turns,
    /// Wall clock, in nanoseconds since 1970, when the device's clock was zero.
    pub base_unix_nanos: u64,
}

impl Recording {
    /// Keeps the steps `wanted`, counted from 1, of a run of `program` with this many micro-batches per step.
    pub fn of_steps(wanted: RangeInclusive<u64>, program: &Program, accumulation: usize) -> Recording {
        // Room for one step more than is kept, for the recorded steps that are discarded.
        let steps = (wanted.end() + 1).saturating_sub(*wanted.start()) as usize + 1;
        Recording {
            wanted,
            phases: program.plan.calls.iter().map(|call| call.phase).collect(),
            queued: false,
            steps: Vec::with_capacity(steps),
            parts: Vec::with_capacity(steps * (5 * accumulation + 1)),
            recorder: Some(Recorder::with_room_for(steps * calls_per_step(program, accumulation))),
            mode: Mode::Off,
            begun: (Duration::ZERO, 0, 0),
            turns: Turns::default(),
            base_unix_nanos: 0,
        }
    }

    /// One step that a GPU took by itself: when it began, when its batch had arrived, when it was done.
    #[cfg(test)]
    pub(crate) fn of_one_step(
        program: &Program,
        recorder: Recorder,
        (start, fetched, end): (Duration, Duration, Duration),
    ) -> Recording {
        let calls = 0..recorder.len();
        let mut recording = Recording::of_steps(1..=1, program, 1);
        recording.recorder = Some(recorder);
        recording.parts.push(PartSpan { part: Part::DataWait, start, end: fetched });
        recording.phases_of_device(0, 0, start, end);
        recording.steps.push(StepSpan { step: 1, start, end, parts: 0..recording.parts.len(), calls });
        recording
    }

    pub fn steps(&self) -> &[StepSpan] {
        &self.steps
    }

    /// Keeps only the step of median length (the shorter of the middle two). The figures of one step add up; means and
    /// medians over several do not.
    pub fn keep_median_step(&mut self) {
        self.steps.sort_by_key(|step| step.end.saturating_sub(step.start));
        let middle = self.steps.len().saturating_sub(1) / 2;
        self.steps = self.steps.drain(..).skip(middle).take(1).collect();
    }

    pub fn parts(&self, step: &StepSpan) -> &[PartSpan] {
        &self.parts[step.parts.clone()]
    }

    pub fn calls(&self, step: &StepSpan) -> &[CallSpan] {
        self.recorder.as_ref().map_or(&[], |recorder| recorder.spans(step.calls.clone()))
    }

    /// GPU activities of a step, in order of start; empty on other devices.
    pub fn activities(&self, step: &StepSpan) -> impl Iterator<Item = &Activity> {
        let (start, end) = (step.start, step.end);
        self.recorder.iter().flat_map(move |recorder| recorder.activities_between(start, end))
    }

    pub fn timing(&self) -> Timing {
        self.recorder.as_ref().map_or(Timing::HostClock, Recorder::timing)
    }

    pub fn turns(&self) -> &Turns {
        &self.turns
    }

    pub fn keeps(&self, step: u64) -> bool {
        self.wanted.contains(&step)
    }

    /// Whether the host waits for this step, on a device that works ahead, so that its time does not overlap with its
    /// neighbours'. True also for the last step before recording begins, so that nothing is in flight then.
    pub fn waits_for(&self, step: u64) -> bool {
        (step..=step + WARMED + 1).any(|step| self.keeps(step)) || self.turn(step).is_some()
    }

    /// After the recorded steps: whether this one is recorded and discarded, or not recorded, in alternation. On a
    /// device that works ahead a turn lasts several steps, and there is a limited number of turns.
    fn turn(&self, step: u64) -> Option<Mode> {
        let after = step.checked_sub(*self.wanted.end()).filter(|after| *after > 0)?;
        let turn = if self.queued { after.div_ceil(QUEUED_TURN) } else { after };
        let is_over = self.queued && turn > QUEUED_TURNS;
        (!is_over).then_some(if turn.is_multiple_of(2) { Mode::Forgotten } else { Mode::Off })
    }

    /// Whether the step comes right before the recorded ones on a device that works ahead. Such steps are recorded too,
    /// so that the recorder is already set up.
    fn warms(&self, step: u64) -> bool {
        self.queued && (step + 1..=step + WARMED).any(|step| self.keeps(step))
    }

    /// Takes the time of a step as soon as it is known. Drops the first step of a longer turn, which still pays for the
    /// switch.
    pub(crate) fn took(&mut self, step: u64, seconds: f64) {
        let after = step.saturating_sub(*self.wanted.end());
        if self.queued && after % QUEUED_TURN == 1 {
            return;
        }
        match self.turn(step) {
            Some(Mode::Forgotten) => self.turns.recorded.push(seconds),
            Some(_) => self.turns.unrecorded.push(seconds),
            None => {}
        }
    }

    /// Call before a step: lends the device its recorder if the step is to be recorded.
    pub fn begin(&mut self, step: u64, device: &mut dyn Device) {
        self.queued = device.works_ahead();
        self.mode = match self.turn(step) {
            _ if self.keeps(step) => Mode::Kept,
            _ if self.warms(step) => Mode::Forgotten,
            turn => turn.unwrap_or(Mode::Off),
        };
        if self.mode == Mode::Off {
            return;
        }
        if self.steps.is_empty() {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.base_unix_nanos = now.saturating_sub(device.clock()).as_nanos() as u64;
        }
        let calls = self.recorder.as_ref().map_or(0, Recorder::len);
        device.set_recorder(self.recorder.take());
        self.begun = (device.clock(), self.parts.len(), calls);
    }

    pub(crate) fn mark(&mut self, part: Part, start: Duration, end: Duration) {
        if self.mode != Mode::Off {
            self.parts.push(PartSpan { part, start, end });
        }
    }

    /// Call after a step, whether it succeeded or not; a failed step is discarded.
    pub fn end(&mut self, step: u64, whole: bool, device: &mut dyn Device) {
        let mode = std::mem::replace(&mut self.mode, Mode::Off);
        let (start, parts, calls) = self.begun;
        if mode != Mode::Off {
            device.wait();
            let end = device.clock();
            self.recorder = device.set_recorder(None);
            if matches!(self.timing(), Timing::Kernels | Timing::ReplayedKernels) {
                self.phases_of_device(parts, calls, start, end);
            }
            let (last_part, last_call) = (self.parts.len(), self.recorder.as_ref().map_or(0, Recorder::len));
            if mode == Mode::Kept && whole {
                self.steps.push(StepSpan { step, start, end, parts: parts..last_part, calls: calls..last_call });
            } else {
                self.parts.truncate(parts);
                self.recorder.iter_mut().for_each(|recorder| recorder.truncate(calls, start));
            }
        }
    }

    /// The parts of a step that the device ran by itself, from the times of its calls.
    fn phases_of_device(&mut self, first_part: usize, first_call: usize, start: Duration, end: Duration) {
        // Later batches are fetched while the device works, so nothing waits for them.
        self.parts.truncate((first_part + 1).min(self.parts.len()));
        let waited_until = self.parts.get(first_part).map_or(start, |part| part.end);
        let Some(recorder) = &self.recorder else { return };
        let spans = recorder.spans(first_call..recorder.len());
        self.parts.extend(parts_of_calls(spans, &self.phases, waited_until, end));
    }
}

/// Number of turns on a device that works ahead, and steps per turn. The host waits for each of these steps to measure
/// the cost of recording.
const QUEUED_TURNS: u64 = 4;
const QUEUED_TURN: u64 = 4;

/// Warm-up steps: taken as if recorded, before the first recorded step, on a device that works ahead.
const WARMED: u64 = 2;

/// The parts of a step from the times of its calls: inputs until the first call begins, each phase until the first call
/// of the next, and reading the results after the last.
fn parts_of_calls(spans: &[CallSpan], phases: &[Phase], from: Duration, to: Duration) -> Vec<PartSpan> {
    let part = |span: &CallSpan| match phases.get(span.call as usize) {
        Some(Phase::Backward) => Part::Backward,
        Some(Phase::Optimizer) => Part::Optimizer,
        _ => Part::Forward,
    };
    let Some(first) = spans.first() else { return vec![] };
    let mut parts = vec![PartSpan { part: Part::Inputs, start: from.min(first.start), end: first.start }];
    for run in spans.chunk_by(|left, right| part(left) == part(right)) {
        let start = run[0].start;
        if let Some(before) = parts.last_mut() {
            before.end = start;
        }
        let end = run.iter().map(|span| span.end).max().unwrap_or(start);
        parts.push(PartSpan { part: part(&run[0]), start, end });
    }
    let end = parts.last().map_or(from, |last| last.end);
    parts.push(PartSpan { part: Part::LossRead, start: end, end: to.max(end) });
    parts
}

/// Calls in one optimizer step: forward and backward once per micro-batch, then the update.
pub fn calls_per_step(program: &Program, accumulation: usize) -> usize {
    let of = |phase: Phase| program.plan.phase(phase).len();
    (of(Phase::Forward) + of(Phase::Backward)) * accumulation + of(Phase::Optimizer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headroom_graph::Graph;

    #[test]
    fn a_device_that_works_ahead_takes_turns_of_several_steps_and_then_goes_on_alone() {
        let mut recording = Recording::of_steps(5..=6, &Program::new(Graph::new()), 1);
        recording.queued = true;
        assert_eq!((1..5).map(|step| recording.warms(step)).collect::<Vec<_>>(), [false, false, true, true]);
        let turns: Vec<bool> = (7..23).map(|step| recording.turn(step) == Some(Mode::Forgotten)).collect();
        assert_eq!(turns, [[false; 4], [true; 4], [false; 4], [true; 4]].concat());
        assert_eq!((recording.turn(23), recording.waits_for(22), recording.waits_for(23)), (None, true, false));
        assert_eq!([1, 2, 3].map(|step| recording.waits_for(step)), [false, true, true], "two are warmed, one before");
        (1..=40).for_each(|step| recording.took(step, 1.0));
        assert_eq!((recording.turns.recorded.len(), recording.turns.unrecorded.len()), (6, 6));
    }

    #[test]
    fn calls_of_a_device_give_the_parts_of_its_step() {
        let nanos = Duration::from_nanos;
        let span = |call, start, end| CallSpan { program: 0, call, start: nanos(start), end: nanos(end) };
        let phases = [Phase::Forward, Phase::Forward, Phase::Backward, Phase::Optimizer];
        let spans = [span(0, 20, 30), span(1, 31, 40), span(2, 45, 60), span(3, 62, 70)];
        let parts = parts_of_calls(&spans, &phases, nanos(5), nanos(90));
        let shown: Vec<_> = parts.iter().map(|part| (part.part, part.start.as_nanos(), part.end.as_nanos())).collect();
        assert_eq!(
            shown,
            [
                (Part::Inputs, 5, 20),
                (Part::Forward, 20, 45),
                (Part::Backward, 45, 62),
                (Part::Optimizer, 62, 70),
                (Part::LossRead, 70, 90)
            ]
        );
        assert_eq!(parts_of_calls(&[], &phases, nanos(5), nanos(90)), []);
    }

    #[test]
    fn overhead_is_the_difference_of_the_medians() {
        let turns = Turns { recorded: vec![1.02, 1.03, 9.0], unrecorded: vec![1.0, 1.0, 5.0] };
        assert!((turns.overhead_percent().unwrap() - 3.0).abs() < 1e-9);
        assert_eq!(Turns { recorded: vec![1.0; 2], unrecorded: vec![1.0; 9] }.overhead_percent(), None);
    }

    #[test]
    fn overhead_within_the_noise_has_an_interval_around_zero() {
        let noisy = |shift: f64| (0..12).map(|at| 1.0 + shift + 0.05 * f64::from(at % 4)).collect::<Vec<f64>>();
        let (low, high) = Turns { recorded: noisy(0.01), unrecorded: noisy(0.0) }.overhead_interval().unwrap();
        assert!(low < 0.0 && high > 0.0 && high < 20.0, "{low} to {high}");
        let (low, _) = Turns { recorded: noisy(0.5), unrecorded: noisy(0.0) }.overhead_interval().unwrap();
        assert!(low > 20.0, "{low}");
        assert_eq!(Turns { recorded: vec![1.0; 5], unrecorded: vec![1.0; 9] }.overhead_interval(), None);
    }

    #[test]
    fn the_median_step_is_one_of_the_recorded_ones() {
        let nanos = Duration::from_nanos;
        let mut recording = Recording::of_steps(1..=3, &Program::new(Graph::new()), 1);
        for (step, length) in [(1, 30), (2, 10), (3, 20)] {
            recording.steps.push(StepSpan { step, start: nanos(5), end: nanos(5 + length), parts: 0..0, calls: 0..0 });
        }
        recording.keep_median_step();
        assert_eq!(recording.steps().iter().map(|step| step.step).collect::<Vec<_>>(), [3]);
    }
}
