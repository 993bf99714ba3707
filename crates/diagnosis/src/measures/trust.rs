//! Whether a trace can be trusted: cut, damaged, lost work, impossible times, too much of the profiler in it.

use headroom_trace::{CallKind, Category, NONE};
use serde::Serialize;

use super::recorded::unrecorded_device;
use super::view::View;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Trust {
    pub verdict: Verdict,
    /// What is wrong, the worst first, in sentences.
    pub notes: Vec<String>,
    /// Share of the step that the profiler itself takes; see `overhead_from`.
    pub profiler_overhead_share: Option<f64>,
    pub overhead_from: Option<&'static str>,
    /// Figures that are withheld because the trace spoils them.
    pub withheld: Vec<&'static str>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    #[default]
    Sound,
    /// Figures hold with the reserve that the notes state.
    Limited,
    Broken,
}

/// What is known of the run without the profiler.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unprofiled {
    pub step_seconds: Option<f64>,
}

/// Assumed cost of recording on the host, in seconds. With shapes, stacks and FLOPs 4.6 µs an operator, runtime call or
/// allocation: fitted to three scripts that were timed with and without the profiler (4.5, 4.6 and 4.8 µs). Without FLOPs a
/// third of it, and 6 µs a Python function where stacks are recorded (built-in ones cost next to nothing): fitted to five
/// other scripts, of which the estimate misses one by half and the rest by a sixth or less.
const SECONDS_AN_EVENT_WITH_FLOPS: f64 = 4.6e-6;
const SECONDS_AN_EVENT: f64 = 1.6e-6;
const SECONDS_A_PYTHON_FUNCTION: f64 = 6e-6;
/// Above this share the profiler is said to be in the way.
const TOO_MUCH_PROFILER: f64 = 0.10;

pub fn trust(view: &View, unprofiled: Unprofiled) -> Trust {
    let mut trust = Trust::default();
    let reading = &view.trace.reading;
    if let Some(at) = reading.truncated_at_byte {
        trust.note(Verdict::Limited, format!("the file breaks off after {at} bytes: what comes after is missing"));
    }
    if reading.damaged_events > 0 {
        let events = reading.damaged_events;
        let verdict = if events * 100 > reading.events { Verdict::Broken } else { Verdict::Limited };
        trust.note(verdict, format!("{events} of {} events are damaged and left out", reading.events));
    }
    if reading.impossible_durations > 0 {
        let spans = reading.impossible_durations;
        trust.note(
            Verdict::Limited,
            format!("{spans} spans have impossible durations (a clock that wrapped) and are left out"),
        );
    }
    if !reading.foreign_categories.is_empty() {
        let categories = reading.foreign_categories.join(", ");
        trust.note(
            Verdict::Limited,
            format!("no span has a category of a profiler's (there are: {categories}): all are taken for operators of the host"),
        );
    }
    lost_work(view, &mut trust);
    graph_launches(view, &mut trust);
    no_steps(view, &mut trust);
    overhead(view, unprofiled, &mut trust);
    trust
}

impl Trust {
    fn note(&mut self, verdict: Verdict, text: String) {
        self.verdict = self.verdict.max(verdict);
        self.notes.push(text);
    }
}

/// Launches without their kernels, and kernels without their launches: the profiler's buffers overflowed.
fn lost_work(view: &View, trust: &mut Trust) {
    let (host, device) = (&view.trace.host, &view.trace.device);
    if !view.has_device_work() {
        let ordered = (0..host.len()).filter(|&at| view.call_kind(at) == Some(CallKind::Launch)).count();
        if ordered > 0 {
            trust.note(Verdict::Broken, format!("{ordered} kernels were launched and none was recorded on a device"));
            trust.withheld.push("breakdown");
        }
        if let Some(evidence) = unrecorded_device(view) {
            trust.note(
                Verdict::Limited,
                format!(
                    "no device was recorded: {evidence}; host times are not the device's, so neither MFU nor roofline is \
                     given (record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"
                ),
            );
            trust.withheld.extend(["mfu", "roofline"]);
        }
        return;
    }
    let arrived: std::collections::HashSet<u32> =
        device.busy().map(|at| view.call_of[at]).filter(|call| *call != NONE).collect();
    let launches: Vec<u32> =
        (0..host.len()).filter(|&at| view.call_kind(at) == Some(CallKind::Launch)).map(|at| at as u32).collect();
    let lost = launches.iter().filter(|call| !arrived.contains(call)).count();
    if lost * 50 > launches.len() {
        let share = 100.0 * lost as f64 / launches.len() as f64;
        trust.note(
            Verdict::Broken,
            format!("{share:.0}% of launches have no kernel: events were dropped, idle time is unreliable"),
        );
        trust.withheld.push("idle");
    }
    // Kernels that still ran when recording began were launched before it.
    let range = view.steps.range();
    let in_steps =
        |at: &usize| device.category[*at] == Category::Kernel && (range.start..range.end).contains(&device.start[*at]);
    let kernels = device.busy().filter(in_steps).count();
    let orphans = device.busy().filter(in_steps).filter(|&at| view.call_of[at] == NONE).count();
    if kernels > 0 && orphans * 10 > kernels && !launches.is_empty() {
        let share = 100.0 * orphans as f64 / kernels as f64;
        trust.note(Verdict::Limited, format!("{share:.0}% of kernels have no launch: their operators are unknown"));
    }
}

