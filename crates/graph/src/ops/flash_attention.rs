//! Tiled causal attention with grouped-query heads: no seq × seq tensor, masked blocks skipped, the backward pass
//! recomputes the scores it needs. The rotation of q and k can be part of it.

use super::attention::AttentionSizes;
use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, expect};
use crate::tensor::TensorType;
use std::fmt;
use std::str::FromStr;

/// The op that rotates q and k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// An op before this one.
    Before,
    /// This op, as it loads them; `cos` and `sin` `[seq, head_dim / 2]` are its last inputs.
    Inside,
}

op! {
    /// `q` `[T, heads · hd]`, `k` and `v` `[T, kv_heads · hd]` → `out` like `q`, and for the backward pass each row's
    /// logsumexp, `[batch, heads, seq]`.
    pub struct FlashAttention {
        pub heads: usize,
        pub kv_heads: usize,
        pub seq: usize,
        pub scale: f64,
        pub rotation: Rotation,
    }
}

op! {
    /// `q`, `k`, `v`, `out`, `lse`, `dout` (and `cos`, `sin`) → `dq`, `dk`, `dv`.
    pub struct FlashAttentionGrad {
        pub heads: usize,
        pub kv_heads: usize,
        pub seq: usize,
        pub scale: f64,
        pub rotation: Rotation,
    }
}

impl FlashAttention {
    pub fn sizes(&self, q: &TensorType) -> Result<AttentionSizes, ShapeError> {
        let FlashAttention { heads, kv_heads, seq, .. } = *self;
        let (rows, width) = op::matrix(0, q)?;
        let groups_fit = kv_heads > 0 && heads > 0 && heads % kv_heads == 0;
        if !groups_fit || seq == 0 || rows % seq != 0 || width % heads != 0 {
            let want = format!("[n · {seq}, {heads} · head_dim], heads shared by {kv_heads}");
            return Err(ShapeError::Input { index: 0, want, have: q.shape.to_string() });
        }
        Ok(AttentionSizes { batch: rows / seq, seq, heads, kv_heads, head_dim: width / heads })
    }

    /// Checks q, k, v and the tables, which start at `tables`.
    fn check(&self, inputs: &[TensorType], tables: usize) -> Result<AttentionSizes, ShapeError> {
        let want = tables + if self.rotation == Rotation::Inside { 2 } else { 0 };
        if inputs.len() != want {
            return Err(ShapeError::Arity { want, have: inputs.len() });
        }
        let sizes = self.sizes(&inputs[0])?;
        let narrow = [sizes.batch * sizes.seq, sizes.kv_heads * sizes.head_dim];
        expect(1, &inputs[1], &narrow)?;
        expect(2, &inputs[2], &narrow)?;
        for (index, table) in inputs.iter().enumerate().skip(tables) {
            expect(index, table, &[sizes.seq, sizes.head_dim / 2])?;
        }
        Ok(sizes)
    }
}

impl FlashAttentionGrad {
    /// The op that it is the gradient of.
    pub fn forward(&self) -> FlashAttention {
        let FlashAttentionGrad { heads, kv_heads, seq, scale, rotation } = *self;
        FlashAttention { heads, kv_heads, seq, scale, rotation }
    }
}

