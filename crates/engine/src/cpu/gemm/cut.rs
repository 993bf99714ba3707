//! How one product is cut into pieces.
//!
//! The right operand is packed in *stages* (a range of columns × a range of depth that fits the buffer). A stage is
//! computed in *items* (a few panels of rows × a few panels of columns). Every thread has a *share* of a stage: columns
//! that it packs itself, so that they come from its own cache, and the items under them.
//!
//! Sizes are chosen for the thread count, but the result does not depend on them: no item splits the depth, and the
//! blocks of depth follow from the depth alone.

use std::ops::Range;

use super::joined::{self, Joined, Panel};
use super::kernel::{DEPTH_MAX, Kernels, Left, PACKED_COLUMN_STRIDE};
use super::matrix::MatRef;
use super::part;
use super::scratch::{LEFT_FLOATS, Piece};

/// Floats of packed right operand that an item reads repeatedly: slightly more than half of a core's L2.
const RIGHT_IN_CACHE: usize = 288 * 1024;
/// Most floats of right operand for a single stage: two cores keep that much in L2 beside everything else.
const STAGE_ALONE: usize = 384 * 1024;
/// Floats of right operand per stage if there are several: L2 holds them beside what else is read.
const STAGE: usize = RIGHT_IN_CACHE;
/// Column panels of the narrowest share; below that, threads share columns and divide the rows.
const SHARE_PANELS_MIN: usize = 2;
/// Fewest column panels of an item: narrower items would copy the left operand too often.
const ITEM_PANELS_MIN: usize = 4;
/// Fewer column panels than this do not repay a copy of the left operand.
const PANELS_TO_PACK_LEFT: usize = 3;
/// Rows whose stride is a multiple of this many floats (4 KiB) would all map to the same few lines of L1.
const PAGE: usize = 1024;
/// Most floats between the first and the last step of depth when reading by columns without a copy: they stay in L2.
const LEFT_SPREAD_MAX: usize = 128 * 1024;
/// Most floats between the first and the last row of a right operand that is read without a copy.
const RIGHT_SPREAD_MAX: usize = 512 * 1024;
/// Up to this many rows of C do not repay copying a right operand that already has a good layout.
const ROWS_TO_PACK_RIGHT: usize = 256;
/// Row panels of the tallest item.
pub const ROW_PANELS_MAX: usize = 32;
/// Items per share; enough to keep the wait for the last one short.
const ITEMS_A_SHARE: usize = 16;

/// One product, or several joined ones, cut up for a buffer and a team.
pub struct Cut<'a> {
    pub joined: &'a Joined<'a>,
    pub kernels: &'static Kernels,
    /// How the inner loop gets the operands.
    pub left: LeftPlan,
    pub right: RightPlan,
    pub rounding: Rounding,
    /// Restricts the product to these rows.
    rows: Option<Range<usize>>,
    buffer: Piece,
    depth_blocks: usize,
    depth_blocks_per_stage: usize,
    /// Column panels (of `kernels.width()` columns) of the whole product, of a stage and of an item.
    panels: usize,
    panels_per_stage: usize,
    panels_an_item: usize,
    row_panels: usize,
    row_panels_an_item: usize,
    /// Number of shares: parts of the rows × parts of the columns.
    row_parts: usize,
    column_parts: usize,
}

/// Rounding of the operands while they are copied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rounding {
    None,
    /// To bfloat16: both operands are then always copied.
    ToBf16,
}

/// Whether the left operand is read in place or from a copy, and its layout there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LeftPlan {
    InPlace(Left),
    PackRows,
    PackColumns,
}

/// Whether whole panels of the right operand are read in place; a panel narrower than a tile is always packed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RightPlan {
    InPlace,
    Pack,
}

/// Columns × depth of the right operand that are packed together, and the destination.
pub struct Stage {
    pub blocks: Range<usize>,
    pub panels: Range<usize>,
    buffer: *mut f32,
}

/// A few panels of rows × a few panels of columns.
pub struct Item {
    pub row_panels: Range<usize>,
    pub panels: Range<usize>,
}

