//! The backward pass of attention: scores are recomputed, one block of queries against one block of keys at a time.
//!
//! A work unit owns a range of keys of one key-value head and goes through the queries that see it. The queries'
//! gradients are sums over the ranges, so a unit follows the previous one block by block: the order of every sum is
//! fixed, whichever thread computes it. The first ranges, which most queries see, start first; the last ones are short,
//! so threads finish together.

use super::super::Team;
use super::super::frame::Frame;
use super::super::gemm::{Accumulate, LeftIn, MatRef, Prefetch, SmallProduct};
use super::super::pool::{Leader, StepProgress};
use super::super::shared::Shared;
use super::rows::{self, Rows};
use super::{Attention, Head, KEY_PANEL, RotationDirection, nearly_equal, score_stride, wide};
use headroom_graph::TensorType;
use headroom_graph::ops::attention::AttentionSizes;
use headroom_graph::ops::flash_attention::FlashAttention;
use std::ops::Range;
use std::sync::PoisonError;

/// Query positions of a block: enough for the sums over them to repay loading their accumulators.
const QUERIES: usize = 112;
/// Keys of a block: together with the queries, scores and their gradients they stay in the L2 cache.
const KEYS: usize = 256;
/// Keys of a unit: its keys, values and their gradients stay in the L2 cache, too.
const RANGE: usize = 3 * KEYS;

/// Tile elements: keys and values in panels, keys in rows, the gradients of both; q, dout and dq of a block, scores and
/// their gradients.
pub fn tile(sizes: &AttentionSizes) -> usize {
    let keys = longest_range(sizes).next_multiple_of(KEY_PANEL);
    keys * (2 * sizes.head_dim + 3 * wide(sizes)) + QUERIES * (3 * wide(sizes) + 2 * score_stride(KEYS.min(sizes.seq)))
}

fn longest_range(sizes: &AttentionSizes) -> usize {
    RANGE.min(sizes.seq)
}

/// Buffers that a thread works with, cut out of its tile.
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
        let (range, wide) = (longest_range(sizes), wide(sizes));
        let panels = range.next_multiple_of(KEY_PANEL) * sizes.head_dim;
        let (keys, rest) = tile.split_at_mut(panels);
        let (values, rest) = rest.split_at_mut(panels);
        let (key_rows, rest) = rest.split_at_mut(range * wide);
        let (dkeys, rest) = rest.split_at_mut(range * wide);
        let (dvalues, rest) = rest.split_at_mut(range * wide);
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

/// The outputs.
struct Gradients<'a> {
    dq: Shared<'a>,
    dk: Shared<'a>,
    dv: Shared<'a>,
}

pub fn gradient(team: &Team, op: &FlashAttention, types: &[TensorType], at: &Frame) {
    let attention = Attention::new(team.isa, op, types, at, 6);
    let sizes = attention.sizes;
    let arrived = Arrived { out: at.input(3), lse: at.input(4), dout: at.input(5) };
    let to = Gradients { dq: Shared::new(at.output(0)), dk: Shared::new(at.output(1)), dv: Shared::new(at.output(2)) };
    let heads = sizes.batch * sizes.kv_heads;
    let trails: Vec<StepProgress> = (0..heads * sizes.seq.div_ceil(RANGE)).map(|_| StepProgress::new()).collect();
    team.pool.for_each(trails.len(), &|unit, worker| {
        let mut tile = team.tiles[worker].lock().unwrap_or_else(PoisonError::into_inner);
        let (range, item) = (unit / heads, unit % heads);
        let unit = Unit {
            of: Head { heads: sizes.kv_heads, batch: item / sizes.kv_heads, head: item % sizes.kv_heads },
            range: range * RANGE..((range + 1) * RANGE).min(sizes.seq),
            before: unit.checked_sub(heads).map(|before| &trails[before]),
            lead: trails[unit].lead(),
            spins: team.pool.spins(),
        };
        gradient_range(&attention, &unit, arrived, &mut Room::of(&sizes, &mut tile), &to);
    });
}

/// A range of keys of a key-value head. Its steps, each a block of queries of one head, follow those of the previous
/// range.
struct Unit<'a> {
    of: Head,
    range: Range<usize>,
    before: Option<&'a StepProgress>,
    lead: Leader<'a>,
    spins: u32,
}

