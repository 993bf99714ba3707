//! Where the steps of a run are: by the profiler's marks, else the optimizer's spans, else the period of the work, else all
//! of the trace as one.

use std::collections::HashMap;

use headroom_trace::{Category, LaneId, NONE, NameId, Trace};
use serde::Serialize;

use super::intervals::Span;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Steps {
    pub found_by: FoundBy,
    pub measured_on: MeasuredOn,
    pub list: Vec<Step>,
    /// When the host ordered each step's work: the steps themselves, unless they are measured on the device.
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
    OptimizerSpans,
    Period,
    #[default]
    WholeTrace,
}

/// Whose clock cuts the steps. Where the host runs ahead, its marks say when work was ordered, not when it was done.
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

    /// The step at a time of the device, if one is.
    pub fn at(&self, time: i64) -> Option<usize> {
        let next = self.list.partition_point(|step| step.span.start <= time);
        next.checked_sub(1).filter(|&index| time < self.list[index].span.end)
    }

    /// From the first to the last moment at which the host was at the steps.
    pub fn host_range(&self) -> Span {
        match (self.ordered.first(), self.ordered.last()) {
            (Some(first), Some(last)) => Span { start: first.start, end: last.end },
            _ => Span { start: 0, end: 0 },
        }
    }

    /// The step that the host was at.
    pub fn at_host(&self, time: i64) -> Option<usize> {
        let next = self.ordered.partition_point(|span| span.start <= time);
        next.checked_sub(1).filter(|&index| time < self.ordered[index].end)
    }

    /// As a share of all steps.
    pub fn share(&self, nanos: i64) -> f64 {
        nanos as f64 / self.wall_nanos().max(1) as f64
    }

    pub fn seconds_a_step(&self, nanos: i64) -> f64 {
        nanos as f64 / 1e9 / self.count()
    }
}

pub fn find_steps(trace: &Trace, call_of: &[u32], busy: &[Span]) -> Steps {
    let (found_by, windows) = host_windows(trace, busy);
    let ordered = windows.iter().map(|step| step.span).collect();
    let mut steps = Steps { found_by, measured_on: MeasuredOn::Host, list: windows, ordered };
    if found_by != FoundBy::WholeTrace
        && let Some(on_device) = device_windows(trace, call_of, &steps.list)
    {
        steps.measured_on = MeasuredOn::Device;
        steps.list = on_device;
    }
    steps
}

fn step(name: String, span: Span) -> Step {
    Step { name, span, seconds: span.nanos() as f64 / 1e9 }
}

fn host_windows(trace: &Trace, busy: &[Span]) -> (FoundBy, Vec<Step>) {
    let host = &trace.host;
    let of = |at: usize| Span { start: host.start[at], end: host.end(at) };
    let named = |wanted: &dyn Fn(&str) -> bool| -> Vec<usize> {
        let matches: Vec<bool> = trace.names.iter().map(|(_, name)| wanted(name)).collect();
        (0..host.len()).filter(|&at| matches[host.name[at].index()]).collect()
    };
    let mut marks: Vec<usize> = named(&|name| name.starts_with("ProfilerStep"));
    marks.retain(|&at| host.category[at] == Category::UserAnnotation);
    marks.sort_by_key(|&at| host.start[at]);
    // The last mark of some traces is there to be dropped: nothing happens in it.
    let works = |&at: &usize| {
        let span = of(at);
        (0..host.len()).any(|other| {
            matches!(host.category[other], Category::CpuOp | Category::Runtime)
                && host.start[other] >= span.start
                && host.start[other] < span.end
        })
    };
    if marks.len() > 1 && marks.last().is_some_and(|last| !works(last)) {
        marks.pop();
    }
    if !marks.is_empty() {
        let list = marks.iter().map(|&at| step(trace.name(host.name[at]).to_string(), of(at))).collect();
        return (FoundBy::ProfilerMarks, list);
    }
    let whole = whole_trace(trace, busy);
    let mut optimizers = named(&|name| name.starts_with("Optimizer.step#"));
    optimizers.retain(|&at| host.category[at] == Category::UserAnnotation);
    if optimizers.is_empty() {
        optimizers = named(&|name| name.contains("torch/optim/") && name.ends_with(": step"));
    }
    if let Some(ends) = ends_of_the_commonest(trace, &optimizers) {
        return (FoundBy::OptimizerSpans, between(&ends, whole.start));
    }
    if let Some(starts) = period(trace) {
        let list = starts.windows(2).enumerate();
        let list = list.map(|(at, pair)| step(format!("step {at}"), Span { start: pair[0], end: pair[1] })).collect();
        return (FoundBy::Period, list);
    }
    (FoundBy::WholeTrace, vec![step("whole trace".into(), whole)])
}

fn whole_trace(trace: &Trace, busy: &[Span]) -> Span {
    let host = &trace.host;
    let working = (0..host.len()).filter(|&at| !matches!(host.category[at], Category::Other | Category::Overhead));
    let mut span = Span { start: i64::MAX, end: i64::MIN };
    for at in working {
        span.start = span.start.min(host.start[at]);
        span.end = span.end.max(host.end(at));
    }
    if let (Some(first), Some(last)) = (busy.first(), busy.last()) {
        span.start = span.start.min(first.start);
        span.end = span.end.max(last.end);
    }
    if span.start > span.end { Span { start: 0, end: 0 } } else { span }
}

