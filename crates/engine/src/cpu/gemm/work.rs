//! How a team of threads processes a cut product.
//!
//! A thread takes the items of its own share, then unclaimed ones of other shares. While a stage is computed, the next
//! one is packed into the buffer's other half: one barrier per stage.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Accumulate;
use super::cut::{Cut, LeftPlan, ROW_PANELS_MAX, Rounding, Stage};
use super::joined::Panel;
use super::kernel::{LINE, Left, PACKED_COLUMN_STRIDE, PACKED_ROW_STRIDE, Prefetch, Store, Tile};
use super::pack::{pack_left_columns, pack_left_rows, pack_right, round_to_bf16};
use super::part;
use crate::cpu::pool::{Barrier, Padded};

/// More would write to so many places at once that they evict each other from L1.
const PANELS_PACKED_AT_ONCE: usize = 4;

/// State that the team shares while it works: each share's next unclaimed item, and the barrier.
pub struct Progress<'a> {
    /// All zero initially; at least one for each share.
    pub claims: &'a [Padded<AtomicUsize>],
    pub barrier: Barrier,
    pub spins: u32,
}

/// Does one worker's part. `left` is the worker's own buffer for left panels.
///
/// # Safety
/// All `team` workers run this at the same time with the same cut and progress, nothing else touches the product's C,
/// the right buffer or this worker's left buffer, and the product's rows include the cut's.
pub unsafe fn work(cut: &Cut, progress: &Progress, worker: usize, team: usize, left: *mut f32) {
    let (stages, shares) = (cut.stages(), cut.shares());
    for phase in 0..=stages {
        let computed = phase.checked_sub(1).map(|stage| cut.stage(stage));
        let packed = (phase < stages).then(|| cut.stage(phase));
        for share in (worker..shares).chain(0..worker.min(shares)) {
            let pack_panels = packed.as_ref().map_or(0..0, |stage| cut.pack_panels(stage, share));
            let packs = pack_panels.len().div_ceil(PANELS_PACKED_AT_ONCE);
            let items = computed.as_ref().map_or(0, |stage| cut.items(stage, share));
            loop {
                let claim = progress.claims[share].0.fetch_add(1, Ordering::Relaxed);
                // SAFETY: a claim belongs to one worker; those of a phase write to different tiles of C or to different
                // panels of the half of the buffer that nobody reads in this phase.
                unsafe {
                    match (&computed, &packed) {
                        (_, Some(stage)) if claim < packs => pack(cut, stage, part(pack_panels.clone(), packs, claim)),
                        (Some(stage), _) if claim < packs + items => {
                            compute(cut, stage, share, claim - packs, left);
                        }
                        _ => break,
                    }
                }
            }
        }
        if phase < stages {
            progress.barrier.wait(team, progress.spins, || {
                progress.claims.iter().for_each(|claim| claim.0.store(0, Ordering::Relaxed));
            });
        }
    }
}

/// # Safety
/// Nobody else touches the panels' place in the stage's buffer.
unsafe fn pack(cut: &Cut, stage: &Stage, panels: Range<usize>) {
    let neighbours = panels.clone().all(|panel| cut.joined.b(cut.panel(panel).0.part).col_stride == 1);
    for block in stage.blocks.clone() {
        let block = cut.depth_block(block);
        let packed = cut.packed_block(stage, &block);
        // With contiguous columns, a few steps of all panels at a time, so that their cache lines and pages are used up
        // at once.
        let steps_at_once = if neighbours { 8 } else { block.len() };
        for first in block.clone().step_by(steps_at_once) {
            let steps = first..(first + steps_at_once).min(block.end);
            for panel in panels.clone() {
                let (columns, packed_width) = cut.panel(panel);
                if cut.in_place(&columns.range) {
                    continue;
                }
                let b = cut.joined.b(columns.part);
                let at = cut.packed_panel(stage, &block, panel) + (first - block.start) * packed_width;
                // SAFETY: the ranges lie within B, and the panel's part of the buffer has room for them.
                unsafe {
                    pack_right(cut.kernels.isa, b, steps.clone(), columns.range, packed_width, packed.add(at));
                    round(cut, packed.add(at), steps.len() * packed_width);
                }
            }
        }
    }
}

