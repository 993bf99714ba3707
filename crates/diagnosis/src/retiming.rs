//! The step without a profiler: replays a trace so that its steps take the time that was measured without one.

mod join;
mod loader;
mod undisturbed;

use headroom_record::statistics::step_statistics;
use headroom_trace::{CallKind, Trace};
use serde::Serialize;

use crate::constants::loader::NOISE_OF_LOADING;
use crate::constants::profiler_cost::MOST;
use crate::constants::retiming::*;
use crate::measures::data_loading::loading_spans;
use crate::measures::intervals::{Span, covered};
use crate::measures::profiler_cost::{EventCosts, cost_spans, staging};
use crate::measures::steps::{MeasuredOn, is_fetch};
use crate::measures::view::View;
use crate::simulation::{HostClock, NOT_PLAYED, Removal, Replay, Simulation};

/// The step without the profiler: measured, or estimated from the number of recorded events.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TrueStep {
    /// `measured`: steps timed with nothing attached; `given`: on the command line; `estimated`: from recorded events.
    pub from: &'static str,
    pub seconds: f64,
    /// Measured: the 95% interval of the median. Estimated: with the most and the least expensive events seen so far.
    pub lower_seconds: f64,
    pub upper_seconds: f64,
    /// Number of steps that were timed.
    pub timed_steps: usize,
    /// The step as recorded, and as recorded by the light profiler if there was one.
    pub recorded_seconds: f64,
    pub light_seconds: Option<f64>,
    /// The replayed step, to which all shares refer; the recorded step if nothing was replayed.
    pub played_seconds: f64,
    /// Cost of recording each event: fitted so that the replay takes the true time, or assumed.
    pub cost_per_event: Option<EventCosts>,
    /// Share of the operators and calls that the light and the full trace have in common, if both were joined.
    pub joined_share: Option<f64>,
    /// Caveats, in sentences.
    pub notes: Vec<String>,
}

/// A trace whose steps take the true time.
pub struct RetimedTrace {
    pub trace: Trace,
    /// The clock that delimits the steps of the recording that the times come from.
    pub recorded_on: MeasuredOn,
    pub step: TrueStep,
}

/// Shares of the usual cost to try where the device is the bottleneck.
const SHARES: [f64; 4] = [1.0, 0.75, 0.5, 0.25];

/// Replays the trace if the true time is known: from its header, or `given` in seconds per step.
pub fn played(view: &View, given: Option<f64>) -> Option<RetimedTrace> {
    let recorded = mean_step(view);
    let timed = view.trace.header.recording.as_ref().map_or(&[][..], |recording| &recording.true_step_seconds);
    if recorded <= 0.0 || view.trace.header.headroom.is_some() {
        return None; // a headroom run states its own overhead
    }
    let seconds = given.or_else(|| step_statistics(timed).median).filter(|seconds| *seconds > 0.0)?;
    let mut step = TrueStep { recorded_seconds: recorded, seconds, ..TrueStep::default() };
    match given {
        Some(_) => (step.from, step.lower_seconds, step.upper_seconds) = ("given", seconds, seconds),
        None => {
            (step.from, step.timed_steps) = ("measured", timed.len());
            (step.lower_seconds, step.upper_seconds) = median_interval(timed);
        }
    }
    let light = light_view(view);
    step.light_seconds = light.as_ref().map(mean_step);
    let quick = light.as_ref().and_then(|light| undisturbed::as_quick_as(view, light));
    let quick = quick.as_ref().zip(light.as_ref()).map(|(trace, light)| View::played(trace, light.steps.measured_on));
    let light = quick.or(light);
    let joined = light.as_ref().and_then(|light| {
        let (costs, timed) = as_timed(light, seconds);
        let joined = join::joined(view, light, &timed)?;
        step.joined_share = Some(joined.share);
        (joined.share >= LEAST_JOINED.get()).then_some((costs, joined.trace))
    });
    if light.is_some() && joined.is_none() {
        step.notes
            .push("the light and full traces differ too much to be joined: only the full one is replayed".to_string());
    }
    let recorded_on = light.as_ref().filter(|_| joined.is_some()).unwrap_or(view).steps.measured_on;
    let (costs, trace) = joined.unwrap_or_else(|| as_timed(view, seconds));
    step.cost_per_event = Some(costs);
    step.played_seconds = mean_step(&View::played(&trace, recorded_on));
    step.notes.extend(miss(&step));
    Some(RetimedTrace { trace, recorded_on, step })
}

