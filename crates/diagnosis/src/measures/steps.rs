//! Finds the steps of a run: by the profiler's marks, otherwise a framework's annotations, the optimizer's spans, the
//! period of the work, or the whole trace as one step. A first step that is a cold start is left out.

mod windows;

use headroom_trace::{NONE, Trace, TrackId};
use serde::Serialize;

use super::cold::Cold;
use super::intervals::Span;
use crate::constants::cold::COLD_SHARE;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Steps {
    pub found_by: FoundBy,
    pub measured_on: MeasuredOn,
    pub list: Vec<Step>,
    /// Names of the first steps left out as a cold start.
    pub left_out: Vec<String>,
    /// When the host launched each step's work: the steps themselves, unless they are measured on the device.
    #[serde(skip)]
    pub ordered: Vec<Span>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Step {
    pub name: String,
    #[serde(skip)]
    pub span: Span,
    pub seconds: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FoundBy {
    ProfilerMarks,
    /// Annotations of a framework, around each step.
    Annotations,
    OptimizerSpans,
    Period,
    #[default]
    WholeTrace,
}

/// The clock that separates the steps. If the host runs ahead, its marks show when work was launched, not when it was
/// done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MeasuredOn {
    #[default]
    Host,
    Device,
}

impl Steps {
    pub fn wall_nanos(&self) -> i64 {
        self.list.iter().map(|step| step.span.nanos()).sum()
    }

    pub fn count(&self) -> f64 {
        self.list.len().max(1) as f64
    }

    /// From the first step's start to the last one's end.
    pub fn range(&self) -> Span {
        match (self.list.first(), self.list.last()) {
            (Some(first), Some(last)) => Span { start: first.span.start, end: last.span.end },
            _ => Span { start: 0, end: 0 },
        }
    }

    /// The step at a time of the device, if any.
    pub fn at(&self, time: i64) -> Option<usize> {
        let next = self.list.partition_point(|step| step.span.start <= time);
        next.checked_sub(1).filter(|&index| time < self.list[index].span.end)
    }

    /// The host's time range of all steps.
    pub fn host_range(&self) -> Span {
        self.host_range_of_first(self.ordered.len())
    }

    /// The same for the first `count` steps.
    pub fn host_range_of_first(&self, count: usize) -> Span {
        let steps = &self.ordered[..count.min(self.ordered.len())];
        match (steps.first(), steps.last()) {
            (Some(first), Some(last)) => Span { start: first.start, end: last.end },
            _ => Span { start: 0, end: 0 },
        }
    }

    /// The step that the host was executing.
    pub fn at_host(&self, time: i64) -> Option<usize> {
        let next = self.ordered.partition_point(|span| span.start <= time);
        next.checked_sub(1).filter(|&index| time < self.ordered[index].end)
    }

    /// Nanoseconds as a share of all steps.
    pub fn share(&self, nanos: i64) -> f64 {
        nanos as f64 / self.wall_nanos().max(1) as f64
    }

    pub fn seconds_per_step(&self, nanos: i64) -> f64 {
        nanos as f64 / 1e9 / self.count()
    }
}

/// Inputs for finding the steps, besides the trace.
pub struct Found<'v> {
    pub call_of: &'v [u32],
    pub parent: &'v [u32],
    pub busy: &'v [Span],
    pub cold: &'v Cold,
    /// For a replayed trace: the clock of its steps when it was recorded.
    pub recorded_on: Option<MeasuredOn>,
}

/// Torch's annotation around the fetch of one batch.
pub fn is_fetch(name: &str) -> bool {
    name.starts_with("enumerate(DataLoader)#")
}

pub fn find_steps(trace: &Trace, found: &Found) -> Steps {
    let (found_by, mut windows) = windows::host_windows(trace, found.call_of, found.parent, found.busy);
    let left_out = leave_out_cold(&mut windows, found.cold);
    if found_by == FoundBy::OptimizerSpans && left_out.is_empty() {
        windows::drop_overlong(&mut windows);
    }
    let ordered = windows.iter().map(|step| step.span).collect();
    let mut steps = Steps { found_by, measured_on: MeasuredOn::Host, list: windows, left_out, ordered };
    if found_by != FoundBy::WholeTrace
        && let Some(on_device) = device_windows(trace, found.call_of, &steps.list, found.recorded_on)
    {
        steps.measured_on = MeasuredOn::Device;
        steps.list = on_device;
    }
    steps
}

/// Removes first steps that spend much more time on setup than those after them.
fn leave_out_cold(steps: &mut Vec<Step>, cold: &Cold) -> Vec<String> {
    let share = |steps: &[Step]| {
        let nanos: i64 = steps.iter().map(|step| cold.nanos_in(step.span)).sum();
        nanos as f64 / steps.iter().map(|step| step.span.nanos()).sum::<i64>().max(1) as f64
    };
    let is_cold =
        |steps: &[Step]| share(&steps[..1]) >= COLD_SHARE.get() && share(&steps[1..]) * 2.0 < share(&steps[..1]);
    let mut left_out = Vec::new();
    while steps.len() > 1 && is_cold(steps) {
        left_out.push(steps.remove(0).name);
    }
    left_out
}

