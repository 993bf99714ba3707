//! Adjusts the loader's time in a recording to that of the timed steps. It varies from batch to batch and over minutes,
//! which explains part of the difference between a recording and the true time.

use headroom_trace::{NONE, Trace};

use crate::constants::loader::{COST_SPREAD, LEAST_DIFFERENCE, LEAST_LEFT, LEAST_LOADING_SHARE, NOISE_OF_LOADING};
use crate::measures::data_loading::loading_spans;
use crate::measures::intervals::{Span, covered};
use crate::measures::view::View;

/// The trace with the loader's time adjusted to the true step time. `cost` is the usual cost of recording in seconds
/// per step. The loader takes its part of the remaining difference, in proportion to the variances of its time and of
/// the per-event costs. `None` if there is nothing to adjust.
pub fn with_true_loader_time(view: &View, cost: f64, true_seconds: f64) -> Option<Trace> {
    let spans = loading_spans(view);
    let nanos: i64 = view.steps.ordered.iter().map(|step| covered(&spans, *step)).sum();
    let loading = view.steps.seconds_per_step(nanos);
    let recorded = view.steps.seconds_per_step(view.steps.wall_nanos());
    if loading < LEAST_LOADING_SHARE.get() * recorded {
        return None;
    }
    let difference = true_seconds - (recorded - cost);
    let (of_loader, of_costs) = ((NOISE_OF_LOADING.get() * loading).powi(2), (COST_SPREAD.get() * cost).powi(2));
    let share = (difference * of_loader / (of_loader + of_costs) / loading).max(LEAST_LEFT.get() - 1.0);
    ((share * loading).abs() > LEAST_DIFFERENCE.get() * true_seconds).then(|| stretched(view, &spans, share))
}

/// The trace with each of the host's `spans` longer by `share` of itself. Device work moves with the call that launched
/// it.
fn stretched(view: &View, spans: &[Span], share: f64) -> Trace {
    let mut before = Vec::with_capacity(spans.len());
    let mut sum = 0;
    for span in spans {
        before.push(sum);
        sum += span.nanos();
    }
    let later = |time: i64| {
        let next = spans.partition_point(|span| span.start < time);
        let Some(last) = next.checked_sub(1) else { return 0 };
        let passed = before[last] + time.min(spans[last].end) - spans[last].start;
        (share * passed as f64) as i64
    };
    let moved = |time: i64| time + later(time);
    let (host, device) = (&view.trace.host, &view.trace.device);
    let mut trace = view.trace.clone();
    for at in 0..host.len() {
        let (start, end) = (moved(host.start[at]), moved(host.end(at)));
        (trace.host.start[at], trace.host.duration[at]) = (start, end - start);
    }
    for at in 0..device.len() {
        let ordered = match view.call_of[at] {
            NONE => device.start[at],
            call => host.start[call as usize],
        };
        trace.device.start[at] = device.start[at] + later(ordered);
    }
    trace.memory.time.iter_mut().for_each(|time| *time = moved(*time));
    trace.counters.iter_mut().for_each(|sample| sample.time = moved(sample.time));
    trace
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};

    /// Two steps of 10 ms: 6 ms in the loader, then a hundred launches of short kernels.
    fn steps() -> Trace {
        let mut made = Fabricated::on("NVIDIA H200");
        for step in 0..2i64 {
            let start = step * 10_000 * MICRO;
            made.step(step as u32 + 1, start, start + 10_000 * MICRO);
            let name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
            made.span("user_annotation", name, 1, start + 10 * MICRO, start + 6_010 * MICRO, "");
            for launch in 0..100 {
                let at = start + (6_100 + 38 * launch) * MICRO;
                made.operator("aten::add", at, at + 30 * MICRO);
                made.launch((at + 10 * MICRO, at + 16 * MICRO), "k", (at + 20 * MICRO, at + 25 * MICRO));
            }
        }
        made.trace()
    }

    #[test]
    fn a_step_that_took_longer_than_it_was_recorded_had_a_slower_loader() {
        let trace = steps();
        let view = View::new(&trace);
        let longer = with_true_loader_time(&view, 1e-3, 12e-3).expect("a difference");
        let after = View::new(&longer);
        let loaded = |view: &View| loading_spans(view).iter().map(|span| span.nanos()).sum::<i64>();
        // 2 ms per step are missing, plus the 1 ms that recording cost; nearly all of it is the loader's.
        assert!((8_800 * MICRO..9_000 * MICRO).contains(&(loaded(&after) / 2)), "{}", loaded(&after));
        assert_eq!(longer.host.len(), trace.host.len());
        let rest = |view: &View| view.steps.wall_nanos() - loaded(view);
        assert!((rest(&after) - rest(&view)).abs() < 10 * MICRO, "all else is as long as it was");
        let ends = |view: &View| {
            let device = &view.trace.device;
            (0..device.len()).map(|at| device.start[at] - view.trace.host.start[view.call_of[at] as usize]).sum::<i64>()
        };
        assert_eq!(ends(&after), ends(&view), "work follows its launch as soon as it did");
    }

    #[test]
    fn a_recording_that_its_costs_explain_is_left_as_it_is() {
        let trace = steps();
        let view = View::new(&trace);
        assert!(with_true_loader_time(&view, 1e-3, 9e-3).is_none());
        assert!(with_true_loader_time(&view, 1e-3, 8e-3).is_some(), "a quicker one");
    }
}
