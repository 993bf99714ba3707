//! TR130 device-stalled: work is queued but the device is idle.

use super::{percent, shown_time};
use crate::constants::tr130;
use crate::finding::Confidence;
use crate::measures::breakdown::WhereWorkRuns;
use crate::measures::explained::{longest_stops, short};
use crate::measures::stops::Stop;

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR130",
    name: "device-stalled",
    cause: Cause::DeviceStalled,
    page: include_str!("device_stalled.md"),
    effort: Effort::High,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let (view, idle) = (evidence.view, &evidence.measures.breakdown.idle);
    let share = idle.stalled_seconds / evidence.measures.breakdown.wall_seconds.max(f64::MIN_POSITIVE);
    let on_device = evidence.measures.breakdown.where_work_runs == WhereWorkRuns::Device;
    if !on_device || share < evidence.thresholds.of(&tr130::STALLED_SHARE) || evidence.trust.withholds_idle() {
        return Vec::new();
    }
    let stalled: Vec<Stop> =
        evidence.measures.stops.iter().filter(|stop| stop.stalled().nanos() > 0).copied().collect();
    let longest = stalled.iter().max_by_key(|stop| stop.stalled().nanos());
    let next = longest.and_then(|stop| stop.after()).map(|at| short(view.name(view.trace.device.name[at])));
    let message = format!(
        "the device is idle with work queued for {} of the step{}: it waits for another stream, another rank or \
         something outside the trace, not for the host",
        percent(share),
        next.map(|name| format!(", most before `{name}`")).unwrap_or_default()
    );
    let advice = "find out what the stalled stream waits for: another stream's event, a late rank in a \
                  collective, a copy to the host; a faster host or fewer launches change nothing";
    let mut found = Found::new(Some(share), message, advice);
    found.confidence = Confidence::Medium;
    found.evidence = vec![format!(
        "{} stalls, {} per step, the longest {}",
        stalled.len(),
        shown_time(idle.stalled_seconds / view.steps.count()),
        shown_time(longest.map_or(0, |stop| stop.stalled().nanos()) as f64 / 1e9)
    )];
    found.evidence.extend(longest_stops(view, &stalled, &[], 2));
    vec![found]
}
