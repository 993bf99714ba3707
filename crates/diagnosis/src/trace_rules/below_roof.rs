//! TR113 below-roof: an operator takes far longer than the device would need.

use super::{milliseconds, percent};
use crate::finding::Confidence;
use crate::measures::intervals::Span;
use crate::measures::roofline::RooflineRow;

use super::{Evidence, Found, TraceRule};
use crate::finding::{Cause, Effort};

pub const RULE: TraceRule = TraceRule {
    code: "TR113",
    name: "below-roof",
    cause: Cause::BelowRoof,
    page: include_str!("below_roof.md"),
    effort: Effort::High,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let roofline = &evidence.measures.roofline;
    if roofline.peak_flops_per_second.is_none() {
        return Vec::new();
    }
    // Without tensor cores the roof is another: that is no-tensor-cores' finding.
    let cores = &evidence.measures.patterns.tensor_cores;
    if cores.without_seconds * 2.0 > cores.eligible_seconds {
        return Vec::new();
    }
    roofline.rows.iter().filter_map(|row| found(evidence, row)).collect()
}

fn found(evidence: &Evidence, row: &RooflineRow) -> Option<Found> {
    let wall = evidence.measures.breakdown.wall_seconds.max(f64::MIN_POSITIVE);
    let above = (row.seconds - row.roof_seconds) / wall;
    let thresholds = evidence.thresholds;
    if row.percent_of_roof > thresholds.roof_percent || above < thresholds.roof_share {
        return None;
    }
    let message = format!(
        "`{}` runs at {:.0}% of what the device allows: {} of the step lies above its roof",
        row.name,
        row.percent_of_roof,
        percent(above)
    );
    let advice = "larger batches or fused products make each larger; sizes that are multiples of 8 (better 64) fit the units; avoid copies to other layouts";
    let mut found = Found::new(Some(above), message, advice);
    found.confidence = Confidence::Medium;
    found.on_device = true;
    let steps = evidence.view.steps.count();
    found.evidence = vec![
        format!(
            "{} a step, at least {} by the peaks",
            milliseconds(row.seconds / steps),
            milliseconds(row.roof_seconds / steps)
        ),
        format!(
            "{:.1} FLOPs per byte, {}",
            row.intensity,
            row.bound.map_or("no peak is known".into(), |bound| bound.name().replace('_', "-"))
        ),
        format!("peaks: {}", evidence.measures.roofline.peak_source.as_deref().unwrap_or("unknown")),
    ];
    // At best it runs at its roof.
    let (view, device) = (evidence.view, &evidence.view.trace.device);
    let of_row = |&at: &usize| {
        view.operator_of_device(at).is_some_and(|inner| view.ancestors(inner).any(|at| view.host_name(at) == row.name))
    };
    let at_roof = |at: usize| (device.duration[at] as f64 * row.percent_of_roof / 100.0) as i64;
    found.removal.device = device.busy().filter(of_row).map(|at| (at, at_roof(at))).collect();
    if !view.has_device_work() {
        let host = &view.trace.host;
        let own = (0..host.len()).filter(|&at| view.host_name(at) == row.name);
        found.removal.host = own
            .map(|at| {
                let kept = (host.duration[at] as f64 * row.percent_of_roof / 100.0) as i64;
                Span { start: host.start[at] + kept, end: host.start[at] + host.duration[at] }
            })
            .collect();
    }
    Some(found)
}