impl Operator for FlashAttention {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let sizes = self.check(inputs, 3)?;
        Ok(vec![inputs[0].clone(), TensorType::f32(&[sizes.batch, sizes.heads, sizes.seq])])
    }

    /// Two products over the unmasked pairs, five FLOPs per pair for the softmax, and the rotation if it is inside.
    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        let rotation = match self.rotation {
            Rotation::Before => 0,
            Rotation::Inside => 3 * (inputs[0].elements() + inputs[1].elements()) as u64,
        };
        self.sizes(&inputs[0]).map_or(0, |s| s.visible_pairs() * (4 * s.head_dim as u64 + 5) + rotation)
    }

    fn is_product(&self) -> bool {
        true
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        let FlashAttention { heads, kv_heads, seq, scale, rotation } = *self;
        let mut inputs = vec![at.inputs[0], at.inputs[1], at.inputs[2], at.outputs[0], at.outputs[1], at.arrived_one()];
        inputs.extend_from_slice(&at.inputs[3..]);
        let made = at.graph.add(FlashAttentionGrad { heads, kv_heads, seq, scale, rotation }, &inputs)?;
        let tables = vec![None; at.inputs.len() - 3];
        Ok(made.into_iter().map(Some).chain(tables).collect())
    }

    fn examples() -> Vec<Example> {
        cases()
            .map(|(sizes, rotation)| {
                let AttentionSizes { heads, kv_heads, seq, .. } = sizes;
                let op = FlashAttention { heads, kv_heads, seq, scale: 0.3, rotation };
                let mut inputs = vec![wide(sizes, heads), wide(sizes, kv_heads), wide(sizes, kv_heads)];
                inputs.extend(tables(sizes, rotation));
                Example { op: op.into(), inputs }
            })
            .to_vec()
    }
}

impl Operator for FlashAttentionGrad {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let sizes = self.forward().check(inputs, 6)?;
        expect(3, &inputs[3], inputs[0].sizes())?;
        expect(4, &inputs[4], &[sizes.batch, sizes.heads, sizes.seq])?;
        expect(5, &inputs[5], inputs[0].sizes())?;
        Ok(inputs[..3].to_vec())
    }

    /// Five products, the first of which recomputes the scores.
    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        let sizes = self.forward().sizes(&inputs[0]);
        sizes.map_or(0, |s| s.visible_pairs() * (10 * s.head_dim as u64 + 8))
    }

    fn is_product(&self) -> bool {
        true
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    /// `out` and `lse` of an example do not match its inputs; the kernel takes them as given.
    fn examples() -> Vec<Example> {
        cases()
            .map(|(sizes, rotation)| {
                let AttentionSizes { heads, kv_heads, seq, batch, .. } = sizes;
                let op = FlashAttentionGrad { heads, kv_heads, seq, scale: 0.1, rotation };
                let lse = (TensorType::f32(&[batch, heads, seq]), Fill::Constant(4.0));
                let (q, k) = (wide(sizes, heads), wide(sizes, kv_heads));
                let mut inputs = vec![q.clone(), k.clone(), k, q.clone(), lse, q];
                inputs.extend(tables(sizes, rotation));
                Example { op: op.into(), inputs }
            })
            .to_vec()
    }
}

fn cases() -> [(AttentionSizes, Rotation); 4] {
    let case = |batch, seq, heads, kv_heads, head_dim| AttentionSizes { batch, seq, heads, kv_heads, head_dim };
    [
        (case(2, 5, 4, 2, 4), Rotation::Before),
        (case(1, 19, 3, 1, 16), Rotation::Inside),
        (case(1, 77, 2, 2, 6), Rotation::Before),
        (case(1, 150, 2, 1, 8), Rotation::Inside),
    ]
}

fn wide(sizes: AttentionSizes, heads: usize) -> (TensorType, Fill) {
    (TensorType::f32(&[sizes.batch * sizes.seq, heads * sizes.head_dim]), Fill::Normal)
}

fn tables(sizes: AttentionSizes, rotation: Rotation) -> Vec<(TensorType, Fill)> {
    match rotation {
        Rotation::Before => vec![],
        Rotation::Inside => vec![(TensorType::f32(&[sizes.seq, sizes.head_dim / 2]), Fill::Normal); 2],
    }
}

impl fmt::Display for Rotation {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(match self {
            Rotation::Before => "before",
            Rotation::Inside => "inside",
        })
    }
}

impl FromStr for Rotation {
    type Err = ();

    fn from_str(text: &str) -> Result<Rotation, ()> {
        match text {
            "before" => Ok(Rotation::Before),
            "inside" => Ok(Rotation::Inside),
            _ => Err(()),
        }
    }
}
