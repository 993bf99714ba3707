//! Figures of a step beside its breakdown, one line each: queue, graphs, loading, waits, copies, collectives, memory.

use headroom_diagnosis::Analysis;
use headroom_diagnosis::measures::copies::Direction;
use headroom_diagnosis::measures::memory::Point;

use super::{milliseconds, percent};
use crate::numbers::bytes;

/// The known facts, each as a name and its text.
pub(super) fn facts(analysis: &Analysis) -> Vec<(&'static str, String)> {
    let measures = &analysis.measures;
    let steps = analysis.steps.count();
    let mut facts = Vec::new();
    // Headroom's own runs name their parts themselves.
    if analysis.run.is_none() && !measures.kinds.is_empty() {
        let kinds = measures.kinds.iter().filter(|row| row.share >= 0.01);
        let kinds: Vec<String> = kinds.map(|row| format!("{} {}", row.name, percent(row.share))).collect();
        facts.push(("device time", kinds.join(", ")));
    }
    let launches = &measures.launches;
    if launches.count > 0 {
        let (median, most) = (launches.queue_depth_median, launches.queue_depth_most);
        facts.push(("queue", format!("{median:.0} operations queued ahead of a launch (median), at most {most}")));
    }
    if let Some(parts) = &measures.model_parts {
        let share = |share: f64| format!("{:.0}%", 100.0 * share);
        let (attention, feed_forward) = (share(parts.attention_share), share(parts.feed_forward_share));
        let (rest, products) = (share(parts.rest_share), share(parts.product_share));
        let text = format!(
            "attention {attention}, feed-forward {feed_forward}, rest {rest} of device time; matrix products {products}"
        );
        facts.push(("by module", text));
    }
    for counter in measures.counters.iter().take(4) {
        let text =
            format!("{}: {:.4} on average, {:.4} to {:.4}", counter.name, counter.mean, counter.least, counter.most);
        facts.push(("counter", text));
    }
    let queue = &measures.queue;
    if queue.blocked_calls > 0 {
        let time = milliseconds(queue.blocked_seconds_per_step);
        facts.push((
            "full queue",
            format!("the host waits {time} per step for room in the queue: the device sets the pace"),
        ));
    }
    if launches.graph_launches > 0 {
        let share = percent(measures.kernels.in_graphs_share);
        facts.push((
            "graphs",
            format!("{:.1} launched per step, with {share} of kernel time", launches.graph_launches as f64 / steps),
        ));
    }
    let loading = &measures.data_loading;
    if loading.calls > 0 {
        let where_ = if loading.in_process { "in the training process" } else { "from workers" };
        let time = milliseconds(loading.seconds / steps);
        let exposed = milliseconds(loading.exposed_seconds / steps);
        facts.push(("data loading", format!("{time} per step, {exposed} of it while nothing runs, {where_}")));
    }
    let waits = &measures.synchronisation;
    if waits.calls > 0 {
        let time = milliseconds(waits.wait_seconds / steps);
        facts.push(("waits", format!("{:.1} calls per step wait for the device, {time}", waits.calls as f64 / steps)));
    }
    for row in measures.copies.rows.iter().filter(|row| row.direction != Direction::Within) {
        let kind = if row.pageable { ", pageable" } else { "" };
        facts.push((
            "copies",
            format!(
                "{:.1} per step `{}`, {} at {:.1} GB/s, {} per step exposed{kind}",
                row.count as f64 / steps,
                row.name,
                bytes((row.bytes as f64 / steps) as u64),
                row.gigabytes_per_second,
                milliseconds(row.exposed_seconds / steps)
            ),
        ));
    }
    let collectives = &measures.communication;
    if collectives.collectives > 0 {
        facts.push((
            "collectives",
            format!(
                "{:.1} per step, {}, {} of it hidden behind compute",
                collectives.collectives as f64 / steps,
                milliseconds(collectives.seconds / steps),
                percent(collectives.overlap_share)
            ),
        ));
    }
    if let Some(parts) = memory_at_peak(analysis) {
        facts.push(("memory at the peak", parts));
    }
    facts
}

/// A category of memory, from the lowest band up: its CSS class, its name, and its bytes at a point.
pub(crate) type Band = (&'static str, &'static str, fn(&Point) -> u64);
pub(crate) const BANDS: &[Band] = &[
    ("parameters", "from before the trace", |point| point.earlier),
    ("parameters", "parameters", |point| point.parameters),
    ("optimizer_state", "optimizer state", |point| point.optimizer_state),
    ("gradients", "gradients", |point| point.gradients),
    ("activations", "activations", |point| point.activations),
    ("temporaries", "temporaries", |point| point.temporaries),
];

fn memory_at_peak(analysis: &Analysis) -> Option<String> {
    let peak = analysis.measures.memory.curve.iter().max_by_key(|point| point.total())?;
    let parts = BANDS.iter().map(|(_, name, of)| (name, of(peak))).filter(|(_, count)| *count > 0);
    Some(parts.map(|(name, count)| format!("{name} {}", bytes(count))).collect::<Vec<_>>().join(", "))
}
