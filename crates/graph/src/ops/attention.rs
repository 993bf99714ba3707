//! The products of materialised attention with grouped-query heads: scores, the weighted sum of the values, and its
//! transpose. The three are closed under differentiation: the gradients of each are the other two.
//!
//! Activations stay [T, heads · head_dim] with T = batch · seq; head `h` reads key-value head `h · kv_heads / heads`.
//! The whole square is computed, masked half included: Version 1 does so, and its FLOPs count it.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, arity};
use crate::tensor::TensorType;

op! {
    /// `q` `[T, heads · hd]`, `k` [T, kv_heads · hd] → `scale · q · kᵀ` `[batch, heads, seq, seq]`.
    pub struct AttentionScores {
        pub heads: usize,
        pub kv_heads: usize,
        pub seq: usize,
        pub scale: f64,
    }
}

op! {
    /// `p` `[batch, heads, seq, seq]`, `v` [T, kv_heads · hd] → `scale · p · v` `[T, heads · hd]`.
    pub struct AttentionMix {
        pub heads: usize,
        pub kv_heads: usize,
        pub seq: usize,
        pub scale: f64,
    }
}

op! {
    /// `p` `[batch, heads, seq, seq]`, `x` `[T, heads · hd]` → `scale · pᵀ · x`, summed over the heads of a group,
    /// [T, kv_heads · hd].
    pub struct AttentionMixBack {
        pub heads: usize,
        pub kv_heads: usize,
        pub seq: usize,
        pub scale: f64,
    }
}

/// Sizes of one attention product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionSizes {
    pub batch: usize,
    pub seq: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
}

impl AttentionSizes {
    /// Number of unmasked (query, key) pairs over all batches and heads.
    pub fn visible_pairs(&self) -> u64 {
        (self.batch * self.heads) as u64 * (self.seq * (self.seq + 1) / 2) as u64
    }

    fn flops(&self) -> u64 {
        2 * (self.batch * self.heads * self.seq * self.seq * self.head_dim) as u64
    }

    fn square(&self) -> [usize; 4] {
        [self.batch, self.heads, self.seq, self.seq]
    }
}

macro_rules! attention_op {
    ($name:ident) => {
        impl $name {
            /// Sizes from the `[T, heads · hd]` input `wide` at `index` with `heads` heads in it.
            fn sizes_from(
                &self,
                index: usize,
                wide: &TensorType,
                heads_of_input: usize,
            ) -> Result<AttentionSizes, ShapeError> {
                let (rows, width) = op::matrix(index, wide)?;
                if self.kv_heads == 0 || self.heads == 0 || self.heads % self.kv_heads != 0 {
                    let what = format!("{} heads cannot share {} key-value heads", self.heads, self.kv_heads);
                    return Err(ShapeError::Attribute(what));
                }
                if self.seq == 0 || rows % self.seq != 0 || width % heads_of_input != 0 {
                    let want = format!("[n · {}, {heads_of_input} · head_dim]", self.seq);
                    return Err(ShapeError::Input { index, want, have: wide.shape.to_string() });
                }
                Ok(AttentionSizes {
                    batch: rows / self.seq,
                    seq: self.seq,
                    heads: self.heads,
                    kv_heads: self.kv_heads,
                    head_dim: width / heads_of_input,
                })
            }
        }
    };
}
attention_op!(AttentionScores);
attention_op!(AttentionMix);
attention_op!(AttentionMixBack);

impl AttentionScores {
    pub fn sizes(&self, q: &TensorType) -> Result<AttentionSizes, ShapeError> {
        self.sizes_from(0, q, self.heads)
    }
}

impl AttentionMix {
    pub fn sizes(&self, v: &TensorType) -> Result<AttentionSizes, ShapeError> {
        self.sizes_from(1, v, self.kv_heads)
    }
}

impl AttentionMixBack {
    pub fn sizes(&self, x: &TensorType) -> Result<AttentionSizes, ShapeError> {
        self.sizes_from(1, x, self.heads)
    }
}

