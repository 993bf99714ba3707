//! How one product is cut into pieces, and how a team of threads works through them.
//!
//! The right operand is packed in *stages* (a range of columns × a range of depth that fits the buffer). A stage is
//! computed in *items* (a panel of rows × a few panels of columns) that threads claim as they come free, and while a
//! stage is computed the next one is packed into the buffer's other half: one barrier a stage. No item splits depth,
//! and stages follow each other, so every element sums up in the same order on any number of threads.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::kernel::{DEPTH_MAX, Kernels, Left, Store, Tile};
use super::pack::{pack_left, pack_right};
use super::scratch::Piece;
use super::{Accumulate, Product};
use crate::cpu::pool::{Barrier, Padded};

/// Floats of packed right operand that an item reads over and over: 1 MiB, half a core's L2.
const RIGHT_IN_CACHE: usize = 256 * 1024;
/// Narrower items would copy the left operand too often.
const ITEM_PANELS_MIN: usize = 4;
/// Fewer column panels than this do not repay a copy of the left operand.
const PANELS_TO_PACK_LEFT: usize = 3;
/// Items a thread that keep the last one's wait short.
const ITEMS_A_THREAD: usize = 16;

/// One product cut up for a buffer and a team.
pub struct Cut<'a> {
    product: &'a Product<'a>,
    kernels: &'static Kernels,
    rows: Range<usize>,
    right: Piece,
    depth_blocks: usize,
    depth_blocks_a_stage: usize,
    /// Column panels (of `kernels.width()` columns) of the whole product, of a stage and of an item.
    panels: usize,
    panels_a_stage: usize,
    panels_an_item: usize,
    row_panels: usize,
}

/// What the team shares while it works: the next unclaimed item and the place to wait for each other.
pub struct Progress {
    next: Padded<AtomicUsize>,
    barrier: Barrier,
    spins: u32,
}

impl Progress {
    pub fn new(spins: u32) -> Progress {
        Progress { next: Padded(AtomicUsize::new(0)), barrier: Barrier::new(), spins }
    }
}