/// The trace with the times of a replay that takes the true time, and the cost of recording an event in it.
fn as_timed(view: &View, true_seconds: f64) -> (EventCosts, Trace) {
    let of_view = |view: &View| {
        let (costs, play) = fit(view, true_seconds);
        (costs, replayed(view, &play, costs))
    };
    let simulation = Simulation::new(view);
    let usual = recording(view, EventCosts::shared(view), view.steps.host_range());
    let cost = simulation.run(&Removal::default()) - simulation.run(&usual);
    match loader::with_true_loader_time(view, view.steps.seconds_per_step(cost.max(0)), true_seconds) {
        Some(trace) => of_view(&View::played(&trace, view.steps.measured_on)),
        None => of_view(view),
    }
}

/// A note if the replay does not take the true time.
fn miss(step: &TrueStep) -> Option<String> {
    let miss = step.played_seconds / step.seconds - 1.0;
    let why = match miss > 0.0 {
        true => "recording cost more than its events explain, or the recorded steps were longer than the timed ones",
        false => "the recorded steps were shorter than the timed ones",
    };
    let (played, truth) = (1e3 * step.played_seconds, 1e3 * step.seconds);
    (miss.abs() > MISS.get()).then(|| format!("replayed, the step takes {played:.2} ms instead of {truth:.2}: {why}"))
}

/// The light trace: the lighter the profiler, the closer to the truth.
fn light_view<'t>(view: &View<'t>) -> Option<View<'t>> {
    view.trace.light.as_deref().map(View::new).filter(|light| mean_step(light) > 0.0)
}

fn mean_step(view: &View) -> f64 {
    view.steps.seconds_per_step(view.steps.wall_nanos())
}

/// Estimates the step without the profiler from the number of recorded events, if no true time is known.
pub fn estimated(view: &View) -> TrueStep {
    let recorded = mean_step(view);
    let mut step = TrueStep { recorded_seconds: recorded, played_seconds: recorded, ..TrueStep::default() };
    if recorded <= 0.0 || view.trace.header.headroom.is_some() {
        step.from = "recorded";
        (step.seconds, step.lower_seconds, step.upper_seconds) = (recorded, recorded, recorded);
        return step;
    }
    let light = light_view(view);
    step.light_seconds = light.as_ref().map(mean_step);
    // The share of the recorded step that is free of disturbances, if light and full recordings show it.
    let kept = light.as_ref().map_or(1.0, |light| undisturbed::share(light, view));
    let view = light.as_ref().unwrap_or(view);
    // Steps are alike: a few are enough to tell the cost of recording, in a fraction of the time.
    let steps = view.steps.ordered.len().min(STEPS_TO_ESTIMATE_BY.get());
    let range = view.steps.host_range_of_first(steps);
    let simulation = Simulation::of_first_steps(view, steps);
    let usual = EventCosts::usual(view);
    let now = simulation.run(&Removal::default());
    let saved = |costs: EventCosts| {
        (now - simulation.run(&recording(view, costs, range))).max(0) as f64 / 1e9 / steps.max(1) as f64
    };
    let with = |costs: EventCosts| (mean_step(view) - saved(costs)).max(0.0);
    step.from = "estimated";
    step.cost_per_event = Some(usual);
    let [least, most] = usual.bounds();
    // A worker is not recorded: if the loop waits for its batches, a quicker loop waits longer.
    step.seconds = kept * with(usual) + saved(usual).min(waits_for_workers(view));
    // The loader's own work varies most from one process, and one batch, to the next.
    let noise = NOISE.get() + NOISE_OF_LOADING.get() * loading_share(view);
    (step.lower_seconds, step.upper_seconds) =
        ((1.0 - noise) * kept * with(most), (1.0 + noise) * with(least).max(step.seconds));
    let waits = waits_per_step(view);
    let device = view.steps.list.iter().map(|step| covered(&view.busy, step.span)).sum();
    let device = view.steps.seconds_per_step(device);
    if waits > MANY_WAITS.get() && device > 0.0 && (1.0 - NOISE.get()) * device < step.lower_seconds {
        step.lower_seconds = (1.0 - NOISE.get()) * device;
        step.notes.push(format!(
            "the host waits for the device {waits:.0} times per step: the number of events does not show what \
             recording costs there, so the lower bound of the step is the device's own work"
        ));
    }
    step
}

