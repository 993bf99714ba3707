//! Products of bfloat16 numbers; sums, C and everything in memory stay in single precision. Operands are rounded while
//! they are packed, or split into three numbers each, whose products add up to single-precision products.

#[cfg(target_arch = "x86_64")]
mod drive;
#[cfg(target_arch = "x86_64")]
mod pack;
#[cfg(target_arch = "x86_64")]
mod split;
#[cfg(target_arch = "x86_64")]
mod tile;
mod unit;

pub use unit::Bf16Unit;

use super::cut::Rounding;
use super::joined::Joined;
use super::scratch::Buffers;
use super::{Product, Scratch, alone_in, non_empty, threads_for};
use crate::cpu::isa::Isa;
use crate::cpu::pool::Pool;
use std::ops::Range;

/// Number of products of parts per single-precision product.
pub const SPLIT_PRODUCTS: u32 = 6;
/// Products with a shorter side, such as those of attention's heads, are dominated by packing.
#[cfg(target_arch = "x86_64")]
const SPLIT_LENGTH_MIN: usize = 128;

/// The form that a single-precision number takes in the packed panels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg(target_arch = "x86_64")]
enum Form {
    /// The nearest bfloat16 number.
    Rounded,
    /// Three bfloat16 numbers that add up to it.
    Split,
}

#[cfg(target_arch = "x86_64")]
impl Form {
    const fn parts(self) -> usize {
        match self {
            Form::Rounded => 1,
            Form::Split => split::PARTS,
        }
    }
}

/// Runs on all threads of the pool. The bits of C are the same for any number of threads; they may differ between
/// units.
pub fn gemm_bf16(pool: &Pool, isa: Isa, unit: Bf16Unit, scratch: &Scratch, mut joined: Joined) {
    let unit = unit.runnable();
    #[cfg(target_arch = "x86_64")]
    if unit != Bf16Unit::Software {
        super::each_whole(&mut joined, &|joined| {
            let threads = threads_for(pool, scratch, joined);
            // SAFETY: the machine has the unit, and nothing is empty.
            unsafe { drive::run_together(pool, (unit, Form::Rounded), scratch, joined, threads) };
        });
        return;
    }
    let _ = unit;
    super::join_together(pool, isa, scratch, &mut joined, Rounding::ToBf16);
}

/// Computes some rows of C on the calling thread.
pub(super) fn alone(
    isa: Isa,
    unit: Bf16Unit,
    buffers: &Buffers,
    worker: usize,
    product: &mut Product,
    rows: Range<usize>,
) {
    let unit = unit.runnable();
    if !non_empty(product) || rows.is_empty() {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if unit != Bf16Unit::Software {
        // SAFETY: the machine has the unit, nothing is empty, and one job runs on a worker at a time.
        alone_in(product, |joined| unsafe {
            drive::run_alone((unit, Form::Rounded), buffers, worker, joined, rows);
        });
        return;
    }
    let _ = unit;
    super::run_alone(isa, buffers, worker, product, rows, Rounding::ToBf16);
}

/// Whether a single-precision product is worth splitting. Depends only on its shape, so that the bits of C do not
/// depend on who computes it. Tiles must not be mostly padding.
#[cfg(target_arch = "x86_64")]
pub(super) fn splits(isa: Isa, product: &Product) -> bool {
    let [m, n, k] = [product.a.rows, product.b.cols, product.a.cols];
    let filled = |length: usize| length.next_multiple_of(pack::SIDE);
    isa.runnable() == Isa::Amx
        && m.min(n).min(k) >= SPLIT_LENGTH_MIN
        && 2 * filled(m).saturating_mul(filled(n)).saturating_mul(filled(k))
            <= 3 * m.saturating_mul(n).saturating_mul(k)
}

/// Single-precision products on all threads.
///
/// # Safety
/// Every part has rows, columns and depth, and [`splits`].
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn split_together(pool: &Pool, scratch: &Scratch, joined: &mut Joined) {
    let threads = threads_for(pool, scratch, joined);
    // SAFETY: the level that splits has the unit; the rest is the caller's promise.
    unsafe { drive::run_together(pool, (Bf16Unit::Amx, Form::Split), scratch, joined, threads) }
}

/// Some rows of a single-precision product on the calling thread.
///
/// # Safety
/// As [`split_together`]; one job runs on a worker at a time.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn split_alone(buffers: &Buffers, worker: usize, product: &mut Product, rows: Range<usize>) {
    // SAFETY: the level that splits has the unit; buffers and worker are the caller's promise.
    alone_in(product, |joined| unsafe {
        drive::run_alone((Bf16Unit::Amx, Form::Split), buffers, worker, joined, rows);
    });
}
