//! Whether a trace can be trusted: truncated, damaged, lost work, impossible times, too much profiler overhead.

use headroom_trace::{CallKind, Category, NONE};
use serde::Serialize;

use super::cold::captures;
use super::intervals::{Span, covered};
use super::launches::median;
use super::overhead::estimate;
use super::recorded::{tells_what_the_host_did, unrecorded_device};
use super::view::View;
use crate::constants::cold::COLD_SHARE;
use crate::constants::trust::{MOSTLY_COLD, TOO_MUCH_PROFILER};

#[derive(Clone, Debug, Default, Serialize)]
pub struct Trust {
    pub verdict: Verdict,
    /// Problems, the worst first, in sentences.
    pub notes: Vec<String>,
    /// Share of the step that the profiler itself takes; see `overhead_from`. If it is estimated, also its bounds.
    pub profiler_overhead_share: Option<f64>,
    pub profiler_overhead_low_share: Option<f64>,
    pub profiler_overhead_high_share: Option<f64>,
    pub overhead_from: Option<&'static str>,
    /// The highest usual cost of recording, which rules use; the bounds cover everything that was seen.
    #[serde(skip)]
    pub usual_overhead_most: Option<f64>,
    /// Share of the steps in which the device was idle during one-time setup on the host.
    pub cold_share: f64,
    /// Figures withheld because the trace distorts them.
    pub withheld: Vec<&'static str>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    #[default]
    Sound,
    /// Figures hold with the caveats in the notes.
    Limited,
    Broken,
}

/// Step time without the profiler, as far as known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unprofiled {
    pub step_seconds: Option<f64>,
    /// If unknown: the middle of an estimate and its two bounds.
    pub estimated_seconds: Option<[f64; 3]>,
}

pub fn trust(view: &View, unprofiled: Unprofiled) -> Trust {
    let mut trust = Trust::default();
    let reading = &view.trace.reading;
    if let Some(at) = reading.truncated_at_byte {
        trust.limited(format!("the file is cut off after {at} bytes: everything after that is missing"));
        // Profilers write the device's events after the host's.
        trust.withheld.push("idle");
    }
    if reading.damaged_events > 0 {
        let events = reading.damaged_events;
        let verdict = if events * 100 > reading.events { Verdict::Broken } else { Verdict::Limited };
        trust.note(verdict, format!("{events} of {} events are damaged and left out", reading.events));
    }
    if reading.impossible_durations > 0 {
        let spans = reading.impossible_durations;
        trust.limited(format!("{spans} spans have impossible durations (a clock that wrapped) and are left out"));
    }
    if !reading.foreign_categories.is_empty() {
        let categories = reading.foreign_categories.join(", ");
        trust.limited(format!(
            "no span has a profiler's category (found: {categories}): all are treated as host operators"
        ));
    }
    forms(view, &mut trust);
    lost_work(view, &mut trust);
    without_operators(view, &mut trust);
    sampled(view, &mut trust);
    cold_start(view, &mut trust);
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

    fn limited(&mut self, text: String) {
        self.note(Verdict::Limited, text);
    }

    fn broken(&mut self, text: String) {
        self.note(Verdict::Broken, text);
    }

    /// Reports the profiler's part of the recorded step, of which `without` seconds remain.
    pub fn taken_out(&mut self, without: f64, recorded: f64) {
        let share = (1.0 - without / recorded).max(0.0);
        self.profiler_overhead_share = Some(share);
        self.overhead_from = Some("measured");
        if share > TOO_MUCH_PROFILER.get() {
            self.notes.push(format!(
                "the profiler takes {:.0}% of the recorded step: {:.1} ms with it, {:.1} ms without",
                100.0 * share,
                1e3 * recorded,
                1e3 * without
            ));
        }
    }
}

/// Forms of spans that are not Kineto's: what they are, and what follows from it.
fn forms(view: &View, trust: &mut Trust) {
    let reading = &view.trace.reading;
    let (plain, nested) = (reading.uncategorised_spans, reading.nested_device_spans);
    if plain > 0 {
        trust.limited(format!(
                "spans without a category ({plain}), as PyTorch wrote them before Kineto: device work is told from operators \
                 by the names of processes"
            ),
        );
    }
    if nested > 0 {
        trust.limited(format!(
            "spans on the device inside others ({nested}): they are operators' times there, not kernels, so counts and \
                 sums of kernels hold some time twice"
        ));
    }
    if reading.begin_end_spans > 0 {
        let spans = reading.begin_end_spans;
        trust.notes.push(format!(
            "spans with one event for their begin and one for their end ({spans}): an end closes the last span that is \
             open on its thread"
        ));
    }
    if reading.async_events > 0 {
        let events = reading.async_events;
        trust.limited(format!(
            "asynchronous spans ({events} events), which no thread runs and which may overlap, are left out"
        ));
    }
}

