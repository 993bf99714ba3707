//! The memory of a step: live bytes by category at every call, as the calls state them, and the plan's facts.

use headroom_record::memory::{
    ByCategory, LargestTensor, LivePlace, MEMORY_VERSION, MemoryEvent, MemoryRecommendation, MemoryRecord,
    peak_to_average,
};
use headroom_record::provenance::Origin;
use headroom_record::timeline::{TimelinePoint, TimelineRecord};
use headroom_trace::Phase;

use super::kinds::{self, Roles};
use super::passes::Passes;
use crate::measures::calls::{Call, Calls};
use crate::measures::view::View;

pub const MIB: f64 = 1024.0 * 1024.0;

/// `matmul in layers.0.mlp.up_proj`.
pub fn describe(call: &Call) -> String {
    format!("{} in {}", call.name, call.module)
}

fn in_mib(live: [u64; 5]) -> ByCategory {
    let [parameters, gradients, optimizer_state, activations, temporaries] = live.map(|bytes| bytes as f64 / MIB);
    ByCategory { parameters, gradients, optimizer_state, activations, temporaries }
}

pub fn memory_record(calls: &Calls, passes: &Passes) -> MemoryRecord {
    let plan = &calls.header.plan;
    let peak = calls.fullest();
    let by_category = peak.map_or_else(ByCategory::default, |call| in_mib(call.stated.live));
    let peak_memory_mb = by_category.total();
    let at = |phase: Phase| {
        let of_phase = calls.list.iter().filter(|call| call.phase == phase);
        of_phase.map(Call::live_bytes).max().unwrap_or(0) as f64 / MIB
    };
    let live_at_peak: Vec<LivePlace> = plan
        .live_at_peak
        .iter()
        .map(|row| LivePlace { name: row.name.clone(), module: row.module.clone(), mb: row.bytes as f64 / MIB })
        .collect();
    let reserved_memory_mb = plan.reserved_bytes as f64 / MIB;
    let avg_memory_mb = plan.average_bytes.unwrap_or_else(|| average_bytes(calls)) as f64 / MIB;
    let between = plan.arena_bytes.saturating_sub(peak.map_or(0, Call::live_bytes));
    MemoryRecord {
        schema_version: MEMORY_VERSION,
        peak_memory_mb,
        avg_memory_mb,
        peak_to_average: peak_to_average(reserved_memory_mb, avg_memory_mb),
        fragmentation_percent: 100.0 * between as f64 / plan.arena_reserved_bytes.max(1) as f64,
        peak_phase: peak.map_or("none", |call| call.phase.name()).into(),
        peak_operator: peak.map_or_else(|| "nothing".into(), describe),
        at_forward_mb: at(Phase::Forward),
        at_backward_mb: at(Phase::Backward),
        at_optimizer_mb: at(Phase::Optimizer),
        reserved_memory_mb,
        scratch_memory_mb: plan.scratch_bytes as f64 / MIB,
        allocations: plan.allocations,
        largest_tensor: LargestTensor {
            name: plan.largest_tensor.name.clone(),
            shape: plan.largest_tensor.shape.clone(),
            mb: plan.largest_tensor.bytes as f64 / MIB,
        },
        by_category,
        peak_memory_events: plan
            .births
            .iter()
            .map(|birth| MemoryEvent {
                name: birth.name.clone(),
                memory_usage: birth.bytes,
                count: birth.count,
                avg_memory_per_call: birth.bytes / birth.count.max(1),
                live_at_peak: birth.live_at_peak,
            })
            .collect(),
        memory_efficiency_recommendations: recommendations(
            &live_at_peak,
            Roles::new(&calls.header.roles),
            by_category.activations,
            peak_memory_mb,
            passes,
        ),
        live_at_peak,
        total_memory_allocated: plan.allocated_bytes,
        largest_batch_that_fits: plan.largest_batch_that_fits,
        provenance: MemoryRecord::provenance(),
    }
}

/// The average for a trace whose header does not have it: over the recorded calls, each counted once, and scratch.
fn average_bytes(calls: &Calls) -> u64 {
    let live: u64 = calls.list.iter().map(Call::live_bytes).sum();
    live / calls.list.len().max(1) as u64 + calls.header.plan.scratch_bytes
}

/// Live bytes at the start of every recorded call; times count from the start of the first recorded step.
pub fn timeline_record(view: &View, calls: &Calls, times: Origin) -> TimelineRecord {
    let zero = view.steps.list.first().map_or(0, |step| step.span.start);
    let number = |name: &str| name.rsplit('#').next().and_then(|number| number.parse().ok());
    let steps: Vec<u64> = (1..).zip(&view.steps.list).map(|(at, step)| number(&step.name).unwrap_or(at)).collect();
    let point = |call: &Call| TimelinePoint {
        time_us: (call.span.start - zero) as f64 / 1e3,
        step: steps[call.step],
        phase: call.phase.name().into(),
        operator: describe(call),
        live_mb: in_mib(call.stated.live),
    };
    TimelineRecord::new(calls.list.iter().map(point).collect(), times)
}

/// Passes that would lower the peak, based on what is live at it; the largest first, without those below 1% of it.
fn recommendations(
    live: &[LivePlace],
    roles: Roles,
    activations_mb: f64,
    peak_mb: f64,
    passes: &Passes,
) -> Vec<MemoryRecommendation> {
    let sum = |wanted: &dyn Fn(&LivePlace) -> bool| -> f64 {
        live.iter().filter(|place| wanted(place)).map(|place| place.mb).sum()
    };
    let scores = sum(&|place| place.name.contains("softmax") || place.name == "attention_scores");
    let logits = sum(&|place| kinds::is_loss(&roles.of(&place.module)));
    let gated =
        sum(&|place| matches!(place.name.as_str(), "silu" | "mul") && kinds::is_activation(&roles.of(&place.module)));
    let mut rows = vec![
        (scores, "flash-attention", "the attention scores and their softmax are live at the peak"),
        (logits, "fuse-loss", "the logits and their gradient are live at the peak"),
        (gated, "fuse-swiglu", "the SiLU output and its product are kept for the backward pass"),
        (
            activations_mb,
            "checkpoint",
            "activations are kept for the backward pass; recomputing them costs up to one more forward pass",
        ),
    ];
    rows.retain(|(saved, _, _)| *saved >= 0.01 * peak_mb);
    rows.sort_by(|left, right| right.0.total_cmp(&left.0));
    rows.into_iter()
        .filter_map(|(saves_at_most_mb, pass, reason)| {
            let recommendation = passes.flag(&[pass])?;
            Some(MemoryRecommendation { recommendation, reason: reason.into(), saves_at_most_mb })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn what_fills_the_peak_is_what_is_advised_about_first() {
        let live = [
            LivePlace { name: "causal_softmax".into(), module: "layers.*.self_attn".into(), mb: 60.0 },
            LivePlace { name: "matmul".into(), module: "lm_head".into(), mb: 10.0 },
            LivePlace { name: "silu".into(), module: "layers.*.mlp".into(), mb: 0.5 },
        ];
        let missing = ["flash-attention", "fuse-loss", "checkpoint"].map(String::from);
        let passes = Passes { list: "v1", missing: &missing };
        let rows = recommendations(&live, Roles::new(&BTreeMap::new()), 80.0, 100.0, &passes);
        let advice: Vec<&str> = rows.iter().map(|row| row.recommendation.as_str()).collect();
        assert_eq!(advice, ["--passes v1,+checkpoint", "--passes v1,+flash-attention", "--passes v1,+fuse-loss"]);
    }
}
