//! How a bfloat16 product is cut up and processed by a team.
//!
//! The whole team packs the right operand in *stages* (a range of depth × a range of columns that fits the buffer). The
//! left operand is packed by the worker that computes an *item* (some panels of rows × the stage's columns, or some of
//! them). A block of the right operand then stays in L1 for all rows of an item, while the left one comes from L2.
//! While a stage is computed, the next one is packed into the other half of the buffer. The cuts of the depth follow
//! from the depth alone, so the bits of C do not depend on the team.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::pack::{self, SIDE, UNIT, UNIT_NUMBERS};
use super::tile::{Square, Start, Tiles};
use super::unit::Bf16Unit;
use super::{Form, split};
use crate::cpu::gemm::Accumulate;
use crate::cpu::gemm::cut::heights;
use crate::cpu::gemm::joined::{self, Joined, Panel, as_wide_as};
use crate::cpu::gemm::part;
use crate::cpu::gemm::scratch::{Buffers, LEFT_FLOATS, Piece, Scratch};
use crate::cpu::pool::{Barrier, Padded, Pool};

/// Units of the deepest block, counting all parts: a right panel's 36 KiB then stay in L1 while left ones stream by.
const UNITS_MAX: usize = 18;
const _: () = assert!(2 * LEFT_FLOATS >= UNITS_MAX * UNIT_NUMBERS);
/// Row panels of an item: enough to repay fetching a right panel, few enough to stay in L2.
const ROW_PANELS_MIN: usize = 4;
const ROW_PANELS_MAX: usize = 8;
/// Items per worker; enough to keep the wait for the last one short.
const ITEMS_A_WORKER: usize = 4;
/// Relative costs of packing a unit of a left panel again, and of adding to a square of C again.
const PACKING_AGAIN: usize = 1;
const ADDING_AGAIN: usize = 2;

struct Cut<'a> {
    joined: &'a Joined<'a>,
    unit: Bf16Unit,
    form: Form,
    buffer: Piece,
    /// Rows of the only left operand; `None` means all.
    rows: Option<Range<usize>>,
    /// Number of panels of all left operands, in order.
    row_panels: usize,
    /// Number of items that the row panels are cut into.
    items_down: usize,
    /// Units of depth, in `blocks` equal blocks.
    units: usize,
    blocks: usize,
    blocks_per_stage: usize,
    /// Number of panels of all right operands, in order.
    panels: usize,
    panels_per_stage: usize,
    /// Number of items that a stage's panels are cut into.
    items_across: usize,
}

/// A range of depth × a range of panels.
struct Stage {
    blocks: Range<usize>,
    panels: Range<usize>,
    at: *mut u16,
}

/// Runs on all threads of the pool.
///
/// # Safety
/// The machine has `unit`, which is not the software one, and is AMX if numbers are split; the products have rows,
/// columns and depth.
pub unsafe fn run_together(
    pool: &Pool,
    (unit, form): (Bf16Unit, Form),
    scratch: &Scratch,
    joined: &Joined,
    threads: usize,
) {
    let buffers = scratch.lock();
    let cut = Cut::new(joined, (unit, form), None, buffers.shared_right(), threads);
    let progress = Progress { claim: Padded(AtomicUsize::new(0)), barrier: Barrier::new(), spins: pool.spins() };
    let (cut, progress, buffers) = (&cut, &progress, &*buffers);
    pool.team(threads, &|worker, team| {
        // SAFETY: the whole team is here with the same cut; `MatMut` makes C ours, the lock the buffers.
        unsafe { work(cut, progress, team, buffers.left(worker).cast()) }
    });
}

/// Computes some rows of a single product on the calling thread, worker `worker` of those that share the buffers.
///
/// # Safety
/// As [`run_together`]; nobody else uses the worker's buffers or writes to those rows of C.
pub unsafe fn run_alone(
    (unit, form): (Bf16Unit, Form),
    buffers: &Buffers,
    worker: usize,
    joined: &Joined,
    rows: Range<usize>,
) {
    let cut = Cut::new(joined, (unit, form), Some(rows), buffers.own_right(worker), 1);
    let progress = Progress { claim: Padded(AtomicUsize::new(0)), barrier: Barrier::new(), spins: 0 };
    // SAFETY: passed on from the caller; a team of one.
    unsafe { work(&cut, &progress, 1, buffers.left(worker).cast()) }
}

