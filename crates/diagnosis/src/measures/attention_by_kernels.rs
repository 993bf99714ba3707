//! Finds attention that stores its scores by its kernels alone: a softmax between two GEMMs. In a graph replay, and in
//! compiled code, no operator is named `softmax`.

use std::collections::BTreeSet;

use headroom_trace::Category;

use super::kinds::{Kind, kinds_of_names};
use super::view::View;
use crate::constants::attention_by_kernels::*;

/// Device spans of attention without an operator that names it.
#[derive(Clone, Debug, Default)]
pub struct ScoresByKernels {
    pub products: BTreeSet<usize>,
    /// The softmax itself, and the kernels between it and the GEMMs.
    pub beside_products: BTreeSet<usize>,
    /// Softmaxes of the forward pass.
    pub softmaxes: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Pass {
    #[default]
    Neither,
    Forward,
    Backward,
}

pub fn attention_by_kernels(view: &View) -> ScoresByKernels {
    let device = &view.trace.device;
    let (kinds, passes) = (kinds_of_names(view), view.of_kernels(softmax_of));
    if passes.iter().all(|pass| *pass == Pass::Neither) {
        return ScoresByKernels::default();
    }
    let range = view.steps.range();
    let mut tracks: Vec<Vec<usize>> = vec![Vec::new(); view.trace.tracks.len()];
    let kernels = device.busy().filter(|&at| device.category[at] == Category::Kernel);
    for at in kernels.filter(|&at| (range.start..range.end).contains(&device.start[at])) {
        tracks[device.track[at].0 as usize].push(at);
    }
    let mut result = ScoresByKernels::default();
    for track in &tracks {
        for (place, &at) in track.iter().enumerate() {
            let pass = passes[device.name[at].index()];
            let told =
                || view.operator_of_device(at).is_some_and(|at| view.host_name(at).starts_with("aten::_softmax"));
            if pass == Pass::Neither || told() {
                continue;
            }
            let mut before = track[..place].iter().rev().copied();
            let mut after = track[place + 1..].iter().copied();
            let earlier = next_product(&kinds, view, &mut before, MOST_BETWEEN.get());
            let later = next_product(&kinds, view, &mut after, MOST_BETWEEN.get());
            let (Some((mut beside, first)), Some((more, second))) = (earlier, later) else { continue };
            if (device.duration[at] as f64) < LEAST_OF_A_PRODUCT.get() * device.duration[second] as f64 {
                continue;
            }
            beside.extend(more);
            result.products.extend([first, second]);
            if pass == Pass::Backward {
                // The softmax's backward has two GEMMs on either side.
                let farther = next_product(&kinds, view, &mut before, MOST_BETWEEN_PRODUCTS.get());
                let latter = next_product(&kinds, view, &mut after, MOST_BETWEEN_PRODUCTS.get());
                result.products.extend([farther, latter].into_iter().flatten().map(|(_, product)| product));
            }
            result.softmaxes += usize::from(pass == Pass::Forward);
            result.beside_products.insert(at);
            result.beside_products.extend(beside);
        }
    }
    match (result.softmaxes as f64) < FEWEST_PER_STEP.get() * view.steps.count() {
        true => ScoresByKernels::default(),
        false => result,
    }
}

/// The next GEMM, and the kernels before it, all of which change scores element by element.
fn next_product(
    kinds: &[Kind],
    view: &View,
    kernels: &mut impl Iterator<Item = usize>,
    most: usize,
) -> Option<(Vec<usize>, usize)> {
    let mut between = Vec::new();
    for at in kernels.take(most + 1) {
        match kinds[view.trace.device.name[at].index()] {
            Kind::Product => return Some((between, at)),
            Kind::ElementWise | Kind::Reduction => between.push(at),
            _ => return None,
        }
    }
    None
}

/// Whether a kernel is a softmax, by its name; a loss uses a log-softmax.
fn softmax_of(name: &str) -> Pass {
    let lower = name.to_ascii_lowercase();
    if !lower.contains("softmax") || lower.contains("log_softmax") || lower.contains("logsoftmax") {
        return Pass::Neither;
    }
    // Template parameters of PyTorch's kernel for short rows: input, output and accumulator types, the logarithm of the
    // row length, and whether it is a log-softmax.
    let takes_logarithm = lower
        .split_once("softmax_warp_")
        .and_then(|(_, rest)| rest.split_once('<')?.1.split(',').nth(4))
        .is_some_and(|argument| argument.trim() == "true");
    match () {
        () if takes_logarithm => Pass::Neither,
        () if lower.contains("backward") => Pass::Backward,
        () => Pass::Forward,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};

    const SCORES: &str = "void softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10, false, false>";
    const GRADIENT: &str = "void softmax_warp_backward<c10::BFloat16, c10::BFloat16, float, 10, false, false>";
    const SCALE: &str = "void at::native::vectorized_elementwise_kernel<4, MulFunctor>";

    /// A step whose kernels are replayed from one graph.
    fn replayed(kernels: &[&str]) -> ScoresByKernels {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, 10_000 * MICRO);
        made.span("cuda_runtime", "cudaGraphLaunch", 1, 5 * MICRO, 20 * MICRO, r#""correlation":900"#);
        for (place, name) in kernels.iter().enumerate() {
            let start = (30 + 100 * place as i64) * MICRO;
            made.span("kernel", name, 7, start, start + 90 * MICRO, r#""correlation":900"#);
        }
        made.viewed(attention_by_kernels)
    }

    #[test]
    fn a_softmax_between_products_is_attention_in_both_passes() {
        let forward = ["nvjet", SCALE, SCORES, "nvjet"];
        let backward = ["nvjet", "nvjet", GRADIENT, SCALE, "nvjet", "nvjet"];
        let found = replayed(&[&forward[..], &["layer_norm"], &forward, &["layer_norm"], &backward].concat());
        assert_eq!(found.softmaxes, 2);
        assert_eq!(found.beside_products.into_iter().collect::<Vec<_>>(), [1, 2, 6, 7, 12, 13]);
        assert_eq!(found.products.into_iter().collect::<Vec<_>>(), [0, 3, 5, 8, 10, 11, 14, 15]);
    }

    #[test]
    fn one_softmax_a_loss_and_a_router_are_not() {
        assert!(replayed(&["nvjet", SCORES, "nvjet"]).products.is_empty(), "one per step");
        let of_loss = SCORES.replace("10, false", "10, true");
        let loss = ["nvjet", of_loss.as_str(), "nvjet", "layer_norm"];
        assert!(replayed(&[loss, loss].concat()).products.is_empty(), "a logarithm");
        let router = ["nvjet", SCORES, "topk", "nvjet", "layer_norm"];
        assert!(replayed(&[router, router].concat()).products.is_empty(), "sorted, not multiplied");
    }
}
