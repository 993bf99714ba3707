//! TR116 straggler: one rank keeps the others waiting.

use super::{milliseconds, percent};

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR116",
    name: "straggler",
    cause: Cause::Straggler,
    page: include_str!("straggler.md"),
    effort: Effort::High,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let Some(ranks) = evidence.ranks else { return Vec::new() };
    let step = evidence.measures.breakdown.wall_seconds / evidence.view.steps.count();
    let share = ranks.waiting_seconds / step.max(f64::MIN_POSITIVE);
    if share < evidence.thresholds.skew_share {
        return Vec::new();
    }
    let who = match ranks.straggler {
        Some(rank) => format!("rank {rank} starts its collectives last, and the others wait for it"),
        None => "ranks arrive at their collectives unevenly, now one last, now another".to_string(),
    };
    let message = format!("{who}: {} of the step", percent(share));
    let advice = "balance the work a rank (length of sequences, data on slow disks), and look at that machine: clocks, heat, other users";
    let mut found = Found::new(Some(share), message, advice);
    found.evidence = ranks
        .ranks
        .iter()
        .map(|row| {
            let waited = milliseconds(row.waited_seconds / evidence.view.steps.count());
            format!("rank {}: last in {} of collectives, waited {waited} a step", row.rank, percent(row.last_share))
        })
        .collect();
    vec![found]
}
