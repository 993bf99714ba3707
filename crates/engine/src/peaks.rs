//! Measured peaks of this CPU: GEMM rate, memory bandwidth, and the overhead of a call.

use crate::cpu::gemm::{Accumulate, Arithmetic, Bf16Unit, MatMut, MatRef, Product};
use crate::cpu::isa::Isa;
use crate::cpu::{Reductions, Team};
use crate::device::EngineError;
use headroom_graph::cost::{Link, Rates};
use std::hint::black_box;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuPeaks {
    pub threads: usize,
    /// FLOP/s of fp32 products, on all threads and on one.
    pub product_f32: f64,
    pub product_f32_one_thread: f64,
    /// The same with operands rounded to bf16, with the rounding counted as part of the product.
    pub product_bf16: f64,
    pub product_bf16_one_thread: f64,
    /// Bytes per second read and written by a copy larger than the caches.
    pub copy: f64,
    /// Seconds for an empty call on every thread.
    pub call_seconds: f64,
    /// How far repeated measurements fall short of the best: above [`SPREAD_OF_A_QUIET_MACHINE`] something interfered.
    pub spread: f64,
}

impl CpuPeaks {
    pub fn rates(&self) -> Rates {
        Rates { product_flops: self.product_f32, bytes: self.copy, call_seconds: self.call_seconds }
    }
}

/// Default message costs for planning before anything is measured: processes on one machine.
pub const ASSUMED_LINK: Link = Link { round_seconds: 5e-5, bytes: 1e9 };

/// Default rates for planning before anything is measured: one or two laptop cores.
pub const ASSUMED_RATES: Rates = Rates { product_flops: 2e11, bytes: 2e10, call_seconds: 2e-6 };

/// Each product is repeated for at least this long in total, and the best run counts: a peak is the rate of an
/// undisturbed machine.
const PATIENCE: Duration = Duration::from_millis(600);

/// All figures are measured in this many rounds, and in up to `MOST_ROUNDS` while they disagree. A short disturbance by
/// another program is thus ignored, and a long one shows.
const LEAST_ROUNDS: usize = 3;
const MOST_ROUNDS: usize = 6;
/// No further round begins after this time: a machine that busy will not be quiet soon.
const LONGEST: Duration = Duration::from_secs(8);

/// The two best rounds of a figure must agree within this fraction; otherwise chance plays a part.
pub const SPREAD_OF_A_QUIET_MACHINE: f64 = 0.1;

/// Floats in each of the two arrays of the copy: 256 MiB, larger than any cache.
const COPY_FLOATS: usize = 64 << 20;

/// Rates of products (fp32 and bf16, each on all threads and on one), of a copy, and of empty calls.
type Figures = [f64; 6];

pub fn measure(threads: usize, isa: Isa) -> Result<CpuPeaks, EngineError> {
    let team = |threads, arithmetic| Team::new(threads, isa, arithmetic, Reductions::Fixed, 0);
    let bf16 = Arithmetic::Bf16(Bf16Unit::with(isa));
    let teams =
        [team(threads, Arithmetic::Single)?, team(1, Arithmetic::Single)?, team(threads, bf16)?, team(1, bf16)?];
    let from = vec![1.0f32; COPY_FLOATS];
    let mut to = vec![0.0f32; COPY_FLOATS];
    let patience = PATIENCE / LEAST_ROUNDS as u32;
    // Some sizes fit the caches and some do not; later rounds use each team's best size from the first round.
    let mut best_sizes = [None; 4];
    let (best, spread) = in_rounds(LONGEST, || {
        let products: [f64; 4] = std::array::from_fn(|at| {
            let (size, rate) = product_rate(&teams[at], best_sizes[at], patience);
            best_sizes[at] = Some(size);
            rate
        });
        let [all, one, all_bf16, one_bf16] = products;
        let copy = copy_rate(&teams[0], &from, &mut to, patience);
        [all, one, all_bf16, one_bf16, copy, 1.0 / call_seconds(&teams[0], patience)]
    });
    let [product_f32, product_f32_one_thread, product_bf16, product_bf16_one_thread, copy, calls] = best;
    let call_seconds = 1.0 / calls;
    Ok(CpuPeaks {
        threads,
        product_f32,
        product_f32_one_thread,
        product_bf16,
        product_bf16_one_thread,
        copy,
        call_seconds,
        spread,
    })
}

/// The best value of every figure, and the spread: how far the second best falls short of it, for products on all
/// threads or for the copy, whichever is worse.
fn in_rounds(longest: Duration, mut round: impl FnMut() -> Figures) -> (Figures, f64) {
    let started = Instant::now();
    let mut rounds: Vec<Figures> = Vec::new();
    loop {
        rounds.push(round());
        let sorted = |figure: usize| {
            let mut rates: Vec<f64> = rounds.iter().map(|rates| rates[figure]).collect();
            rates.sort_by(|left, right| right.total_cmp(left));
            rates
        };
        let spread = [0, 2, 4].into_iter().map(sorted).filter(|rates| rates.len() > 1);
        let spread = spread.map(|rates| 1.0 - rates[1] / rates[0]).fold(0.0, f64::max);
        let is_settled = rounds.len() >= LEAST_ROUNDS && spread <= SPREAD_OF_A_QUIET_MACHINE;
        let is_late = rounds.len() >= 2 && started.elapsed() > longest;
        if is_settled || is_late || rounds.len() == MOST_ROUNDS {
            return (std::array::from_fn(|figure| sorted(figure)[0]), spread);
        }
    }
}

