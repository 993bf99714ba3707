//! Host loops over samples, crops, tokens or parts: the same few kernels in every iteration, each launched separately.
//! One call for all of them would fill the device better.

use headroom_trace::{CallKind, NONE};

use super::flops::{Cost, Precision, owner_of, shares};
use super::intervals::{Span, covered};
use super::kernel_index::{KernelIndex, LoopQuery};
use super::view::View;
use crate::constants::rounds::*;
use crate::peaks::Peaks;

/// Kernels of such loops, each with the time that remains in one call for all iterations.
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    pub kernels: Vec<(usize, i64)>,
    /// Number of iterations in the longest loop.
    pub rounds: usize,
    pub kernels_per_round: usize,
}

/// Finds such loops; parameter updates in `optimizer` are a different kind of loop.
pub fn rounds(view: &View, costs: &[Cost], optimizer: &[Span]) -> Rounds {
    let device = &view.trace.device;
    let is_meant = |at: usize| {
        view.call_of[at] != NONE
            && view.call_kind(view.call_of[at] as usize) == Some(CallKind::Launch)
            && covered(optimizer, view.host_span(view.call_of[at] as usize)) == 0
    };
    let index = KernelIndex::new(view, view.steps.range(), is_meant);
    let kernels = &index.kernels;
    let has_modules = !view.host_spans_named(|name| name.starts_with("nn.Module: ")).is_empty();
    let part = view.part();
    let step = |at: usize| view.steps.at_host(view.trace.host.start[view.call_of[kernels[at]] as usize]);
    // Steps are a loop as well, but cannot be merged.
    let goes_on = |at: usize| {
        device.track[kernels[at - 1]] == device.track[kernels[at]]
            && device.duration[kernels[at]] <= LONGEST_NANOS.get()
            && step(at).is_some()
            && step(at) == step(at - 1)
    };
    // A single repeated kernel is a loop over parameters, or a split sum.
    let is_round = |from: usize, period: usize| {
        let is_one_kernel = index.signs[from..from + period].iter().all(|sign| *sign == index.signs[from]);
        let compared = || &kernels[from..from + COMPARED_ROUNDS.get() * period];
        !is_one_kernel && (!has_modules || is_of_one_part(view, compared(), period))
    };
    let query = LoopQuery {
        periods: 2..=LONGEST_ROUND.get(),
        fewest_rounds: if has_modules { FEWEST_ROUNDS_OF_ONE_PART.get() } else { FEWEST_ROUNDS.get() },
        compared_rounds: COMPARED_ROUNDS.get(),
        goes_on: &goes_on,
        is_round: &is_round,
    };
    let mut result = Rounds::default();
    for found in index.loops(&query) {
        if found.rounds() > result.rounds {
            (result.rounds, result.kernels_per_round) = (found.rounds(), found.period);
        }
        let of_loop = index.of(found);
        let shares = shares(view, costs, of_loop.iter().copied());
        let left = |&at: &usize| (at, left(view, costs, part, at, shares.get(&at).copied().unwrap_or(1.0)));
        result.kernels.extend(of_loop.iter().map(left));
    }
    result
}

/// Whether every kernel of an iteration belongs to the same module in the following iterations: layers are separate
/// modules.
fn is_of_one_part(view: &View, kernels: &[usize], period: usize) -> bool {
    let module = |at: usize| view.module_of(view.call_of[kernels[at]] as usize);
    (0..period).all(|at| {
        let first = module(at);
        (1..COMPARED_ROUNDS.get()).all(|round| module(at + round * period) == first)
    })
}

/// Time left of a kernel: for a GEMM, near its roof, by the kernel's share of it; for others, by the share of the
/// multiprocessors they fill.
fn left(view: &View, costs: &[Cost], part: Option<&Peaks>, at: usize, share: f64) -> i64 {
    let device = &view.trace.device;
    let duration = device.duration[at];
    if let Some((owner, part)) = owner_of(view, costs, at).zip(part) {
        let cost = costs[owner];
        let rate = if cost.precision == Precision::Half { part.bf16 } else { part.fp32 };
        let roof = share * (cost.flops / rate).max(cost.bytes / part.bytes_per_second);
        return ((1e9 * roof / BATCHED_SHARE.get()) as i64).min(duration);
    }
    (view.filled_share(at) * duration as f64) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabricated::{Fabricated, MICRO};
    use crate::measures::flops::costs;

    /// `count` samples, one by one: a small GEMM and the work on its result, in the named module.
    fn one_by_one(count: i64, module: impl Fn(i64) -> Option<String>) -> Rounds {
        let mut made = Fabricated::on("NVIDIA H200");
        made.step(1, 0, 100_000 * MICRO);
        for sample in 0..count {
            let start = (10 + 400 * sample) * MICRO;
            if let Some(name) = module(sample) {
                made.span("python_function", &name, 1, start, start + 200 * MICRO, "");
            }
            made.shaped("aten::bmm", start, start + 40 * MICRO, "[[1,50176,3],[1,3,2]]", "float");
            made.launch((start + 10 * MICRO, start + 15 * MICRO), "gemm", (start + 20 * MICRO, start + 110 * MICRO));
            made.launch((start + 60 * MICRO, start + 65 * MICRO), "clamp", (start + 120 * MICRO, start + 122 * MICRO));
        }
        let trace = made.trace();
        let view = View::new(&trace);
        rounds(&view, &costs(&view), &[])
    }

    #[test]
    fn small_products_of_a_loop_shrink_to_what_their_bytes_need() {
        let found = one_by_one(200, |_| None);
        assert_eq!((found.kernels.len(), found.rounds, found.kernels_per_round), (400, 200, 2));
        assert!(found.kernels[0].1 < 5 * MICRO, "{:?}", found.kernels[0]);
        assert_eq!(found.kernels[1].1, 2 * MICRO, "without a grid it stays");
    }

    #[test]
    fn layers_are_no_such_loop() {
        assert!(one_by_one(80, |_| None).kernels.is_empty(), "nothing tells them from layers");
        assert!(one_by_one(200, |layer| Some(format!("nn.Module: Block_{layer}"))).kernels.is_empty());
        assert_eq!(one_by_one(32, |_| Some("nn.Module: Expert_0".to_string())).rounds, 32);
    }

    /// `count` iterations of `kernels`, with `rounds_per_step` iterations per step.
    fn rounds_of(kernels: &[&str], count: i64, rounds_per_step: i64) -> Rounds {
        let mut made = Fabricated::on("NVIDIA H200");
        let round = 10 * MICRO * kernels.len() as i64;
        for number in 0..count / rounds_per_step {
            let start = number * rounds_per_step * round;
            made.step(number as u32 + 1, start, start + rounds_per_step * round);
        }
        for at in 0..count * kernels.len() as i64 {
            let start = 10 * MICRO * at;
            let name = kernels[at as usize % kernels.len()];
            made.launch((start + MICRO, start + 2 * MICRO), name, (start + 3 * MICRO, start + 5 * MICRO));
        }
        let trace = made.trace();
        let view = View::new(&trace);
        rounds(&view, &costs(&view), &[])
    }

    #[test]
    fn steps_are_no_rounds() {
        assert_eq!(rounds_of(&["gemm", "clamp"], 400, 200).rounds, 200);
        assert!(rounds_of(&["gemm", "clamp"], 400, 4).kernels.is_empty());
    }

    #[test]
    fn one_kernel_again_and_again_is_passed_over_at_once() {
        assert!(rounds_of(&["add"], 20_000, 20_000).kernels.is_empty());
    }
}
