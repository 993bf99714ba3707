//! Single-precision matrix products with any strides: one large product on all threads, or many small ones, one per
//! thread.
//!
//! The bits of C are the same in every run and for any number of threads; they may differ between instruction sets. NaN
//! and infinity propagate as in IEEE 754, except that in AMX tiles infinity times infinity is NaN. The previous
//! contents of C are read only when accumulating.

mod bf16;
mod cut;
mod joined;
mod kernel;
mod matrix;
mod pack;
mod scratch;
mod small;
mod work;

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use bf16::{Bf16Unit, SPLIT_PRODUCTS, gemm_bf16};
use cut::{Cut, Rounding};
pub use joined::{Columns, Joined, Rows};
use kernel::Kernels;
pub use kernel::Prefetch;
pub use matrix::{MatMut, MatRef};
use scratch::Buffers;
pub use scratch::Scratch;
pub use small::{LeftIn, Small, SmallProduct};
use work::{Progress, work};

use crate::cpu::isa::Isa;
use crate::cpu::pool::{Barrier, Padded, Pool};

/// Treatment of the values that C holds before the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accumulate {
    /// `c = alpha · a · b`
    Overwrite,
    /// `c += alpha · a · b`
    Add,
}

/// Arithmetic that products are computed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    Single,
    /// Operands rounded to bfloat16, sums in single precision.
    Bf16(Bf16Unit),
}

/// `c (+)= alpha · a · b`, with `a` m×k, `b` k×n and `c` m×n.
#[derive(Debug)]
pub struct Product<'a> {
    pub alpha: f32,
    pub a: MatRef<'a>,
    pub b: MatRef<'a>,
    pub accumulate: Accumulate,
    pub c: MatMut<'a>,
}

/// Below this many multiply-adds (a few microseconds), waking the other threads costs more than they save.
const WORK_FOR_ONE_THREAD: usize = 100_000;
/// With fewer items of a batch per thread than this, items are cut by rows, so that no thread waits long for the last
/// one.
const BATCH_ITEMS_A_THREAD: usize = 8;
/// Fewest rows of such a cut: each part packs the item's right operand again.
const BATCH_ROWS_MIN: usize = 128;

/// One product on all threads of the pool.
pub fn gemm(pool: &Pool, isa: Isa, scratch: &Scratch, mut product: Product) {
    run_together(pool, isa, scratch, &mut product, Rounding::None);
}

/// Products that share an operand, as one.
pub fn gemm_joined(pool: &Pool, isa: Isa, scratch: &Scratch, mut joined: Joined) {
    join_together(pool, isa, scratch, &mut joined, Rounding::None);
}

fn run_together(pool: &Pool, isa: Isa, scratch: &Scratch, product: &mut Product, rounding: Rounding) {
    alone_in(product, |joined| join_together(pool, isa, scratch, joined, rounding));
}

/// Wraps one product as a list of one.
fn alone_in<R>(product: &mut Product, then: impl FnOnce(&mut Joined) -> R) -> R {
    let mut columns = [Columns { b: product.b, c: product.c.reborrow() }];
    then(&mut Joined::columns_of(product.alpha, product.accumulate, product.a, &mut columns))
}

fn join_together(pool: &Pool, isa: Isa, scratch: &Scratch, joined: &mut Joined, rounding: Rounding) {
    each_whole(joined, &|joined| {
        #[cfg(target_arch = "x86_64")]
        if rounding == Rounding::None && split_together(pool, isa, scratch, joined) {
            return;
        }
        let threads = threads_for(pool, scratch, joined);
        let buffers = scratch.lock();
        let cut = Cut::new(Kernels::of(isa), joined, None, buffers.shared_right(), threads, rounding);
        buffers.claims.iter().for_each(|claim| claim.0.store(0, Ordering::Relaxed));
        let progress = Progress { claims: &buffers.claims, barrier: Barrier::new(), spins: pool.spins() };
        let (cut, progress, buffers) = (&cut, &progress, &*buffers);
        pool.team(threads, &|worker, team| {
            // SAFETY: the whole team is here with the same cut; C is ours by `&mut Joined`, the buffers by their lock.
            unsafe { work(cut, progress, worker, team, buffers.left(worker)) }
        });
    });
}

/// Runs all products at once if each is non-empty, else the non-empty ones one by one; the others are already done.
fn each_whole(joined: &mut Joined, run: &dyn Fn(&mut Joined)) {
    if joined.whole() {
        run(joined);
    } else if joined.parts() > 1 {
        (0..joined.parts()).for_each(|part| alone_in(&mut joined.part(part), |alone| each_whole(alone, run)));
    }
}

/// Computes products that are worth splitting into bfloat16; returns false if none is.
#[cfg(target_arch = "x86_64")]
fn split_together(pool: &Pool, isa: Isa, scratch: &Scratch, joined: &mut Joined) -> bool {
    let splitting = (0..joined.parts()).filter(|&part| bf16::splits(isa, &joined.part(part))).count();
    if splitting == joined.parts() {
        // SAFETY: the caller found every part whole.
        unsafe { bf16::split_together(pool, scratch, joined) };
        return true;
    }
    if splitting > 0 {
        (0..joined.parts()).for_each(|part| run_together(pool, isa, scratch, &mut joined.part(part), Rounding::None));
    }
    splitting > 0
}