/// Host time spent on recording while the device was the bottleneck: as much as can be removed without changing the
/// step. Empty if the host is the bottleneck.
pub fn spare(view: &View, simulation: &Simulation) -> Vec<Span> {
    let range = view.steps.host_range();
    let usual = EventCosts::shared(view);
    let without = |share: f64| Removal { host: cost_spans(view, usual.times(share), range), ..Removal::default() };
    let now = simulation.run(&Removal::default());
    let room = (LITTLE.get() * now as f64) as i64;
    let kept = SHARES.into_iter().map(without).find(|removal| now - simulation.run(removal) <= room);
    kept.map(|removal| removal.host).unwrap_or_default()
}

/// Share of the steps in which the host loads.
fn loading_share(view: &View) -> f64 {
    let spans = loading_spans(view);
    let nanos: i64 = view.steps.ordered.iter().map(|step| covered(&spans, *step)).sum();
    (nanos as f64 / view.steps.wall_nanos().max(1) as f64).min(1.0)
}

/// Seconds per step in which the loop waits for worker processes to hand over a batch.
fn waits_for_workers(view: &View) -> f64 {
    let fetches = view.time_named(|name| is_fetch(name) && name.contains("MultiProcessing"));
    view.steps.seconds_per_step(view.steps.ordered.iter().map(|step| covered(&fetches, *step)).sum())
}

/// Number of host waits for the device per step.
fn waits_per_step(view: &View) -> f64 {
    let (host, range) = (&view.trace.host, view.steps.host_range());
    let inside = |at: &usize| (range.start..range.end).contains(&host.start[*at]);
    let waits = (0..host.len()).filter(inside).filter(|&at| view.call_kind(at) == Some(CallKind::Synchronise));
    waits.count() as f64 / view.steps.count()
}

/// Everything that recording adds to the time of host and device, to be removed.
fn recording(view: &View, costs: EventCosts, range: Span) -> Removal {
    let (mut host, device) = staging(view, costs, range);
    host.extend(cost_spans(view, costs, range));
    Removal { host, device, ..Removal::default() }
}

