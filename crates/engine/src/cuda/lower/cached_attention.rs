//! Attention of the next tokens to the KV cache.

use super::{Call, Grid, Lowering, Operand};
use crate::cuda::compile::{CACHED_ATTENTION, Unit};
use crate::cuda::error::CudaError;
use crate::cuda::launch::{Action, Arguments};
use headroom_graph::DType;
use headroom_graph::ops::cached_attention::CachedAttention;

/// Widest head that the kernel supports.
const WIDEST: usize = 256;

impl Lowering<'_> {
    pub fn cached_attention(&mut self, call: &Call, op: &CachedAttention) -> Result<Vec<Action>, CudaError> {
        let ([q, k, v, keys, values, first], [out]) = (call.inputs, call.outputs) else {
            return Err(call.unsupported("takes six tensors"));
        };
        let (width, narrow, kept) = (q.columns() / op.heads, keys.columns(), keys.rows());
        if width > WIDEST || !keys.is_dense() || !values.is_dense() || !out.is_dense() {
            return Err(call.unsupported(format!("heads of {width} are too wide; the limit is {WIDEST}")));
        }
        let is_half = |operand: &Operand| operand.ty.dtype == DType::Bf16;
        let options = [("-DACT_BF16", is_half(q)), ("-DKEPT_BF16", is_half(keys))];
        let options = options.into_iter().filter(|(_, set)| *set).map(|(option, _)| option.to_string()).collect();
        let unit = Unit { source: CACHED_ATTENTION, options };
        let arguments = Arguments::default()
            .pointer(k.at)
            .pointer(v.at)
            .pointer(keys.at)
            .pointer(values.at)
            .pointer(first.at)
            .u32(k.rows())
            .u32(kept)
            .u32(narrow)
            .u64(k.pitch)
            .u64(v.pitch);
        let keeps = self.kernel_of(&unit, "keep_rows", self.through(k.ty.elements()), arguments)?;
        let arguments = Arguments::default()
            .pointer(q.at)
            .pointer(keys.at)
            .pointer(values.at)
            .pointer(first.at)
            .pointer(out.at)
            .u32(op.heads)
            .u32(op.kv_heads)
            .u32(width)
            .u32(kept)
            .u64(q.pitch)
            .f32(op.scale);
        let grid = Grid::of([op.heads, q.rows(), 1], [256, 1, 1]);
        Ok(vec![keeps, self.kernel_of(&unit, "cached_attention", grid, arguments)?])
    }
}
