//! How one product is cut into pieces, and how a team of threads works through them.
//!
//! The right operand is packed in *stages* (a range of columns × a range of depth that fits the buffer). A stage is
//! computed in *items* (a panel of rows × a few panels of columns), and while it is computed the next one is packed into
//! the buffer's other half: one barrier a stage.
//!
//! Every thread has a *share* of a stage: columns that it packs itself, so that they come from its own cache, and the
//! items under them. Who is done with its share takes items of the others'. No item splits depth and stages follow each
//! other, so every element sums up in the same order on any number of threads.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::kernel::{Ahead, DEPTH_MAX, Kernels, Left, Store, Tile};
use super::pack::{pack_left, pack_right};
use super::scratch::Piece;
use super::{Accumulate, Product};
use crate::cpu::pool::{Barrier, Padded};

/// Floats of packed right operand that an item reads over and over: 1 MiB, half a core's L2.
const RIGHT_IN_CACHE: usize = 256 * 1024;
/// Column panels of the narrowest share; below that, threads share columns and divide rows.
const SHARE_PANELS_MIN: usize = 2;
/// Narrower items would copy the left operand too often.
const ITEM_PANELS_MIN: usize = 4;
/// Fewer column panels than this do not repay a copy of the left operand.
const PANELS_TO_PACK_LEFT: usize = 3;
/// Items a share that keep the wait for the last one short.
const ITEMS_A_SHARE: usize = 16;

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
    /// Shares: parts of the rows × parts of the columns.
    row_parts: usize,
    column_parts: usize,
}

/// What the team has in common while it works: each share's next unclaimed item, and the place to wait for each other.
pub struct Progress<'a> {
    /// All zero to begin with; at least one for each share.
    pub claims: &'a [Padded<AtomicUsize>],
    pub barrier: Barrier,
    pub spins: u32,
}

