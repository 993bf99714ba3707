//! TR114 same-constant-each-step: a tensor that depends only on sizes is rebuilt in every step.

use super::percent;
use crate::constants::tr114;
use crate::measures::constants::Rebuilt;
use crate::simulation::Removal;

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR114",
    name: "same-constant-each-step",
    cause: Cause::ConstantRebuilt,
    page: include_str!("same_constant.md"),
    effort: Effort::Low,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    evidence
        .measures
        .rebuilt_constants
        .iter()
        .filter(|rebuilt| rebuilt.share_of_steps >= evidence.thresholds.of(&tr114::LEAST_SHARE))
        .map(found)
        .collect()
}

fn found(rebuilt: &Rebuilt) -> Found {
    // The sizes of scalars are empty lists.
    let size = match rebuilt.size.contains(|letter: char| letter.is_ascii_digit()) {
        true => format!("of size {}", rebuilt.size),
        false => "of a single value".to_string(),
    };
    let message = format!(
        "the same constant {size} is rebuilt in every step: {}",
        rebuilt.operators.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    );
    let advice = "build it once, keep it as a buffer (register_buffer with persistent=False) and take a slice";
    let mut found = Found::new(Some(rebuilt.share_of_steps), message, advice);
    found.function = rebuilt.function.clone();
    found.through = rebuilt.through.clone();
    found.first = rebuilt.first;
    found.per_step = rebuilt.per_step;
    found.evidence = vec![format!("{:.0} per step, {} of the step", rebuilt.per_step, percent(rebuilt.share_of_steps))];
    found.removal = Removal {
        host: rebuilt.spans.clone(),
        device: rebuilt.device.iter().map(|&at| (at, 0)).collect(),
        ..Removal::default()
    };
    found
}
