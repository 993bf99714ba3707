//! The clock that a core really runs at: timed on a chain of multiplications, each of which waits for the one before it.

use std::time::{Duration, Instant};

/// Cycles from the operands of a 64-bit multiplication to its result, on every x86-64 core with AVX2.
#[cfg(target_arch = "x86_64")]
const CYCLES_A_MULTIPLICATION: f64 = 3.0;

/// Long enough to be timed well, short enough to end between two interruptions.
#[cfg(target_arch = "x86_64")]
const ROUNDS: u64 = 4000;

/// Cycles a second of the core that this runs on, the best of `patience`; none on processors whose multiplier is not known.
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