/// The ends of the spans with the name that comes most often, when there are at least two.
fn ends_of_the_commonest(trace: &Trace, spans: &[usize]) -> Option<Vec<i64>> {
    let host = &trace.host;
    let mut counts: HashMap<NameId, usize> = HashMap::new();
    spans.iter().for_each(|&at| *counts.entry(host.name[at]).or_default() += 1);
    let (commonest, _) = counts.into_iter().max_by_key(|&(name, count)| (count, name))?;
    let mut ends: Vec<i64> = spans.iter().filter(|&&at| host.name[at] == commonest).map(|&at| host.end(at)).collect();
    ends.sort_unstable();
    (ends.len() >= 2).then_some(ends)
}

/// A step ends with the optimizer. What lies before the first end is a step if it is about as long as one.
fn between(ends: &[i64], trace_start: i64) -> Vec<Step> {
    let mut lengths: Vec<i64> = ends.windows(2).map(|pair| pair[1] - pair[0]).collect();
    lengths.sort_unstable();
    let median = lengths[lengths.len() / 2];
    let first = ends[0] - trace_start;
    let mut bounds = ends.to_vec();
    if first * 2 > median && first < median * 2 {
        bounds.insert(0, trace_start);
    }
    let pairs = bounds.windows(2).enumerate();
    pairs.map(|(at, pair)| step(format!("step {at}"), Span { start: pair[0], end: pair[1] })).collect()
}

/// Times at which the same sequence of work begins again: kernels where there are any, operators otherwise.
fn period(trace: &Trace) -> Option<Vec<i64>> {
    let (device, host) = (&trace.device, &trace.host);
    let mut work: Vec<(i64, NameId)> = if device.is_empty() {
        let is_operator = |&at: &usize| host.category[at] == Category::CpuOp;
        (0..host.len()).filter(is_operator).map(|at| (host.start[at], host.name[at])).collect()
    } else {
        device.busy().map(|at| (device.start[at], device.name[at])).collect()
    };
    work.sort_unstable();
    let mut places: Vec<Vec<u32>> = vec![Vec::new(); trace.names.count()];
    for (index, (_, name)) in work.iter().enumerate() {
        places[name.index()].push(index as u32);
    }
    // The rarest name that comes at least three times marks the step, if it comes evenly and the rest with it.
    let mut candidates: Vec<&Vec<u32>> = places.iter().filter(|places| places.len() >= 3).collect();
    candidates.sort_by_key(|places| (places.len(), places[0]));
    candidates.iter().take(20).find_map(|places| {
        let period = (places[1] - places[0]) as usize;
        let even = places.windows(2).all(|pair| ((pair[1] - pair[0]) as usize).abs_diff(period) * 20 <= period);
        let compared = work.len().saturating_sub(period);
        let alike = (0..compared).filter(|&index| work[index].1 == work[index + period].1).count();
        (even && period >= 4 && alike * 10 >= compared * 8)
            .then(|| places.iter().map(|&index| work[index as usize].0).collect())
    })
}

/// The steps as the device saw them, when the host runs ahead of it: from the first work that a step ordered to the first of
/// the next, on the stream with the most work. Copies on other streams may run a step ahead.
fn device_windows(trace: &Trace, call_of: &[u32], steps: &[Step]) -> Option<Vec<Step>> {
    let device = &trace.device;
    let mut bounds: Vec<Span> = vec![Span { start: i64::MAX, end: i64::MIN }; steps.len()];
    let main = busiest_lane(trace)?;
    for at in device.busy().filter(|&at| call_of[at] != NONE && device.lane[at] == main) {
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
    let late = |(bound, step): (&Span, &Step)| bound.end - step.span.end > step.span.nanos() / 20;
    let runs_ahead = bounds.iter().zip(steps).filter(|&pair| late(pair)).count() * 2 > steps.len();
    if !runs_ahead {
        return None;
    }
    let starts: Vec<i64> = bounds.iter().map(|bound| bound.start).collect();
    let last_end = bounds.iter().map(|bound| bound.end).max()?;
    let ends = starts[1..].iter().copied().chain([last_end]);
    let spans = starts.iter().zip(ends).map(|(&start, end)| Span { start, end: end.max(start) });
    Some(steps.iter().zip(spans).map(|(of, span)| step(of.name.clone(), span)).collect())
}

fn busiest_lane(trace: &Trace) -> Option<LaneId> {
    let device = &trace.device;
    let mut nanos = vec![0i64; trace.lanes.len()];
    device.busy().for_each(|at| nanos[device.lane[at].0 as usize] += device.duration[at]);
    let busiest = (0..nanos.len()).max_by_key(|&lane| (nanos[lane], std::cmp::Reverse(lane)))?;
    (nanos[busiest] > 0).then_some(LaneId(busiest as u32))
}