impl<'a> Cut<'a> {
    /// Cuts products that each have at least one row, column and step of depth into `team` shares; `rows` restricts a
    /// single product to some of its rows.
    pub fn new(
        kernels: &'static Kernels,
        joined: &'a Joined<'a>,
        rows: Option<Range<usize>>,
        buffer: Piece,
        team: usize,
        rounding: Rounding,
    ) -> Cut<'a> {
        let (depth, width) = (joined.depth(), kernels.width());
        let depth_blocks = depth.div_ceil(DEPTH_MAX);
        let deepest_block = depth.div_ceil(depth_blocks);
        let panels = joined::panels(joined.columns(), width);
        let row_panels = joined::panels(heights(joined, &rows), kernels.rows_max);
        let (depth_blocks_per_stage, panels_per_stage) = if depth * panels * width <= buffer.floats.min(STAGE_ALONE) {
            (depth_blocks, panels)
        } else {
            // Equal stages: the left operand is copied for each, and a narrow last stage would hardly use its copy.
            let most = ((buffer.floats / 2).min(STAGE) / (deepest_block * width)).max(1);
            (1, panels.div_ceil(panels.div_ceil(most)))
        };
        let column_parts = (1..=team)
            .rev()
            .find(|&parts| team.is_multiple_of(parts) && panels_per_stage >= parts * SHARE_PANELS_MIN)
            .unwrap_or(1);
        // A column-major left operand is copied for each share that reads it: rows are divided instead if a thread's
        // cache holds all columns.
        let by_columns = joined.a(0).row_stride == 1 && joined.a(0).col_stride != 1;
        let narrow = deepest_block * panels_per_stage * width <= RIGHT_IN_CACHE;
        let column_parts = if by_columns && narrow && row_panels >= ITEMS_A_SHARE * team { 1 } else { column_parts };
        let row_parts = team / column_parts;
        let (share_panels, share_row_panels) =
            (panels_per_stage.div_ceil(column_parts), row_panels.div_ceil(row_parts));
        let in_cache = (RIGHT_IN_CACHE / (deepest_block * depth_blocks_per_stage * width)).max(1);
        let items_wanted = if team > 1 { ITEMS_A_SHARE } else { 1 };
        let mut items_across = share_panels.div_ceil(in_cache);
        if share_row_panels * items_across < items_wanted {
            let wanted = items_wanted.div_ceil(share_row_panels);
            items_across = items_across.max(wanted.min(share_panels / ITEM_PANELS_MIN));
        }
        let panels_an_item = share_panels.div_ceil(items_across);
        let left = how_to_read_left(joined, panels_an_item, rounding);
        let row_panels_an_item = if left == LeftPlan::PackColumns {
            // Each step of depth is a few floats, far from those of the next: several panels at once use whole cache
            // lines and whole pages.
            let fit = LEFT_FLOATS / (deepest_block * PACKED_COLUMN_STRIDE);
            fit.min(share_row_panels * items_across / items_wanted).clamp(1, ROW_PANELS_MAX)
        } else {
            1
        };
        Cut {
            joined,
            kernels,
            left,
            right: how_to_read_right(joined, heights(joined, &rows).sum(), rounding),
            rounding,
            rows,
            buffer,
            depth_blocks,
            depth_blocks_per_stage,
            panels,
            panels_per_stage,
            panels_an_item,
            row_panels,
            row_panels_an_item,
            row_parts,
            column_parts,
        }
    }

    pub fn shares(&self) -> usize {
        self.row_parts * self.column_parts
    }

    pub fn stages(&self) -> usize {
        self.depth_blocks.div_ceil(self.depth_blocks_per_stage) * self.panels.div_ceil(self.panels_per_stage)
    }

    /// Depth is the inner loop: a stage's columns of C are finished before the next ones begin. Stages alternate
    /// between the two halves of the buffer; a single stage has all of it.
    pub fn stage(&self, index: usize) -> Stage {
        let depth_stages = self.depth_blocks.div_ceil(self.depth_blocks_per_stage);
        let (across, down) = (index / depth_stages, index % depth_stages);
        let blocks =
            down * self.depth_blocks_per_stage..((down + 1) * self.depth_blocks_per_stage).min(self.depth_blocks);
        let panels = across * self.panels_per_stage..((across + 1) * self.panels_per_stage).min(self.panels);
        let half = if self.stages() > 1 { (index % 2) * (self.buffer.floats / 2) } else { 0 };
        // SAFETY: `half` is zero or half of the buffer's length.
        Stage { blocks, panels, buffer: unsafe { self.buffer.start.add(half) } }
    }

    /// The column panels that a share packs: its part of the columns that it shares with others.
    pub fn pack_panels(&self, stage: &Stage, share: usize) -> Range<usize> {
        part(self.share_panels(stage, share), self.row_parts, share / self.column_parts)
    }

    pub fn items(&self, stage: &Stage, share: usize) -> usize {
        self.items_across(stage, share) * self.items_down(share)
    }

    /// Rows vary fastest, so that the item's part of B stays in the cache.
    pub fn item(&self, stage: &Stage, share: usize, index: usize) -> Item {
        let (across, down) = (self.items_across(stage, share), self.items_down(share));
        Item {
            row_panels: part(self.share_row_panels(share), down, index % down),
            panels: part(self.share_panels(stage, share), across, index / down),
        }
    }

    /// The row panels of the next item, if it has the same columns.
    pub fn next_row_panels(&self, share: usize, index: usize) -> Option<Range<usize>> {
        let down = self.items_down(share);
        (index % down + 1 < down).then(|| part(self.share_row_panels(share), down, index % down + 1))
    }

    /// The `index`-th of the equal blocks of depth.
    pub fn depth_block(&self, index: usize) -> Range<usize> {
        part(0..self.joined.depth(), self.depth_blocks, index)
    }

    /// The `index`-th row panel; the panels of a part have nearly equal heights.
    pub fn row_panel(&self, index: usize) -> Panel {
        let before = self.rows.as_ref().map_or(0, |rows| rows.start);
        let lengths = heights(self.joined, &self.rows);
        let mut panel = joined::panel(lengths, self.kernels.rows_max, index, joined::equal);
        panel.range = panel.range.start + before..panel.range.end + before;
        panel
    }

    /// The columns of C under a panel, and its packed width in floats per step of depth.
    pub fn panel(&self, index: usize) -> (Panel, usize) {
        let width = self.kernels.width();
        let panel = joined::panel(self.joined.columns(), width, index, joined::as_wide_as(width));
        let packed_width = panel.range.len().next_multiple_of(self.kernels.lanes);
        (panel, packed_width)
    }

    /// Whether a panel is read in place.
    pub fn in_place(&self, columns: &Range<usize>) -> bool {
        self.right == RightPlan::InPlace && columns.len() == self.kernels.width()
    }

    /// Address of the first panel of a depth block in the stage's buffer: ordered by block, then by panel.
    pub fn packed_block(&self, stage: &Stage, block: &Range<usize>) -> *mut f32 {
        let before = block.start - self.depth_block(stage.blocks.start).start;
        // SAFETY: blocks and panels of a stage fit the buffer by the choice of the stage's size.
        unsafe { stage.buffer.add(before * stage.panels.len() * self.kernels.width()) }
    }

    /// Offset of a panel within its block, from the stage's first panel.
    pub fn packed_panel(&self, stage: &Stage, block: &Range<usize>, panel: usize) -> usize {
        (panel - stage.panels.start) * self.kernels.width() * block.len()
    }

    /// Shares with the same columns differ in their rows.
    fn share_panels(&self, stage: &Stage, share: usize) -> Range<usize> {
        part(stage.panels.clone(), self.column_parts, share % self.column_parts)
    }

    fn share_row_panels(&self, share: usize) -> Range<usize> {
        part(0..self.row_panels, self.row_parts, share / self.column_parts)
    }

    fn items_across(&self, stage: &Stage, share: usize) -> usize {
        self.share_panels(stage, share).len().div_ceil(self.panels_an_item)
    }

    fn items_down(&self, share: usize) -> usize {
        self.share_row_panels(share).len().div_ceil(self.row_panels_an_item)
    }
}

