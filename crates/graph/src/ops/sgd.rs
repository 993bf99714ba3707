//! SGD on one parameter with optional momentum, as PyTorch computes it: the decay is part of the gradient.

use super::adamw::{Decays, decay_of};
use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, expect};
use crate::tensor::TensorType;

op! {
    /// `weight` (updated), `gradient`, `rates` `[3]`, then `momentum` (updated) if there is one, `half` (updated) if
    /// the weight has a half-precision copy, and `clip` `[1]` if gradients are clipped.
    ///
    /// The first rate is the learning rate. If the second is zero, nothing is updated, as with AdamW.
    pub struct Sgd {
        /// Momentum coefficient; at zero there is no momentum tensor.
        pub momentum: f64,
        pub weight_decay: f64,
        pub decays: Decays,
        /// Number of half-precision copies of the weight: 0 or 1.
        pub bf16_copies: usize,
    }
}

impl Sgd {
    /// Number of momentum tensors: 0 or 1.
    pub fn buffers(&self) -> usize {
        usize::from(self.momentum > 0.0)
    }

    /// The decay of a weight of this type.
    pub fn decay_of(&self, weight: &TensorType) -> f64 {
        decay_of(self.decays, self.weight_decay, weight)
    }
}

impl Operator for Sgd {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let before_clip = 3 + self.buffers() + self.bf16_copies;
        if self.bf16_copies > 1 || !matches!(inputs.len().checked_sub(before_clip), Some(0 | 1)) {
            return Err(ShapeError::Arity { want: before_clip, have: inputs.len() });
        }
        for (index, input) in inputs.iter().enumerate() {
            match index {
                2 => expect(index, input, &[3])?,
                _ if index < before_clip => expect(index, input, inputs[0].sizes())?,
                _ => expect(index, input, &[1])?,
            }
        }
        Ok(vec![])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        6 * inputs[0].elements() as u64
    }

    fn updates(&self) -> Vec<usize> {
        std::iter::once(0).chain(3..3 + self.buffers() + self.bf16_copies).collect()
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        let ty = TensorType::f32(&[5, 77]);
        let mut all = vec![];
        for (momentum, rate, clipped) in [(0.0, 0.2, false), (0.9, 0.2, false), (0.9, 0.0, false), (0.9, 0.2, true)] {
            let op = Sgd { momentum, weight_decay: 0.1, decays: Decays::All, bf16_copies: 0 };
            let mut inputs = vec![
                (ty.clone(), Fill::Normal),
                (ty.clone(), Fill::Normal),
                (TensorType::f32(&[3]), Fill::Constant(rate)),
            ];
            inputs.extend(vec![(ty.clone(), Fill::Normal); op.buffers()]);
            inputs.extend(clipped.then_some((TensorType::f32(&[1]), Fill::Constant(0.25))));
            all.push(Example { op: op.into(), inputs });
        }
        let mut vector = all[1].clone();
        vector.op = Sgd { momentum: 0.9, weight_decay: 0.5, decays: Decays::Matrices, bf16_copies: 0 }.into();
        [0, 1, 3].into_iter().for_each(|index| vector.inputs[index].0 = TensorType::f32(&[77]));
        all.push(vector);
        all
    }
}
