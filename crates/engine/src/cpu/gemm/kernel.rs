//! The inner loop of a product: one register tile of C, over one block of depth.
//!
//! Every element is `Σ a·b` in order of depth, starting from zero, whatever the tile's size and position. So the bits
//! of C depend only on the instruction set and the blocks of depth, never on how the work was cut or shared.

use crate::cpu::isa::Isa;
#[cfg(target_arch = "x86_64")]
use crate::cpu::lanes::{Avx2, Avx512};
use crate::cpu::lanes::{Lanes, Portable};

/// The deepest block of K: 14 rows × 512 × 4 bytes of packed left operand stay in a 48 KiB L1 while the right one
/// streams by.
pub const DEPTH_MAX: usize = 512;
/// Rows of the tallest tile: 14 rows of two vectors, two vectors of B and a broadcast fill 31 of the 32 AVX-512
/// registers.
pub const ROWS_MAX: usize = 14;
/// Stride of packed rows: one cache line more than the depth, so that rows spread over all cache sets.
pub const PACKED_ROW_STRIDE: usize = DEPTH_MAX + 16;

/// Stride of packed steps of depth in a left panel: the tallest tile in whole vectors.
pub const PACKED_COLUMN_STRIDE: usize = 16;

/// Floats in a cache line.
pub const LINE: usize = 16;

/// Memory layout of the left operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Left {
    /// Depth is contiguous; row stride [`PACKED_ROW_STRIDE`].
    PackedRows,
    /// Depth is contiguous; row stride `left_stride` of the tile.
    Rows,
    /// Rows are contiguous; the steps of depth have the tile's `left_stride`.
    Columns,
}

/// `c[rows, columns] (+)= alpha · a[rows, depth] · b[depth, columns]`.
pub struct Tile {
    pub a: *const f32,
    pub left_stride: usize,
    /// Whole vectors of columns for each step of depth, with stride `right_stride` in floats.
    pub b: *const f32,
    pub right_stride: usize,
    pub depth: usize,
    pub alpha: f32,
    pub c: *mut f32,
    pub c_stride: usize,
    pub columns: usize,
    pub store: Store,
    /// Continues from tile to tile.
    pub ahead: Prefetch,
}

/// Cache lines to prefetch while tiles are computed: `count` lines, in runs of `run` lines with stride `stride` in
/// floats; each run starts `jump` floats after the last line of the previous one.
#[derive(Clone, Copy)]
pub struct Prefetch {
    pub at: *const f32,
    pub count: usize,
    /// Lines prefetched every [`Prefetch::STEPS`] steps of depth.
    pub at_once: usize,
    pub stride: usize,
    pub left_in_run: usize,
    pub run: usize,
    pub jump: usize,
}

impl Prefetch {
    /// Steps of depth between two prefetches: 50 cycles or more, so that they do not delay the tile's own loads.
    pub const STEPS: usize = 4;
    pub const NOTHING: Prefetch =
        Prefetch { at: std::ptr::null(), count: 0, at_once: 0, stride: 0, left_in_run: 0, run: 0, jump: 0 };

    /// Rows of a matrix with stride `stride` in floats, one line every [`Prefetch::STEPS`] steps of depth.
    pub fn rows(from: &[f32], rows: usize, width: usize, stride: usize) -> Prefetch {
        Prefetch::runs(from.as_ptr(), rows, width.div_ceil(LINE), stride, 1)
    }

    /// `runs` runs of `run` adjacent lines, with run stride `run_stride` in floats.
    pub fn runs(at: *const f32, runs: usize, run: usize, run_stride: usize, at_once: usize) -> Prefetch {
        let jump = run_stride.wrapping_sub((run - 1) * LINE);
        Prefetch { at, count: runs * run, at_once, stride: LINE, left_in_run: run, run, jump }
    }

    #[inline(always)]
    fn next(&mut self) -> *const f32 {
        let at = self.at;
        self.count -= 1;
        self.left_in_run -= 1;
        if self.left_in_run == 0 {
            self.left_in_run = self.run;
            self.at = at.wrapping_add(self.jump);
        } else {
            self.at = at.wrapping_add(self.stride);
        }
        at
    }
}

