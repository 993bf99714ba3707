//! The backward pass of attention: scores are computed again, a block of queries against a block of keys at a time.

use super::super::Team;
use super::super::frame::Frame;
use super::super::gemm::{Accumulate, LeftIn, MatRef, SmallProduct};
use super::super::shared::Shared;
use super::rows::{self, Rows};
use super::{Attention, Head, KEY_PANEL, Turn, nearly_equal, score_stride, wide};
use headroom_graph::TensorType;
use headroom_graph::ops::attention::AttentionSizes;
use headroom_graph::ops::flash_attention::FlashAttention;
use std::ops::Range;
use std::sync::PoisonError;

/// Query positions of a block: deep enough for the sums over them to repay loading what they are added to.
const QUERIES: usize = 112;
/// Keys of a block: with the queries, scores and their gradients that stay in the second-level cache.
const KEYS: usize = 256;

/// Keys and values in panels, keys in rows, the gradients of both; q, dout and dq of a block, scores and their
/// gradients.
pub fn tile(sizes: &AttentionSizes) -> usize {
    let keys = sizes.seq.next_multiple_of(KEY_PANEL);
    keys * (2 * sizes.head_dim + 3 * wide(sizes)) + QUERIES * (3 * wide(sizes) + 2 * score_stride(KEYS.min(sizes.seq)))
}

/// What a thread works with, cut out of its tile.
struct Room<'a> {
    keys: &'a mut [f32],
    values: &'a mut [f32],
    key_rows: &'a mut [f32],
    dkeys: &'a mut [f32],
    dvalues: &'a mut [f32],
    queries: &'a mut [f32],
    dout: &'a mut [f32],
    dqueries: &'a mut [f32],
    p: &'a mut [f32],
    ds: &'a mut [f32],
}

impl<'a> Room<'a> {
    fn of(sizes: &AttentionSizes, tile: &'a mut [f32]) -> Room<'a> {
        let (panels, wide) = (sizes.seq.next_multiple_of(KEY_PANEL) * sizes.head_dim, wide(sizes));
        let (keys, rest) = tile.split_at_mut(panels);
        let (values, rest) = rest.split_at_mut(panels);
        let (key_rows, rest) = rest.split_at_mut(sizes.seq * wide);
        let (dkeys, rest) = rest.split_at_mut(sizes.seq * wide);
        let (dvalues, rest) = rest.split_at_mut(sizes.seq * wide);
        let (queries, rest) = rest.split_at_mut(QUERIES * wide);
        let (dout, rest) = rest.split_at_mut(QUERIES * wide);
        let (dqueries, rest) = rest.split_at_mut(QUERIES * wide);
        let (p, rest) = rest.split_at_mut(QUERIES * score_stride(KEYS.min(sizes.seq)));
        let ds = &mut rest[..QUERIES * score_stride(KEYS.min(sizes.seq))];
        Room { keys, values, key_rows, dkeys, dvalues, queries, dout, dqueries, p, ds }
    }
}

/// The forward pass's results, and the gradient that arrived.
#[derive(Clone, Copy)]
struct Arrived<'a> {
    out: &'a [f32],
    lse: &'a [f32],
    dout: &'a [f32],
}

pub fn gradient(team: &Team, op: &FlashAttention, types: &[TensorType], at: &Frame) {
    let attention = Attention::new(team.isa, op, types, at, 6);
    let sizes = attention.sizes;
    let arrived = Arrived { out: at.input(3), lse: at.input(4), dout: at.input(5) };
    let (dq, dk, dv) = (Shared::new(at.output(0)), Shared::new(at.output(1)), Shared::new(at.output(2)));
    team.pool.for_each(sizes.batch * sizes.kv_heads, &|item, worker| {
        let mut tile = team.tiles[worker].lock().unwrap_or_else(PoisonError::into_inner);
        let of = Head { heads: sizes.kv_heads, batch: item / sizes.kv_heads, head: item % sizes.kv_heads };
        gradient_head(&attention, &of, arrived, &mut Room::of(&sizes, &mut tile), (&dq, &dk, &dv));
    });
}

