//! Causal attention that holds only a few rows of scores at a time, in the thread's own memory.
//!
//! A thread takes a (batch, key-value head), or some query positions of one if there are few, and packs its keys and
//! values once for all heads that share them. Queries are processed in blocks; each block goes through the key blocks
//! in order, in panels of as many rows as the GEMM's inner loop computes at once, with the keys up to the panel's last
//! row. Later keys are never touched.

mod gradient;
mod rows;

pub use gradient::gradient;

use super::Team;
use super::frame::Frame;
use super::gemm::{Accumulate, LeftIn, MatMut, MatRef, Prefetch, Small, SmallProduct, part};
use super::isa::Isa;
use super::shared::Shared;
use headroom_graph::TensorType;
use headroom_graph::ops::attention::AttentionSizes;
use headroom_graph::ops::flash_attention::{FlashAttention, Rotation};
use rows::Rows;
use std::ops::Range;
use std::sync::PoisonError;

/// Work units per thread; enough to keep the wait for the last one short.
const UNITS_A_THREAD: usize = 4;
/// Positions of the smallest unit: each unit packs the keys that it sees again.
const POSITIONS_MIN: usize = 256;
/// Query positions of a block: they move together from one block of keys to the next.
const QUERIES: usize = 112;
/// Keys of a block: they and their values stay in the L2 cache, and a panel's scores nearly fit in L1.
const KEYS: usize = 512;
/// Rows of the tallest inner loop at any level.
const ROWS_MAX: usize = 14;
/// Keys are padded to whole panels at any level.
const KEY_PANEL: usize = 32;
/// At least the vector width of any level.
const LANES_MAX: usize = 16;

/// One attention and its operands.
struct Attention<'a> {
    sizes: AttentionSizes,
    scale: f32,
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    tables: Option<(&'a [f32], &'a [f32])>,
    isa: Isa,
    small: Small,
}

/// How a row of a head is rotated when it is copied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RotationDirection {
    None,
    Forward,
    Back,
}

impl<'a> Attention<'a> {
    /// `tables` is the index of the rotation tables among the inputs.
    fn new(isa: Isa, op: &FlashAttention, types: &[TensorType], at: &Frame<'a>, tables: usize) -> Attention<'a> {
        Attention {
            sizes: op.sizes(&types[0]).expect("checked when the graph was built"),
            scale: op.scale as f32,
            q: at.input(0),
            k: at.input(1),
            v: at.input(2),
            tables: (op.rotation == Rotation::Inside).then(|| (at.input(tables), at.input(tables + 1))),
            isa,
            small: Small::of(isa),
        }
    }

    fn group(&self) -> usize {
        self.sizes.heads / self.sizes.kv_heads
    }

    /// Offset of row `position` of a head in a tensor with `heads` heads.
    fn row(&self, heads: usize, batch: usize, position: usize, head: usize) -> usize {
        ((batch * self.sizes.seq + position) * heads + head) * self.sizes.head_dim
    }

    /// Floats of a head's row, rounded up to whole vectors.
    fn wide(&self) -> usize {
        wide(&self.sizes)
    }

    /// Copies rows for positions from `first` on, with stride `from_stride`; rotates and scales them.
    fn copy_rows(
        &self,
        from: &[f32],
        from_stride: usize,
        first: usize,
        turn: RotationDirection,
        factor: f32,
        to: MatMut,
    ) {
        let (Some((cos, sin)), true) = (self.tables, turn != RotationDirection::None) else {
            rows::copy(self.isa, factor, from, from_stride, to);
            return;
        };
        let half = self.sizes.head_dim / 2;
        let sign = if turn == RotationDirection::Back { -1.0 } else { 1.0 };
        rows::turn(self.isa, sign, factor, from, from_stride, (&cos[first * half..], &sin[first * half..]), to);
    }

    /// Copies rows of one head, padded with zeros to whole vectors.
    fn stack(
        &self,
        from: &[f32],
        of: &Head,
        positions: Range<usize>,
        turn: RotationDirection,
        factor: f32,
        to: &mut [f32],
    ) {
        let (hd, wide) = (self.sizes.head_dim, self.wide());
        let from = &from[self.row(of.heads, of.batch, positions.start, of.head)..];
        let rows = MatMut::strided(to, positions.len(), hd, wide);
        self.copy_rows(from, of.heads * hd, positions.start, turn, factor, rows);
        if hd < wide {
            to.chunks_exact_mut(wide).take(positions.len()).for_each(|row| row[hd..].fill(0.0));
        }
    }

    /// Prefetches rows of one head that will be stacked soon: the stride between them defeats the hardware prefetcher.
    fn ahead(&self, from: &[f32], of: &Head, positions: Range<usize>) -> Prefetch {
        if positions.is_empty() {
            return Prefetch::NOTHING;
        }
        let hd = self.sizes.head_dim;
        let from = &from[self.row(of.heads, of.batch, positions.start, of.head)..];
        Prefetch::rows(from, positions.len(), hd, of.heads * hd)
    }

    /// A view of some positions of one head of an output.
    ///
    /// # Safety
    /// Nothing else uses these rows while the view lives.
    unsafe fn rows_out<'o>(&self, out: &Shared<'o>, of: &Head, positions: Range<usize>) -> MatMut<'o> {
        let hd = self.sizes.head_dim;
        // SAFETY: the caller's promise.
        unsafe {
            out.matrix(self.row(of.heads, of.batch, positions.start, of.head), positions.len(), hd, of.heads * hd)
        }
    }

    /// A view of one head's rows in place.
    fn in_place(&self, data: &'a [f32], of: &Head, positions: Range<usize>) -> MatRef<'a> {
        let (hd, width) = (self.sizes.head_dim, of.heads * self.sizes.head_dim);
        MatRef::strided(&data[self.row(of.heads, of.batch, positions.start, of.head)..], positions.len(), hd, width, 1)
    }
}