struct Progress {
    claim: Padded<AtomicUsize>,
    barrier: Barrier,
    spins: u32,
}

/// # Safety
/// All `team` workers run this at the same time with the same cut and progress; nothing else touches C, the right
/// buffer or this worker's left buffer.
unsafe fn work(cut: &Cut, progress: &Progress, team: usize, left: *mut u16) {
    // SAFETY: the machine has the unit.
    let tiles = unsafe { Tiles::new(cut.unit, cut.form) };
    let stages = cut.stages();
    for phase in 0..=stages {
        let computed = phase.checked_sub(1).map(|stage| cut.stage(stage));
        let packed = (phase < stages).then(|| cut.stage(phase));
        let packs = packed.as_ref().map_or(0, |stage| stage.panels.len() * stage.blocks.len());
        let items = computed.as_ref().map_or(0, |_| cut.items_down * cut.items_across);
        loop {
            let claim = progress.claim.0.fetch_add(1, Ordering::Relaxed);
            // SAFETY: a claim belongs to one worker; those of a phase write to different tiles of C or to different
            // panels of the half of the buffer that nobody reads in this phase.
            unsafe {
                match (&computed, &packed) {
                    (_, Some(stage)) if claim < packs => cut.pack(stage, claim),
                    (Some(stage), _) if claim < packs + items => cut.compute(&tiles, stage, claim - packs, left),
                    _ => break,
                }
            }
        }
        if phase < stages {
            progress.barrier.wait(team, progress.spins, || progress.claim.0.store(0, Ordering::Relaxed));
        }
    }
}

