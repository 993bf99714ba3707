//! TR102 gpu-idle: idle time of the device that no other finding explains.

use super::{percent, shown_time};
use crate::constants::stops::LONGEST_LAUNCH_DELAY_NANOS;
use crate::constants::tr102;
use crate::finding::Confidence;
use crate::measures::breakdown::{WhereWorkRuns, waiting_spans};
use crate::measures::explained::{longest_stops, outside_of_recording, recorded};
use crate::measures::intervals::{Span, covered, merged, without};
use crate::measures::steps::FoundBy;
use crate::measures::stops::Stop;
use crate::simulation::Removal;
use headroom_trace::Category;

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR102",
    name: "gpu-idle",
    cause: Cause::GpuIdle,
    page: include_str!("gpu_idle.md"),
    effort: Effort::Medium,
    check,
};

/// Idle time minus what earlier findings explain, the host's waits, and stalls with queued work.
fn check(evidence: &Evidence) -> Vec<Found> {
    let (breakdown, view) = (&evidence.measures.breakdown, evidence.view);
    let idle = &breakdown.idle;
    if breakdown.where_work_runs == WhereWorkRuns::Host || evidence.trust.withholds_idle() {
        return Vec::new();
    }
    let stops = &evidence.measures.stops;
    let stalled: Vec<Span> = stops.iter().map(Stop::stalled).filter(|span| span.nanos() > 0).collect();
    let mut explained = merged([waiting_spans(view), evidence.explained.to_vec(), stalled].concat());
    // Without steps, time in which nothing was recorded may not belong to the run. The exception is a trace with only
    // runtime calls from the host, which may do anything between them.
    let calls_alone =
        evidence.trust.withheld.contains(&"operators") && view.trace.host.category.contains(&Category::Runtime);
    let unrecorded = without(&[view.steps.range()], &recorded(view));
    let outside = match view.steps.found_by {
        FoundBy::WholeTrace if !calls_alone => unrecorded.clone(),
        _ => outside_of_recording(view),
    };
    explained = merged([explained, outside].concat());
    let unexplained: i64 = stops.iter().map(|stop| stop.span.nanos() - covered(&explained, stop.span)).sum();
    let wall = breakdown.wall_seconds.max(f64::MIN_POSITIVE);
    let recorded_share = view.steps.share(unexplained);
    if recorded_share < evidence.thresholds.of(&tr102::IDLE_SHARE) {
        return Vec::new();
    }
    // Recording slows the host, so the idle time may be smaller than it looks; it is reported all the same.
    let (middle, least) = evidence.trust.without_profiler(recorded_share);
    let is_uncertain = least < evidence.thresholds.of(&tr102::IDLE_SHARE);
    let share = if is_uncertain { least } else { middle };
    let steps = view.steps.count();
    let message = format!("the device is idle for {} of the step", percent(idle.total_seconds / wall));
    let mut found =
        Found::new(Some(share), message, "see what the host does in the longest gaps, and launch work earlier");
    // Where the host recorded nothing, nobody can tell what it did: such a gap is told, but not as a certain cost.
    let rest: Vec<Span> = stops.iter().flat_map(|stop| without(&[stop.span], &explained)).collect();
    let is_unseen = rest.iter().map(|span| covered(&unrecorded, *span)).sum::<i64>() * 2 > unexplained;
    found.confidence = if is_uncertain || is_unseen { Confidence::Low } else { Confidence::Medium };
    found.evidence = longest_stops(view, stops, &explained, 3);
    // In stalls too long for a launch, the host did something that may be done earlier, or in parallel with the device.
    let starved = |longer_than: i64| {
        let stops = stops.iter().filter(|stop| stop.span.nanos() > longer_than).filter_map(Stop::starved);
        let starved = merged(stops.filter(|span| span.nanos() > 0).collect());
        Removal { host: without(&starved, &explained), ..Removal::default() }
    };
    found.removal = starved(0);
    // Nothing is promised for time of which nobody knows what filled it.
    found.expected = Some(if is_unseen { Removal::default() } else { starved(LONGEST_LAUNCH_DELAY_NANOS.get()) });
    if is_unseen {
        found.evidence.push("nothing was recorded on the host in most of it: record with_stack=True to see why".into());
    }
    if is_uncertain {
        found.evidence.push("recording may account for all of it: time some steps without the profiler".into());
    }
    found.evidence.extend([
        format!("host busy {} per step", shown_time(idle.host_busy_seconds / steps)),
        format!("host waiting {}", shown_time(idle.host_waiting_seconds / steps)),
        format!("launch delay {}", shown_time(idle.launch_delay_seconds / steps)),
        format!("data loading {}", shown_time(idle.data_loading_seconds / steps)),
        format!("work queued and the device idle {}", shown_time(idle.stalled_seconds / steps)),
        format!("unknown {}", shown_time(idle.unknown_seconds / steps)),
        format!("longest gap {}", shown_time(idle.longest_seconds)),
    ]);
    vec![found]
}