/// Whether the tile overwrites C or adds to it.
#[derive(Clone, Copy, PartialEq)]
pub enum Store {
    Overwrite,
    Add,
}

/// The tiles of one instruction-set level.
pub struct Kernels {
    pub isa: Isa,
    /// Rows of the tallest tile.
    pub rows_max: usize,
    /// Floats in a vector; a tile is one or two vectors wide.
    pub lanes: usize,
    /// Indexed by left layout, vectors - 1 and rows - 1.
    tiles: [[[RunTile; ROWS_MAX]; 2]; 3],
}

type RunTile = unsafe fn(&mut Tile);

impl Kernels {
    /// The tiles of `isa`, or of the machine's highest level if it lacks that one.
    pub fn of(isa: Isa) -> &'static Kernels {
        match isa.runnable() {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 | Isa::Amx => &AVX512,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => &AVX2,
            _ => &PORTABLE,
        }
    }

    /// Columns of the widest tile.
    pub fn width(&self) -> usize {
        2 * self.lanes
    }

    /// # Safety
    /// The tile's pointers are valid for `rows` rows in the layout of `left`, for its depth and columns.
    #[inline]
    pub unsafe fn run(&self, left: Left, rows: usize, tile: &mut Tile) {
        let layout = match left {
            Left::PackedRows => PACKED_ROWS,
            Left::Rows => ROWS,
            Left::Columns => COLUMNS,
        };
        let vectors = if tile.columns > self.lanes { 2 } else { 1 };
        // SAFETY: the table belongs to a level the CPU has (`of`), and the caller vouches for the pointers.
        unsafe { self.tiles[layout][vectors - 1][rows - 1](tile) }
    }
}

/// Prefetch distance of B in steps of depth: some 200 cycles, an L2 access under load.
const RIGHT_AHEAD: usize = 16;

const PACKED_ROWS: usize = 0;
const ROWS: usize = 1;
const COLUMNS: usize = 2;

/// Expands the body for rows 0 to 13 with constant indices, so that the accumulators are registers at any optimisation
/// level; rows past the tile's height vanish.
macro_rules! for_each_row {
    ($rows:ident, $row:ident => $body:block) => {
        for_each_row!(@ $rows, $row, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13)
    };
    (@ $rows:ident, $row:ident, $body:block, $($index:literal)*) => {$(
        if $index < $rows {
            let $row: usize = $index;
            $body
        }
    )*};
}

/// # Safety
/// As [`Kernels::run`], inlined into a function compiled for the level of `L`.
#[inline(always)]
unsafe fn tile<L: Lanes, const LAYOUT: usize, const VECTORS: usize, const HEIGHT: usize>(tile: &mut Tile) {
    let (row_stride, depth_stride) = match LAYOUT {
        PACKED_ROWS => (PACKED_ROW_STRIDE, 1),
        ROWS => (tile.left_stride, 1),
        _ => (1, tile.left_stride),
    };
    let (mut a, mut b, right_stride) = (tile.a, tile.b, tile.right_stride);
    // SAFETY: `a` moves over `depth` steps of the layout the caller vouches for, `b` over `depth` packed steps, and
    // masks limit accesses to C to `columns`.
    unsafe {
        let mut sums = [[L::splat(0.0); 2]; ROWS_MAX];
        for_each_row!(HEIGHT, row => {
            L::prefetch(tile.c.wrapping_add(row * tile.c_stride));
            if VECTORS == 2 {
                L::prefetch(tile.c.wrapping_add(row * tile.c_stride + L::LANES));
            }
        });
        let mut ahead = tile.ahead;
        let mut remaining = tile.depth;
        while remaining > 0 {
            let steps = remaining.min(Prefetch::STEPS);
            remaining -= steps;
            for _ in 0..ahead.at_once.min(ahead.count) {
                L::prefetch_to_l2(ahead.next());
            }
            for _ in 0..steps {
                let right = [L::load(b), if VECTORS == 2 { L::load(b.add(L::LANES)) } else { L::splat(0.0) }];
                for_each_row!(HEIGHT, row => {
                    let left = L::splat(*a.add(row * row_stride));
                    sums[row][0] = L::multiply_add(left, right[0], sums[row][0]);
                    if VECTORS == 2 {
                        sums[row][1] = L::multiply_add(left, right[1], sums[row][1]);
                    }
                });
                L::prefetch(b.wrapping_add(RIGHT_AHEAD * right_stride));
                if VECTORS == 2 {
                    L::prefetch(b.wrapping_add(RIGHT_AHEAD * right_stride + L::LANES));
                }
                // The last step may point outside the operand's memory; nothing is read there.
                a = a.wrapping_add(depth_stride);
                b = b.wrapping_add(right_stride);
            }
        }
        tile.ahead = ahead;
        let alpha = L::splat(tile.alpha);
        let masks = [L::first(tile.columns), L::first(tile.columns.saturating_sub(L::LANES))];
        for_each_row!(HEIGHT, row => {
            let c = tile.c.add(row * tile.c_stride);
            for vector in 0..VECTORS {
                let (mask, c) = (masks[vector], c.wrapping_add(vector * L::LANES));
                let sum = sums[row][vector];
                let value = match tile.store {
                    Store::Overwrite => L::multiply(alpha, sum),
                    Store::Add => L::multiply_add(alpha, sum, L::load_masked(mask, c)),
                };
                L::store_masked(mask, c, value);
            }
        });
    }
}