fn gradient_range(attention: &Attention, unit: &Unit, arrived: Arrived, room: &mut Room, to: &Gradients) {
    let Unit { of, range, .. } = unit;
    let AttentionSizes { seq, heads, head_dim: hd, .. } = attention.sizes;
    let (small, wide) = (attention.small, attention.wide());
    attention.stack(attention.k, of, range.clone(), RotationDirection::Forward, 1.0, room.key_rows);
    small.pack_transposed(MatRef::strided(room.key_rows, range.len(), hd, wide, 1), room.keys);
    small.pack_transposed(attention.in_place(attention.v, of, range.clone()), room.values);
    room.dkeys.fill(0.0);
    room.dvalues.fill(0.0);
    let blocks = seq.div_ceil(QUERIES);
    let sharing = of.head * attention.group()..(of.head + 1) * attention.group();
    for (head, nth) in sharing.zip(0..) {
        for (block, index) in nearly_equal(0..seq, QUERIES).zip(1..).filter(|(block, _)| block.end > range.start) {
            let own = Head { heads, batch: of.batch, head };
            let steps = nth * blocks + index;
            if let Some(before) = unit.before {
                before.follow(steps, unit.spins);
            }
            // SAFETY: only this key-value head uses this head's rows, and only this range until its step is done.
            let mut dq = unsafe { attention.rows_out(&to.dq, &own, block.clone()) };
            if range.start > 0 {
                for (row, sum) in room.dqueries.chunks_exact_mut(wide).take(block.len()).enumerate() {
                    sum[..hd].copy_from_slice(dq.row(row));
                }
            }
            let last = block.end <= range.end;
            let step = Step { attention, arrived, own, block: block.clone(), range_start: range.start };
            let mut figures = [(0.0, 0.0); QUERIES];
            for start in (range.start..range.end.min(block.end)).step_by(KEYS) {
                let keys = start..(start + KEYS).min(range.end).min(block.end);
                step.scores_and_dqueries(&keys, &mut figures, room);
                step.dkeys_and_dvalues(&keys, room);
            }
            if last {
                // Queries are scaled for the scores, which is also right for dk; dq is scaled here.
                attention.copy_rows(room.dqueries, wide, block.start, RotationDirection::Back, attention.scale, dq);
            } else {
                rows::copy(attention.isa, 1.0, room.dqueries, wide, dq);
            }
            unit.lead.has_done(steps);
        }
    }
    // SAFETY: these keys belong to this unit only.
    let (dk, dv) =
        unsafe { (attention.rows_out(&to.dk, of, range.clone()), attention.rows_out(&to.dv, of, range.clone())) };
    attention.copy_rows(room.dkeys, wide, range.start, RotationDirection::Back, 1.0, dk);
    attention.copy_rows(room.dvalues, wide, range.start, RotationDirection::None, 1.0, dv);
}

/// A block of queries of one head against a range of keys.
struct Step<'a> {
    attention: &'a Attention<'a>,
    arrived: Arrived<'a>,
    own: Head,
    block: Range<usize>,
    range_start: usize,
}