/// Launches without kernels, and kernels without launches: the profiler's buffers overflowed.
fn lost_work(view: &View, trust: &mut Trust) {
    let (host, device) = (&view.trace.host, &view.trace.device);
    if !view.has_device_work() {
        let ordered = (0..host.len()).filter(|&at| view.call_kind(at) == Some(CallKind::Launch)).count();
        if ordered > 0 {
            trust.broken(format!("{ordered} kernels were launched, but no kernel was recorded on a device"));
            trust.withheld.push("breakdown");
        }
        if let Some(evidence) = unrecorded_device(view) {
            trust.limited(format!(
                "no device was recorded: {evidence}; host times are not device times, so MFU and roofline \
                     are not given (record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"
            ));
            trust.withheld.extend(["mfu", "roofline"]);
        }
        return;
    }
    let arrived = view.arrived();
    let captures = captures(view.trace);
    let is_captured = |at: usize| covered(&captures, Span { start: host.start[at], end: host.start[at] + 1 }) > 0;
    let launches: Vec<u32> = (0..host.len())
        .filter(|&at| view.call_kind(at) == Some(CallKind::Launch) && !is_captured(at))
        .map(|at| at as u32)
        .collect();
    // The last launched work may not have run yet when recording ended.
    let start_of = |call: u32| host.start[call as usize];
    let ordered = device.busy().map(|at| view.call_of[at]).filter(|call| *call != NONE);
    let last_arrived = ordered.map(start_of).max().unwrap_or(i64::MIN);
    let device_end = view.busy.last().map_or(i64::MIN, |span| span.end);
    let is_cut = |call: u32| start_of(call) > last_arrived && start_of(call) <= device_end;
    let lost = launches.iter().filter(|&&call| !arrived[call as usize] && !is_cut(call)).count();
    let cut = launches.iter().filter(|&&call| !arrived[call as usize] && is_cut(call)).count();
    if cut * 50 > launches.len() {
        trust.limited(format!(
            "recording ended before the work of the last {cut} launches had run, so that work is not in the file"
        ));
    }
    if lost * 50 > launches.len() {
        let share = 100.0 * lost as f64 / launches.len() as f64;
        trust
            .broken(format!("{share:.0}% of launches have no kernel: events were dropped, so idle time is unreliable"));
        trust.withheld.push("idle");
    }
    // Kernels still running when recording began were launched before it.
    let range = view.steps.range();
    let in_steps =
        |at: &usize| device.category[*at] == Category::Kernel && (range.start..range.end).contains(&device.start[*at]);
    let kernels = device.busy().filter(in_steps).count();
    let orphans = device.busy().filter(in_steps).filter(|&at| view.call_of[at] == NONE).count();
    if kernels > 0 && orphans * 10 > kernels && !launches.is_empty() {
        let share = 100.0 * orphans as f64 / kernels as f64;
        trust.limited(format!("{share:.0}% of kernels have no recorded launch: their operators are unknown"));
    }
}

/// Device events alone cannot be attributed to any operator.
fn without_operators(view: &View, trust: &mut Trust) {
    if view.has_device_work() && !tells_what_the_host_did(view) {
        trust.limited(
            "no host operators or functions were recorded: device time is given by kernel and kind only (record \
             with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"
                .into(),
        );
        trust.withheld.push("operators");
    }
}

