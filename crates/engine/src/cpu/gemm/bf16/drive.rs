//! How a product in bfloat16 is cut up and worked through by a team.
//!
//! The right operand is packed by the whole team in *stages* (a range of depth × a range of columns that fits the
//! buffer), the left one by whoever computes an *item* (32 rows × the stage's columns, or some of them). While a stage is
//! computed the next one is packed into the other half of the buffer. How depth is cut follows from the depth alone, so
//! the bits of C do not depend on the team.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::pack::{SIDE, UNIT, UNIT_NUMBERS, pack_left, pack_right};
use super::tile::{Square, Start, Tiles};
use super::unit::Bf16Unit;
use super::{Bf16Product, Columns};
use crate::cpu::gemm::Accumulate;
use crate::cpu::gemm::cut::part;
use crate::cpu::gemm::joined;
use crate::cpu::gemm::scratch::{Buffers, LEFT_FLOATS, Piece, Scratch};
use crate::cpu::pool::{Barrier, Padded, Pool};

/// Units of the deepest block: the left panel, 36 KiB, then stays in L1 while the right one streams by.
const UNITS_MAX: usize = 18;
const _: () = assert!(2 * LEFT_FLOATS >= UNITS_MAX * UNIT_NUMBERS);
/// Numbers of right operand that are packed at once where all of it would not stay in L2: 1 MiB.
const STAGE_NUMBERS: usize = 512 * 1024;
/// Items a worker that keep the wait for the last one short.
const ITEMS_A_WORKER: usize = 8;
/// Floats in a cache line.
const LINE: usize = 16;

struct Cut<'a> {
    product: &'a Bf16Product<'a>,
    unit: Bf16Unit,
    buffer: Piece,
    rows: Range<usize>,
    row_panels: usize,
    /// Units of depth, in `blocks` equal blocks.
    units: usize,
    blocks: usize,
    blocks_a_stage: usize,
    /// Panels of all right operands, one operand after the other.
    panels: usize,
    panels_a_stage: usize,
    /// Items side by side that a stage's panels are cut into.
    items_across: usize,
}

/// A range of depth × a range of panels.
struct Stage {
    blocks: Range<usize>,
    panels: Range<usize>,
    at: *mut u16,
}

/// On all threads of the pool.
///
/// # Safety
/// The machine has `unit`, which is not the software one, and the product has rows, columns and depth.
pub unsafe fn run_together(pool: &Pool, unit: Bf16Unit, scratch: &Scratch, product: &Bf16Product, threads: usize) {
    let buffers = scratch.lock();
    let cut = Cut::new(product, unit, 0..product.a.rows, buffers.shared_right(), threads);
    let progress = Progress { claim: Padded(AtomicUsize::new(0)), barrier: Barrier::new(), spins: pool.spins() };
    let (cut, progress, buffers) = (&cut, &progress, &*buffers);
    pool.team(threads, &|worker, team| {
        // SAFETY: the whole team is here with the same cut; C is ours by `MatMut`, the buffers by their lock.
        unsafe { work(cut, progress, team, buffers.left(worker).cast()) }
    });
}

