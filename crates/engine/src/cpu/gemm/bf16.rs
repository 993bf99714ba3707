//! Products whose operands are rounded to bfloat16 while they are packed; sums, C and everything in memory stay single.

#[cfg(target_arch = "x86_64")]
mod drive;
#[cfg(target_arch = "x86_64")]
mod pack;
#[cfg(target_arch = "x86_64")]
mod tile;
mod unit;

pub use unit::Bf16Unit;

use super::cut::Rounding;
use super::joined::Columns;
use super::scratch::Buffers;
use super::{Accumulate, MatRef, Product, Scratch, non_empty, threads_for};
use crate::cpu::isa::Isa;
use crate::cpu::pool::Pool;
use std::ops::Range;

/// `c (+)= alpha · a · b` for several `b` and `c` of one `a`, which is packed once for all of them.
pub struct Bf16Product<'a> {
    pub alpha: f32,
    pub a: MatRef<'a>,
    pub accumulate: Accumulate,
    pub columns: &'a [Columns<'a>],
}

/// Shared by all threads of the pool. The bits of C are the same for any number of threads; they may differ between
/// units.
pub fn gemm_bf16(pool: &Pool, isa: Isa, unit: Bf16Unit, scratch: &Scratch, product: &Bf16Product) {
    let mut wide = 0;
    let mut whole = true;
    for columns in product.columns {
        whole &= non_empty(&part_of(product, columns));
        wide += columns.b.cols;
    }
    let unit = unit.runnable();
    #[cfg(target_arch = "x86_64")]
    if whole && wide > 0 && unit != Bf16Unit::Software {
        let threads = threads_for(pool, scratch, product.a.rows, wide, product.a.cols);
        // SAFETY: the machine has the unit, and nothing is empty.
        unsafe { drive::run_together(pool, unit, scratch, product, threads) };
        return;
    }
    let _ = (unit, whole, wide);
    for columns in product.columns {
        super::run_together(pool, isa, scratch, &part_of(product, columns), Rounding::ToBf16);
    }
}

/// Some rows of C on the calling thread.
pub(super) fn alone(
    isa: Isa,
    unit: Bf16Unit,
    buffers: &Buffers,
    worker: usize,
    product: &Bf16Product,
    rows: Range<usize>,
) {
    let unit = unit.runnable();
    for columns in product.columns {
        if !non_empty(&part_of(product, columns)) || rows.is_empty() {
            return;
        }
    }
    #[cfg(target_arch = "x86_64")]
    if unit != Bf16Unit::Software {
        // SAFETY: the machine has the unit, nothing is empty, and one job runs on a worker at a time.
        unsafe { drive::run_alone(unit, buffers, worker, product, rows) };
        return;
    }
    let _ = unit;
    for columns in product.columns {
        super::run_alone(isa, buffers, worker, &part_of(product, columns), rows.clone(), Rounding::ToBf16);
    }
}

fn part_of<'a>(product: &Bf16Product<'a>, columns: &Columns<'a>) -> Product<'a> {
    let (alpha, a, accumulate) = (product.alpha, product.a, product.accumulate);
    Product { alpha, a, b: columns.b, accumulate, c: columns.c.again() }
}