impl<'a> Cut<'a> {
    /// Rows `rows` of a product that has at least one row, column and step of depth.
    pub fn new(
        kernels: &'static Kernels,
        product: &'a Product<'a>,
        rows: Range<usize>,
        right: Piece,
        team: usize,
    ) -> Cut<'a> {
        let (depth, width) = (product.a.cols, kernels.width());
        let depth_blocks = depth.div_ceil(DEPTH_MAX);
        let panels = product.b.cols.div_ceil(width);
        let row_panels = rows.len().div_ceil(kernels.rows_max);
        let (depth_blocks_a_stage, panels_a_stage) = if depth * panels * width <= right.floats {
            (depth_blocks, panels)
        } else {
            let deepest_block = depth.div_ceil(depth_blocks);
            (1, (right.floats / 2 / (deepest_block * width)).clamp(1, panels))
        };
        let stage_depth = depth.div_ceil(depth_blocks) * depth_blocks_a_stage;
        let in_cache = (RIGHT_IN_CACHE / (stage_depth * width)).clamp(1, panels_a_stage);
        let mut items_across = panels_a_stage.div_ceil(in_cache);
        if row_panels * items_across < ITEMS_A_THREAD * team && team > 1 {
            let wanted = (ITEMS_A_THREAD * team).div_ceil(row_panels);
            items_across = items_across.max(wanted.min(panels_a_stage / ITEM_PANELS_MIN));
        }
        let panels_an_item = panels_a_stage.div_ceil(items_across);
        Cut {
            product,
            kernels,
            rows,
            right,
            depth_blocks,
            depth_blocks_a_stage,
            panels,
            panels_a_stage,
            panels_an_item,
            row_panels,
        }
    }

    /// Does one worker's share. `left` is the worker's own buffer for a panel of the left operand.
    ///
    /// # Safety
    /// All `team` workers run this at the same time with the same cut and progress, nothing else touches the product's
    /// C, the right buffer or this worker's left buffer, and the product's rows include the cut's.
    pub unsafe fn work(&self, progress: &Progress, team: usize, left: *mut f32) {
        let stages = self.stages();
        for phase in 0..=stages {
            let computed = phase.checked_sub(1).map(|stage| self.stage(stage));
            let packed = (phase < stages).then(|| self.stage(phase));
            let compute_items = computed.as_ref().map_or(0, |stage| self.row_panels * self.items_across(stage));
            let pack_items = packed.as_ref().map_or(0, |stage| stage.panels.len());
            loop {
                let item = progress.next.0.fetch_add(1, Ordering::Relaxed);
                // SAFETY: an item is claimed by one worker; items of a phase write to different tiles of C or different
                // panels of the half of the buffer that no item of this phase reads.
                unsafe {
                    match (&computed, &packed) {
                        (_, Some(stage)) if item < pack_items => self.pack(stage, stage.panels.start + item),
                        (Some(stage), _) if item < pack_items + compute_items => {
                            self.compute(stage, item - pack_items, left)
                        }
                        _ => break,
                    }
                }
            }
            if phase < stages {
                progress.barrier.wait(team, progress.spins, || progress.next.0.store(0, Ordering::Relaxed));
            }
        }
    }

    fn stages(&self) -> usize {
        self.depth_blocks.div_ceil(self.depth_blocks_a_stage) * self.panels.div_ceil(self.panels_a_stage)
    }

    /// Depth is the inner loop: a stage's columns of C are finished before the next ones begin.
    fn stage(&self, index: usize) -> Stage {
        let depth_stages = self.depth_blocks.div_ceil(self.depth_blocks_a_stage);
        let (across, down) = (index / depth_stages, index % depth_stages);
        let blocks = down * self.depth_blocks_a_stage..((down + 1) * self.depth_blocks_a_stage).min(self.depth_blocks);
        let panels = across * self.panels_a_stage..((across + 1) * self.panels_a_stage).min(self.panels);
        let half = if self.stages() > 1 { (index % 2) * (self.right.floats / 2) } else { 0 };
        // SAFETY: `half` is zero or half of the buffer's length.
        Stage { blocks, panels, right: unsafe { self.right.start.add(half) } }
    }

    fn items_across(&self, stage: &Stage) -> usize {
        stage.panels.len().div_ceil(self.panels_an_item)
    }

    /// The `index`-th of equal blocks of the depth.
    fn depth_block(&self, index: usize) -> Range<usize> {
        split(self.product.a.cols, self.depth_blocks, index)
    }

    /// The columns of C under a panel, and how many floats a step of depth takes there.
    fn panel(&self, panel: usize) -> (Range<usize>, usize) {
        let width = self.kernels.width();
        let columns = panel * width..((panel + 1) * width).min(self.product.b.cols);
        let packed_width = columns.len().next_multiple_of(self.kernels.lanes);
        (columns, packed_width)
    }

    /// Where a panel's block of depth lies in the stage's buffer: block after block, in each panel after panel.
    fn packed_at(&self, stage: &Stage, block: &Range<usize>, panel: usize) -> *mut f32 {
        let width = self.kernels.width();
        let before = block.start - self.depth_block(stage.blocks.start).start;
        let floats = before * stage.panels.len() * width + (panel - stage.panels.start) * width * block.len();
        // SAFETY: blocks and panels of a stage fit the buffer by the choice of the stage's size.
        unsafe { stage.right.add(floats) }
    }

    unsafe fn pack(&self, stage: &Stage, panel: usize) {
        let (columns, packed_width) = self.panel(panel);
        for block in stage.blocks.clone() {
            let block = self.depth_block(block);
            let to = self.packed_at(stage, &block, panel);
            // SAFETY: the ranges lie within B, and the panel's place in the buffer has room for them.
            unsafe { pack_right(self.kernels.isa, &self.product.b, block, columns.clone(), packed_width, to) };
        }
    }

    unsafe fn compute(&self, stage: &Stage, item: usize, left: *mut f32) {
        let Product { alpha, a, c, accumulate, .. } = self.product;
        // Row panels vary fastest, so that the item's part of B stays in the cache.
        let (across, row_panel) = (item / self.row_panels, item % self.row_panels);
        let first = stage.panels.start + across * self.panels_an_item;
        let panels = first..(first + self.panels_an_item).min(stage.panels.end);
        let rows = split(self.rows.len(), self.row_panels, row_panel);
        let rows = self.rows.start + rows.start..self.rows.start + rows.end;
        for block_index in stage.blocks.clone() {
            let block = self.depth_block(block_index);
            let store =
                if block_index == 0 && *accumulate == Accumulate::Overwrite { Store::Overwrite } else { Store::Add };
            // SAFETY: rows and block lie within A; the left buffer is this worker's own.
            let (a, layout) = unsafe { self.left_panel(a, &rows, &block, panels.len(), left) };
            let left_stride = match layout {
                Left::PackedRows => 0,
                Left::Rows { stride } | Left::Columns { stride } => stride,
            };
            for panel in panels.clone() {
                let (columns, _) = self.panel(panel);
                let tile = Tile {
                    a,
                    left_stride,
                    b: self.packed_at(stage, &block, panel),
                    depth: block.len(),
                    alpha: *alpha,
                    // SAFETY: the tile's first element lies within C.
                    c: unsafe { c.ptr.add(rows.start * c.row_stride + columns.start) },
                    c_stride: c.row_stride,
                    columns: columns.len(),
                    store,
                };
                // SAFETY: A, the packed B and C are valid for these rows, this depth and these columns.
                unsafe { self.kernels.run(layout, rows.len(), &tile) };
            }
        }
    }

    /// The left panel where it lies, or copied where it is read often enough or lies badly.
    unsafe fn left_panel(
        &self,
        a: &super::MatRef,
        rows: &Range<usize>,
        block: &Range<usize>,
        panels: usize,
        left: *mut f32,
    ) -> (*const f32, Left) {
        if panels < PANELS_TO_PACK_LEFT {
            // SAFETY: the panel's first element lies within A.
            let in_place = unsafe { a.ptr.add(rows.start * a.row_stride + block.start * a.col_stride) };
            // Rows a multiple of 4 KiB apart would all fall into the same few lines of L1.
            if a.col_stride == 1 && !a.row_stride.is_multiple_of(1024) {
                return (in_place, Left::Rows { stride: a.row_stride });
            } else if a.row_stride == 1 {
                return (in_place, Left::Columns { stride: a.col_stride });
            }
        }
        // SAFETY: passed on from the caller.
        let layout = unsafe { pack_left(self.kernels.isa, a, rows.clone(), block.clone(), left) };
        (left, layout)
    }
}

/// Columns × depth of the right operand that are packed together, and where.
struct Stage {
    blocks: Range<usize>,
    panels: Range<usize>,
    right: *mut f32,
}

/// The `index`-th of `parts` nearly equal parts of `0..len`.
pub fn split(len: usize, parts: usize, index: usize) -> Range<usize> {
    len * index / parts..len * (index + 1) / parts
}