/// One head of a tensor with `heads` of them.
struct Head {
    heads: usize,
    batch: usize,
    head: usize,
}

fn wide(sizes: &AttentionSizes) -> usize {
    sizes.head_dim.next_multiple_of(LANES_MAX)
}

/// Row stride of scores: whole panels plus a cache line, so that rows spread over all cache sets.
fn score_stride(keys: usize) -> usize {
    keys.next_multiple_of(KEY_PANEL) + LANES_MAX
}

/// Splits a range into the fewest nearly equal parts of at most `largest`: a last part of one or two rows would cost as
/// much as a full one.
fn nearly_equal(range: Range<usize>, largest: usize) -> impl Iterator<Item = Range<usize>> {
    let parts = range.len().div_ceil(largest);
    (0..parts).map(move |index| part(range.clone(), parts, index))
}

/// Tile elements that a thread needs for the forward and the backward pass.
pub fn tile(op: &FlashAttention, q: &TensorType) -> usize {
    let Ok(sizes) = op.sizes(q) else { return 0 };
    forward_tile(&sizes).max(gradient::tile(&sizes))
}

/// Room for rotated keys, keys in panels, and values; for queries, their outputs, and a panel's scores.
fn forward_tile(sizes: &AttentionSizes) -> usize {
    let keys = sizes.seq.next_multiple_of(KEY_PANEL);
    keys * (2 * wide(sizes) + sizes.head_dim) + 2 * QUERIES * wide(sizes) + ROWS_MAX * score_stride(KEYS.min(sizes.seq))
}

pub fn forward(team: &Team, op: &FlashAttention, types: &[TensorType], at: &Frame) {
    let attention = Attention::new(team.isa, op, types, at, 3);
    let sizes = attention.sizes;
    let (out, lse) = (Shared::new(at.output(0)), Shared::new(at.output(1)));
    let heads = sizes.batch * sizes.kv_heads;
    let wanted = (UNITS_A_THREAD * team.pool.threads()).div_ceil(heads);
    let parts = if team.pool.threads() == 1 { 1 } else { wanted.min(sizes.seq / POSITIONS_MIN).max(1) };
    team.pool.for_each(heads * parts, &|unit, worker| {
        let mut tile = team.tiles[worker].lock().unwrap_or_else(PoisonError::into_inner);
        // The last positions see the most keys: they go first, so that threads finish together.
        let (item, part) = (unit % heads, parts - 1 - unit / heads);
        let positions = sizes.seq * part / parts..sizes.seq * (part + 1) / parts;
        let of = Head { heads: sizes.kv_heads, batch: item / sizes.kv_heads, head: item % sizes.kv_heads };
        forward_positions(&attention, &of, positions, &mut tile, (&out, &lse));
    });
}

