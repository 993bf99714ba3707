//! TR137 attention-masked: fused attention computes scores that a mask then discards.
//!
//! Such a mask is an explicit matrix that is the same for all sequences and heads.

use super::{Evidence, Found, TraceRule, percent};
use crate::constants::attention_masked::SHORTEST_SEQUENCE;
use crate::constants::attention_masked::{LEFT, LEFT_AT_BEST, LEFT_OF_ANY_MASK};
use crate::constants::tr137;
use crate::finding::{Cause, Confidence, Effort};
use crate::measures::intervals::{merged, seconds};
use crate::measures::kinds::{Kind, kinds_of_names};
use crate::measures::view::View;
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
    let (device, masked) = (&evidence.view.trace.device, masked_attention(evidence.view));
    let left = |at: usize| match evidence.view.name(device.name[at]).contains("fmha_cutlass") {
        true => LEFT_OF_ANY_MASK.get(),
        false => LEFT.get(),
    };
    let with = |left: &dyn Fn(usize) -> f64| Removal {
        device: masked.kernels.iter().map(|&at| (at, (left(at) * device.duration[at] as f64) as i64)).collect(),
        ..Removal::default()
    };
    let expected = with(&left);
    let removal = with(&|_| LEFT_AT_BEST.get());
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
    let mut found = Found::new(Some(evidence.simulation.saved_share(&removal)), message, advice);
    found.confidence = Confidence::Medium;
    found.on_device = true;
    let per_step = 1e3 * seconds(nanos) / evidence.view.steps.count();
    found.evidence =
        vec![format!("{:.0} calls per step, {per_step:.2} ms forward and backward", masked.calls_per_step)];
    found.removal = removal;
    found.expected = Some(expected);
    vec![found]
}

#[derive(Clone, Debug, Default)]
struct MaskedAttention {
    calls_per_step: f64,
    /// Sizes of the mask.
    dims: Option<String>,
    /// Kernels of attention, forward and backward.
    kernels: Vec<usize>,
}

/// Finds masks that are probably causal. A padding mask differs between sequences, a position bias between heads. A
/// square mask that is the same for all is most likely a triangle; nothing else in a trace tells its contents.
fn masked_attention(view: &View) -> MaskedAttention {
    let mut found = MaskedAttention::default();
    let (mut calls, mut others, mut spans) = (0usize, 0usize, Vec::new());
    let is_either = |name: &str| is_attention(name) || is_gradient(name);
    for at in view.operators_named(is_either) {
        // The outermost operator has the mask as given.
        if view.ancestors(at).skip(1).any(|outer| is_either(view.host_name(outer))) {
            continue;
        }
        let inputs = view.shapes(at);
        if is_gradient(view.host_name(at)) {
            if inputs.iter().any(|sizes| square(sizes).is_some()) {
                spans.push(view.host_span(at));
            }
            continue;
        }
        match inputs.get(3).filter(|mask| is_for_all(mask, &inputs)) {
            Some(mask) => {
                calls += 1;
                found.dims.get_or_insert_with(|| format!("{mask:?}"));
                spans.push(view.host_span(at));
            }
            None => others += 1,
        }
    }
    // Encoders beside a decoder have other kinds of masks, and their gradients cannot be told apart.
    if calls == 0 || others > 0 {
        return MaskedAttention::default();
    }
    let kinds = kinds_of_names(view);
    found.calls_per_step = calls as f64 / view.steps.count();
    found.kernels = view.ordered_in(&merged(spans));
    found.kernels.retain(|&at| kinds[view.trace.device.name[at].index()] == Kind::Attention);
    found
}

fn is_attention(name: &str) -> bool {
    name.starts_with("aten::") && name.contains("scaled_dot_product") && name.ends_with("attention")
}

fn is_gradient(name: &str) -> bool {
    name.starts_with("aten::_scaled_dot_product") && name.ends_with("attention_backward")
}

/// The sequence length if the last two sizes are equal.
fn square(sizes: &[u64]) -> Option<u64> {
    match sizes {
        [.., rows, columns] if rows == columns && *rows >= SHORTEST_SEQUENCE.get() => Some(*rows),
        _ => None,
    }
}

/// A square of queries and keys, without a size for sequences or heads.
fn is_for_all(mask: &[u64], inputs: &[Vec<u64>]) -> bool {
    let length = |of: &Vec<u64>| of.len().checked_sub(2).map(|place| of[place]);
    let lengths = inputs.first().and_then(length).zip(inputs.get(1).and_then(length));
    let Some(side) = square(mask).filter(|side| lengths == Some((*side, *side))) else { return false };
    mask.iter().product::<u64>() == side * side
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};

    /// One call and its gradient, with a mask of these sizes.
    fn attention(mask: &str) -> MaskedAttention {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, 5_000 * MICRO);
        let heads = "[4,16,2048,64],[4,16,2048,64],[4,16,2048,64]";
        let forward = format!("[{heads},{mask},[],[]]");
        made.shaped("aten::scaled_dot_product_attention", 10 * MICRO, 100 * MICRO, &forward, "c10::BFloat16");
        let inner = format!("[{heads},[4,16,2048,2048],[],[]]");
        made.shaped("aten::_scaled_dot_product_efficient_attention", 20 * MICRO, 90 * MICRO, &inner, "c10::BFloat16");
        made.launch((30 * MICRO, 35 * MICRO), "fmha_cutlassF_bf16_aligned_64x64_rf_sm80", (40 * MICRO, 400 * MICRO));
        made.launch((40 * MICRO, 45 * MICRO), "vectorized_elementwise_kernel<4>", (400 * MICRO, 410 * MICRO));
        let gradient = format!("[[4,16,2048,64],{heads},[4,16,2048,2048]]");
        let name = "aten::_scaled_dot_product_efficient_attention_backward";
        made.shaped(name, 500 * MICRO, 600 * MICRO, &gradient, "c10::BFloat16");
        made.launch(
            (510 * MICRO, 515 * MICRO),
            "fmha_cutlassB_bf16_aligned_64x64_k64_sm80",
            (600 * MICRO, 1_400 * MICRO),
        );
        made.viewed(masked_attention)
    }

    #[test]
    fn a_square_for_all_sequences_and_heads_is_found_with_its_kernels() {
        for mask in ["[1,1,2048,2048]", "[2048,2048]"] {
            let found = attention(mask);
            assert_eq!((found.calls_per_step, found.kernels.len()), (1.0, 2), "{mask}");
        }
        assert_eq!(attention("[2048,2048]").dims.as_deref(), Some("[2048, 2048]"));
    }

    #[test]
    fn masks_of_padding_and_biases_of_heads_are_none() {
        for mask in ["[4,1,2048,2048]", "[1,16,2048,2048]", "[4,1,1,2048]", "[1,1,2048,1024]", "[]"] {
            assert!(attention(mask).kernels.is_empty(), "{mask}");
        }
    }
}
