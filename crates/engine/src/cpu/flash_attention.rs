//! Tiled causal attention, one thread a (batch, key-value head): scores exist a tile at a time, in the thread's own memory.
//!
//! The heads that share a key-value head are stacked, so that a tile has `group · QUERIES` rows and each key is packed once
//! for all of them. Keys beyond a block of queries are never touched.

use super::Team;
use super::by_isa;
use super::frame::Frame;
use super::gemm::{Accumulate, Alone, MatMut, MatRef, Product, for_each_alone};
use super::isa::Isa;
use super::math::{self, exp, largest, sum_of};
use super::shared::Shared;
use headroom_graph::TensorType;
use headroom_graph::ops::attention::AttentionSizes;
use headroom_graph::ops::flash_attention::{FlashAttention, Rotation};
use std::sync::PoisonError;

/// Query positions of a block: small enough to skip most of the masked half of short sequences.
const QUERIES: usize = 64;
/// Keys of a tile: with the queries of a group, a tile that stays in the second-level cache.
const KEYS: usize = 256;

/// One attention and where its values are.
struct Attention<'a> {
    sizes: AttentionSizes,
    scale: f32,
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    tables: Option<(&'a [f32], &'a [f32])>,
}

impl<'a> Attention<'a> {
    /// `tables`: the place of the rotation's tables among the inputs.
    fn new(op: &FlashAttention, types: &[TensorType], at: &Frame<'a>, tables: usize) -> Attention<'a> {
        Attention {
            sizes: op.sizes(&types[0]).expect("checked when the graph was built"),
            scale: op.scale as f32,
            q: at.input(0),
            k: at.input(1),
            v: at.input(2),
            tables: (op.rotation == Rotation::Inside).then(|| (at.input(tables), at.input(tables + 1))),
        }
    }

    fn group(&self) -> usize {
        self.sizes.heads / self.sizes.kv_heads
    }

    /// Where row `position` of a head starts in a tensor with `heads` heads.
    fn row(&self, heads: usize, batch: usize, position: usize, head: usize) -> usize {
        ((batch * self.sizes.seq + position) * heads + head) * self.sizes.head_dim
    }

    /// The group's heads of some positions, head after head, into `to`; rotated if asked.
    fn stack(&self, isa: Isa, from: &[f32], at: &Block, rotate: bool, to: &mut [f32]) {
        let hd = self.sizes.head_dim;
        for (index, row) in to.chunks_exact_mut(hd).enumerate() {
            let (head, position) = (at.kv * self.group() + index / at.rows, at.first + index % at.rows);
            let from = &from[self.row(self.sizes.heads, at.batch, position, head)..][..hd];
            self.copy_row(isa, from, position, if rotate { Turned::Forward } else { Turned::No }, row);
        }
    }

    fn copy_row(&self, isa: Isa, from: &[f32], position: usize, turned: Turned, to: &mut [f32]) {
        let (Some((cos, sin)), true) = (self.tables, turned != Turned::No) else {
            to.copy_from_slice(from);
            return;
        };
        let half = self.sizes.head_dim / 2;
        let sign = if turned == Turned::Back { -1.0 } else { 1.0 };
        turn(isa, sign, from, &cos[position * half..][..half], &sin[position * half..][..half], to);
    }

    /// Keys (or values) of one head as a matrix, in place.
    fn keys_in_place<'b>(&self, data: &'b [f32], batch: usize, kv: usize, first: usize, count: usize) -> MatRef<'b> {
        let width = self.sizes.kv_heads * self.sizes.head_dim;
        let start = self.row(self.sizes.kv_heads, batch, first, kv);
        MatRef::strided(&data[start..], count, self.sizes.head_dim, width, 1)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turned {
    No,
    Forward,
    Back,
}

/// Some query positions of one key-value head's group.
struct Block {
    batch: usize,
    kv: usize,
    first: usize,
    rows: usize,
}

/// Elements of tile that a thread needs for the forward and the backward pass.
pub fn tile(op: &FlashAttention, q: &TensorType) -> usize {
    let Ok(sizes) = op.sizes(q) else { return 0 };
    let rows = sizes.heads / sizes.kv_heads * QUERIES.min(sizes.seq);
    let keys = KEYS.min(sizes.seq);
    // Backward: two tiles, q, dout and dq of a block, its two row figures, and k and dk of the head.
    2 * rows * keys + 3 * rows * sizes.head_dim + 2 * rows + 2 * sizes.seq * sizes.head_dim
}

pub fn forward(team: &Team, op: &FlashAttention, types: &[TensorType], at: &Frame) {
    let attention = Attention::new(op, types, at, 3);
    let sizes = attention.sizes;
    let (out, lse) = (Shared::new(at.output(0)), Shared::new(at.output(1)));
    let blocks = sizes.seq.div_ceil(QUERIES);
    for_each_alone(
        &team.pool,
        team.isa,
        team.arithmetic,
        &team.packing,
        sizes.batch * sizes.kv_heads * blocks,
        &|unit, alone| {
            let mut tile = team.tiles[alone.worker()].lock().unwrap_or_else(PoisonError::into_inner);
            // The last blocks see most keys: begin with them, so that threads end together.
            let (item, first) =
                (unit % (sizes.batch * sizes.kv_heads), (blocks - 1 - unit / (sizes.batch * sizes.kv_heads)) * QUERIES);
            let rows = QUERIES.min(sizes.seq - first);
            let block = Block { batch: item / sizes.kv_heads, kv: item % sizes.kv_heads, first, rows };
            forward_block(team.isa, alone, &attention, &block, &mut tile, (&out, &lse));
        },
    );
}

fn forward_block(
    isa: Isa,
    alone: &Alone,
    attention: &Attention,
    block: &Block,
    tile: &mut [f32],
    (out, lse): (&Shared, &Shared),
) {
    let AttentionSizes { seq, heads, head_dim: hd, .. } = attention.sizes;
    let rows = attention.group() * block.rows;
    let (scores, rest) = tile.split_at_mut(rows * KEYS.min(seq));
    let (q, rest) = rest.split_at_mut(rows * hd);
    let (mixed, rest) = rest.split_at_mut(rows * hd);
    let (tops, rest) = rest.split_at_mut(rows);
    let (sums, keys) = rest.split_at_mut(rows);
    attention.stack(isa, attention.q, block, true, q);
    tops.fill(f32::NEG_INFINITY);
    sums.fill(0.0);
    let visible = block.first + block.rows;
    for start in (0..visible).step_by(KEYS) {
        let count = KEYS.min(visible - start);
        let scores = &mut scores[..rows * count];
        let k = load_keys(isa, attention, block, start, count, keys);
        alone.product(Product {
            alpha: attention.scale,
            a: MatRef::row_major(q, rows, hd),
            b: k.transposed(),
            accumulate: Accumulate::Overwrite,
            c: MatMut::row_major(scores, rows, count),
        });
        for (row, scores) in scores.chunks_exact_mut(count).enumerate() {
            let position = block.first + row % block.rows;
            let seen = (position + 1).saturating_sub(start).min(count);
            let mixed = &mut mixed[row * hd..][..hd];
            soften(isa, scores, seen, &mut tops[row], &mut sums[row], mixed);
        }
        alone.product(Product {
            alpha: 1.0,
            a: MatRef::row_major(scores, rows, count),
            b: attention.keys_in_place(attention.v, block.batch, block.kv, start, count),
            accumulate: if start == 0 { Accumulate::Overwrite } else { Accumulate::Add },
            c: MatMut::row_major(mixed, rows, hd),
        });
    }
    for (row, mixed) in mixed.chunks_exact(hd).enumerate() {
        let (head, position) = (block.kv * attention.group() + row / block.rows, block.first + row % block.rows);
        // SAFETY: each (batch, head, position) belongs to one block, and each block to one thread.
        let (out, lse) = unsafe {
            let place = attention.row(heads, block.batch, position, head);
            (out.slice(place, hd), lse.slice((block.batch * heads + head) * seq + position, 1))
        };
        scale_into(isa, 1.0 / sums[row], mixed, out);
        lse[0] = tops[row] + sums[row].ln();
    }
}

/// A block's keys: rotated into `to` where the rotation is inside, else as they lie.
fn load_keys<'a>(
    isa: Isa,
    attention: &Attention<'a>,
    block: &Block,
    start: usize,
    count: usize,
    to: &'a mut [f32],
) -> MatRef<'a> {
    let AttentionSizes { kv_heads, head_dim: hd, .. } = attention.sizes;
    if attention.tables.is_none() {
        return attention.keys_in_place(attention.k, block.batch, block.kv, start, count);
    }
    for (index, row) in to[..count * hd].chunks_exact_mut(hd).enumerate() {
        let from = &attention.k[attention.row(kv_heads, block.batch, start + index, block.kv)..][..hd];
        attention.copy_row(isa, from, start + index, Turned::Forward, row);
    }
    MatRef::row_major(&to[..count * hd], count, hd)
}