/// Detects a trace with only some of its events kept: the consecutive numbers that the profiler assigns to operators
/// have gaps almost everywhere.
fn sampled(view: &View, trust: &mut Trust) {
    let host = &view.trace.host;
    let step_between = |category: Category| {
        let mut ids: Vec<u32> = (0..host.len())
            .filter(|&at| host.category[at] == category && host.id[at] != NONE)
            .map(|at| host.id[at])
            .collect();
        // Each thread is already sorted, and a stable sort merges such runs quickly.
        ids.sort();
        ids.dedup();
        let steps: Vec<i64> = ids.windows(2).map(|pair| i64::from(pair[1] - pair[0])).collect();
        let mean = steps.iter().sum::<i64>() as f64 / steps.len().max(1) as f64;
        (steps.len() >= 50).then(|| (median(steps), mean))
    };
    // The profiler omits some kinds of runtime calls, so their numbers may have gaps. It omits no operators.
    let Some((_, one_in)) = step_between(Category::CpuOp).filter(|(median, _)| *median >= 4.0) else { return };
    if step_between(Category::Runtime).is_some_and(|(median, _)| median < 16.0) {
        return;
    }
    trust.broken(format!(
        "only about one event in {one_in:.0} is in the file, judging by the operators' numbers: a sample \
             cannot show idle time, the overlap of collectives or the late rank"
    ));
    trust.withheld.extend(["idle", "communication"]);
}

/// Notes one-time work inside the window.
fn cold_start(view: &View, trust: &mut Trust) {
    let steps = &view.steps;
    if let Some(last) = steps.left_out.last() {
        let count = steps.left_out.len();
        let (text, are) = match count {
            1 => (format!("the first step ({last})"), "is"),
            _ => (format!("the first {count} steps (up to {last})"), "are"),
        };
        trust.notes.push(format!(
            "{text} held a cold start (code loading, libraries, allocation) and {are} left out of all figures"
        ));
    }
    trust.cold_share = steps.share(steps.list.iter().map(|step| view.cold.nanos_in(step.span)).sum());
    if trust.cold_share < COLD_SHARE.get() {
        return;
    }
    let windows: Vec<Span> = steps.list.iter().map(|step| step.span).collect();
    let longest = view.cold.longest(view.trace, &windows);
    let longest: Vec<String> =
        longest.iter().map(|(name, nanos)| format!("{name} {:.1} ms", *nanos as f64 / 1e6)).collect();
    trust.limited(format!(
        "the window holds a cold start: {:.0}% of it is one-time setup ({}); record after some warm-up steps",
        100.0 * trust.cold_share,
        longest.join(", ")
    ));
    if trust.cold_share >= MOSTLY_COLD.get() {
        trust.withheld.extend(["steady-state", "communication"]);
    }
}

/// A graph's kernels share one launch; some profilers record only the launch.
fn graph_launches(view: &View, trust: &mut Trust) {
    let host = &view.trace.host;
    let graphs: Vec<usize> = (0..host.len()).filter(|&at| view.call_kind(at) == Some(CallKind::GraphLaunch)).collect();
    if graphs.is_empty() {
        return;
    }
    let arrived = view.arrived();
    let empty = graphs.iter().filter(|&&at| !arrived[at]).count();
    if empty > 0 {
        trust.broken(format!(
            "{empty} of {} graph launches show no kernel: most of the work may be hidden inside them",
            graphs.len()
        ));
        trust.withheld.push("idle");
    }
}

fn no_steps(view: &View, trust: &mut Trust) {
    if view.steps.wall_nanos() == 0 {
        let events = view.trace.reading.events;
        let spans = view.trace.host.len() + view.trace.device.len();
        let why = match (events, spans) {
            (0, _) => "the trace holds no events".to_string(),
            (_, 0) => format!("the trace's {events} events hold no span of time"),
            _ => format!("the trace's {spans} spans take no time, or belong to the profiler"),
        };
        trust.broken(format!("{why}: nothing can be measured"));
    }
}

