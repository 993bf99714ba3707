//! TR116 straggler: one rank keeps the others waiting.

use super::{percent, shown_time};

use super::{Evidence, Found, TraceRule};
use crate::constants::ranks::FEWEST_MEETINGS;
use crate::constants::tr116;
use crate::finding::{Cause, Confidence, Effort};
use crate::measures::ranks::RankRow;

pub const RULE: TraceRule = TraceRule {
    code: "TR116",
    name: "straggler",
    cause: Cause::Straggler,
    page: include_str!("straggler.md"),
    effort: Effort::High,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let Some(ranks) = evidence.ranks.filter(|_| !evidence.trust.withheld.contains(&"communication")) else {
        return Vec::new();
    };
    let step = evidence.measures.breakdown.wall_seconds / evidence.view.steps.count();
    let of_step = |seconds: f64| (seconds / step.max(f64::MIN_POSITIVE)).min(1.0);
    let (own, mean) = (of_step(ranks.waiting_seconds), of_step(ranks.mean_waiting_seconds));
    // With a named straggler, the cost is the run's: the late rank itself waits least.
    let share = if ranks.straggler.is_some() { own.max(mean) } else { own };
    // One or two collectives only show when ranks began, not who is slow.
    if share < evidence.thresholds.of(&tr116::SKEW_SHARE) || ranks.meetings < FEWEST_MEETINGS.get() {
        return Vec::new();
    }
    let who = match ranks.straggler {
        Some(rank) => format!("rank {rank} arrives last at collectives, and the others wait for it"),
        None if !ranks.missing_ranks.is_empty() => "ranks wait for each other at collectives".to_string(),
        None => "ranks arrive at their collectives unevenly, and the last rank varies".to_string(),
    };
    let message = match share > own {
        true => format!("{who}: {} of the step on average over ranks, {} on this one", percent(share), percent(own)),
        false => format!("{who}: {} of the step", percent(share)),
    };
    let advice = "balance the work per rank (sequence lengths, data on slow disks), and check that machine: clocks, heat, other users";
    let mut found = Found::new(Some(share), message, advice);
    found.evidence = ranks.ranks.iter().map(|row| line(row, evidence.view.steps.count())).collect();
    found.evidence.extend(ranks.notes.iter().cloned());
    if !ranks.missing_ranks.is_empty() {
        found.confidence = Confidence::Medium;
    }
    found.removal.device = ranks.waits.iter().map(|wait| (wait.at, wait.transfer_nanos)).collect();
    vec![found]
}

fn line(row: &RankRow, steps: f64) -> String {
    let waits_for = row.waits_for.map(|rank| format!(", {} of it for rank {rank}", shown_time(row.waits_for_seconds)));
    format!(
        "rank {}: last at {} of collectives, waited {} per step{}; {} of transfer",
        row.rank,
        percent(row.last_share),
        shown_time(row.waited_seconds / steps),
        waits_for.unwrap_or_default(),
        shown_time(row.transfer_seconds)
    )
}