pub fn gradient(team: &Team, op: &FlashAttention, types: &[TensorType], at: &Frame) {
    let attention = Attention::new(op, types, at, 6);
    let sizes = attention.sizes;
    let (out, lse, dout) = (at.input(3), at.input(4), at.input(5));
    let (dq, dk, dv) = (Shared::new(at.output(0)), Shared::new(at.output(1)), Shared::new(at.output(2)));
    for_each_alone(
        &team.pool,
        team.isa,
        team.arithmetic,
        &team.packing,
        sizes.batch * sizes.kv_heads,
        &|item, alone| {
            let mut tile = team.tiles[alone.worker()].lock().unwrap_or_else(PoisonError::into_inner);
            let (batch, kv) = (item / sizes.kv_heads, item % sizes.kv_heads);
            gradient_head(team.isa, alone, &attention, (batch, kv), (out, lse, dout), &mut tile, (&dq, &dk, &dv));
        },
    );
}

fn gradient_head(
    isa: Isa,
    alone: &Alone,
    attention: &Attention,
    (batch, kv): (usize, usize),
    (out, lse, dout): (&[f32], &[f32], &[f32]),
    tile: &mut [f32],
    (dq, dk, dv): (&Shared, &Shared, &Shared),
) {
    let AttentionSizes { seq, heads, kv_heads, head_dim: hd, .. } = attention.sizes;
    let most_rows = attention.group() * QUERIES.min(seq);
    let (p, rest) = tile.split_at_mut(most_rows * KEYS.min(seq));
    let (ds, rest) = rest.split_at_mut(most_rows * KEYS.min(seq));
    let (q, rest) = rest.split_at_mut(most_rows * hd);
    let (dmixed, rest) = rest.split_at_mut(most_rows * hd);
    let (dquery, rest) = rest.split_at_mut(most_rows * hd);
    let (dots, rest) = rest.split_at_mut(most_rows);
    let (_, rest) = rest.split_at_mut(most_rows);
    let (keys, dkeys) = rest.split_at_mut(seq * hd);
    let dkeys = &mut dkeys[..seq * hd];
    let whole = Block { batch, kv, first: 0, rows: seq };
    let keys = load_keys(isa, attention, &whole, 0, seq, keys);
    let values_at = attention.row(kv_heads, batch, 0, kv);

    for first in (0..seq).step_by(QUERIES) {
        let block = Block { batch, kv, first, rows: QUERIES.min(seq - first) };
        let rows = attention.group() * block.rows;
        let (q, dmixed, dquery) = (&mut q[..rows * hd], &mut dmixed[..rows * hd], &mut dquery[..rows * hd]);
        attention.stack(isa, attention.q, &block, true, q);
        attention.stack(isa, dout, &block, false, dmixed);
        for (row, dmixed) in dmixed.chunks_exact(hd).enumerate() {
            let (head, position) = (kv * attention.group() + row / block.rows, first + row % block.rows);
            dots[row] = dot(isa, dmixed, &out[attention.row(heads, batch, position, head)..][..hd]);
        }
        let visible = first + block.rows;
        for start in (0..visible).step_by(KEYS) {
            let count = KEYS.min(visible - start);
            let (p, ds) = (&mut p[..rows * count], &mut ds[..rows * count]);
            let k = keys.rows_from(start, count);
            let v = attention.keys_in_place(attention.v, batch, kv, start, count);
            alone.product(Product {
                alpha: attention.scale,
                a: MatRef::row_major(q, rows, hd),
                b: k.transposed(),
                accumulate: Accumulate::Overwrite,
                c: MatMut::row_major(p, rows, count),
            });
            alone.product(Product {
                alpha: 1.0,
                a: MatRef::row_major(dmixed, rows, hd),
                b: v.transposed(),
                accumulate: Accumulate::Overwrite,
                c: MatMut::row_major(ds, rows, count),
            });
            for (row, (p, ds)) in p.chunks_exact_mut(count).zip(ds.chunks_exact_mut(count)).enumerate() {
                let (head, position) = (kv * attention.group() + row / block.rows, first + row % block.rows);
                let seen = (position + 1).saturating_sub(start).min(count);
                let lse = lse[(batch * heads + head) * seq + position];
                soften_gradient(isa, seen, lse, dots[row], p, ds);
            }
            // What no earlier block has touched is written, the rest added to: the first block to see a key is the one
            // at its own position.
            let fresh = first.saturating_sub(start).min(count);
            for (from, part, accumulate) in [(0, fresh, Accumulate::Add), (fresh, count - fresh, Accumulate::Overwrite)]
            {
                if part == 0 {
                    continue;
                }
                // SAFETY: the columns of this head belong to this item alone.
                let dv = unsafe { dv.matrix(values_at + (start + from) * kv_heads * hd, part, hd, kv_heads * hd) };
                alone.product(Product {
                    alpha: 1.0,
                    a: MatRef::strided(&p[from..], rows, part, count, 1).transposed(),
                    b: MatRef::row_major(dmixed, rows, hd),
                    accumulate,
                    c: dv,
                });
                alone.product(Product {
                    alpha: attention.scale,
                    a: MatRef::strided(&ds[from..], rows, part, count, 1).transposed(),
                    b: MatRef::row_major(q, rows, hd),
                    accumulate,
                    c: MatMut::row_major(&mut dkeys[(start + from) * hd..][..part * hd], part, hd),
                });
            }
            alone.product(Product {
                alpha: attention.scale,
                a: MatRef::row_major(ds, rows, count),
                b: k,
                accumulate: if start == 0 { Accumulate::Overwrite } else { Accumulate::Add },
                c: MatMut::row_major(dquery, rows, hd),
            });
        }
        for (row, dquery) in dquery.chunks_exact(hd).enumerate() {
            let (head, position) = (kv * attention.group() + row / block.rows, first + row % block.rows);
            // SAFETY: this head belongs to this item alone.
            let to = unsafe { dq.slice(attention.row(heads, batch, position, head), hd) };
            attention.copy_row(isa, dquery, position, Turned::Back, to);
        }
    }
    for (position, dkey) in dkeys.chunks_exact(hd).enumerate() {
        // SAFETY: as above.
        let to = unsafe { dk.slice(attention.row(kv_heads, batch, position, kv), hd) };
        attention.copy_row(isa, dkey, position, Turned::Back, to);
    }
}