/// Some rows on the calling thread, worker `worker` of those that share the buffers.
///
/// # Safety
/// As [`run_together`]; nobody else uses the worker's buffers or writes to those rows of C.
pub unsafe fn run_alone(unit: Bf16Unit, buffers: &Buffers, worker: usize, product: &Bf16Product, rows: Range<usize>) {
    let cut = Cut::new(product, unit, rows, buffers.own_right(worker), 1);
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
    // SAFETY: the unit is one that the machine has.
    let tiles = unsafe { Tiles::new(cut.unit) };
    let stages = cut.stages();
    for phase in 0..=stages {
        let computed = phase.checked_sub(1).map(|stage| cut.stage(stage));
        let packed = (phase < stages).then(|| cut.stage(phase));
        let packs = packed.as_ref().map_or(0, |stage| stage.panels.len() * stage.blocks.len());
        let items = computed.as_ref().map_or(0, |_| cut.row_panels * cut.items_across);
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

/// Columns of each right operand.
fn widths(product: &Bf16Product) -> impl Iterator<Item = usize> {
    product.columns.iter().map(|columns| columns.b.cols)
}

impl<'a> Cut<'a> {
    fn new(product: &'a Bf16Product<'a>, unit: Bf16Unit, rows: Range<usize>, buffer: Piece, team: usize) -> Cut<'a> {
        let units = product.a.cols.div_ceil(UNIT);
        let blocks = units.div_ceil(UNITS_MAX);
        let panels = joined::panels(widths(product), SIDE);
        let room = 2 * buffer.floats;
        let (blocks_a_stage, panels_a_stage) = if units * panels * UNIT_NUMBERS <= room.min(STAGE_NUMBERS * 5 / 4) {
            (blocks, panels)
        } else {
            let deepest = units.div_ceil(blocks);
            (1, (room / 2).min(STAGE_NUMBERS) / (deepest * UNIT_NUMBERS))
        };
        let panels_a_stage = panels_a_stage.clamp(1, panels);
        let row_panels = rows.len().div_ceil(SIDE);
        let items_across = match team {
            1 => 1,
            _ => (ITEMS_A_WORKER * team).div_ceil(row_panels).clamp(1, panels_a_stage.div_ceil(2)),
        };
        Cut {
            product,
            unit,
            buffer,
            rows,
            row_panels,
            units,
            blocks,
            blocks_a_stage,
            panels,
            panels_a_stage,
            items_across,
        }
    }

    fn stages(&self) -> usize {
        self.blocks.div_ceil(self.blocks_a_stage) * self.panels.div_ceil(self.panels_a_stage)
    }

    /// Depth is the inner loop. Stages take turns in the two halves of the buffer.
    fn stage(&self, index: usize) -> Stage {
        let depth_stages = self.blocks.div_ceil(self.blocks_a_stage);
        let (across, down) = (index / depth_stages, index % depth_stages);
        let blocks = down * self.blocks_a_stage..((down + 1) * self.blocks_a_stage).min(self.blocks);
        let panels = across * self.panels_a_stage..((across + 1) * self.panels_a_stage).min(self.panels);
        let half = if self.stages() > 1 { (index % 2) * (self.buffer.floats / 2) } else { 0 };
        // SAFETY: zero, or half of the buffer's length.
        Stage { blocks, panels, at: unsafe { self.buffer.start.add(half) }.cast() }
    }

    fn block_units(&self, block: usize) -> Range<usize> {
        part(0..self.units, self.blocks, block)
    }

    fn depth(&self, block: usize) -> Range<usize> {
        let units = self.block_units(block);
        units.start * UNIT..(units.end * UNIT).min(self.product.a.cols)
    }

    /// Where a panel's block lies in the stage's buffer: block after block, in each panel after panel.
    fn packed(&self, stage: &Stage, block: usize, panel: usize) -> *mut u16 {
        let before = self.block_units(block).start - self.block_units(stage.blocks.start).start;
        let own = (panel - stage.panels.start) * self.block_units(block).len();
        // SAFETY: the stage's blocks and panels fit the buffer by the choice of its size.
        unsafe { stage.at.add((before * stage.panels.len() + own) * UNIT_NUMBERS) }
    }

    /// The operand that a panel belongs to, and its columns there.
    fn panel(&self, index: usize) -> (&'a Columns<'a>, Range<usize>) {
        let panel = joined::panel(widths(self.product), SIDE, index, joined::as_wide_as(SIDE));
        (&self.product.columns[panel.part], panel.range)
    }

    /// # Safety
    /// Nobody else touches the panel's place in the stage's buffer.
    unsafe fn pack(&self, stage: &Stage, claim: usize) {
        let block = stage.blocks.start + claim / stage.panels.len();
        let panel = stage.panels.start + claim % stage.panels.len();
        let (columns, range) = self.panel(panel);
        // SAFETY: the ranges lie within B, the place is the panel's own, and units other than the software one have
        // AVX-512 with BF16.
        unsafe { pack_right(&columns.b, &self.depth(block), &range, self.packed(stage, block, panel)) }
    }

    /// # Safety
    /// The stage is packed, and nobody else touches the item's elements of C or the left buffer.
    unsafe fn compute(&self, tiles: &Tiles, stage: &Stage, item: usize, left: *mut u16) {
        let (row_panel, across) = (item / self.items_across, item % self.items_across);
        let rows = self.panel_rows(row_panel);
        let panels = part(stage.panels.clone(), self.items_across, across);
        for block in stage.blocks.clone() {
            // SAFETY: the ranges lie within A; the left buffer has room for the deepest block.
            unsafe { pack_left(&self.product.a, &rows, &self.depth(block), left) };
            let next =
                if block + 1 < stage.blocks.end { (row_panel, block + 1) } else { (row_panel + 1, stage.blocks.start) };
            let mut ahead = self.left_lines(next, panels.len());
            let start =
                if block > 0 || self.product.accumulate == Accumulate::Add { Start::FromC } else { Start::Zero };
            for panel in panels.clone() {
                ahead.ask();
                let (columns, range) = self.panel(panel);
                // SAFETY: the panel is packed, and the tile's elements are ours.
                unsafe {
                    let square = Square {
                        left,
                        right: self.packed(stage, block, panel),
                        units: self.block_units(block).len(),
                        start,
                        c: columns.c.ptr.add(rows.start * columns.c.row_stride + range.start),
                        c_stride: columns.c.row_stride,
                    };
                    if self.product.alpha == 1.0 && rows.len() == SIDE && range.len() == SIDE {
                        tiles.run(&square);
                    } else {
                        self.run_partly(tiles, square, rows.len(), range.len());
                    }
                }
            }
        }
    }

    /// A tile that is not whole, or scaled: computed aside.
    ///
    /// # Safety
    /// As [`Tiles::run`], with `rows` × `columns` elements of C.
    unsafe fn run_partly(&self, tiles: &Tiles, square: Square, rows: usize, columns: usize) {
        let mut aside = Aside([0.0; SIDE * SIDE]);
        let (c, c_stride, alpha) = (square.c, square.c_stride, self.product.alpha);
        // Whole tiles that are not scaled go on from what C holds; so must the others, or the bits would depend on where
        // a tile is cut.
        let start = if alpha == 1.0 { square.start } else { Start::Zero };
        let added = alpha != 1.0 && square.start == Start::FromC;
        // SAFETY: the tile aside is whole; of C only what is there is touched.
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

    fn panel_rows(&self, panel: usize) -> Range<usize> {
        let first = self.rows.start + panel * SIDE;
        first..(first + SIDE).min(self.rows.end)
    }

    /// The cache lines of the left operand that come next, to be asked for in `times` portions.
    fn left_lines(&self, (row_panel, block): (usize, usize), times: usize) -> Ahead {
        let a = &self.product.a;
        if row_panel >= self.row_panels {
            return Ahead { at: a.ptr, stride: 0, runs: 0, lines: 0, run: 0, a_time: 0 };
        }
        let (rows, depth) = (self.panel_rows(row_panel), self.depth(block));
        let at = a.ptr.wrapping_add(rows.start * a.row_stride + depth.start * a.col_stride);
        let (stride, runs, lines) = if a.col_stride == 1 {
            (a.row_stride, rows.len(), depth.len().div_ceil(LINE))
        } else {
            (a.col_stride, depth.len(), rows.len().div_ceil(LINE))
        };
        Ahead { at, stride, runs, lines, run: 0, a_time: runs.div_ceil(times.max(1)) }
    }
}

#[repr(align(64))]
struct Aside([f32; SIDE * SIDE]);

/// `runs` runs of `lines` cache lines, `stride` floats apart; some runs are asked for at a time.
struct Ahead {
    at: *const f32,
    stride: usize,
    runs: usize,
    lines: usize,
    run: usize,
    a_time: usize,
}

impl Ahead {
    #[inline]
    fn ask(&mut self) {
        let end = (self.run + self.a_time).min(self.runs);
        for run in self.run..end {
            for line in 0..self.lines {
                let at = self.at.wrapping_add(run * self.stride + line * LINE);
                // SAFETY: a prefetch of any address is harmless.
                unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(at.cast()) };
            }
        }
        self.run = end;
    }
}
