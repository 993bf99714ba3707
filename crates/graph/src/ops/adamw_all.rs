//! AdamW on all parameters in one call, with optional clipping by global norm.

use super::adamw::{AdamW, Decays};
use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, expect};
use crate::tensor::TensorType;

op! {
    /// `rates` `[3]`, then for each parameter `weight`, `first`, `second` (all updated) and `gradient`, then the
    /// half-precision copies (updated) of the weights that are matrices, if there are any → the norm of all gradients,
    /// `[1]`, if they are clipped.
    pub struct AdamWAll {
        pub parameters: usize,
        pub beta1: f64,
        pub beta2: f64,
        pub eps: f64,
        pub weight_decay: f64,
        pub decays: Decays,
        /// Largest global norm; 0 turns clipping off.
        pub max_norm: f64,
        /// Number of half-precision copies of weights: 0, or one for each matrix.
        pub bf16_copies: usize,
    }
}

impl AdamWAll {
    /// The same update on one parameter.
    pub fn single(&self) -> AdamW {
        let &Self { beta1, beta2, eps, weight_decay, decays, .. } = self;
        AdamW { beta1, beta2, eps, weight_decay, decays, bf16_copies: 0 }
    }
}

impl Operator for AdamWAll {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let want = 1 + 4 * self.parameters + self.bf16_copies;
        if inputs.len() != want {
            return Err(ShapeError::Arity { want, have: inputs.len() });
        }
        expect(0, &inputs[0], &[3])?;
        let (tensors, bf16_copies) = inputs.split_at(1 + 4 * self.parameters);
        for (index, input) in tensors.iter().enumerate().skip(1) {
            expect(index, input, tensors[index - (index - 1) % 4].sizes())?;
        }
        let weights = (0..self.parameters).map(|parameter| &tensors[1 + 4 * parameter]);
        let matrices: Vec<&TensorType> = weights.filter(|weight| weight.sizes().len() > 1).collect();
        if !bf16_copies.is_empty() && bf16_copies.len() != matrices.len() {
            return Err(ShapeError::Arity { want: tensors.len() + matrices.len(), have: inputs.len() });
        }
        for (index, (half, weight)) in (tensors.len()..).zip(bf16_copies.iter().zip(matrices)) {
            expect(index, half, weight.sizes())?;
        }
        Ok(if self.max_norm > 0.0 { vec![TensorType::f32(&[1])] } else { vec![] })
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        let each = if self.max_norm > 0.0 { 16 } else { 14 };
        (0..self.parameters).map(|parameter| each * inputs[1 + 4 * parameter].elements() as u64).sum()
    }

    fn updates(&self) -> Vec<usize> {
        let tensors = 4 * self.parameters;
        (1..=tensors).filter(|index| index % 4 != 0).chain(tensors + 1..=tensors + self.bf16_copies).collect()
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        let rates = (TensorType::f32(&[3]), Fill::Constant(0.2));
        let mut inputs = vec![rates];
        for sizes in [&[5, 77][..], &[3], &[200, 90]] {
            let ty = TensorType::f32(sizes);
            inputs.extend([Fill::Normal, Fill::Normal, Fill::Positive, Fill::Normal].map(|fill| (ty.clone(), fill)));
        }
        [(0.0, Decays::All), (0.5, Decays::All), (0.0, Decays::Matrices)]
            .map(|(max_norm, decays)| {
                let op = AdamWAll {
                    parameters: 3,
                    beta1: 0.9,
                    beta2: 0.999,
                    eps: 1e-8,
                    weight_decay: 0.01,
                    decays,
                    max_norm,
                    bf16_copies: 0,
                };
                Example { op: op.into(), inputs: inputs.clone() }
            })
            .to_vec()
    }
}