/// Measures only the rate of products, for a second look.
pub fn measure_products(threads: usize, isa: Isa) -> Result<f64, EngineError> {
    Ok(product_rate(&Team::new(threads, isa, Arithmetic::Single, Reductions::Fixed, 0)?, None, PATIENCE).1)
}

/// The best rate and its size: for the given size, else over several sizes.
fn product_rate(team: &Team, size: Option<usize>, patience: Duration) -> (usize, f64) {
    let sizes: &[usize] = size.as_ref().map_or(&[512, 1024, 2048], std::slice::from_ref);
    let rate = |&size: &usize| (size, product_rate_at(team, size, patience / 3));
    sizes.iter().map(rate).fold((0, 0.0), |best, next| if next.1 > best.1 { next } else { best })
}

fn product_rate_at(team: &Team, size: usize, patience: Duration) -> f64 {
    let left: Vec<f32> = (0..size * size).map(|i| (i % 7) as f32 - 3.0).collect();
    let right: Vec<f32> = (0..size * size).map(|i| (i % 5) as f32 - 2.0).collect();
    let mut out = vec![0.0; size * size];
    let seconds = best(patience, || {
        let a = MatRef::row_major(&left, size, size);
        let b = MatRef::row_major(&right, size, size);
        let c = MatMut::row_major(&mut out, size, size);
        team.product(Product { alpha: 1.0, a, b, accumulate: Accumulate::Overwrite, c });
    });
    black_box(&out);
    2.0 * (size as f64).powi(3) / seconds
}

fn copy_rate(team: &Team, from: &[f32], to: &mut [f32], patience: Duration) -> f64 {
    let seconds = best(patience, || {
        let chunk = 1 << 20;
        team.pool.for_each_chunk(to, chunk, |index, to| {
            to.copy_from_slice(&from[index * chunk..][..to.len()]);
        });
    });
    black_box(&to);
    (2 * size_of_val(from)) as f64 / seconds
}

fn call_seconds(team: &Team, patience: Duration) -> f64 {
    const CALLS: u32 = 1000;
    let seconds = best(patience / 6, || (0..CALLS).for_each(|_| team.pool.broadcast(&|_| {})));
    seconds / f64::from(CALLS)
}

/// Seconds of the fastest run, after one warm-up.
fn best(patience: Duration, mut run: impl FnMut()) -> f64 {
    run();
    let started = Instant::now();
    let mut fastest = f64::INFINITY;
    while started.elapsed() < patience {
        let at = Instant::now();
        run();
        fastest = fastest.min(at.elapsed().as_secs_f64());
    }
    fastest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_of_noise_is_measured_away_and_lasting_noise_is_told() {
        let figures = |share: f64| [share * 3e11, 1e11, 9e11, 4e11, 2e10, 1e6];
        let measured = |shares: &[f64]| {
            let mut rounds = 0;
            let (best, spread) = in_rounds(LONGEST, || {
                rounds += 1;
                figures(shares[(rounds - 1) % shares.len()])
            });
            (best[0] / 3e11, (100.0 * spread).round(), rounds)
        };
        assert_eq!(measured(&[1.0, 0.99, 0.4]), (1.0, 1.0, 3));
        assert_eq!(measured(&[0.3, 0.5, 0.4, 1.0, 0.97, 0.2]), (1.0, 3.0, 5));
        assert_eq!(measured(&[0.3, 0.9, 0.4, 0.6, 0.5, 0.2]), (0.9, 33.0, 6));
        let mut copies = [4.8e9, 1.6e10, 9e9].into_iter().cycle();
        let (best, spread) = in_rounds(LONGEST, || [3e11, 1e11, 9e11, 4e11, copies.next().unwrap_or(0.0), 1e6]);
        assert_eq!((best[4], spread), (1.6e10, 0.0), "the copy is as fast again in a later round");
        let mut rounds = 0;
        in_rounds(Duration::ZERO, || {
            rounds += 1;
            figures(f64::from(rounds))
        });
        assert_eq!(rounds, 2, "two rounds are the least that can disagree");
    }

    #[test]
    fn the_best_of_several_runs_is_the_shortest() {
        // Far enough apart that late wake-ups on a busy machine do not mix them up.
        let mut waits = [60u64, 10, 80].into_iter().cycle();
        let seconds =
            best(Duration::from_millis(200), || std::thread::sleep(Duration::from_millis(waits.next().unwrap_or(1))));
        assert!((0.010..0.060).contains(&seconds), "{seconds}");
    }
}