/// The number of threads that pays for these products.
fn threads_for(pool: &Pool, scratch: &Scratch, joined: &Joined) -> usize {
    let (m, n) = (joined.rows().sum::<usize>(), joined.columns().sum());
    let multiply_adds = m.saturating_mul(n).saturating_mul(joined.depth());
    if multiply_adds <= WORK_FOR_ONE_THREAD { 1 } else { pool.threads().min(scratch.threads()) }
}

/// `items` independent sums of products, each computed by one thread (or, if there are few, cut by rows among several):
/// attention's heads.
///
/// Item `i` is `product(i, 0)`, `product(i, 1)`, … `product(i, terms - 1)` in order into the same C: the first
/// overwrites or adds, later ones usually add.
///
/// # Safety
/// The terms of an item have the same C, and the C of different items do not overlap. `product` is called from several
/// threads, perhaps several times for the same item and term (each use then writes to other rows of C), and must return
/// the same each time.
pub unsafe fn gemm_batch<'a>(
    pool: &Pool,
    isa: Isa,
    arithmetic: Arithmetic,
    scratch: &Scratch,
    items: usize,
    terms: usize,
    product: &(dyn Fn(usize, usize) -> Product<'a> + Sync),
) {
    if items == 0 || terms == 0 {
        return;
    }
    let rows = product(0, 0).c.rows;
    let wanted = (BATCH_ITEMS_A_THREAD * pool.threads()).div_ceil(items);
    let parts = if pool.threads() == 1 { 1 } else { wanted.min(rows / BATCH_ROWS_MIN).max(1) };
    for_each_alone(pool, isa, arithmetic, scratch, items * parts, &|index, alone| {
        let item = index / parts;
        for term in 0..terms {
            let product = product(item, term);
            let rows = part(0..product.c.rows, parts, index % parts);
            alone.product_rows(product, rows);
        }
    });
}

/// Runs `job` for every item below `items`, each on one thread, which computes its own products.
pub fn for_each_alone(
    pool: &Pool,
    isa: Isa,
    arithmetic: Arithmetic,
    scratch: &Scratch,
    items: usize,
    job: &(dyn Fn(usize, &Alone) + Sync),
) {
    let buffers = scratch.lock();
    let buffers = &*buffers;
    pool.for_each_limited(scratch.threads(), items, &|item, worker| {
        job(item, &Alone { isa, arithmetic, buffers, worker, here: PhantomData });
    });
}

/// One thread with its own packing buffers; no other thread may use it at the same time.
pub struct Alone<'a> {
    isa: Isa,
    arithmetic: Arithmetic,
    buffers: &'a Buffers,
    worker: usize,
    here: PhantomData<*const ()>,
}

impl Alone<'_> {
    /// Index of this worker in the pool.
    pub fn worker(&self) -> usize {
        self.worker
    }

    pub fn product(&self, product: Product) {
        let rows = 0..product.c.rows;
        self.product_rows(product, rows);
    }

    /// Computes some rows of C.
    fn product_rows(&self, mut product: Product, rows: Range<usize>) {
        match self.arithmetic {
            Arithmetic::Single => run_alone(self.isa, self.buffers, self.worker, &mut product, rows, Rounding::None),
            Arithmetic::Bf16(unit) => {
                bf16::alone(self.isa, unit, self.buffers, self.worker, &mut product, rows);
            }
        }
    }
}

fn run_alone(
    isa: Isa,
    buffers: &Buffers,
    worker: usize,
    product: &mut Product,
    rows: Range<usize>,
    rounding: Rounding,
) {
    if rows.is_empty() || !non_empty(product) {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if rounding == Rounding::None && bf16::splits(isa, product) {
        // SAFETY: nothing is empty, and one job runs on a worker at a time.
        unsafe { bf16::split_alone(buffers, worker, product, rows) };
        return;
    }
    alone_in(product, |joined| {
        let cut = Cut::new(Kernels::of(isa), joined, Some(rows), buffers.own_right(worker), 1, rounding);
        let progress = Progress { claims: &[Padded(AtomicUsize::new(0))], barrier: Barrier::new(), spins: 0 };
        // SAFETY: a team of one; C is ours by `MatMut`, the buffers are this worker's, and one job runs on it at a
        // time.
        unsafe { work(&cut, &progress, 0, 1, buffers.left(worker)) };
    });
}

/// The `index`-th of `parts` nearly equal parts of a range.
pub fn part(range: Range<usize>, parts: usize, index: usize) -> Range<usize> {
    let len = range.len();
    range.start + len * index / parts..range.start + len * (index + 1) / parts
}

/// Checks the shapes; returns whether there is anything to sum. A sum over zero depth is zero.
fn non_empty(product: &mut Product) -> bool {
    let Product { a, b, c, .. } = product;
    assert!(
        a.rows == c.rows && b.cols == c.cols && a.cols == b.rows,
        "product shapes do not match: {}×{} · {}×{} into {}×{}",
        a.rows,
        a.cols,
        b.rows,
        b.cols,
        c.rows,
        c.cols
    );
    if c.rows == 0 || c.cols == 0 {
        return false;
    }
    if a.cols == 0 {
        if product.accumulate == Accumulate::Overwrite {
            for row in 0..c.rows {
                // SAFETY: every row of C is `cols` floats long.
                unsafe { c.ptr.add(row * c.row_stride).write_bytes(0, c.cols) };
            }
        }
        return false;
    }
    true
}
