//! Chooses what a step updates and applies AdamW to it, in one call: norms, choice, clipping and updates.

use super::adamw::{AdamW, Decays};
use super::choose::{Choose, SHARED, expect_shared, shared_example};
use crate::choice::{Among, Rule};
use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, expect};
use crate::tensor::TensorType;

op! {
    /// The shared inputs of [`Choose`], then for each parameter `weight`, `first`, `second` (all updated) and
    /// `gradient`, then the half-precision copies (updated) of the weights that are matrices, if there are any → the
    /// rates that each parameter was updated with, `[n, 3]`, and the norm of all gradients, `[1]`, if they are clipped.
    ///
    /// A parameter that is not chosen keeps weight, moments and count to the byte.
    pub struct AdamWChosen {
        pub rule: Rule,
        pub among: Among,
        /// Seed of the random draw, used if the rule draws.
        pub seed: u64,
        pub beta1: f64,
        pub beta2: f64,
        pub eps: f64,
        pub weight_decay: f64,
        pub decays: Decays,
        /// Largest global norm; 0 turns clipping off.
        pub max_norm: f64,
        /// Number of half-precision copies of weights: 0, or one for each matrix.
        pub bf16_copies: usize,
        pub parameters: usize,
    }
}

impl AdamWChosen {
    /// The choice alone.
    pub fn choice(&self) -> Choose {
        let &Self { rule, among, seed, beta1, beta2, .. } = self;
        Choose { rule, among, seed, beta1, beta2 }
    }

    /// The same update on one parameter.
    pub fn single(&self) -> AdamW {
        let &Self { beta1, beta2, eps, weight_decay, decays, .. } = self;
        AdamW { beta1, beta2, eps, weight_decay, decays, bf16_copies: 0 }
    }

    /// Index of a parameter's weight among the inputs; its moments and gradient follow.
    pub fn place(parameter: usize) -> usize {
        SHARED + 4 * parameter
    }
}

impl Operator for AdamWChosen {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let leaves = expect_shared(self.rule, inputs)?;
        let want = AdamWChosen::place(self.parameters) + self.bf16_copies;
        if leaves != self.parameters || inputs.len() != want {
            return Err(ShapeError::Arity { want, have: inputs.len() });
        }
        let (tensors, bf16_copies) = inputs.split_at(AdamWChosen::place(self.parameters));
        for (index, input) in tensors.iter().enumerate().skip(SHARED) {
            expect(index, input, tensors[index - (index - SHARED) % 4].sizes())?;
        }
        let weights = (0..self.parameters).map(|parameter| &tensors[AdamWChosen::place(parameter)]);
        let matrices: Vec<&TensorType> = weights.filter(|weight| weight.sizes().len() > 1).collect();
        if !bf16_copies.is_empty() && bf16_copies.len() != matrices.len() {
            return Err(ShapeError::Arity { want: tensors.len() + matrices.len(), have: inputs.len() });
        }
        for (index, (half, weight)) in (tensors.len()..).zip(bf16_copies.iter().zip(matrices)) {
            expect(index, half, weight.sizes())?;
        }
        let rates = TensorType::f32(&[self.parameters, 3]);
        Ok(if self.max_norm > 0.0 { vec![rates, TensorType::f32(&[1])] } else { vec![rates] })
    }

    /// Counts all parameters: how many are chosen is known only at run time.
    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        (0..self.parameters).map(|parameter| 16 * inputs[AdamWChosen::place(parameter)].elements() as u64).sum()
    }

    /// Counts all parameters. One row of the log is written; none is read.
    fn bytes(&self, inputs: &[TensorType], outputs: &[TensorType]) -> u64 {
        let but_the_log = |indices: &mut dyn Iterator<Item = usize>| -> usize {
            indices.filter(|index| *index != 4).map(|index| inputs[index].bytes()).sum()
        };
        let read = but_the_log(&mut (0..inputs.len()));
        let written =
            but_the_log(&mut self.updates().into_iter()) + outputs.iter().map(TensorType::bytes).sum::<usize>();
        (read + written + 8 * self.parameters) as u64
    }

    fn updates(&self) -> Vec<usize> {
        let end = AdamWChosen::place(self.parameters);
        let tensors = (SHARED..end).filter(|index| (index - SHARED) % 4 != 3);
        [3, 4].into_iter().chain(tensors).chain(end..end + self.bf16_copies).collect()
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        let sizes = [&[5, 77][..], &[3], &[200, 90], &[7, 4], &[9]];
        let mut inputs = shared_example(sizes.len());
        for sizes in sizes {
            let ty = TensorType::f32(sizes);
            inputs.extend([Fill::Normal, Fill::Normal, Fill::Positive, Fill::Normal].map(|fill| (ty.clone(), fill)));
        }
        let (parameters, blocks) = (Among::Parameters, Among::Blocks);
        [
            (Rule::TopK(2), parameters, 0.0),
            (Rule::All, parameters, 0.5),
            (Rule::Path, parameters, 0.0),
            (Rule::Random(2), parameters, 0.5),
            (Rule::TopK(1), blocks, 0.0),
            (Rule::Path, blocks, 0.5),
        ]
        .map(|(rule, among, max_norm)| {
            let op = AdamWChosen {
                rule,
                among,
                seed: 7,
                beta1: 0.9,
                beta2: 0.999,
                eps: 1e-8,
                weight_decay: 0.01,
                decays: if max_norm > 0.0 { Decays::Matrices } else { Decays::All },
                max_norm,
                bf16_copies: 0,
                parameters: sizes.len(),
            };
            Example { op: op.into(), inputs: inputs.clone() }
        })
        .to_vec()
    }
}