impl Operator for AttentionScores {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [q, k] = arity(inputs)?;
        let sizes = self.sizes(q)?;
        op::expect(1, k, &[sizes.batch * sizes.seq, sizes.kv_heads * sizes.head_dim])?;
        Ok(vec![TensorType::new(q.dtype, &sizes.square())])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        self.sizes(&inputs[0]).map_or(0, |sizes| sizes.flops())
    }

    fn is_product(&self) -> bool {
        true
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        let AttentionScores { heads, kv_heads, seq, scale } = *self;
        let (q, k, ds) = (at.inputs[0], at.inputs[1], at.arrived_one());
        Ok(vec![
            at.if_wanted(0, AttentionMix { heads, kv_heads, seq, scale }, &[ds, k])?,
            at.if_wanted(1, AttentionMixBack { heads, kv_heads, seq, scale }, &[ds, q])?,
        ])
    }

    fn examples() -> Vec<Example> {
        cases()
            .map(|(sizes, scale)| {
                let AttentionSizes { heads, kv_heads, seq, .. } = sizes;
                let op = AttentionScores { heads, kv_heads, seq, scale };
                Example { op: op.into(), inputs: vec![wide(sizes, heads), wide(sizes, kv_heads)] }
            })
            .to_vec()
    }
}

impl Operator for AttentionMix {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [p, v] = arity(inputs)?;
        let sizes = self.sizes(v)?;
        op::expect(0, p, &sizes.square())?;
        Ok(vec![TensorType::new(v.dtype, &[sizes.batch * sizes.seq, sizes.heads * sizes.head_dim])])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        self.sizes(&inputs[1]).map_or(0, |sizes| sizes.flops())
    }

    fn is_product(&self) -> bool {
        true
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        let AttentionMix { heads, kv_heads, seq, scale } = *self;
        let (p, v, arrived) = (at.inputs[0], at.inputs[1], at.arrived_one());
        Ok(vec![
            at.if_wanted(0, AttentionScores { heads, kv_heads, seq, scale }, &[arrived, v])?,
            at.if_wanted(1, AttentionMixBack { heads, kv_heads, seq, scale }, &[p, arrived])?,
        ])
    }

    fn examples() -> Vec<Example> {
        cases()
            .map(|(sizes, scale)| {
                let AttentionSizes { heads, kv_heads, seq, .. } = sizes;
                let op = AttentionMix { heads, kv_heads, seq, scale };
                Example { op: op.into(), inputs: vec![square(sizes), wide(sizes, kv_heads)] }
            })
            .to_vec()
    }
}

impl Operator for AttentionMixBack {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [p, x] = arity(inputs)?;
        let sizes = self.sizes(x)?;
        op::expect(0, p, &sizes.square())?;
        Ok(vec![TensorType::new(x.dtype, &[sizes.batch * sizes.seq, sizes.kv_heads * sizes.head_dim])])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        self.sizes(&inputs[1]).map_or(0, |sizes| sizes.flops())
    }

    fn is_product(&self) -> bool {
        true
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        let AttentionMixBack { heads, kv_heads, seq, scale } = *self;
        let (p, x, arrived) = (at.inputs[0], at.inputs[1], at.arrived_one());
        Ok(vec![
            at.if_wanted(0, AttentionScores { heads, kv_heads, seq, scale }, &[x, arrived])?,
            at.if_wanted(1, AttentionMix { heads, kv_heads, seq, scale }, &[p, arrived])?,
        ])
    }

    fn examples() -> Vec<Example> {
        cases()
            .map(|(sizes, scale)| {
                let AttentionSizes { heads, kv_heads, seq, .. } = sizes;
                let op = AttentionMixBack { heads, kv_heads, seq, scale };
                Example { op: op.into(), inputs: vec![square(sizes), wide(sizes, heads)] }
            })
            .to_vec()
    }
}

fn cases() -> [(AttentionSizes, f64); 3] {
    [
        (AttentionSizes { batch: 2, seq: 5, heads: 4, kv_heads: 2, head_dim: 4 }, 0.5),
        (AttentionSizes { batch: 1, seq: 19, heads: 3, kv_heads: 1, head_dim: 16 }, 0.25),
        (AttentionSizes { batch: 1, seq: 33, heads: 2, kv_heads: 2, head_dim: 6 }, 1.0),
    ]
}

fn wide(sizes: AttentionSizes, heads: usize) -> (TensorType, Fill) {
    (TensorType::f32(&[sizes.batch * sizes.seq, heads * sizes.head_dim]), Fill::Normal)
}

fn square(sizes: AttentionSizes) -> (TensorType, Fill) {
    (TensorType::f32(&sizes.square()), Fill::Normal)
}
