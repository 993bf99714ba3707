//! Fused attention with an explicit mask matrix that is the same for all sequences and heads.

use headroom_trace::Category;

use super::intervals::merged;
use super::kinds::{Kind, kinds_of_names};
use super::view::View;
use crate::constants::masked_attention::SHORTEST_SEQUENCE;

#[derive(Clone, Debug, Default)]
pub struct MaskedAttention {
    pub calls_per_step: f64,
    /// Sizes of the mask.
    pub dims: Option<String>,
    /// Kernels of attention, forward and backward.
    pub kernels: Vec<usize>,
}

/// Finds masks that are probably causal. A padding mask differs between sequences, a position bias between heads. A
/// square mask that is the same for all is most likely a triangle; nothing else in a trace tells its contents.
pub fn masked_attention(view: &View) -> MaskedAttention {
    let host = &view.trace.host;
    let mut found = MaskedAttention::default();
    let (mut calls, mut others, mut spans) = (0usize, 0usize, Vec::new());
    for at in view.host_spans_named(|name| is_attention(name) || is_gradient(name)) {
        if host.category[at] != Category::CpuOp || view.step_of(at).is_none() {
            continue;
        }
        // The outermost operator has the mask as given.
        if view
            .ancestors(at)
            .skip(1)
            .any(|outer| is_attention(view.host_name(outer)) || is_gradient(view.host_name(outer)))
        {
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
