//! Work that is computed twice or never used, as a finding: shared by the rules that report it.

use super::{Evidence, Found, shown_time};
use crate::measures::recomputed::Recomputed;
use crate::simulation::Removal;

/// Smaller shares are not reported.
pub const LEAST_SHARE: f64 = 0.03;

/// A finding if removing the work saves enough; `said` builds the message from the saved share.
pub fn found(evidence: &Evidence, work: &Recomputed, said: impl FnOnce(f64) -> String, advice: &str) -> Option<Found> {
    let removal = removal(work);
    if removal.is_empty() {
        return None;
    }
    let share = evidence.simulation.saved(&removal) as f64 / evidence.view.steps.range().nanos().max(1) as f64;
    if share < LEAST_SHARE {
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