fn step(name: String, span: Span) -> Step {
    Step { name, span, seconds: span.nanos() as f64 / 1e9 }
}

/// The steps as the device saw them, if the host runs ahead: from the first work that a step launched to the first of
/// the next, on the stream with the most work. Copies on other streams may run a step ahead.
fn device_windows(
    trace: &Trace,
    call_of: &[u32],
    steps: &[Step],
    recorded_on: Option<MeasuredOn>,
) -> Option<Vec<Step>> {
    let device = &trace.device;
    let mut bounds: Vec<Span> = vec![Span { start: i64::MAX, end: i64::MIN }; steps.len()];
    let main = busiest_lane(trace)?;
    for at in device.busy().filter(|&at| call_of[at] != NONE && device.track[at] == main) {
        let ordered = trace.host.start[call_of[at] as usize];
        let index = steps.partition_point(|step| step.span.start <= ordered);
        if let Some(index) = index.checked_sub(1).filter(|&index| ordered < steps[index].span.end) {
            bounds[index].start = bounds[index].start.min(device.start[at]);
            bounds[index].end = bounds[index].end.max(device.end(at));
        }
    }
    if bounds.iter().any(|bound| bound.start > bound.end) {
        return None; // a step without work on a device
    }
    // Its work ends after the mark, or work launched before the mark still runs at its start.
    let before = work_before(trace, call_of, steps, &bounds, main);
    let late = |index: usize| {
        let (bound, step) = (bounds[index], &steps[index]);
        let over = (bound.end - step.span.end).max(before[index] - step.span.start);
        over > step.span.nanos() / 20
    };
    let runs_ahead = (0..steps.len()).filter(|&index| late(index)).count() * 2 > steps.len();
    // The last step's pause before the next one's work is not in its window. If pauses are long, steps recorded by the
    // host's marks are also replayed by them.
    let pauses = |pair: &&[Span]| pair[1].start - pair[0].end > (pair[1].start - pair[0].start) / 10;
    let pauses = bounds.windows(2).filter(pauses).count() * 2 > bounds.len().saturating_sub(1);
    if !runs_ahead || (pauses && recorded_on == Some(MeasuredOn::Host)) {
        return None;
    }
    let starts: Vec<i64> = bounds.iter().map(|bound| bound.start).collect();
    let last_end = bounds.iter().map(|bound| bound.end).max()?;
    let ends = starts[1..].iter().copied().chain([last_end]);
    let spans = starts.iter().zip(ends).map(|(&start, end)| Span { start, end: end.max(start) });
    Some(steps.iter().zip(spans).map(|(of, span)| step(of.name.clone(), span)).collect())
}

/// When the work on a stream that was launched before each step, or before recording began, ends.
fn work_before(trace: &Trace, call_of: &[u32], steps: &[Step], own: &[Span], track: TrackId) -> Vec<i64> {
    let device = &trace.device;
    let mut ends: Vec<i64> = steps.iter().map(|step| step.span.start).collect();
    for at in device.busy().filter(|&at| device.track[at] == track) {
        // The step that it extends into.
        let next = steps.partition_point(|step| step.span.start < device.end(at));
        let Some(index) = next.checked_sub(1) else { continue };
        let ordered = match call_of[at] {
            // Not launched in the file, and before everything that the step itself launched.
            NONE if device.start[at] < own[index].start => i64::MIN,
            NONE => continue,
            call => trace.host.start[call as usize],
        };
        if ordered < steps[index].span.start {
            ends[index] = ends[index].max(device.end(at));
        }
    }
    ends
}

fn busiest_lane(trace: &Trace) -> Option<TrackId> {
    let device = &trace.device;
    let mut nanos = vec![0i64; trace.tracks.len()];
    device.busy().for_each(|at| nanos[device.track[at].0 as usize] += device.duration[at]);
    let busiest = (0..nanos.len()).max_by_key(|&track| (nanos[track], std::cmp::Reverse(track)))?;
    (nanos[busiest] > 0).then_some(TrackId(busiest as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};
    use crate::measures::view::View;

    #[test]
    fn played_steps_with_pauses_between_them_are_cut_by_the_marks_that_they_were_recorded_by() {
        let mut made = Fabricated::on("NVIDIA H200");
        for step in 0..3i64 {
            let start = step * 10_000 * MICRO;
            made.step(step as u32 + 1, start, start + 10_000 * MICRO);
            // Launched at the end of the step, done 2 ms after it; then the device is idle until the next launch.
            let call = start + 9_000 * MICRO;
            made.launch((call, call + 10 * MICRO), "k", (call + 20 * MICRO, call + 3_000 * MICRO));
        }
        let trace = made.trace();
        let on = |view: View| (view.steps.measured_on, view.steps.wall_nanos());
        // The last step ends with its work, 7 ms too early.
        assert_eq!(on(View::new(&trace)), (MeasuredOn::Device, 22_980 * MICRO));
        assert_eq!(on(View::played(&trace, MeasuredOn::Device)).0, MeasuredOn::Device);
        assert_eq!(on(View::played(&trace, MeasuredOn::Host)), (MeasuredOn::Host, 30_000 * MICRO));
    }
}