impl<'a> Cut<'a> {
    /// Rows `rows` of a product that has at least one row, column and step of depth, in `team` shares.
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
        let deepest_block = depth.div_ceil(depth_blocks);
        let (depth_blocks_a_stage, panels_a_stage) = if depth * panels * width <= right.floats {
            (depth_blocks, panels)
        } else {
            (1, (right.floats / 2 / (deepest_block * width)).clamp(1, panels))
        };
        let column_parts = (1..=team)
            .rev()
            .find(|&parts| team.is_multiple_of(parts) && panels_a_stage >= parts * SHARE_PANELS_MIN)
            .unwrap_or(1);
        let row_parts = team / column_parts;
        let share_panels = panels_a_stage.div_ceil(column_parts);
        let in_cache = (RIGHT_IN_CACHE / (deepest_block * depth_blocks_a_stage * width)).max(1);
        let items_down = (row_panels / row_parts).max(1);
        let mut items_across = share_panels.div_ceil(in_cache);
        if team > 1 && items_down * items_across < ITEMS_A_SHARE {
            let wanted = ITEMS_A_SHARE.div_ceil(items_down);
            items_across = items_across.max(wanted.min(share_panels / ITEM_PANELS_MIN));
        }
        let panels_an_item = share_panels.div_ceil(items_across);
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
            row_parts,
            column_parts,
        }
    }

    /// Does one worker's part. `left` is the worker's own buffer for a panel of the left operand.
    ///
    /// # Safety
    /// All `team` workers run this at the same time with the same cut and progress, nothing else touches the product's
    /// C, the right buffer or this worker's left buffer, and the product's rows include the cut's.
    pub unsafe fn work(&self, progress: &Progress, worker: usize, team: usize, left: *mut f32) {
        let (stages, shares) = (self.stages(), self.row_parts * self.column_parts);
        for phase in 0..=stages {
            let computed = phase.checked_sub(1).map(|stage| self.stage(stage));
            let packed = (phase < stages).then(|| self.stage(phase));
            for share in (worker..shares).chain(0..worker.min(shares)) {
                let pack = packed.as_ref().map_or(0..0, |stage| self.pack_panels(stage, share));
                let items = computed.as_ref().map_or(0, |stage| self.items(stage, share).count());
                loop {
                    let claim = progress.claims[share].0.fetch_add(1, Ordering::Relaxed);
                    // SAFETY: an item is claimed by one worker; items of a phase write to different tiles of C or to
                    // different panels of the half of the buffer that no item of this phase reads.
                    unsafe {
                        match (&computed, &packed) {
                            (_, Some(stage)) if claim < pack.len() => self.pack(stage, pack.start + claim),
                            (Some(stage), _) if claim < pack.len() + items => {
                                self.compute(stage, &self.items(stage, share), claim - pack.len(), left)
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

    /// The column panels of a share; shares with the same columns differ in their rows.
    fn share_panels(&self, stage: &Stage, share: usize) -> Range<usize> {
        shifted(split(stage.panels.len(), self.column_parts, share % self.column_parts), stage.panels.start)
    }

    /// The column panels that a share packs: its part of those it has in common with others.
    fn pack_panels(&self, stage: &Stage, share: usize) -> Range<usize> {
        let panels = self.share_panels(stage, share);
        shifted(split(panels.len(), self.row_parts, share / self.column_parts), panels.start)
    }

    fn items(&self, stage: &Stage, share: usize) -> Items {
        let panels = self.share_panels(stage, share);
        let row_panels = split(self.row_panels, self.row_parts, share / self.column_parts);
        Items { across: panels.len().div_ceil(self.panels_an_item), panels, row_panels }
    }

    /// The `index`-th of equal blocks of the depth.
    fn depth_block(&self, index: usize) -> Range<usize> {
        split(self.product.a.cols, self.depth_blocks, index)
    }

    /// The `index`-th of equal panels of the rows.
    fn row_panel(&self, index: usize) -> Range<usize> {
        shifted(split(self.rows.len(), self.row_panels, index), self.rows.start)
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

    /// # Safety
    /// Nobody else touches the panel's place in the stage's buffer.
    unsafe fn pack(&self, stage: &Stage, panel: usize) {
        let (columns, packed_width) = self.panel(panel);
        for block in stage.blocks.clone() {
            let block = self.depth_block(block);
            let to = self.packed_at(stage, &block, panel);
            // SAFETY: the ranges lie within B, and the panel's place in the buffer has room for them.
            unsafe { pack_right(self.kernels.isa, &self.product.b, block, columns.clone(), packed_width, to) };
        }
    }

    /// # Safety
    /// The stage is packed, and nobody else touches the item's elements of C or the left buffer.
    unsafe fn compute(&self, stage: &Stage, items: &Items, item: usize, left: *mut f32) {
        let Product { alpha, c, accumulate, .. } = self.product;
        // Row panels vary fastest, so that the item's part of B stays in the cache.
        let (across, down) = (item / items.row_panels.len(), item % items.row_panels.len());
        let first = items.panels.start + across * self.panels_an_item;
        let panels = first..(first + self.panels_an_item).min(items.panels.end);
        let row_panel = items.row_panels.start + down;
        let rows = self.row_panel(row_panel);
        for block_index in stage.blocks.clone() {
            let block = self.depth_block(block_index);
            let store = if block_index == 0 { Store::from(*accumulate) } else { Store::Add };
            // SAFETY: rows and block lie within A; the left buffer is this worker's own.
            let (a, layout) = unsafe { self.left_panel(&rows, &block, panels.len(), left) };
            let left_stride = match layout {
                Left::PackedRows => 0,
                Left::Rows { stride } | Left::Columns { stride } => stride,
            };
            let next = if block_index + 1 < stage.blocks.end {
                Some((row_panel, block_index + 1))
            } else if down + 1 < items.row_panels.len() {
                Some((row_panel + 1, stage.blocks.start))
            } else {
                None
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
                    ahead: next.map_or(Ahead::NOTHING, |next| self.ahead(next, panel - panels.start, panels.len())),
                };
                // SAFETY: A, the packed B and C are valid for these rows, this depth and these columns.
                unsafe { self.kernels.run(layout, rows.len(), &tile) };
            }
        }
    }

    /// The left panel where it lies, or copied where it is read often enough or lies badly.
    ///
    /// # Safety
    /// Rows and block lie within A, and nobody else touches the left buffer.
    unsafe fn left_panel(
        &self,
        rows: &Range<usize>,
        block: &Range<usize>,
        panels: usize,
        left: *mut f32,
    ) -> (*const f32, Left) {
        let a = &self.product.a;
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

    /// The part of the next left panel's cache lines that the `tile`-th of `tiles` asks for.
    fn ahead(&self, (row_panel, block): (usize, usize), tile: usize, tiles: usize) -> Ahead {
        const LINE: usize = 16;
        let a = &self.product.a;
        let (rows, block) = (self.row_panel(row_panel), self.depth_block(block));
        // Lines lie along the depth (`runs` rows of them), or each step of depth has one line of rows: the last, because
        // the panel before this one reached into the first.
        let (runs, run_stride, run, stride, start) = if a.col_stride == 1 {
            (rows.len(), a.row_stride, block.len().div_ceil(LINE), LINE, rows.start)
        } else if a.row_stride == 1 {
            (1, 0, block.len(), a.col_stride, rows.end - 1)
        } else {
            return Ahead::NOTHING;
        };
        let part = split(runs * run, tiles, tile);
        let (in_run, at_run) = (part.start % run, part.start / run);
        let at = a.ptr.wrapping_add(start * a.row_stride + block.start * a.col_stride);
        Ahead {
            at: at.wrapping_add(at_run * run_stride + in_run * stride),
            count: part.len(),
            stride,
            left_in_run: run - in_run,
            run,
            jump: run_stride.wrapping_sub((run - 1) * stride),
        }
    }
}

/// Columns × depth of the right operand that are packed together, and where.
struct Stage {
    blocks: Range<usize>,
    panels: Range<usize>,
    right: *mut f32,
}

/// The items of one share of a stage: `across` groups of column panels, in each every row panel.
struct Items {
    panels: Range<usize>,
    across: usize,
    row_panels: Range<usize>,
}

impl Items {
    fn count(&self) -> usize {
        self.across * self.row_panels.len()
    }
}

impl From<Accumulate> for Store {
    fn from(accumulate: Accumulate) -> Store {
        match accumulate {
            Accumulate::Overwrite => Store::Overwrite,
            Accumulate::Add => Store::Add,
        }
    }
}

/// The `index`-th of `parts` nearly equal parts of `0..len`.
pub fn split(len: usize, parts: usize, index: usize) -> Range<usize> {
    len * index / parts..len * (index + 1) / parts
}

fn shifted(range: Range<usize>, by: usize) -> Range<usize> {
    range.start + by..range.end + by
}