/// Number of rows of each part: the requested ones, or all.
pub fn heights(joined: &Joined, rows: &Option<Range<usize>>) -> impl Iterator<Item = usize> {
    joined.rows().map(|all| rows.as_ref().map_or(all, |rows| rows.len()))
}

/// In place, or copied if it is read often enough or has a bad layout; the same way for all parts.
fn how_to_read_left(joined: &Joined, panels_an_item: usize, rounding: Rounding) -> LeftPlan {
    let read_often = panels_an_item >= PANELS_TO_PACK_LEFT || rounding == Rounding::ToBf16;
    let parts = joined.rows().enumerate().map(|(part, _)| joined.a(part));
    let one = |a: &MatRef| {
        if a.col_stride == 1 {
            let in_place = !(read_often || a.row_stride.is_multiple_of(PAGE));
            if in_place { LeftPlan::InPlace(Left::Rows) } else { LeftPlan::PackRows }
        } else if a.row_stride == 1 {
            let in_place = !(read_often || a.col_stride * a.cols.min(DEPTH_MAX) > LEFT_SPREAD_MAX);
            if in_place { LeftPlan::InPlace(Left::Columns) } else { LeftPlan::PackColumns }
        } else {
            LeftPlan::PackRows
        }
    };
    let columns = [LeftPlan::InPlace(Left::Columns), LeftPlan::PackColumns];
    parts
        .map(one)
        .reduce(|all, one| match (all, one) {
            (all, one) if all == one => all,
            (all, one) if columns.contains(&all) && columns.contains(&one) => LeftPlan::PackColumns,
            // A copy by rows handles any strides.
            _ => LeftPlan::PackRows,
        })
        .expect("a product has a left operand")
}

fn how_to_read_right(joined: &Joined, rows: usize, rounding: Rounding) -> RightPlan {
    let lies_well = |b: &MatRef| {
        b.col_stride == 1
            && rounding == Rounding::None
            && rows <= ROWS_TO_PACK_RIGHT
            && b.row_stride * b.rows <= RIGHT_SPREAD_MAX
            && !b.row_stride.is_multiple_of(PAGE)
    };
    let all = joined.columns().enumerate().all(|(part, _)| lies_well(joined.b(part)));
    if all { RightPlan::InPlace } else { RightPlan::Pack }
}
