//! TR102 gpu-idle: idle time of the device that no other finding explains.

use super::{milliseconds, percent};
use crate::finding::Confidence;
use crate::measures::breakdown::{WhereWorkRuns, waiting_spans};
use crate::measures::intervals::{covered, gaps, merged};

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

/// Idle time less what findings before it explain, what the host waits and what the profiler itself takes of the host.
fn check(evidence: &Evidence) -> Vec<Found> {
    let (breakdown, view) = (&evidence.measures.breakdown, evidence.view);
    let idle = &breakdown.idle;
    if breakdown.where_work_runs == WhereWorkRuns::Host || evidence.trust.withheld.contains(&"idle") {
        return Vec::new();
    }
    let explained = merged([waiting_spans(view), evidence.explained.to_vec()].concat());
    let free = view.steps.list.iter().flat_map(|step| gaps(&view.busy, step.span));
    let unexplained: i64 = free.map(|gap| gap.nanos() - covered(&explained, gap)).sum();
    let wall = breakdown.wall_seconds.max(f64::MIN_POSITIVE);
    let share = view.steps.share(unexplained) - evidence.trust.profiler_overhead_share.unwrap_or(0.0);
    if share < evidence.thresholds.idle_share {
        return Vec::new();
    }
    let steps = view.steps.count();
    let message = format!("the device stands still for {} of the step", percent(idle.total_seconds / wall));
    let mut found =
        Found::new(Some(share), message, "look at what the host does in the longest gaps, and order work earlier");
    found.confidence = Confidence::Medium;
    found.evidence = vec![
        format!("host busy {} a step", milliseconds(idle.host_busy_seconds / steps)),
        format!("host waiting {}", milliseconds(idle.host_waiting_seconds / steps)),
        format!("launch delay {}", milliseconds(idle.launch_delay_seconds / steps)),
        format!("data loading {}", milliseconds(idle.data_loading_seconds / steps)),
        format!("unknown {}", milliseconds(idle.unknown_seconds / steps)),
        format!("longest gap {}", milliseconds(idle.longest_seconds)),
    ];
    vec![found]
}
