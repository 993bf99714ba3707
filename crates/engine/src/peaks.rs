//! What this CPU can do, measured: the rate of large products, of memory, and the cost of a call.

use crate::cpu::gemm::{Accumulate, Arithmetic, Bf16Unit, MatMut, MatRef, Product};
use crate::cpu::isa::Isa;
use crate::cpu::{Reductions, Team};
use crate::device::EngineError;
use headroom_graph::cost::Rates;
use std::hint::black_box;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuPeaks {
    pub threads: usize,
    /// FLOPs a second of fp32 products, on all threads and on one.
    pub product_f32: f64,
    pub product_f32_one_thread: f64,
    /// The same with operands rounded to bf16 on the way, which is part of the product.
    pub product_bf16: f64,
    pub product_bf16_one_thread: f64,
    /// Bytes a second read and written by a copy larger than the caches.
    pub copy: f64,
    /// Seconds for a call that does nothing on every thread.
    pub call_seconds: f64,
}

impl CpuPeaks {
    pub fn rates(&self) -> Rates {
        Rates { product_flops: self.product_f32, bytes: self.copy, call_seconds: self.call_seconds }
    }
}

/// Rates to plan with where nothing was measured yet: a laptop's core or two.
pub const ASSUMED_RATES: Rates = Rates { product_flops: 2e11, bytes: 2e10, call_seconds: 2e-6 };

/// Each product is repeated for at least this long, and the best run counts: a peak is what the machine can do when left
/// alone.
const PATIENCE: Duration = Duration::from_millis(600);

/// Floats in each of the two arrays of the copy: 256 MiB, more than any cache.
const COPY_FLOATS: usize = 64 << 20;

pub fn measure(threads: usize, isa: Isa) -> Result<CpuPeaks, EngineError> {
    let team = |threads, arithmetic| Team::new(threads, isa, arithmetic, Reductions::Fixed, 0);
    let (all, one) = (team(threads, Arithmetic::Single)?, team(1, Arithmetic::Single)?);
    let bf16 = Arithmetic::Bf16(Bf16Unit::with(isa));
    Ok(CpuPeaks {
        threads,
        product_f32: product_rate(&all),
        product_f32_one_thread: product_rate(&one),
        product_bf16: product_rate(&team(threads, bf16)?),
        product_bf16_one_thread: product_rate(&team(1, bf16)?),
        copy: copy_rate(&all),
        call_seconds: call_seconds(&all),
    })
}

/// The rate of products alone, for a second look.
pub fn measure_products(threads: usize, isa: Isa) -> Result<f64, EngineError> {
    Ok(product_rate(&Team::new(threads, isa, Arithmetic::Single, Reductions::Fixed, 0)?))
}

/// The best over sizes that fit the caches and sizes that do not.
fn product_rate(team: &Team) -> f64 {
    [512, 1024, 2048].map(|size| product_rate_at(team, size)).into_iter().fold(0.0, f64::max)
}

fn product_rate_at(team: &Team, size: usize) -> f64 {
    let left: Vec<f32> = (0..size * size).map(|i| (i % 7) as f32 - 3.0).collect();
    let right: Vec<f32> = (0..size * size).map(|i| (i % 5) as f32 - 2.0).collect();
    let mut out = vec![0.0; size * size];
    let seconds = best(PATIENCE / 3, || {
        let a = MatRef::row_major(&left, size, size);
        let b = MatRef::row_major(&right, size, size);
        let c = MatMut::row_major(&mut out, size, size);
        team.product(Product { alpha: 1.0, a, b, accumulate: Accumulate::Overwrite, c });
    });
    black_box(&out);
    2.0 * (size as f64).powi(3) / seconds
}

fn copy_rate(team: &Team) -> f64 {
    let from = vec![1.0f32; COPY_FLOATS];
    let mut to = vec![0.0f32; COPY_FLOATS];
    let seconds = best(PATIENCE, || {
        let chunk = 1 << 20;
        team.pool.for_each_chunk(&mut to, chunk, |index, to| {
            to.copy_from_slice(&from[index * chunk..][..to.len()]);
        });
    });
    black_box(&to);
    (2 * COPY_FLOATS * size_of::<f32>()) as f64 / seconds
}

fn call_seconds(team: &Team) -> f64 {
    const CALLS: u32 = 1000;
    let seconds = best(PATIENCE / 6, || (0..CALLS).for_each(|_| team.pool.broadcast(&|_| {})));
    seconds / f64::from(CALLS)
}

/// Seconds of the fastest run, after one to warm up.
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
    fn the_best_of_several_runs_is_the_shortest() {
        // Far enough apart that a busy machine, which wakes late, does not mix them up.
        let mut waits = [60u64, 10, 80].into_iter().cycle();
        let seconds =
            best(Duration::from_millis(200), || std::thread::sleep(Duration::from_millis(waits.next().unwrap_or(1))));
        assert!((0.010..0.060).contains(&seconds), "{seconds}");
    }
}
