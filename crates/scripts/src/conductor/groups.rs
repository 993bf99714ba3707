//! Which switches race together, and in what order.

use super::search::{BLOCK_SECONDS, LEAST_STEPS, SELECTING};
use super::verdict::Switchable;
use crate::remedies::{Class, Remedy};
use crate::variant::compiles;

/// Expected seconds of compiling.
const COMPILING: f64 = 60.0;

/// Switches that race together, best predicted saving over cost first: the cheap ones together, those that compile by
/// themselves, and those of fewer bits last.
pub(super) fn groups(switches: Vec<&Switchable>, step_seconds: f64) -> Vec<Vec<&'static Remedy>> {
    let is_alone = |switch: &Switchable| compiles(switch.remedy.name) || switch.remedy.class == Class::Precision;
    let (alone, together): (Vec<&Switchable>, Vec<&Switchable>) = switches.into_iter().partition(|one| is_alone(one));
    let mut groups: Vec<Vec<&Switchable>> = alone.into_iter().map(|one| vec![one]).collect();
    if !together.is_empty() {
        groups.push(together);
    }
    let block = BLOCK_SECONDS.max(f64::from(LEAST_STEPS) * step_seconds);
    let worth = |group: &Vec<&Switchable>| {
        let saving = group.iter().map(|one| one.predicted.unwrap_or(0.0)).fold(0.001, f64::max);
        let compiling = group.iter().filter(|one| compiles(one.remedy.name)).count() as f64 * COMPILING;
        saving / (SELECTING[0] as f64 * (group.len() + 1) as f64 * block + compiling)
    };
    let is_last = |group: &Vec<&Switchable>| group.iter().any(|one| one.remedy.class == Class::Precision);
    groups.sort_by(|one, other| is_last(one).cmp(&is_last(other)).then(worth(other).total_cmp(&worth(one))));
    groups.into_iter().map(|group| group.into_iter().map(|one| one.remedy).collect()).collect()
}