impl<'a> Cut<'a> {
    fn new(
        joined: &'a Joined<'a>,
        (unit, form): (Bf16Unit, Form),
        rows: Option<Range<usize>>,
        buffer: Piece,
        team: usize,
    ) -> Cut<'a> {
        let units = joined.depth().div_ceil(UNIT);
        let blocks = units.div_ceil(UNITS_MAX / form.parts());
        let unit_numbers = form.parts() * UNIT_NUMBERS;
        let panels = joined::panels(joined.columns(), SIDE);
        let deepest = units.div_ceil(blocks);
        let left_blocks = (2 * LEFT_FLOATS / (deepest * unit_numbers)).max(1);
        let room = 2 * buffer.floats / (deepest * unit_numbers);
        let (blocks_per_stage, panels_per_stage) = if blocks <= left_blocks && blocks * panels <= room {
            (blocks, panels)
        } else {
            (1..=left_blocks.min(blocks).min(room / 2).max(1))
                .map(|down| (down, (room / 2 / down).clamp(1, panels)))
                .min_by_key(|(down, across)| {
                    panels.div_ceil(*across) * units * PACKING_AGAIN + blocks.div_ceil(*down) * panels * ADDING_AGAIN
                })
                .expect("a stage has at least one block")
        };
        let row_panels = joined::panels(heights(joined, &rows), SIDE);
        let tallest = (left_blocks / blocks_per_stage).clamp(1, ROW_PANELS_MAX);
        let (items_down, items_across) = match team {
            1 => (row_panels.div_ceil(tallest), 1),
            _ => {
                let height = (row_panels / (ITEMS_A_WORKER * team)).clamp(ROW_PANELS_MIN.min(tallest), tallest);
                let down = row_panels.div_ceil(height).next_multiple_of(team).min(row_panels);
                (down, team.div_ceil(down).clamp(1, panels_per_stage.div_ceil(2)))
            }
        };
        Cut {
            joined,
            unit,
            form,
            buffer,
            rows,
            row_panels,
            items_down,
            units,
            blocks,
            blocks_per_stage,
            panels,
            panels_per_stage,
            items_across,
        }
    }

    fn stages(&self) -> usize {
        self.blocks.div_ceil(self.blocks_per_stage) * self.panels.div_ceil(self.panels_per_stage)
    }

    /// Depth is the inner loop. Stages alternate between the two halves of the buffer.
    fn stage(&self, index: usize) -> Stage {
        let depth_stages = self.blocks.div_ceil(self.blocks_per_stage);
        let (across, down) = (index / depth_stages, index % depth_stages);
        let blocks = down * self.blocks_per_stage..((down + 1) * self.blocks_per_stage).min(self.blocks);
        let panels = across * self.panels_per_stage..((across + 1) * self.panels_per_stage).min(self.panels);
        let half = if self.stages() > 1 { (index % 2) * (self.buffer.floats / 2) } else { 0 };
        // SAFETY: zero, or half of the buffer's length.
        Stage { blocks, panels, at: unsafe { self.buffer.start.add(half) }.cast() }
    }

    fn block_units(&self, block: usize) -> Range<usize> {
        part(0..self.units, self.blocks, block)
    }

    fn depth(&self, block: usize) -> Range<usize> {
        let units = self.block_units(block);
        units.start * UNIT..(units.end * UNIT).min(self.joined.depth())
    }

    /// Address of a right panel's block in the stage's buffer.
    fn packed(&self, stage: &Stage, block: usize, panel: usize) -> *mut u16 {
        // SAFETY: the stage's blocks and panels fit the buffer by the choice of its size.
        unsafe { stage.at.add(self.place(stage, block, panel - stage.panels.start, stage.panels.len())) }
    }

    /// Offset of a panel's block among `panels` panels over the stage's depth: ordered by block, then by panel.
    fn place(&self, stage: &Stage, block: usize, panel: usize, panels: usize) -> usize {
        let before = self.block_units(block).start - self.block_units(stage.blocks.start).start;
        before * panels * self.form.parts() * UNIT_NUMBERS + panel * self.numbers(block)
    }

    /// Number of bfloat16 numbers in a panel's block.
    fn numbers(&self, block: usize) -> usize {
        self.block_units(block).len() * self.form.parts() * UNIT_NUMBERS
    }

    /// The right operand that a panel belongs to, and its columns there.
    fn panel(&self, index: usize) -> Panel {
        joined::panel(self.joined.columns(), SIDE, index, as_wide_as(SIDE))
    }

    /// The left operand that a panel belongs to, and its rows there.
    fn row_panel(&self, index: usize) -> Panel {
        let Panel { part, range } = joined::panel(heights(self.joined, &self.rows), SIDE, index, as_wide_as(SIDE));
        let first = self.rows.as_ref().map_or(0, |rows| rows.start);
        Panel { part, range: first + range.start..first + range.end }
    }

    /// # Safety
    /// Nobody else touches the panel's place in the stage's buffer.
    unsafe fn pack(&self, stage: &Stage, claim: usize) {
        let block = stage.blocks.start + claim / stage.panels.len();
        let panel = stage.panels.start + claim % stage.panels.len();
        let Panel { part, range } = self.panel(panel);
        let b = self.joined.b(part);
        // SAFETY: the ranges lie within B, the destination belongs to the panel, and units other than the software one
        // have AVX-512 with BF16.
        unsafe {
            let (depth, to) = (self.depth(block), self.packed(stage, block, panel));
            match self.form {
                Form::Rounded => pack::pack_right(b, &depth, &range, to),
                Form::Split => split::pack_right(b, &depth, &range, to),
            }
        }
    }

    /// # Safety
    /// The stage is packed, and nobody else touches the item's elements of C or the left buffer.
    unsafe fn compute(&self, tiles: &Tiles, stage: &Stage, item: usize, left: *mut u16) {
        let row_panels = part(0..self.row_panels, self.items_down, item / self.items_across);
        let panels = part(stage.panels.clone(), self.items_across, item % self.items_across);
        // SAFETY: the left buffer has room for an item's panels over a stage's depth.
        let left_at =
            |block: usize, index: usize| unsafe { left.add(self.place(stage, block, index, row_panels.len())) };
        let mut rows = [const { Panel { part: 0, range: 0..0 } }; ROW_PANELS_MAX];
        let rows = &mut rows[..row_panels.len()];
        rows.iter_mut().zip(row_panels.clone()).for_each(|(rows, index)| *rows = self.row_panel(index));
        let mut index = 0;
        for run in rows.chunk_by(|above, below| above.part == below.part) {
            // SAFETY: the ranges lie within A.
            unsafe { self.pack_left(stage, run, |block| left_at(block, index)) };
            index += run.len();
        }
        for panel in panels.clone() {
            let columns = self.panel(panel);
            for block in stage.blocks.clone() {
                let (units, right) = (self.block_units(block).len(), self.packed(stage, block, panel));
                let next =
                    if block + 1 < stage.blocks.end { (block + 1, panel) } else { (stage.blocks.start, panel + 1) };
                let (mut ahead, portion) = match next.1 < panels.end {
                    true => (self.packed(stage, next.0, next.1), self.numbers(next.0).div_ceil(rows.len())),
                    false => (right, 0),
                };
                let start =
                    if block > 0 || self.joined.accumulate == Accumulate::Add { Start::FromC } else { Start::Zero };
                for (index, own) in rows.iter().enumerate() {
                    let c_of = |rows: &Panel, column: usize| {
                        let c = self.joined.c(rows.part, columns.part);
                        c.ptr.wrapping_add(rows.range.start * c.row_stride + column)
                    };
                    let square = Square {
                        left: left_at(block, index),
                        right,
                        units,
                        start,
                        c: c_of(own, columns.range.start),
                        c_stride: self.joined.c(own.part, columns.part).row_stride,
                        ahead,
                        c_ahead: match rows.get(index + 1) {
                            Some(below) => c_of(below, columns.range.start),
                            None => c_of(&rows[0], columns.range.end),
                        },
                    };
                    // SAFETY: the panels are packed, and the square's elements are ours.
                    unsafe {
                        if self.joined.alpha == 1.0 && own.range.len() == SIDE && columns.range.len() == SIDE {
                            tiles.run(&square);
                        } else {
                            self.run_partly(tiles, square, own.range.len(), columns.range.len());
                        }
                    }
                    ahead = ahead.wrapping_add(portion);
                }
            }
        }
    }

    /// Packs neighbouring panels of one left operand over the stage's depth.
    ///
    /// # Safety
    /// They lie within it, and nobody else touches their destinations.
    unsafe fn pack_left(&self, stage: &Stage, run: &[Panel], at: impl Fn(usize) -> *mut u16) {
        let (first, last) = (&run[0], &run[run.len() - 1]);
        let (a, rows) = (self.joined.a(first.part), first.range.start..last.range.end);
        for block in stage.blocks.clone() {
            // SAFETY: passed on from the caller; units other than the software one have AVX-512 with BF16.
            unsafe {
                match self.form {
                    Form::Rounded => pack::pack_left(a, &rows, &self.depth(block), at(block)),
                    Form::Split => split::pack_left(a, &rows, &self.depth(block), at(block)),
                }
            }
        }
    }

    /// Computes a tile that is partial or scaled in a separate buffer.
    ///
    /// # Safety
    /// As [`Tiles::run`], with `rows` × `columns` elements of C.
    unsafe fn run_partly(&self, tiles: &Tiles, square: Square, rows: usize, columns: usize) {
        let mut aside = Aside([0.0; SIDE * SIDE]);
        let (c, c_stride, alpha) = (square.c, square.c_stride, self.joined.alpha);
        // Whole unscaled tiles accumulate onto the contents of C; partial ones must do the same, or the bits would
        // depend on where a tile is cut.
        let start = if alpha == 1.0 { square.start } else { Start::Zero };
        let added = alpha != 1.0 && square.start == Start::FromC;
        // SAFETY: the separate tile is whole; of C, only existing elements are touched.
        unsafe {
            let row_of_c = |row: usize| std::slice::from_raw_parts_mut(c.add(row * c_stride), columns);
            if start == Start::FromC {
                for (row, aside) in aside.0.chunks_exact_mut(SIDE).enumerate().take(rows) {
                    aside[..columns].copy_from_slice(row_of_c(row));
                }
            }
            tiles.run(&Square { c: aside.0.as_mut_ptr(), c_stride: SIDE, start, ..square });
            for (row, from) in aside.0.chunks_exact(SIDE).enumerate().take(rows) {
                let to = row_of_c(row);
                if added {
                    to.iter_mut().zip(from).for_each(|(to, from)| *to += alpha * from);
                } else {
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = alpha * from);
                }
            }
        }
    }
}

#[repr(align(64))]
struct Aside([f32; SIDE * SIDE]);
