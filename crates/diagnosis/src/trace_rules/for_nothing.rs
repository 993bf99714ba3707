//! Work that is computed twice or never used, as a finding: shared by the rules that report it.

use super::{Evidence, Found, shown_time};
use crate::constants::Constant;
use crate::measures::recomputed::Recomputed;
use crate::simulation::Removal;

/// A finding if removing the work saves enough; `said` builds the message from the saved share.
pub fn found(
    evidence: &Evidence,
    least: &Constant<f64>,
    work: &Recomputed,
    said: impl FnOnce(f64) -> String,
    advice: &str,
) -> Option<Found> {
    let removal = removal(work);
    if removal.is_empty() {
        return None;
    }
    let share = evidence.simulation.saved_share(&removal);
    if share < evidence.thresholds.of(least) {
        return None;
    }
    let mut found = Found::new(Some(share), said(share), advice);
    found.evidence = vec![times(evidence, work)];
    found.removal = removal;
    Some(found)
}

pub fn removal(work: &Recomputed) -> Removal {
    Removal { host: work.host.clone(), device: work.kernels.iter().map(|&at| (at, 0)).collect(), ..Removal::default() }
}

pub fn times(evidence: &Evidence, work: &Recomputed) -> String {
    let steps = evidence.view.steps.count();
    format!(
        "{} of device time and {} of host time per step",
        shown_time(work.device_seconds / steps),
        shown_time(work.host_seconds / steps)
    )
}