impl Step<'_> {
    /// Loads a panel of the block: its queries, their arriving gradients, and for each query its logsumexp and
    /// `dout · out`.
    fn bring(&self, panel: &Range<usize>, figures: &mut [(f32, f32)], room: &mut Room) {
        let (attention, own) = (self.attention, &self.own);
        let (seq, hd, wide) = (attention.sizes.seq, attention.sizes.head_dim, attention.wide());
        let positions = self.positions(panel);
        let (queries, dout) = (&mut room.queries[panel.start * wide..], &mut room.dout[panel.start * wide..]);
        attention.stack(attention.q, own, positions.clone(), RotationDirection::Forward, attention.scale, queries);
        attention.stack(self.arrived.dout, own, positions.clone(), RotationDirection::None, 1.0, dout);
        let lse = &self.arrived.lse[(own.batch * own.heads + own.head) * seq..][positions.clone()];
        for ((position, dout), (figures, lse)) in
            positions.zip(dout.chunks_exact(wide)).zip(figures.iter_mut().zip(lse))
        {
            let out = &self.arrived.out[attention.row(own.heads, own.batch, position, own.head)..][..hd];
            *figures = (*lse, rows::dot(attention.isa, &dout[..hd], out));
        }
    }

    fn positions(&self, panel: &Range<usize>) -> Range<usize> {
        self.block.start + panel.start..self.block.start + panel.end
    }

    /// Computes the block's weights into `p`, the gradients of its scores into `ds`, and adds these keys' part to
    /// `dqueries`.
    fn scores_and_dqueries(&self, keys: &Range<usize>, figures: &mut [(f32, f32)], room: &mut Room) {
        let attention = self.attention;
        let (small, wide, hd) = (attention.small, attention.wide(), attention.sizes.head_dim);
        let stride = score_stride(KEYS.min(attention.sizes.seq));
        // Keys begin at a panel boundary, since KEYS is a multiple of every panel width.
        let before = keys.start - self.range_start;
        for panel in nearly_equal(0..self.block.len(), small.rows()) {
            let first = panel.start;
            let positions = self.positions(&panel);
            let mut ahead = [Prefetch::NOTHING; 3];
            if before == 0 {
                self.bring(&panel, &mut figures[panel.clone()], room);
                // The next panel has as many rows as this one.
                let next = positions.end..(positions.end + panel.len()).min(attention.sizes.seq);
                ahead = [attention.q, self.arrived.dout, self.arrived.out]
                    .map(|rows_of| attention.ahead(rows_of, &self.own, next.clone()));
            }
            // Number of keys that the panel's last row sees; if zero, the whole panel is masked.
            let seen = positions.end.saturating_sub(keys.start).min(keys.len());
            let (p, ds) = (&mut room.p[first * stride..], &mut room.ds[first * stride..]);
            let both =
                [(&*room.queries, &*room.keys, &mut *p, ahead[0]), (&*room.dout, &*room.values, &mut *ds, ahead[1])];
            for (left, right, c, ahead) in both {
                small.product(SmallProduct {
                    rows: panel.len(),
                    depth: hd,
                    columns: seen,
                    left: &left[first * wide..],
                    left_in: LeftIn::Rows(wide),
                    right: &right[before * hd..],
                    right_stride: small.width(),
                    panel_stride: hd * small.width(),
                    accumulate: Accumulate::Overwrite,
                    c,
                    c_stride: stride,
                    ahead,
                });
            }
            let own = Rows { stride, seen: positions.start as isize + 1 - keys.start as isize, keys: keys.len() };
            rows::softmax_gradient(attention.isa, p, ds, own, &figures[panel.clone()]);
            small.product(SmallProduct {
                rows: panel.len(),
                depth: seen,
                columns: hd,
                left: ds,
                left_in: LeftIn::Rows(stride),
                right: &room.key_rows[before * wide..],
                right_stride: wide,
                panel_stride: small.width(),
                accumulate: if keys.start == 0 { Accumulate::Overwrite } else { Accumulate::Add },
                c: &mut room.dqueries[first * wide..],
                c_stride: wide,
                ahead: ahead[2],
            });
        }
    }

    /// `dkeys += dsᵀ · queries` and `dvalues += pᵀ · dout`, over the queries that see each panel of keys.
    fn dkeys_and_dvalues(&self, keys: &Range<usize>, room: &mut Room) {
        let attention = self.attention;
        let (small, wide, hd) = (attention.small, attention.wide(), attention.sizes.head_dim);
        let stride = score_stride(KEYS.min(attention.sizes.seq));
        for panel in nearly_equal(keys.clone(), small.rows()) {
            let first = panel.start;
            let unseen = first.saturating_sub(self.block.start);
            let both = [(&*room.ds, &*room.queries, &mut *room.dkeys), (&*room.p, &*room.dout, &mut *room.dvalues)];
            for (left, right, c) in both {
                small.product(SmallProduct {
                    rows: panel.len(),
                    depth: self.block.len() - unseen,
                    columns: hd,
                    left: &left[unseen * stride + first - keys.start..],
                    left_in: LeftIn::Columns(stride),
                    right: &right[unseen * wide..],
                    right_stride: wide,
                    panel_stride: small.width(),
                    accumulate: Accumulate::Add,
                    c: &mut c[(first - self.range_start) * wide..],
                    c_stride: wide,
                    ahead: Prefetch::NOTHING,
                });
            }
        }
    }
}
