//! LayerNorm and its gradient.

use super::rows::{Fit, Lines, MOST_LATER, NORM_BLOCKS, blocks_in_equal_turns};
use super::{Call, Grid, Lowering};
use crate::cuda::compile::{LAYER_NORM, NORM};
use crate::cuda::error::CudaError;
use crate::cuda::launch::{Action, Arguments};
use headroom_graph::ops::layer_norm::{LayerNorm, LayerNormGrad};

/// Blocks per multiprocessor if each row has a warp to itself: registers leave room for one.
const WARP_BLOCKS: usize = 1;

impl Lowering<'_> {
    pub fn layer_norm(&mut self, call: &Call, op: &LayerNorm) -> Result<Vec<Action>, CudaError> {
        let ([x, weight, bias], [out]) = (call.inputs, call.outputs) else {
            return Err(call.unsupported("takes rows, a weight and a bias"));
        };
        let fit = Fit::by_warps(x, x.columns()).map_or_else(|| Fit::of(call, x, x.columns()), Ok)?;
        let rows_per_block = fit.rows_per_block();
        let grid = Grid::of([x.rows().div_ceil(rows_per_block), 1, 1], [fit.threads, rows_per_block, 1]);
        let arguments = Arguments::default()
            .pointer(x.at)
            .pointer(weight.at)
            .pointer(bias.at)
            .pointer(out.at)
            .u32(x.rows())
            .u32(x.columns())
            .f32(op.eps);
        Ok(vec![self.kernel(call, LAYER_NORM, &format!("layer_norm_{}", fit.suffix), grid, arguments)?])
    }

    pub fn layer_norm_gradient(&mut self, call: &Call, op: &LayerNormGrad) -> Result<Vec<Action>, CudaError> {
        let ([x, weight, dy], [dx, dweight, dbias]) = (call.inputs, call.outputs) else {
            return Err(call.unsupported("takes rows, a weight and the gradient"));
        };
        let fit = Fit::by_warps(x, x.columns()).map_or_else(|| Fit::of(call, x, x.columns()), Ok)?;
        let (rows, columns, rows_per_block) = (x.rows(), x.columns(), fit.rows_per_block());
        let most = if fit.threads == 32 { WARP_BLOCKS } else { NORM_BLOCKS } * self.context.multiprocessors as usize;
        let blocks = blocks_in_equal_turns(rows.div_ceil(rows_per_block), most);
        let bytes = blocks * columns * 4;
        let later = self.sums_later && bytes <= MOST_LATER;
        let (dweights, dbiases) = match later {
            true => (self.own_memory(bytes)?, self.own_memory(bytes)?),
            false => (self.scratch(0, bytes), self.scratch(bytes, bytes)),
        };
        let arguments = Arguments::default()
            .pointer(x.at)
            .pointer(weight.at)
            .pointer(dy.at)
            .pointer(dx.at)
            .pointer(dweights)
            .pointer(dbiases)
            .u32(rows)
            .u32(columns)
            .f32(op.eps);
        let shared = 2 * (256 + rows_per_block * columns) * 4;
        let grid = Grid::of([blocks, 1, 1], [fit.threads, rows_per_block, 1]).with_shared(shared);
        let name = format!("layer_norm_grad_{}", fit.suffix);
        let mut actions = vec![self.kernel(call, LAYER_NORM, &name, grid, arguments)?];
        for (lines, sum) in [(dweights, dweight), (dbiases, dbias)] {
            if later {
                self.later.push(Lines { partial: lines, dweight: sum.range(), lines: blocks, columns });
                continue;
            }
            let arguments = Arguments::default().pointer(lines).pointer(sum.at).u32(blocks).u32(columns);
            let grid = Grid::of([columns.div_ceil(16), 1, 1], [16, 32, 1]);
            actions.push(self.kernel(call, NORM, "sum_lines", grid, arguments)?);
        }
        Ok(actions)
    }
}