fn gradient_head(
    attention: &Attention,
    of: &Head,
    arrived: Arrived,
    room: &mut Room,
    (dq, dk, dv): (&Shared, &Shared, &Shared),
) {
    let AttentionSizes { seq, heads, head_dim: hd, .. } = attention.sizes;
    let (small, wide) = (attention.small, attention.wide());
    attention.stack(attention.k, of, 0..seq, Turn::Forward, 1.0, room.key_rows);
    small.pack_transposed(MatRef::strided(room.key_rows, seq, hd, wide, 1), room.keys);
    small.pack_transposed(attention.in_place(attention.v, of, seq), room.values);
    room.dkeys.fill(0.0);
    room.dvalues.fill(0.0);
    for head in of.head * attention.group()..(of.head + 1) * attention.group() {
        let own = Head { heads, batch: of.batch, head };
        for block in nearly_equal(0..seq, QUERIES) {
            attention.stack(attention.q, &own, block.clone(), Turn::Forward, attention.scale, room.queries);
            attention.stack(arrived.dout, &own, block.clone(), Turn::None, 1.0, room.dout);
            let mut figures = [(0.0, 0.0); QUERIES];
            for ((position, dout), figures) in block.clone().zip(room.dout.chunks_exact(wide)).zip(&mut figures) {
                let out = &arrived.out[attention.row(heads, of.batch, position, head)..][..hd];
                let lse = arrived.lse[(of.batch * heads + head) * seq + position];
                *figures = (lse, rows::dot(attention.isa, &dout[..hd], out));
            }
            for start in (0..block.end).step_by(KEYS) {
                let keys = start..(start + KEYS).min(block.end);
                scores_and_dqueries(attention, &block, &keys, &figures, room);
                dkeys_and_dvalues(attention, &block, &keys, room);
            }
            // SAFETY: this head belongs to this item alone.
            let to = unsafe { attention.rows_out(dq, &own, block.clone()) };
            // Queries are scaled for the scores and so are right for dk; dq is scaled here.
            attention.copy_rows(room.dqueries, wide, block.start, Turn::Back, attention.scale, to);
        }
    }
    // SAFETY: as above.
    let (dk, dv) = unsafe { (attention.rows_out(dk, of, 0..seq), attention.rows_out(dv, of, 0..seq)) };
    attention.copy_rows(room.dkeys, wide, 0, Turn::Back, 1.0, dk);
    attention.copy_rows(room.dvalues, wide, 0, Turn::None, 1.0, dv);
}

/// The block's weights into `p`, the gradients of its scores into `ds`, and what these keys add to `dqueries`.
fn scores_and_dqueries(
    attention: &Attention,
    block: &Range<usize>,
    keys: &Range<usize>,
    figures: &[(f32, f32)],
    room: &mut Room,
) {
    let (small, wide, hd) = (attention.small, attention.wide(), attention.sizes.head_dim);
    let stride = score_stride(KEYS.min(attention.sizes.seq));
    // Keys begin at a whole panel, since KEYS is a multiple of every width.
    let panels_before = keys.start * hd;
    for panel in nearly_equal(0..block.len(), small.rows()) {
        let first = panel.start;
        // Keys that the panel's last row sees; the whole panel is masked where there is none.
        let seen = (block.start + panel.end).saturating_sub(keys.start).min(keys.len());
        let (p, ds) = (&mut room.p[first * stride..], &mut room.ds[first * stride..]);
        for (left, right, c) in [(&*room.queries, &*room.keys, &mut *p), (&*room.dout, &*room.values, &mut *ds)] {
            small.product(SmallProduct {
                rows: panel.len(),
                depth: hd,
                columns: seen,
                left: &left[first * wide..],
                left_in: LeftIn::Rows(wide),
                right: &right[panels_before..],
                right_stride: small.width(),
                panel_stride: hd * small.width(),
                accumulate: Accumulate::Overwrite,
                c,
                c_stride: stride,
            });
        }
        let own =
            Rows { stride, seen: (block.start + panel.start + 1) as isize - keys.start as isize, keys: keys.len() };
        rows::soften_gradient(attention.isa, p, ds, own, &figures[panel.clone()]);
        small.product(SmallProduct {
            rows: panel.len(),
            depth: seen,
            columns: hd,
            left: ds,
            left_in: LeftIn::Rows(stride),
            right: &room.key_rows[keys.start * wide..],
            right_stride: wide,
            panel_stride: small.width(),
            accumulate: if keys.start == 0 { Accumulate::Overwrite } else { Accumulate::Add },
            c: &mut room.dqueries[first * wide..],
            c_stride: wide,
        });
    }
}

/// `dkeys += dsᵀ · queries` and `dvalues += pᵀ · dout`, over the queries that see each panel of keys.
fn dkeys_and_dvalues(attention: &Attention, block: &Range<usize>, keys: &Range<usize>, room: &mut Room) {
    let (small, wide, hd) = (attention.small, attention.wide(), attention.sizes.head_dim);
    let stride = score_stride(KEYS.min(attention.sizes.seq));
    for panel in nearly_equal(keys.clone(), small.rows()) {
        let first = panel.start;
        let unseen = first.saturating_sub(block.start);
        let both = [(&*room.ds, &*room.queries, &mut *room.dkeys), (&*room.p, &*room.dout, &mut *room.dvalues)];
        for (left, right, c) in both {
            small.product(SmallProduct {
                rows: panel.len(),
                depth: block.len() - unseen,
                columns: hd,
                left: &left[unseen * stride + first - keys.start..],
                left_in: LeftIn::Columns(stride),
                right: &right[unseen * wide..],
                right_stride: wide,
                panel_stride: small.width(),
                accumulate: Accumulate::Add,
                c: &mut c[first * wide..],
                c_stride: wide,
            });
        }
    }
}