/// The table of tiles of one level: `$function` for each layout, width and height; `$last` repeats for heights that the
/// level does not use.
macro_rules! table {
    ($function:ident; $($rows:literal)*; $($last:literal)*) => {
        [
            [[$($function::<PACKED_ROWS, 1, $rows>,)* $($function::<PACKED_ROWS, 1, $last>,)*],
             [$($function::<PACKED_ROWS, 2, $rows>,)* $($function::<PACKED_ROWS, 2, $last>,)*]],
            [[$($function::<ROWS, 1, $rows>,)* $($function::<ROWS, 1, $last>,)*],
             [$($function::<ROWS, 2, $rows>,)* $($function::<ROWS, 2, $last>,)*]],
            [[$($function::<COLUMNS, 1, $rows>,)* $($function::<COLUMNS, 1, $last>,)*],
             [$($function::<COLUMNS, 2, $rows>,)* $($function::<COLUMNS, 2, $last>,)*]],
        ]
    };
}

/// # Safety
/// As [`Kernels::run`].
unsafe fn portable<const LAYOUT: usize, const VECTORS: usize, const HEIGHT: usize>(arguments: &mut Tile) {
    // SAFETY: passed on from the caller; plain Rust runs everywhere.
    unsafe { tile::<Portable, LAYOUT, VECTORS, HEIGHT>(arguments) }
}

static PORTABLE: Kernels =
    Kernels { isa: Isa::Portable, rows_max: 2, lanes: 8, tiles: table!(portable; 1 2; 2 2 2 2 2 2 2 2 2 2 2 2) };

/// # Safety
/// As [`Kernels::run`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2<const LAYOUT: usize, const VECTORS: usize, const HEIGHT: usize>(arguments: &mut Tile) {
    // SAFETY: passed on from the caller; this function is compiled for the level.
    unsafe { tile::<Avx2, LAYOUT, VECTORS, HEIGHT>(arguments) }
}

#[cfg(target_arch = "x86_64")]
static AVX2: Kernels =
    Kernels { isa: Isa::Avx2, rows_max: 6, lanes: 8, tiles: table!(avx2; 1 2 3 4 5 6; 6 6 6 6 6 6 6 6) };

/// # Safety
/// As [`Kernels::run`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
unsafe fn avx512<const LAYOUT: usize, const VECTORS: usize, const HEIGHT: usize>(arguments: &mut Tile) {
    // SAFETY: passed on from the caller; this function is compiled for the level.
    unsafe { tile::<Avx512, LAYOUT, VECTORS, HEIGHT>(arguments) }
}

#[cfg(target_arch = "x86_64")]
static AVX512: Kernels =
    Kernels { isa: Isa::Avx512, rows_max: 14, lanes: 16, tiles: table!(avx512; 1 2 3 4 5 6 7 8 9 10 11 12 13 14;) };
