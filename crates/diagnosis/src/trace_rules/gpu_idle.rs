//! TR102 gpu-idle: idle time of the device that no other finding explains.

use super::{milliseconds, percent};
use crate::finding::Confidence;
use crate::measures::breakdown::WhereWorkRuns;

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

/// The idle share less what launch-bound, host-sync and data-loading report under their own names.
fn check(evidence: &Evidence) -> Vec<Found> {
    let breakdown = &evidence.measures.breakdown;
    let idle = &breakdown.idle;
    if breakdown.where_work_runs == WhereWorkRuns::Host || evidence.trust.withheld.contains(&"idle") {
        return Vec::new();
    }
    let wall = breakdown.wall_seconds.max(f64::MIN_POSITIVE);
    let mut unexplained = idle.total_seconds;
    if super::launch_bound::applies(evidence) {
        unexplained -= idle.host_busy_seconds + idle.launch_delay_seconds;
    }
    if evidence.measures.data_loading.share_of_steps >= evidence.thresholds.data_loading_share {
        unexplained -= idle.data_loading_seconds;
    }
    unexplained -= idle.host_waiting_seconds;
    let share = unexplained / wall;
    if share < evidence.thresholds.idle_share {
        return Vec::new();
    }
    let steps = evidence.view.steps.count();
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
