//! The products of materialised attention: one small GEMM per head, read and written in place, nothing transposed.

use super::Team;
use super::frame::Frame;
use super::gemm::{Accumulate, MatMut, MatRef, Product, gemm_batch};
use super::shared::Shared;
use headroom_graph::TensorType;
use headroom_graph::ops::attention::{AttentionMix, AttentionMixBack, AttentionScores, AttentionSizes};

pub fn scores(team: &Team, op: &AttentionScores, types: &[TensorType], at: &Frame) {
    let sizes = op.sizes(&types[0]).expect("checked when the graph was built");
    let (q, k) = (at.input(0), at.input(1));
    let out = Shared::new(at.output(0));
    let product = |item: usize, _: usize| {
        let (batch, head) = (item / sizes.heads, item % sizes.heads);
        Product {
            alpha: op.scale as f32,
            a: head_of(&sizes, q, sizes.heads, batch, head),
            b: head_of(&sizes, k, sizes.kv_heads, batch, kv_of(&sizes, head)).transposed(),
            accumulate: Accumulate::Overwrite,
            c: square_into(&sizes, &out, batch, head),
        }
    };
    // SAFETY: each (batch, head) writes its own square.
    unsafe { gemm_batch(&team.pool, team.isa, team.arithmetic, &team.packing, sizes.batch * sizes.heads, 1, &product) }
}

pub fn mix(team: &Team, op: &AttentionMix, types: &[TensorType], at: &Frame) {
    let sizes = op.sizes(&types[1]).expect("checked when the graph was built");
    let (p, v) = (at.input(0), at.input(1));
    let out = Shared::new(at.output(0));
    let product = |item: usize, _: usize| {
        let (batch, head) = (item / sizes.heads, item % sizes.heads);
        Product {
            alpha: op.scale as f32,
            a: square_of(&sizes, p, batch, head),
            b: head_of(&sizes, v, sizes.kv_heads, batch, kv_of(&sizes, head)),
            accumulate: Accumulate::Overwrite,
            c: head_into(&sizes, &out, sizes.heads, batch, head),
        }
    };
    // SAFETY: each (batch, head) writes its own columns.
    unsafe { gemm_batch(&team.pool, team.isa, team.arithmetic, &team.packing, sizes.batch * sizes.heads, 1, &product) }
}

/// One item per key-value head; the heads of its group are summed one after the other.
pub fn mix_back(team: &Team, op: &AttentionMixBack, types: &[TensorType], at: &Frame) {
    let sizes = op.sizes(&types[1]).expect("checked when the graph was built");
    let (p, x) = (at.input(0), at.input(1));
    let out = Shared::new(at.output(0));
    let group = sizes.heads / sizes.kv_heads;
    let product = |item: usize, term: usize| {
        let (batch, kv) = (item / sizes.kv_heads, item % sizes.kv_heads);
        let head = kv * group + term;
        Product {
            alpha: op.scale as f32,
            a: square_of(&sizes, p, batch, head).transposed(),
            b: head_of(&sizes, x, sizes.heads, batch, head),
            accumulate: if term == 0 { Accumulate::Overwrite } else { Accumulate::Add },
            c: head_into(&sizes, &out, sizes.kv_heads, batch, kv),
        }
    };
    // SAFETY: each (batch, key-value head) writes its own columns, its terms one after the other.
    unsafe {
        gemm_batch(&team.pool, team.isa, team.arithmetic, &team.packing, sizes.batch * sizes.kv_heads, group, &product)
    }
}

fn kv_of(sizes: &AttentionSizes, head: usize) -> usize {
    head / (sizes.heads / sizes.kv_heads)
}

/// [seq, head_dim] of one head out of [batch · seq, heads · head_dim].
fn head_of<'a>(sizes: &AttentionSizes, data: &'a [f32], heads: usize, batch: usize, head: usize) -> MatRef<'a> {
    let width = heads * sizes.head_dim;
    let start = batch * sizes.seq * width + head * sizes.head_dim;
    MatRef::strided(&data[start..], sizes.seq, sizes.head_dim, width, 1)
}

/// [seq, seq] of one head out of [batch, heads, seq, seq].
fn square_of<'a>(sizes: &AttentionSizes, data: &'a [f32], batch: usize, head: usize) -> MatRef<'a> {
    let area = sizes.seq * sizes.seq;
    MatRef::row_major(&data[(batch * sizes.heads + head) * area..][..area], sizes.seq, sizes.seq)
}

fn square_into<'a>(sizes: &AttentionSizes, out: &Shared<'a>, batch: usize, head: usize) -> MatMut<'a> {
    let area = sizes.seq * sizes.seq;
    // SAFETY: the callers of `gemm_batch`, above, guarantee that no two items write the same part.
    unsafe { out.matrix((batch * sizes.heads + head) * area, sizes.seq, sizes.seq, sizes.seq) }
}

fn head_into<'a>(sizes: &AttentionSizes, out: &Shared<'a>, heads: usize, batch: usize, head: usize) -> MatMut<'a> {
    let width = heads * sizes.head_dim;
    let start = batch * sizes.seq * width + head * sizes.head_dim;
    // SAFETY: the callers of `gemm_batch`, above, guarantee that no two items write the same columns.
    unsafe { out.matrix(start, sizes.seq, sizes.head_dim, width) }
}
