//! Loops on the device: the same few short kernels repeated, with the loop itself recurring in every layer.

use std::collections::BTreeMap;

use headroom_trace::NONE;

use super::kernel_index::{KernelIndex, Loop, LoopQuery, Sign};
use super::kinds::{Kind, kinds_of_names};
use super::view::View;
use crate::constants::repeats::{FEWEST_LOOPS, FEWEST_ROUNDS, LONGEST_NANOS, LONGEST_PAUSE_NANOS, LONGEST_ROUND};

/// Kernels in loops that occur several times per step: over heads, experts, groups or parts within each layer, not over
/// layers. The work on one part after another may become one call for all of them.
#[derive(Clone, Debug, Default)]
pub struct Repeats {
    pub kernels: Vec<usize>,
    /// Kernels that accumulate or convert the results of GEMMs in the same iteration: one GEMM over all parts does that
    /// itself.
    pub beside_products: Vec<usize>,
    pub loops_per_step: f64,
    /// Iterations of each loop, at the median.
    pub rounds: usize,
    pub kernels_per_round: usize,
    pub nanos: i64,
    /// Total time between consecutive kernels.
    pub gap_nanos: i64,
}

/// Loops among kernels replayed from graphs, where no operator identifies them.
pub fn repeats(view: &View) -> Repeats {
    let device = &view.trace.device;
    let index = KernelIndex::new(view, view.steps.range(), |at| in_graph(view, at));
    let goes_on = |at: usize| {
        let (last, next) = (index.kernels[at - 1], index.kernels[at]);
        device.track[last] == device.track[next]
            && device.start[next] - device.end(last) <= LONGEST_PAUSE_NANOS.get()
            && device.duration[next] <= LONGEST_NANOS.get()
    };
    let query = LoopQuery {
        periods: 1..=LONGEST_ROUND.get(),
        fewest_rounds: FEWEST_ROUNDS.get(),
        compared_rounds: 2,
        goes_on: &goes_on,
        is_round: &|_, _| true,
    };
    // By the content of an iteration.
    let mut loops: BTreeMap<Vec<Sign>, Vec<Loop>> = BTreeMap::new();
    for found in index.loops(&query) {
        let mut round: Vec<Sign> = index.signs[found.from..found.from + found.period].to_vec();
        round.sort_unstable();
        loops.entry(round).or_default().push(found);
    }
    let kinds = kinds_of_names(view);
    let mut result = Repeats::default();
    let mut rounds = Vec::new();
    for found in loops.values() {
        if (found.len() as f64) < FEWEST_LOOPS.get() * view.steps.count() {
            continue;
        }
        result.loops_per_step += found.len() as f64 / view.steps.count();
        for &one in found {
            let kernels = index.of(one);
            rounds.push((one.rounds(), one.period));
            result.kernels.extend(kernels);
            let kind = |at: usize| kinds[device.name[at].index()];
            if kernels.iter().any(|&at| kind(at) == Kind::Product) {
                result.beside_products.extend(kernels.iter().filter(|&&at| kind(at) == Kind::ElementWise));
            }
            let pairs = kernels.windows(2);
            result.gap_nanos += pairs.map(|pair| (device.start[pair[1]] - device.end(pair[0])).max(0)).sum::<i64>();
        }
    }
    rounds.sort_unstable();
    (result.rounds, result.kernels_per_round) = rounds.get(rounds.len() / 2).copied().unwrap_or_default();
    result.nanos = view.device_nanos(&result.kernels);
    result
}

fn in_graph(view: &View, at: usize) -> bool {
    let call = view.call_of[at];
    call != NONE && view.call_kind(call as usize) == Some(headroom_trace::CallKind::GraphLaunch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};

    /// A graph of `layers` layers: a norm, then `heads` times two GEMMs, and a large GEMM.
    fn graph(layers: i64, heads: i64) -> Repeats {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, 100_000 * MICRO);
        made.span("cuda_runtime", "cudaGraphLaunch", 1, 5 * MICRO, 20 * MICRO, r#""correlation":9"#);
        let mut time = 30 * MICRO;
        let mut kernel = |name: &str, micros: i64| {
            made.span(
                "kernel",
                name,
                7,
                time,
                time + micros * MICRO,
                r#""correlation":9,"grid":[4,1,1],"block":[128,1,1]"#,
            );
            time += (micros + 1) * MICRO;
        };
        for _ in 0..layers {
            kernel("layer_norm", 10);
            for _ in 0..heads {
                kernel("gemm_narrow", 8);
                kernel("flash_fwd", 6);
            }
            kernel("gemm_wide", 200);
        }
        made.viewed(repeats)
    }

    #[test]
    fn a_loop_in_every_layer_is_found() {
        let found = graph(6, 8);
        assert_eq!((found.kernels.len(), found.rounds, found.kernels_per_round), (96, 8, 2));
        assert!((found.loops_per_step - 6.0).abs() < 1e-9);
        assert_eq!((found.nanos, found.gap_nanos), (6 * 8 * 14 * MICRO, 6 * 15 * MICRO));
    }

    #[test]
    fn layers_themselves_are_no_such_loop() {
        assert!(graph(12, 1).kernels.is_empty(), "one round in each of many layers");
        assert!(graph(2, 8).kernels.is_empty(), "too few layers to tell");
    }
}