by_isa! {
    /// Scores of one row and tile become weights against the running maximum; what was mixed before is scaled to it.
    fn soften(scores: &mut [f32], seen: usize, top: &mut f32, total: &mut f32, mixed: &mut [f32]) {
        let (visible, masked) = scores.split_at_mut(seen);
        masked.fill(0.0);
        if visible.is_empty() {
            return;
        }
        let highest = largest(visible);
        // Not `max`: a NaN among the scores must not be lost.
        let new_top = if highest > *top { highest } else { *top };
        if *total != 0.0 && new_top != *top {
            let correction = exp(*top - new_top);
            *total *= correction;
            for x in mixed.iter_mut() {
                *x *= correction;
            }
        }
        for x in visible.iter_mut() {
            *x = exp(*x - new_top);
        }
        *total += sum_of(visible, |x| x);
        *top = new_top;
    }

    /// `p` holds scores and becomes weights; `ds` holds the weights' gradients and becomes the scores'.
    fn soften_gradient(seen: usize, lse: f32, dot: f32, p: &mut [f32], ds: &mut [f32]) {
        let ((p, p_masked), (ds, ds_masked)) = (p.split_at_mut(seen), ds.split_at_mut(seen));
        for (p, ds) in p.iter_mut().zip(ds) {
            *p = exp(*p - lse);
            *ds = *p * (*ds - dot);
        }
        p_masked.fill(0.0);
        ds_masked.fill(0.0);
    }

    fn dot(a: &[f32], b: &[f32]) -> f32 {
        math::dot(a, b)
    }

    fn scale_into(factor: f32, from: &[f32], to: &mut [f32]) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = from * factor;
        }
    }

    fn turn(sign: f32, from: &[f32], cos: &[f32], sin: &[f32], to: &mut [f32]) {
        let half = cos.len();
        let ((a, b), (first, second)) = (from.split_at(half), to.split_at_mut(half));
        let (b, sin, second) = (&b[..half], &sin[..half], &mut second[..half]);
        for i in 0..half {
            let s = sign * sin[i];
            first[i] = a[i] * cos[i] - b[i] * s;
            second[i] = b[i] * cos[i] + a[i] * s;
        }
    }
}