/// Processes all heads that share the key-value head `of`.
fn forward_positions(
    attention: &Attention,
    of: &Head,
    positions: Range<usize>,
    tile: &mut [f32],
    (out, lse): (&Shared, &Shared),
) {
    let AttentionSizes { seq, heads, head_dim: hd, .. } = attention.sizes;
    let (small, wide) = (attention.small, attention.wide());
    let (visible, stride) = (positions.end, score_stride(KEYS.min(seq)));
    let (rotated, rest) = tile.split_at_mut(visible * wide);
    let (keys, rest) = rest.split_at_mut(visible.next_multiple_of(KEY_PANEL) * hd);
    let (values, rest) = rest.split_at_mut(visible * wide);
    let (queries, rest) = rest.split_at_mut(QUERIES * wide);
    let (mixed, scores) = rest.split_at_mut(QUERIES * wide);
    if attention.tables.is_some() {
        attention.stack(attention.k, of, 0..visible, RotationDirection::Forward, 1.0, rotated);
        small.pack_transposed(MatRef::strided(rotated, visible, hd, wide, 1), keys);
    } else {
        small.pack_transposed(attention.in_place(attention.k, of, 0..visible), keys);
    }
    attention.stack(attention.v, of, 0..visible, RotationDirection::None, 1.0, values);
    for head in of.head * attention.group()..(of.head + 1) * attention.group() {
        let own = Head { heads, batch: of.batch, head };
        for block in nearly_equal(positions.clone(), QUERIES) {
            let mut figures = [rows::BEFORE_ANY; QUERIES];
            let mut so_far = [rows::BEFORE_ANY; ROWS_MAX];
            for start in (0..block.end).step_by(KEYS) {
                for panel in nearly_equal(0..block.len(), small.rows()) {
                    // Number of keys that the panel's last row sees; if zero, the whole panel is masked.
                    let seen = (block.start + panel.end).saturating_sub(start).min(KEYS);
                    if seen == 0 {
                        continue;
                    }
                    let (own_queries, mixed) = (&mut queries[panel.start * wide..], &mut mixed[panel.start * wide..]);
                    let rows = block.start + panel.start..block.start + panel.end;
                    let mut ahead = Prefetch::NOTHING;
                    if start == 0 {
                        attention.stack(
                            attention.q,
                            &own,
                            rows.clone(),
                            RotationDirection::Forward,
                            attention.scale,
                            own_queries,
                        );
                        // The next panel has as many rows as this one.
                        ahead =
                            attention.ahead(attention.q, &own, rows.end..(rows.end + panel.len()).min(positions.end));
                    }
                    small.product(SmallProduct {
                        rows: panel.len(),
                        depth: hd,
                        columns: seen,
                        left: own_queries,
                        left_in: LeftIn::Rows(wide),
                        right: &keys[start * hd..],
                        right_stride: small.width(),
                        panel_stride: hd * small.width(),
                        accumulate: Accumulate::Overwrite,
                        c: scores,
                        c_stride: stride,
                        ahead,
                    });
                    let seen_by = Rows { stride, seen: rows.start as isize + 1 - start as isize, keys: seen };
                    let figures = &mut figures[panel.clone()];
                    so_far[..panel.len()].copy_from_slice(figures);
                    rows::online_softmax(attention.isa, scores, seen_by, figures);
                    if start > 0 {
                        rows::merge_statistics(attention.isa, &so_far, figures, mixed, wide);
                    }
                    small.product(SmallProduct {
                        rows: panel.len(),
                        depth: seen,
                        columns: hd,
                        left: scores,
                        left_in: LeftIn::Rows(stride),
                        right: &values[start * wide..],
                        right_stride: wide,
                        panel_stride: small.width(),
                        accumulate: if start == 0 { Accumulate::Overwrite } else { Accumulate::Add },
                        c: mixed,
                        c_stride: wide,
                        ahead: Prefetch::NOTHING,
                    });
                }
            }
            let figures = &figures[..block.len()];
            // SAFETY: each (batch, head, position) belongs to one unit, and each unit to one thread.
            let (out, lse) = unsafe {
                let place = (of.batch * heads + head) * seq + block.start;
                (attention.rows_out(out, &own, block.clone()), lse.slice(place, block.len()))
            };
            rows::divide(attention.isa, figures, mixed, wide, out);
            lse.iter_mut().zip(figures).for_each(|(lse, (top, sum))| *lse = top + sum.ln());
        }
    }
}
