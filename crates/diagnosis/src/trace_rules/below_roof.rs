//! TR113 below-roof: an operator takes far longer than the device would need.

use super::{percent, shown_time};
use crate::constants::below_roof::{CONVERSIONS_LEFT, MOVING_SHARE};
use crate::constants::cost::ROOF_SHARE;
use crate::constants::tr113;
use crate::finding::Confidence;
use crate::measures::collectives::is_host_communication;
use crate::measures::intervals::Span;
use crate::measures::memory_bound::MemoryBoundRow;
use crate::measures::roofline::RooflineRow;
use crate::simulation::Removal;

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
    let unaligned: Vec<Found> = unaligned(evidence).into_iter().collect();
    // Without tensor cores the roof is a different one: no-tensor-cores reports that.
    let cores = &evidence.measures.patterns.tensor_cores;
    if cores.without_seconds * 2.0 > cores.eligible_seconds {
        return unaligned;
    }
    let of_memory = evidence.measures.patterns.memory_bound.iter().filter_map(|row| of_memory(evidence, row));
    let of_rows = roofline.rows.iter().filter_map(|row| found(evidence, row));
    unaligned.into_iter().chain(of_rows).chain(norms(evidence)).chain(of_memory).collect()
}

/// GEMMs of odd sizes, whose unaligned rows are loaded in small pieces.
fn unaligned(evidence: &Evidence) -> Option<Found> {
    let unaligned = &evidence.measures.patterns.unaligned;
    let wall = evidence.measures.breakdown.wall_seconds.max(f64::MIN_POSITIVE);
    let above = (unaligned.seconds - unaligned.expected_seconds) / wall;
    if above < evidence.thresholds.of(&tr113::ROOF_SHARE) {
        return None;
    }
    let steps = evidence.view.steps.count();
    let message = format!(
        "GEMMs of odd sizes load {} byte(s) per access instead of 16: {} of the step more than with aligned rows",
        unaligned.bytes,
        percent(above)
    );
    let advice = match unaligned.name.contains("gemm") {
        true => {
            "make every GEMM dimension a multiple of 8 (better 64): pad the vocabulary (50257 to 50304), \
             classes, heads or features, and give the added columns no probability"
        }
        false => "make the channels of every convolution, including the input's, a multiple of 8 (better 64)",
    };
    let mut found = Found::new(Some(above), message, advice);
    found.confidence = Confidence::Medium;
    found.on_device = true;
    found.evidence = vec![
        format!(
            "{:.0} such GEMMs per step take {}, about {} with aligned rows",
            unaligned.kernels.len() as f64 / steps,
            shown_time(unaligned.seconds / steps),
            shown_time(unaligned.expected_seconds / steps)
        ),
        format!("`{}`", unaligned.name),
    ];
    let expected = unaligned.kernels.iter().map(|kernel| (kernel.at, kernel.expected_nanos));
    found.expected = Some(Removal { device: expected.collect(), ..Removal::default() });
    found.removal.device = unaligned.kernels.iter().map(|kernel| (kernel.at, kernel.least_nanos)).collect();
    Some(found)
}

/// Norms move bytes and compute next to nothing: far below the memory bandwidth, they read in a bad order or too often.
fn norms(evidence: &Evidence) -> Option<Found> {
    let norms = &evidence.measures.patterns.norms;
    let wall = evidence.measures.breakdown.wall_seconds.max(f64::MIN_POSITIVE);
    let above = (norms.seconds - norms.least_seconds) / wall;
    let percent_of_rate = 100.0 * norms.least_seconds / norms.seconds.max(f64::MIN_POSITIVE);
    if percent_of_rate > evidence.thresholds.of(&tr113::NORM_PERCENT)
        || above < evidence.thresholds.of(&tr113::ROOF_SHARE)
    {
        return None;
    }
    let (why, advice) = match norms.is_by_plane {
        true => (
            ": batch norms read images in NCHW layout",
            "use the channels-last layout: model and input .to(memory_format=torch.channels_last), which also \
             avoids layout conversions around convolutions",
        ),
        false => ("", "one fused norm in half precision (torch.nn.functional.layer_norm or rms_norm, torch.compile)"),
    };
    let message = format!(
        "norms run at {percent_of_rate:.0}% of the memory bandwidth, {} of the step more than their bytes need{why}",
        percent(above)
    );
    let mut found = Found::new(Some(above), message, advice);
    found.confidence = Confidence::Medium;
    found.on_device = true;
    let steps = evidence.view.steps.count();
    found.evidence = vec![
        format!(
            "{:.0} norms per step take {}, at least {} by their bytes; most of it in `{}`",
            norms.calls as f64 / steps,
            shown_time(norms.seconds / steps),
            shown_time(norms.least_seconds / steps),
            norms.operator
        ),
        format!("peaks: {}", evidence.measures.roofline.peak_source.as_deref().unwrap_or("unknown")),
    ];
    let duration = &evidence.view.trace.device.duration;
    let kernels = norms.kernels.iter().map(|kernel| (kernel.at, kernel.expected_nanos));
    let mut expected = Removal { device: kernels.collect(), ..Removal::default() };
    found.removal.device = norms.kernels.iter().map(|kernel| (kernel.at, kernel.fewest_nanos)).collect();
    if norms.is_by_plane {
        let left = |at: usize| (CONVERSIONS_LEFT.get() * duration[at] as f64) as i64;
        expected.device.extend(norms.conversions.iter().map(|&at| (at, left(at))));
        found.removal.device.extend(norms.conversions.iter().map(|&at| (at, 0)));
    }
    found.expected = Some(expected);
    Some(found)
}

