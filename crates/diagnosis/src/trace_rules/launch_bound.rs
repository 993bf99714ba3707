//! TR103 launch-bound: the device waits for the host to launch its next small kernel.

use super::{percent, shown_time};
use crate::constants::breakdown::LONG_GAP_NANOS;
use crate::constants::launch_bound::{NOT_AHEAD, WAITS_OF_A_LOOP};
use crate::constants::tr103;
use crate::measures::breakdown::{WhereWorkRuns, waiting_spans};
use crate::measures::data_loading::loading_spans;
use crate::measures::intervals::{gaps, merged, without};
use crate::measures::launches::Launches;
use crate::simulation::Removal;

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Confidence, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR103",
    name: "launch-bound",
    cause: Cause::LaunchBound,
    page: include_str!("launch_bound.md"),
    effort: Effort::Medium,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    if !applies(evidence) {
        return Vec::new();
    }
    let (breakdown, launches) = (&evidence.measures.breakdown, &evidence.measures.launches);
    let view = evidence.view;
    let recorded = share(evidence);
    let (middle, least) = evidence.trust.without_profiler(recorded);
    let is_uncertain = least < evidence.thresholds.of(&tr103::LAUNCH_BOUND_SHARE);
    let share = middle;
    let message = format!(
        "the step is launch-bound: the device is busy for {} of it and waits for the next launch for {}",
        percent(breakdown.busy_share),
        percent(recorded)
    );
    let advice = match (evidence.run, view.trace.reading.is_of_xla) {
        (Some(_), _) => {
            "`--passes all` launches fewer, fused kernels and replays the step as one graph; a larger --batch-size; \
             `headroom optimize` measures and verifies it"
        }
        (None, true) => {
            "launch less or earlier: put more of the step under one jax.jit, scan over layers and steps \
             (jax.lax.scan), donate arguments that are replaced, use a larger batch"
        }
        (None, false) if evidence.measures.compiled.is_most() => {
            "the step is compiled already: capture it in CUDA graphs (mode=\"reduce-overhead\"), remove graph breaks \
             (TORCH_LOGS=graph_breaks lists them), use a larger batch"
        }
        (None, false) => {
            "launch less or earlier: torch.compile (mode reduce-overhead) or CUDA graphs, fused optimizer and \
             attention, a larger batch"
        }
    };
    let mut found = Found::new(Some(share), message, advice);
    found.is_flag = evidence.run.is_some();
    found.evidence = vec![
        format!("{:.0} launches per step of {}", launches.per_step, call_time(launches)),
        format!("{} of them queue work that is shorter than the launch", percent(launches.shorter_than_launch_share)),
        format!("{} of them find an empty queue", percent(launches.nothing_ahead_share)),
        format!("the median kernel runs for {:.1} µs", evidence.measures.kernels.median_micros),
        format!(
            "step of {}: device busy {}, host busy while it waits {}, launch delay {}",
            shown_time(breakdown.wall_seconds / view.steps.count()),
            shown_time(breakdown.busy_share * breakdown.wall_seconds / view.steps.count()),
            shown_time(breakdown.idle.host_busy_seconds / view.steps.count()),
            shown_time(breakdown.idle.launch_delay_seconds / view.steps.count()),
        ),
    ];
    if let Some(overhead) = evidence.trust.profiler_overhead_share.filter(|share| *share > 0.1) {
        let from = evidence.trust.overhead_from.unwrap_or("assumed");
        let bounds = match (evidence.trust.profiler_overhead_low_share, evidence.trust.profiler_overhead_high_share) {
            (Some(low), Some(high)) => format!(", between {} and {}", percent(low), percent(high)),
            _ => String::new(),
        };
        found.evidence.push(format!(
            "the profiler itself takes about {} of the step{bounds} ({from}); the wait is {} of the step without it",
            percent(overhead),
            percent(middle)
        ));
    }
    if is_uncertain {
        found.evidence.push("recording may account for all of it: time some steps without the profiler".into());
    }
    // If much of the host's time is the profiler's, the rest without it is uncertain.
    found.confidence = match evidence.trust.profiler_overhead_share {
        _ if is_uncertain => Confidence::Low,
        Some(share) if share > 0.4 && evidence.trust.overhead_from != Some("measured") => Confidence::Medium,
        _ => Confidence::High,
    };
    // A graph could replay everything the host does except waiting, loading and unrelated work. A loop that reads back
    // in every iteration can be launched at once only if it does not read.
    let waits = &evidence.measures.synchronisation;
    let is_read_in_a_loop = waits.calls as f64 > WAITS_OF_A_LOOP.get() * view.steps.count();
    let waiting = if is_read_in_a_loop { Vec::new() } else { waiting_spans(view) };
    let long = gaps(&view.busy, view.steps.host_range()).into_iter().filter(|gap| gap.nanos() > LONG_GAP_NANOS.get());
    let kept = merged([waiting, loading_spans(view), long.collect()].concat());
    found.removal = Removal { host: without(&[view.steps.host_range()], &kept), ..Removal::default() };
    // One call for all iterations of a loop also shortens the device's work.
    let rounds = &evidence.measures.patterns.rounds;
    if !rounds.kernels.is_empty() {
        found.evidence.push(format!(
            "a loop of {} iterations launches the same {} kernels in each: one call can replace it if no \
             iteration needs the previous result",
            rounds.rounds, rounds.kernels_per_round
        ));
        let device = rounds.kernels.iter().copied().collect();
        found.expected = Some(Removal { device, ..found.removal.clone() });
        found.confidence = found.confidence.min(Confidence::Medium);
    }
    vec![found]
}

fn call_time(launches: &Launches) -> String {
    let median = launches.call_micros_median;
    match launches.recorded_call_micros_median {
        Some(recorded) => {
            format!(
                "about {median:.1} µs each (median; {recorded:.1} µs as recorded, less the fitted cost of recording)"
            )
        }
        None => format!("{median:.1} µs each (median)"),
    }
}

/// Whether launches, not work, determine the step's length.
fn applies(evidence: &Evidence) -> bool {
    let launches = &evidence.measures.launches;
    let thresholds = evidence.thresholds;
    // Recording may be what keeps the host from running ahead: then a short queue says nothing.
    let (_, least) = evidence.trust.without_profiler(share(evidence));
    let is_hardly_ahead =
        launches.queue_depth_median <= NOT_AHEAD.get() && least >= thresholds.of(&tr103::LAUNCH_BOUND_SHARE);
    evidence.measures.breakdown.where_work_runs == WhereWorkRuns::Device
        && !evidence.trust.withholds_idle()
        && share(evidence) >= thresholds.of(&tr103::LAUNCH_BOUND_SHARE)
        && launches.count > 0
        && (launches.nothing_ahead_share > thresholds.of(&tr103::NOTHING_AHEAD_SHARE)
            || launches.shorter_than_launch_share > thresholds.of(&tr103::SHORT_WORK_SHARE)
            || is_hardly_ahead)
}

fn share(evidence: &Evidence) -> f64 {
    waiting_seconds(evidence) / evidence.measures.breakdown.wall_seconds.max(f64::MIN_POSITIVE)
}

/// Time spent waiting for the host's next launch, in gaps that launches explain.
fn waiting_seconds(evidence: &Evidence) -> f64 {
    let idle = &evidence.measures.breakdown.idle;
    let waiting = idle.host_busy_seconds - idle.host_busy_in_long_gaps_seconds + idle.launch_delay_seconds;
    // A graph is launched once for all its kernels: the host's work before that is not launch overhead.
    (waiting - idle.without_launches_seconds).max(0.0)
}
