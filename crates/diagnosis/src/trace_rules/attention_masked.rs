//! TR137 attention-masked: fused attention computes scores that a mask then discards.

use super::{Evidence, Found, TraceRule, percent};
use crate::constants::attention_masked::{LEFT, LEFT_AT_BEST, LEFT_OF_ANY_MASK};
use crate::constants::tr137;
use crate::finding::{Cause, Confidence, Effort};
use crate::measures::intervals::seconds;
use crate::simulation::Removal;

pub const RULE: TraceRule = TraceRule {
    code: "TR137",
    name: "attention-masked",
    cause: Cause::BelowRoof,
    page: include_str!("attention_masked.md"),
    effort: Effort::Low,
    check,
};

fn check(evidence: &Evidence) -> Vec<Found> {
    let (device, masked) = (&evidence.view.trace.device, &evidence.measures.patterns.masked_attention);
    let left = |at: usize| match evidence.view.name(device.name[at]).contains("fmha_cutlass") {
        true => LEFT_OF_ANY_MASK.get(),
        false => LEFT.get(),
    };
    let with = |left: &dyn Fn(usize) -> f64| Removal {
        device: masked.kernels.iter().map(|&at| (at, (left(at) * device.duration[at] as f64) as i64)).collect(),
        ..Removal::default()
    };
    let expected = with(&left);
    let share = evidence.simulation.saved_share(&expected);
    if masked.kernels.is_empty() || share < evidence.thresholds.of(&tr137::NEEDLESS_SHARE) {
        return Vec::new();
    }
    let nanos = evidence.view.device_nanos(&masked.kernels);
    let dims = masked.dims.as_deref().unwrap_or("a square");
    let message = format!(
        "attention gets a mask of {dims}, the same for all sequences and heads: if it is causal, {} of the step \
         computes scores that are then masked",
        percent(share)
    );
    let advice = "where the mask is causal: scaled_dot_product_attention(q, k, v, is_causal=True) skips the \
                  blocks beyond the diagonal; for a window or blocks: flex_attention with a block mask";
    let mut found = Found::new(Some(share), message, advice);
    found.confidence = Confidence::Medium;
    found.on_device = true;
    let per_step = 1e3 * seconds(nanos) / evidence.view.steps.count();
    found.evidence =
        vec![format!("{:.0} calls per step, {per_step:.2} ms forward and backward", masked.calls_per_step)];
    found.removal = with(&|_| LEFT_AT_BEST.get());
    found.expected = Some(expected);
    vec![found]
}
