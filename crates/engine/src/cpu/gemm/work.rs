//! How a team of threads works through a cut product.
//!
//! A thread takes the items of its own share, then those that others have not begun. While a stage is computed the next
//! one is packed into the buffer's other half: one barrier a stage.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::cut::{Cut, Stage, part};
use super::kernel::{Ahead, Left, Store, Tile};
use super::pack::{PACKED_COLUMN_STRIDE, pack_left_columns, pack_left_rows, pack_right};
use super::{Accumulate, Product};
use crate::cpu::pool::{Barrier, Padded};

/// Floats in a cache line.
const LINE: usize = 16;

/// What the team has in common while it works: each share's next unclaimed item, and the place to wait for each other.
pub struct Progress<'a> {
    /// All zero to begin with; at least one for each share.
    pub claims: &'a [Padded<AtomicUsize>],
    pub barrier: Barrier,
    pub spins: u32,
}

/// Does one worker's part. `left` is the worker's own buffer for panels of the left operand.
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
            let items = computed.as_ref().map_or(0, |stage| cut.items(stage, share));
            loop {
                let claim = progress.claims[share].0.fetch_add(1, Ordering::Relaxed);
                // SAFETY: a claim belongs to one worker; those of a phase write to different tiles of C or to different
                // panels of the half of the buffer that nobody reads in this phase.
                unsafe {
                    match (&computed, &packed) {
                        (_, Some(stage)) if claim < pack_panels.len() => pack(cut, stage, pack_panels.start + claim),
                        (Some(stage), _) if claim < pack_panels.len() + items => {
                            compute(cut, stage, share, claim - pack_panels.len(), left);
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
/// Nobody else touches the panel's place in the stage's buffer.
unsafe fn pack(cut: &Cut, stage: &Stage, panel: usize) {
    let (columns, packed_width) = cut.panel(panel);
    for block in stage.blocks.clone() {
        let block = cut.depth_block(block);
        let to = cut.packed_at(stage, &block, panel);
        // SAFETY: the ranges lie within B, and the panel's place in the buffer has room for them.
        unsafe { pack_right(cut.kernels.isa, &cut.product.b, block, columns.clone(), packed_width, to) };
    }
}

/// # Safety
/// The stage is packed, and nobody else touches the item's elements of C or the left buffer.
unsafe fn compute(cut: &Cut, stage: &Stage, share: usize, index: usize, left: *mut f32) {
    let Product { alpha, a, c, accumulate, .. } = cut.product;
    let item = cut.item(stage, share, index);
    let tiles = item.row_panels.len() * item.panels.len();
    for block_index in stage.blocks.clone() {
        let block = cut.depth_block(block_index);
        let store = match accumulate {
            Accumulate::Overwrite if block_index == 0 => Store::Overwrite,
            _ => Store::Add,
        };
        let next = if block_index + 1 < stage.blocks.end {
            Some((item.row_panels.clone(), block_index + 1))
        } else {
            cut.next_row_panels(share, index).map(|row_panels| (row_panels, stage.blocks.start))
        };
        let ahead = next.map(|(row_panels, block)| LeftLines::of(cut, &row_panels, cut.depth_block(block)));
        if cut.left == Left::PackedColumns {
            let row_panels = item.row_panels.clone().map(|row_panel| cut.row_panel(row_panel));
            // SAFETY: the rows and the block lie within A, and the item's panels fit the left buffer.
            unsafe { pack_left_columns(cut.kernels.isa, a, row_panels, &block, left) };
        }
        for row_panel in item.row_panels.clone() {
            let rows = cut.row_panel(row_panel);
            let nth = row_panel - item.row_panels.start;
            // SAFETY: the rows and the block lie within A; the left buffer is this worker's own and has room for a panel
            // by rows, or for the item's panels by columns.
            let a = unsafe {
                match cut.left {
                    Left::Rows => a.ptr.add(rows.start * a.row_stride + block.start * a.col_stride),
                    Left::PackedColumns => left.add(nth * block.len() * PACKED_COLUMN_STRIDE).cast_const(),
                    Left::PackedRows => {
                        pack_left_rows(cut.kernels.isa, a, &rows, &block, left);
                        left.cast_const()
                    }
                }
            };
            for panel in item.panels.clone() {
                let (columns, _) = cut.panel(panel);
                let tile_index = nth * item.panels.len() + panel - item.panels.start;
                let tile = Tile {
                    a,
                    left_stride: cut.product.a.row_stride,
                    b: cut.packed_at(stage, &block, panel),
                    depth: block.len(),
                    alpha: *alpha,
                    // SAFETY: the tile's first element lies within C.
                    c: unsafe { c.ptr.add(rows.start * c.row_stride + columns.start) },
                    c_stride: c.row_stride,
                    columns: columns.len(),
                    store,
                    ahead: ahead.as_ref().map_or(Ahead::NOTHING, |lines| lines.ahead(tile_index, tiles, block.len())),
                };
                // SAFETY: A, the packed B and C are valid for these rows, this depth and these columns.
                unsafe { cut.kernels.run(cut.left, rows.len(), &tile) };
            }
        }
    }
}

/// The cache lines of a piece of the left operand: `runs` of `run` lines each.
struct LeftLines {
    start: *const f32,
    runs: usize,
    run: usize,
    run_stride: usize,
    stride: usize,
}

impl LeftLines {
    fn of(cut: &Cut, row_panels: &Range<usize>, block: Range<usize>) -> LeftLines {
        let a = &cut.product.a;
        let rows = cut.row_panel(row_panels.start).start..cut.row_panel(row_panels.end - 1).end;
        let start = a.ptr.wrapping_add(rows.start * a.row_stride + block.start * a.col_stride);
        if a.col_stride == 1 {
            let run = block.len().div_ceil(LINE);
            LeftLines { start, runs: rows.len(), run, run_stride: a.row_stride, stride: LINE }
        } else if a.row_stride == 1 {
            // The piece begins within a line that the piece before it has read.
            let run = rows.len().div_ceil(LINE);
            LeftLines {
                start: start.wrapping_add(LINE - 1),
                runs: block.len(),
                run,
                run_stride: a.col_stride,
                stride: LINE,
            }
        } else {
            LeftLines { start, runs: 0, run: 1, run_stride: 0, stride: 0 }
        }
    }

    /// The part of the lines that the `tile`-th of `tiles` asks for while it goes through its depth.
    fn ahead(&self, tile: usize, tiles: usize, depth: usize) -> Ahead {
        let lines = part(0..self.runs * self.run, tiles, tile);
        let (at_run, in_run) = (lines.start / self.run, lines.start % self.run);
        Ahead {
            at: self.start.wrapping_add(at_run * self.run_stride + in_run * self.stride),
            count: lines.len(),
            at_once: lines.len().div_ceil(depth.div_ceil(Ahead::STEPS)),
            stride: self.stride,
            left_in_run: self.run - in_run,
            run: self.run,
            jump: self.run_stride.wrapping_sub((self.run - 1) * self.stride),
        }
    }
}