/// A graph's kernels have one launch between them; some profilers record the launch alone.
fn graph_launches(view: &View, trust: &mut Trust) {
    let host = &view.trace.host;
    let graphs: Vec<usize> = (0..host.len()).filter(|&at| view.call_kind(at) == Some(CallKind::GraphLaunch)).collect();
    let arrived: std::collections::HashSet<u32> = view.call_of.iter().copied().collect();
    let empty = graphs.iter().filter(|&&at| !arrived.contains(&(at as u32))).count();
    if empty > 0 {
        trust.note(
            Verdict::Broken,
            format!(
                "{empty} of {} graph launches show no kernel: most of the work may be inside them, unseen",
                graphs.len()
            ),
        );
        trust.withheld.push("idle");
    }
}

fn no_steps(view: &View, trust: &mut Trust) {
    if view.steps.wall_nanos() == 0 {
        let events = view.trace.reading.events;
        let spans = view.trace.host.len() + view.trace.device.len();
        let why = match (events, spans) {
            (0, _) => "the trace holds no event".to_string(),
            (_, 0) => format!("none of the trace's {events} events is a span of time"),
            _ => format!("the trace's {spans} spans take no time, or are the profiler's own"),
        };
        trust.note(Verdict::Broken, format!("{why}: nothing can be measured"));
    }
}

fn overhead(view: &View, unprofiled: Unprofiled, trust: &mut Trust) {
    let steps = &view.steps;
    let step_seconds = steps.seconds_a_step(steps.wall_nanos());
    if step_seconds <= 0.0 {
        return;
    }
    if let Some(without) = unprofiled.step_seconds {
        let share = (1.0 - without / step_seconds).max(0.0);
        trust.profiler_overhead_share = Some(share);
        trust.overhead_from = Some("measured");
        if share > TOO_MUCH_PROFILER {
            trust.note(
                Verdict::Limited,
                format!(
                    "the profiler takes {:.0}% of the step: {:.1} ms with it, {:.1} ms without",
                    100.0 * share,
                    1e3 * step_seconds,
                    1e3 * without
                ),
            );
        }
        return;
    }
    if view.trace.header.headroom.is_some() {
        return; // our own recorder states its overhead itself
    }
    let range = steps.host_range();
    let (header, host) = (&view.trace.header, &view.trace.host);
    let inside = |time: i64| (range.start..range.end).contains(&time);
    let is_built_in: Vec<bool> = view.trace.names.iter().map(|(_, name)| name.starts_with("<built-in")).collect();
    let (mut events, mut functions) = (view.trace.memory.time.iter().filter(|time| inside(**time)).count(), 0);
    for at in (0..host.len()).filter(|&at| inside(host.start[at])) {
        match host.category[at] {
            Category::CpuOp | Category::Runtime => events += 1,
            Category::PythonFunction if !is_built_in[host.name[at].index()] => functions += 1,
            _ => {}
        }
    }
    let (seconds, from) = match header.records_stacks && header.records_shapes && header.records_flops {
        true => (
            events as f64 * SECONDS_AN_EVENT_WITH_FLOPS,
            "assumed, 4.6 µs an operator, call or allocation recorded with shapes, stacks and FLOPs",
        ),
        false => (
            events as f64 * SECONDS_AN_EVENT + functions as f64 * SECONDS_A_PYTHON_FUNCTION,
            "assumed, 1.6 µs an operator, call or allocation and 6 µs a Python function",
        ),
    };
    let seconds = seconds / steps.count();
    let share = (seconds / step_seconds).min(0.9);
    trust.profiler_overhead_share = Some(share);
    trust.overhead_from = Some(from);
    // Where the device sets the pace, a slower host changes nothing.
    let busy: i64 = steps.list.iter().map(|step| super::intervals::covered(&view.busy, step.span)).sum();
    if share > TOO_MUCH_PROFILER && steps.share(busy) < 0.8 {
        let factor = 1.0 / (1.0 - share);
        trust.note(Verdict::Limited, format!(
            "{:.0} operators, calls and allocations and {:.0} Python functions a step were recorded: the profiler makes the \
             host's time {factor:.1}× what it is without ({from}), so host and launch times are too long (time some steps \
             without it to know)",
            events as f64 / steps.count(),
            functions as f64 / steps.count()
        ));
    }
}