/// An operator that only moves bytes, far below the memory bandwidth: a bad memory order, sorting or atomic sums on the
/// way.
fn of_memory(evidence: &Evidence, row: &MemoryBoundRow) -> Option<Found> {
    let wall = evidence.measures.breakdown.wall_seconds.max(f64::MIN_POSITIVE);
    let above = (row.seconds - row.least_seconds) / wall;
    let percent_of_rate = 100.0 * row.least_seconds / row.seconds.max(f64::MIN_POSITIVE);
    let thresholds = evidence.thresholds;
    if percent_of_rate > thresholds.of(&tr113::ROOF_PERCENT) || above < thresholds.of(&tr113::ROOF_SHARE) {
        return None;
    }
    let message = format!(
        "`{}` runs at {percent_of_rate:.0}% of the memory bandwidth: {} of the step more than its bytes need",
        row.operator,
        percent(above)
    );
    let advice = match row.operator.contains("cum") {
        true => {
            "scan inside a compiled function (torch.compile), or as a product with a triangular matrix: \
             in short rows, most threads of the kernel have nothing to do"
        }
        false => {
            "use another memory layout (contiguous, channels last), or an operator that neither sorts nor \
             adds atomically: index_add_ or embedding instead of indexing by lists"
        }
    };
    let mut found = Found::new(Some(above), message, advice);
    found.confidence = Confidence::Low;
    found.on_device = true;
    let steps = evidence.view.steps.count();
    found.evidence = vec![format!(
        "{:.0} calls per step take {}, at least {} by their bytes",
        row.calls as f64 / steps,
        shown_time(row.seconds / steps),
        shown_time(row.least_seconds / steps)
    )];
    let duration = &evidence.view.trace.device.duration;
    let near = |(at, nanos): &(usize, i64)| (*at, ((*nanos as f64 / MOVING_SHARE.get()) as i64).min(duration[*at]));
    found.expected = Some(Removal { device: row.kernels.iter().map(near).collect(), ..Removal::default() });
    found.removal.device = row.kernels.iter().copied().collect();
    Some(found)
}

fn found(evidence: &Evidence, row: &RooflineRow) -> Option<Found> {
    let wall = evidence.measures.breakdown.wall_seconds.max(f64::MIN_POSITIVE);
    let above = (row.seconds - row.roof_seconds) / wall;
    let thresholds = evidence.thresholds;
    let is_below =
        row.percent_of_roof <= thresholds.of(&tr113::ROOF_PERCENT) && above >= thresholds.of(&tr113::ROOF_SHARE);
    // The processor's peaks say nothing about links.
    if !is_below || is_host_communication(&row.name) {
        return None;
    }
    let message = format!(
        "`{}` runs at {:.0}% of its roofline limit: {} of the step is time beyond that limit",
        row.name,
        row.percent_of_roof,
        percent(above)
    );
    let advice = "use larger batches or fuse GEMMs to make each one larger; make sizes multiples of 8 (better 64); avoid layout copies";
    let mut found = Found::new(Some(above), message, advice);
    found.confidence = Confidence::Medium;
    found.on_device = true;
    let steps = evidence.view.steps.count();
    found.evidence = vec![
        format!(
            "{} per step, at least {} at peak rates",
            shown_time(row.seconds / steps),
            shown_time(row.roof_seconds / steps)
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
        let own = |share_of_roof: f64| {
            let left = (row.percent_of_roof / 100.0 / share_of_roof).min(1.0);
            let calls = (0..host.len()).filter(|&at| view.host_name(at) == row.name);
            let above = calls
                .map(|at| Span { start: host.start[at] + (left * host.duration[at] as f64) as i64, end: host.end(at) });
            Removal { host: above.collect(), ..Removal::default() }
        };
        found.removal = own(1.0);
        found.expected = Some(own(ROOF_SHARE.get()));
    }
    Some(found)
}