fn overhead(view: &View, unprofiled: Unprofiled, trust: &mut Trust) {
    let steps = &view.steps;
    let step_seconds = steps.seconds_per_step(steps.wall_nanos());
    if step_seconds <= 0.0 {
        return;
    }
    if let Some(without) = unprofiled.step_seconds {
        let share = (1.0 - without / step_seconds).max(0.0);
        trust.profiler_overhead_share = Some(share);
        trust.overhead_from = Some("measured");
        if share > TOO_MUCH_PROFILER.get() {
            trust.limited(format!(
                "the profiler takes {:.0}% of the step: {:.1} ms with it, {:.1} ms without",
                100.0 * share,
                1e3 * step_seconds,
                1e3 * without
            ));
        }
        return;
    }
    if view.trace.header.headroom.is_some() {
        return; // our own recorder states its overhead itself
    }
    let Some(estimate) = estimate(view) else { return };
    trust.profiler_overhead_share = Some(estimate.middle);
    // Replaying the steps with the cheapest and the most expensive events seen gives the wider estimate, which is
    // mostly right.
    let played = unprofiled.estimated_seconds.map(|played| played.map(|seconds| 1.0 - seconds / step_seconds));
    let [_, most, least] = played.unwrap_or([estimate.middle, estimate.high, estimate.low]);
    trust.profiler_overhead_low_share = Some(estimate.low.min(least).max(0.0));
    trust.profiler_overhead_high_share = Some(estimate.high.max(most));
    trust.usual_overhead_most = Some(estimate.high);
    trust.overhead_from = Some("estimated from the number of recorded events");
    // If the device is the bottleneck, a slower host changes nothing.
    let busy: i64 = steps.list.iter().map(|step| super::intervals::covered(&view.busy, step.span)).sum();
    if estimate.middle > TOO_MUCH_PROFILER.get() && steps.share(busy) < 0.8 {
        let of_shares = [estimate.middle, estimate.high, estimate.low].map(|share| step_seconds * (1.0 - share));
        let [middle, lower, upper] = unprofiled.estimated_seconds.unwrap_or(of_shares).map(brief);
        trust.limited(format!(
            "{:.0} operators, calls and allocations and {:.0} Python functions per step were recorded, \
                 which slows the host, so host and launch times are too long: the step of {} takes an \
                 estimated {middle} without the profiler, between {lower} and {upper} (to be sure, time some steps \
                 without it)",
            estimate.events_per_step,
            estimate.functions_per_step,
            brief(step_seconds),
        ));
    }
}

/// `42.3 ms`, `95.0 µs`: a short step is not shown as zero.
fn brief(seconds: f64) -> String {
    if seconds < 1e-3 { format!("{:.1} µs", 1e6 * seconds) } else { format!("{:.1} ms", 1e3 * seconds) }
}

impl Trust {
    /// Whether findings about idle time are withheld: events are missing, or the window says nothing about later steps.
    pub fn withholds_idle(&self) -> bool {
        self.withheld.iter().any(|figure| matches!(*figure, "idle" | "steady-state"))
    }

    /// Converts a share of the recorded step that the host causes to a share of the step without the profiler: by the
    /// middle estimate, and by the highest usual cost of recording.
    pub fn without_profiler(&self, share: f64) -> (f64, f64) {
        let without = |overhead: f64| ((share - overhead) / (1.0 - overhead).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
        let middle = self.profiler_overhead_share.unwrap_or(0.0);
        (without(middle), without(self.usual_overhead_most.unwrap_or(middle)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(events: &str) -> String {
        let trace = headroom_trace::read_bytes(format!("[{events}]").as_bytes()).expect("is a trace");
        trust(&View::new(&trace), Unprofiled::default()).notes.join("; ")
    }

    #[test]
    fn forms_of_spans_that_are_not_kinetos_are_said() {
        let old = r#"{"name":"mm","ph":"X","ts":1,"dur":9,"tid":0,"pid":"CPU functions","args":{}},
            {"name":"mm","ph":"X","ts":3,"dur":9,"tid":0,"pid":"CUDA functions","args":{}},
            {"name":"gemm","ph":"X","ts":4,"dur":5,"tid":0,"pid":"CUDA functions","args":{}}"#;
        let said = notes(old);
        assert!(said.contains("spans without a category (3)") && said.contains("inside others (1)"), "{said}");
        let edges = r#"{"name":"mm","cat":"cpu_op","ph":"B","ts":1,"tid":1,"pid":1},{"ph":"E","ts":9,"tid":1,"pid":1}"#;
        assert!(notes(edges).contains("one for their end (1)"), "{}", notes(edges));
        let asynchronous = r#"{"name":"mm","cat":"cpu_op","ph":"X","ts":1,"dur":3,"tid":1,"pid":1},
            {"name":"r","cat":"x","ph":"b","id":1,"ts":1,"tid":1,"pid":1},{"name":"r","cat":"x","ph":"e","id":1,"ts":9,"tid":1,"pid":1}"#;
        assert!(notes(asynchronous).contains("asynchronous spans (2 events)"), "{}", notes(asynchronous));
        let usual = r#"{"name":"mm","cat":"cpu_op","ph":"X","ts":1,"dur":3,"tid":1,"pid":1}"#;
        assert!(!notes(usual).contains("spans"), "{}", notes(usual));
    }
}
