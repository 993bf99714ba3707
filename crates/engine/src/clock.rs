//! Measures the actual clock of a core by timing a chain of dependent multiplications.

use std::time::{Duration, Instant};

/// Latency of a 64-bit multiplication in cycles, on every x86-64 core with AVX2.
#[cfg(target_arch = "x86_64")]
const CYCLES_A_MULTIPLICATION: f64 = 3.0;

/// Long enough to time accurately, short enough to finish between two interrupts.
#[cfg(target_arch = "x86_64")]
const ROUNDS: u64 = 4000;

/// Clock rate of the core that this runs on, the best within `patience`; `None` on processors with unknown multiply
/// latency.
#[cfg(target_arch = "x86_64")]
pub fn clock_hertz(patience: Duration) -> Option<f64> {
    const MULTIPLICATIONS: u64 = 8;
    let mut fastest = f64::INFINITY;
    let started = Instant::now();
    while started.elapsed() < patience {
        let at = Instant::now();
        let mut rounds = ROUNDS;
        let mut product = 3u64;
        // SAFETY: plain arithmetic on two registers, no memory and no stack.
        unsafe {
            std::arch::asm!(
                "2:",
                "imul {p}, {p}",
                "imul {p}, {p}",
                "imul {p}, {p}",
                "imul {p}, {p}",
                "imul {p}, {p}",
                "imul {p}, {p}",
                "imul {p}, {p}",
                "imul {p}, {p}",
                "dec {n}",
                "jnz 2b",
                p = inout(reg) product,
                n = inout(reg) rounds,
                options(nomem, nostack),
            );
        }
        fastest = fastest.min(at.elapsed().as_secs_f64());
        std::hint::black_box((product, rounds));
    }
    let cycles = (ROUNDS * MULTIPLICATIONS) as f64 * CYCLES_A_MULTIPLICATION;
    fastest.is_finite().then(|| cycles / fastest)
}

#[cfg(not(target_arch = "x86_64"))]
pub fn clock_hertz(_: Duration) -> Option<f64> {
    None
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn a_core_runs_at_a_few_gigahertz() {
        let clock = clock_hertz(Duration::from_millis(20)).unwrap();
        assert!((0.5e9..8e9).contains(&clock), "{clock} Hz");
    }
}