/// # Safety
/// The stage is packed, and nobody else touches the item's elements of C or the left buffer.
unsafe fn compute(cut: &Cut, stage: &Stage, share: usize, index: usize, left: *mut f32) {
    let item = cut.item(stage, share, index);
    for block_index in stage.blocks.clone() {
        let block = cut.depth_block(block_index);
        let packed = cut.packed_block(stage, &block);
        let next = if block_index + 1 < stage.blocks.end {
            Some((item.row_panels.clone(), block_index + 1))
        } else {
            cut.next_row_panels(share, index).map(|row_panels| (row_panels, stage.blocks.start))
        };
        let tiles = item.row_panels.len() * item.panels.len();
        let mut tile = Tile {
            a: left,
            left_stride: 0,
            b: packed,
            right_stride: 0,
            depth: block.len(),
            alpha: cut.joined.alpha,
            c: std::ptr::null_mut(),
            c_stride: 0,
            columns: 0,
            store: match cut.joined.accumulate {
                Accumulate::Overwrite if block_index == 0 => Store::Overwrite,
                _ => Store::Add,
            },
            ahead: next.map_or(Prefetch::NOTHING, |(row_panels, next_block)| {
                left_lines(cut, &row_panels, cut.depth_block(next_block), tiles * block.len())
            }),
        };
        if cut.left == LeftPlan::PackColumns {
            // Looked up once: the copy returns to each panel every few steps of depth.
            let mut places = [const { 0..0 }; ROW_PANELS_MAX].map(|none| (cut.joined.a(0), none));
            for (place, row_panel) in places.iter_mut().zip(item.row_panels.clone()) {
                let rows = cut.row_panel(row_panel);
                *place = (cut.joined.a(rows.part), rows.range);
            }
            let row_panels = &places[..item.row_panels.len()];
            // SAFETY: the rows and the block lie within A, and the item's panels fit the left buffer.
            unsafe {
                pack_left_columns(cut.kernels.isa, row_panels, &block, left);
                round(cut, left, item.row_panels.len() * block.len() * PACKED_COLUMN_STRIDE);
            }
        }
        for (row_panel, nth) in item.row_panels.clone().zip(0..) {
            let Panel { part, range: rows } = cut.row_panel(row_panel);
            let a = cut.joined.a(part);
            let layout;
            (layout, tile.left_stride) = match cut.left {
                LeftPlan::InPlace(Left::Columns) => (Left::Columns, a.col_stride),
                LeftPlan::InPlace(layout) => (layout, a.row_stride),
                LeftPlan::PackRows => (Left::PackedRows, PACKED_ROW_STRIDE),
                LeftPlan::PackColumns => (Left::Columns, PACKED_COLUMN_STRIDE),
            };
            // SAFETY: the rows and the block lie within A; the left buffer is this worker's own and has room for a
            // panel by rows, or for the item's panels by columns.
            tile.a = unsafe {
                match cut.left {
                    LeftPlan::InPlace(_) => a.ptr.add(rows.start * a.row_stride + block.start * a.col_stride),
                    LeftPlan::PackColumns => left.add(nth * block.len() * PACKED_COLUMN_STRIDE),
                    LeftPlan::PackRows => {
                        pack_left_rows(cut.kernels.isa, a, &rows, &block, left);
                        round(cut, left, rows.len() * PACKED_ROW_STRIDE);
                        left
                    }
                }
            };
            for panel in item.panels.clone() {
                let (Panel { part: right, range: columns }, packed_width) = cut.panel(panel);
                let (b, c) = (cut.joined.b(right), cut.joined.c(part, right));
                tile.columns = columns.len();
                tile.c_stride = c.row_stride;
                // SAFETY: the first elements of the panel lie within B or the buffer, those of the tile within C; A, B
                // and C are valid for these rows, this depth and these columns.
                unsafe {
                    (tile.b, tile.right_stride) = if cut.in_place(&columns) {
                        (b.ptr.add(block.start * b.row_stride + columns.start), b.row_stride)
                    } else {
                        (packed.add(cut.packed_panel(stage, &block, panel)).cast_const(), packed_width)
                    };
                    tile.c = c.ptr.add(rows.start * c.row_stride + columns.start);
                    cut.kernels.run(layout, rows.len(), &mut tile);
                }
            }
        }
    }
}

/// Rounds what was just copied, if requested.
///
/// # Safety
/// `at` is valid for `count` floats that nobody else touches.
unsafe fn round(cut: &Cut, at: *mut f32, count: usize) {
    if cut.rounding == Rounding::ToBf16 {
        // SAFETY: passed on from the caller.
        round_to_bf16(cut.kernels.isa, unsafe { std::slice::from_raw_parts_mut(at, count) });
    }
}

/// The cache lines of a piece of the left operand, to be prefetched over `depth` steps.
fn left_lines(cut: &Cut, row_panels: &Range<usize>, block: Range<usize>, depth: usize) -> Prefetch {
    let (first, last) = (cut.row_panel(row_panels.start), cut.row_panel(row_panels.end - 1));
    let a = cut.joined.a(first.part);
    // If the piece reaches into the next product, those lines are loaded on demand.
    let rows = first.range.start..if last.part == first.part { last.range.end } else { a.rows };
    let start = a.ptr.wrapping_add(rows.start * a.row_stride + block.start * a.col_stride);
    let (at, runs, run, run_stride) = if a.col_stride == 1 {
        (start, rows.len(), block.len().div_ceil(LINE), a.row_stride)
    } else if a.row_stride == 1 {
        // The piece begins within a cache line that the previous piece has read.
        (start.wrapping_add(LINE - 1), block.len(), rows.len().div_ceil(LINE), a.col_stride)
    } else {
        return Prefetch::NOTHING;
    };
    let at_once = (runs * run).div_ceil(depth.div_ceil(Prefetch::STEPS));
    Prefetch::runs(at, runs, run, run_stride, at_once)
}
