//! Causal attention as cuDNN graphs: products, a mask and a softmax in parts, which cuDNN fuses.

use super::{Cudnn, Data, Four, Graph, Place, Plan, Pointwise, Reduction, Tensor};
use crate::cuda::SumOrder;
use crate::cuda::error::CudaError;
use headroom_graph::ops::attention::AttentionSizes;
use std::rc::Rc;

/// Numbers under which the graphs' tensors are bound.
pub const Q: i64 = 1;
pub const K: i64 = 2;
pub const V: i64 = 3;
pub const OUT: i64 = 4;
pub const LSE: i64 = 5;
pub const DOUT: i64 = 6;
pub const DQ: i64 = 7;
pub const DK: i64 = 8;
pub const DV: i64 = 9;
pub const DELTA: i64 = 10;
pub const DQ_SUMS: i64 = 11;

/// Parameters of a graph: sizes, the row strides (in elements) of its inputs and outputs, and the scale of the scores.
/// cuDNN requires whole tiles.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub sizes: &'a AttentionSizes,
    pub scale: f64,
    /// Whether sums of dq may run in the order in which blocks finish.
    pub order: SumOrder,
}

impl Wanted<'_> {
    /// Whether cuDNN's fused kernels support these sizes.
    pub fn is_offered(&self) -> bool {
        self.sizes.seq.is_multiple_of(128) && [64, 128].contains(&self.sizes.head_dim)
    }

    /// `[batch, heads, seq, head_dim]`, with the rows of all heads side by side.
    fn rows(&self, heads: usize, pitch: usize) -> (Four, Four) {
        let AttentionSizes { batch, seq, head_dim, .. } = *self.sizes;
        let dims = [batch as i64, heads as i64, seq as i64, head_dim as i64];
        (dims, [(seq * pitch) as i64, head_dim as i64, pitch as i64, 1])
    }

    fn tensor(&self, graph: &mut Graph, number: i64, heads: usize, pitch: usize) -> Result<Tensor, CudaError> {
        let (dims, strides) = self.rows(heads, pitch);
        graph.tensor(Place::Given(number), Data::Bf16, dims, strides)
    }

    /// The transposed view: `[batch, heads, head_dim, seq]`.
    fn transposed(&self, graph: &mut Graph, number: i64, heads: usize, pitch: usize) -> Result<Tensor, CudaError> {
        let ([a, b, c, d], [e, f, g, h]) = self.rows(heads, pitch);
        graph.tensor(Place::Given(number), Data::Bf16, [a, b, d, c], [e, f, h, g])
    }

    /// `[batch, heads, seq, 1]`, without gaps.
    fn statistic(&self, graph: &mut Graph, place: Place) -> Result<Tensor, CudaError> {
        let AttentionSizes { batch, seq, heads, .. } = *self.sizes;
        let (batch, seq, heads) = (batch as i64, seq as i64, heads as i64);
        graph.tensor(place, Data::Float, [batch, heads, seq, 1], [heads * seq, seq, 1, 1])
    }

    /// Scaled products of queries and keys.
    fn scores(&self, graph: &mut Graph, q: &Tensor, k_turned: &Tensor) -> Result<Tensor, CudaError> {
        let AttentionSizes { batch, seq, heads, .. } = *self.sizes;
        let (batch, seq, heads) = (batch as i64, seq as i64, heads as i64);
        let strides = [heads * seq * seq, seq * seq, seq, 1];
        let scores = graph.tensor(Place::Between, Data::Float, [batch, heads, seq, seq], strides)?;
        graph.product_to(q, k_turned, &scores)?;
        let scale = graph.value(self.scale as f32)?;
        graph.pointwise(Pointwise::Multiply, &[&scores, &scale])
    }

    /// Masks the keys after the query.
    fn masked(&self, graph: &mut Graph, scores: &Tensor) -> Result<Tensor, CudaError> {
        let row = graph.like(scores, Data::Int32)?;
        graph.pointwise_to(Pointwise::Index, (Data::Int32, Some(2)), &[scores], &row)?;
        let column = graph.like(scores, Data::Int32)?;
        graph.pointwise_to(Pointwise::Index, (Data::Int32, Some(3)), &[scores], &column)?;
        let seen = graph.like(scores, Data::Boolean)?;
        graph.pointwise_to(Pointwise::AtLeast, (Data::Boolean, None), &[&row, &column], &seen)?;
        let never = graph.value(f32::NEG_INFINITY)?;
        graph.pointwise(Pointwise::Select, &[scores, &never, &seen])
    }

    /// `pitches` of q, k, v and out.
    pub fn forward(&self, cudnn: &Rc<Cudnn>, pitches: [usize; 4], workspace: usize) -> Result<Plan, CudaError> {
        let AttentionSizes { heads, kv_heads, .. } = *self.sizes;
        let mut graph = Graph::new(cudnn);
        let q = self.tensor(&mut graph, Q, heads, pitches[0])?;
        let k = self.transposed(&mut graph, K, kv_heads, pitches[1])?;
        let v = self.tensor(&mut graph, V, kv_heads, pitches[2])?;
        let out = self.tensor(&mut graph, OUT, heads, pitches[3])?;
        let lse = self.statistic(&mut graph, Place::Given(LSE))?;
        let scores = self.scores(&mut graph, &q, &k)?;
        let scores = self.masked(&mut graph, &scores)?;
        let highest = self.statistic(&mut graph, Place::Between)?;
        graph.reduction_to(Reduction::Highest, &scores, &highest)?;
        let below = graph.pointwise(Pointwise::Subtract, &[&scores, &highest])?;
        let powers = graph.pointwise(Pointwise::Exponential, &[&below])?;
        let total = self.statistic(&mut graph, Place::Between)?;
        graph.reduction_to(Reduction::Sum, &powers, &total)?;
        let logarithm = graph.pointwise(Pointwise::Logarithm, &[&total])?;
        graph.pointwise_to(Pointwise::Add, (Data::Float, None), &[&highest, &logarithm], &lse)?;
        let weights = graph.like(&powers, Data::Bf16)?;
        graph.pointwise_to(Pointwise::Divide, (Data::Float, None), &[&powers, &total], &weights)?;
        graph.product_to(&weights, &v, &out)?;
        graph.planned(workspace)
    }

    /// `pitches` of q, k, v, out, dout, dq, dk and dv. With a fixed order of sums, products over keys are computed
    /// whole, which needs a workspace of the size of the scores; otherwise blocks add to single-precision sums.
    pub fn backward(&self, cudnn: &Rc<Cudnn>, pitches: [usize; 8], workspace: usize) -> Result<Plan, CudaError> {
        let AttentionSizes { heads, kv_heads, .. } = *self.sizes;
        let mut graph = Graph::new(cudnn);
        let q = self.tensor(&mut graph, Q, heads, pitches[0])?;
        let k = self.transposed(&mut graph, K, kv_heads, pitches[1])?;
        let v = self.transposed(&mut graph, V, kv_heads, pitches[2])?;
        let out = self.tensor(&mut graph, OUT, heads, pitches[3])?;
        let dout = self.tensor(&mut graph, DOUT, heads, pitches[4])?;
        let dq = self.tensor(&mut graph, DQ, heads, pitches[5])?;
        let dk = self.tensor(&mut graph, DK, kv_heads, pitches[6])?;
        let dv = self.tensor(&mut graph, DV, kv_heads, pitches[7])?;
        let lse = self.statistic(&mut graph, Place::Given(LSE))?;
        let delta = self.statistic(&mut graph, Place::Given(DELTA))?;

        let shares = graph.like(&dout, Data::Float)?;
        graph.pointwise_to(Pointwise::Multiply, (Data::Float, None), &[&dout, &out], &shares)?;
        let sums = self.statistic(&mut graph, Place::Between)?;
        graph.reduction_to(Reduction::Sum, &shares, &sums)?;
        let one = graph.value(1.0)?;
        graph.pointwise_to(Pointwise::Multiply, (Data::Float, None), &[&sums, &one], &delta)?;

        let scores = self.scores(&mut graph, &q, &k)?;
        let below = graph.pointwise(Pointwise::Subtract, &[&scores, &lse])?;
        let below = self.masked(&mut graph, &below)?;
        let weights = graph.pointwise(Pointwise::Exponential, &[&below])?;
        self.sum_over_queries(&mut graph, &weights, &dout, &dv)?;

        let slopes = graph.like(&scores, Data::Float)?;
        graph.product_to(&dout, &v, &slopes)?;
        let slopes = graph.pointwise(Pointwise::Subtract, &[&slopes, &delta])?;
        let changes = graph.pointwise(Pointwise::Multiply, &[&slopes, &weights])?;
        let scale = graph.value(self.scale as f32)?;
        let changes = graph.pointwise(Pointwise::Multiply, &[&changes, &scale])?;
        self.sum_over_queries(&mut graph, &changes, &q, &dk)?;

        let (dims, strides) = self.rows(kv_heads, pitches[1]);
        let keys = graph.tensor(Place::Between, Data::Bf16, dims, strides)?;
        graph.reshape_to(&k, &keys)?;
        match self.order {
            SumOrder::Fixed => graph.product_to(&changes, &keys, &dq)?,
            SumOrder::Any => {
                let (dims, _) = self.rows(heads, pitches[0]);
                let [_, all, seq, columns] = dims;
                let strides = [all * seq * columns, seq * columns, columns, 1];
                let sums = graph.tensor(Place::Given(DQ_SUMS), Data::Float, dims, strides)?;
                graph.product_to(&changes, &keys, &sums)?;
                graph.pointwise_to(Pointwise::Identity, (Data::Float, None), &[&sums], &dq)?;
            }
        }
        graph.planned(workspace)
    }

    /// `weights`ᵀ · `rows`, summed over the heads that share keys.
    fn sum_over_queries(
        &self,
        graph: &mut Graph,
        weights: &Tensor,
        rows: &Tensor,
        to: &Tensor,
    ) -> Result<(), CudaError> {
        let AttentionSizes { batch, seq, heads, kv_heads, head_dim } = *self.sizes;
        let [batch, seq, all, columns] = [batch, seq, heads, head_dim].map(|size| size as i64);
        let strides = [all * seq * seq, seq * seq, 1, seq];
        let transposed = graph.tensor(Place::Between, Data::Bf16, [batch, all, seq, seq], strides)?;
        graph.reshape_to(weights, &transposed)?;
        if heads == kv_heads {
            return graph.product_to(&transposed, rows, to);
        }
        let strides = [all * seq * columns, seq * columns, columns, 1];
        let each = graph.tensor(Place::Between, Data::Bf16, [batch, all, seq, columns], strides)?;
        graph.product_to(&transposed, rows, &each)?;
        graph.reduction_to(Reduction::Sum, &each, to)
    }
}