/// The costs, as a multiple of the usual ones, with which the replay takes the true time; and that replay.
fn fit(view: &View, true_seconds: f64) -> (EventCosts, Replay) {
    let simulation = Simulation::new(view);
    let usual = EventCosts::shared(view);
    let removal = |factor: f64| recording(view, usual.times(factor), view.steps.host_range());
    let now = simulation.run(&Removal::default());
    let saved = |factor: f64| now - simulation.run(&removal(factor));
    let wanted = ((mean_step(view) - true_seconds) * view.steps.count() * 1e9) as i64;
    // Where the device is the bottleneck, higher costs save no more: finds the lowest cost that saves all that can be
    // saved.
    let to_save = wanted.min(saved(MOST_IN_FIT.get()) - (CLOSE_ENOUGH.get() * now as f64) as i64);
    let (mut least, mut most) = (0.0, MOST_IN_FIT.get());
    if to_save <= 0 {
        most = 0.0;
    }
    while most - least > 0.001 {
        let middle = 0.5 * (least + most);
        match saved(middle) < to_save {
            true => least = middle,
            false => most = middle,
        }
    }
    // Where the device is the bottleneck, a range of costs explains the true time. With the lowest, the host would stay
    // as slow as recorded, and limit every replay with a quicker device.
    let room = to_save.max(0) + (LITTLE.get() * now as f64) as i64;
    let dearer =
        [MOST.get(), DEARER.get()].into_iter().chain(SHARES).find(|factor| *factor > most && saved(*factor) <= room);
    let factor = dearer.unwrap_or(most);
    let host = removal(factor);
    let graph_gaps = graph_gaps(&simulation, &host, now - wanted);
    (usual.times(factor), simulation.play(&Removal { graph_gaps, ..host }))
}

/// The share to remove of the gaps between a graph's kernels, if removing the host's recording cost leaves the replay
/// longer than `wanted`. These kernels follow each other without the host, and recording each lengthens the gap before
/// it.
fn graph_gaps(simulation: &Simulation, host: &Removal, wanted: i64) -> f64 {
    let played = |graph_gaps: f64| simulation.run(&Removal { graph_gaps, ..host.clone() });
    let as_it_is = played(0.0);
    if as_it_is - wanted <= (CLOSE_ENOUGH.get() * as_it_is as f64) as i64 || played(1.0) == as_it_is {
        return 0.0;
    }
    let (mut least, mut most) = (0.0, 1.0);
    while most - least > 0.01 {
        let middle = 0.5 * (least + most);
        match played(middle) > wanted {
            true => least = middle,
            false => most = middle,
        }
    }
    most
}

/// The trace with the times of a replay, and with copies from pageable memory as long as they are without `costs`.
fn replayed(view: &View, play: &Replay, costs: EventCosts) -> Trace {
    let clock = HostClock::new(play);
    let mut trace = view.trace.clone();
    trace.light = None;
    for at in 0..trace.host.len() {
        let (start, end) = (clock.at(view.trace.host.start[at]), clock.at(view.trace.host.end(at)));
        (trace.host.start[at], trace.host.duration[at]) = (start, (end - start).max(0));
    }
    let range = view.steps.host_range();
    let shift_after = clock.at(range.end) - range.end;
    for at in 0..trace.device.len() {
        let was = view.trace.device.start[at];
        trace.device.start[at] = match play.device_start[at] {
            NOT_PLAYED if was >= range.end => was + shift_after,
            NOT_PLAYED if trace.device.category[at].keeps_device_busy() => was,
            NOT_PLAYED => clock.at(was),
            start => start,
        };
    }
    let (_, lengths) = staging(view, costs, range);
    lengths.into_iter().for_each(|(at, nanos)| trace.device.duration[at] = nanos);
    keep_order_of_streams(&mut trace);
    trace.memory.time.iter_mut().for_each(|time| *time = clock.at(*time));
    trace.counters.iter_mut().for_each(|sample| sample.time = clock.at(sample.time));
    trace
}

/// Keeps the recorded order of starts on each stream, whatever was moved.
fn keep_order_of_streams(trace: &mut Trace) {
    let device = &mut trace.device;
    for at in 1..device.len() {
        if device.track[at] == device.track[at - 1] {
            device.start[at] = device.start[at].max(device.start[at - 1]);
        }
    }
}

/// The 95% interval of the median; the least and the largest value if too few for one.
fn median_interval(values: &[f64]) -> (f64, f64) {
    let found = step_statistics(values);
    let least = || values.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = || values.iter().copied().fold(0.0, f64::max);
    (found.ci95_low.unwrap_or_else(least), found.ci95_high.unwrap_or_else(largest))
}

#[cfg(test)]
mod tests;
