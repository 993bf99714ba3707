//! AdamW on one parameter: decoupled weight decay and bias-corrected moments, as PyTorch computes it.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, expect};
use crate::tensor::TensorType;
use std::fmt;
use std::str::FromStr;

/// The weights that decay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decays {
    #[default]
    All,
    /// Norms and biases do not decay.
    Matrices,
}

op! {
    /// `weight`, `first`, `second` (all updated), `gradient`, `rates` `[3]`, then `half` (updated) if the weight has a
    /// half-precision copy, and `clip` `[1]` if gradients are clipped.
    ///
    /// `rates` holds the values that change from step to step: the learning rate, `1 - beta1^t` and
    /// `sqrt(1 - beta2^t)`. If the second is zero, which no step count gives, nothing is updated: weight and moments
    /// keep their bytes.
    pub struct AdamW {
        pub beta1: f64,
        pub beta2: f64,
        pub eps: f64,
        pub weight_decay: f64,
        pub decays: Decays,
        /// Number of half-precision copies of the weight: 0 or 1.
        pub bf16_copies: usize,
    }
}

impl AdamW {
    /// The decay of a weight of this type.
    pub fn decay_of(&self, weight: &TensorType) -> f64 {
        decay_of(self.decays, self.weight_decay, weight)
    }
}

/// The weight decay that applies to a weight of this type.
pub(super) fn decay_of(decays: Decays, weight_decay: f64, weight: &TensorType) -> f64 {
    match decays {
        Decays::Matrices if weight.sizes().len() < 2 => 0.0,
        _ => weight_decay,
    }
}

impl fmt::Display for Decays {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(match self {
            Decays::All => "all",
            Decays::Matrices => "matrices",
        })
    }
}

impl FromStr for Decays {
    type Err = String;

    fn from_str(text: &str) -> Result<Decays, String> {
        match text {
            "all" => Ok(Decays::All),
            "matrices" => Ok(Decays::Matrices),
            other => Err(format!("weights decay `all` or `matrices`, not `{other}`")),
        }
    }
}

impl Operator for AdamW {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let rest = inputs.len().checked_sub(5 + self.bf16_copies);
        if self.bf16_copies > 1 || !matches!(rest, Some(0 | 1)) {
            return Err(ShapeError::Arity { want: 5 + self.bf16_copies, have: inputs.len() });
        }
        for (index, input) in inputs.iter().enumerate().take(4).skip(1) {
            expect(index, input, inputs[0].sizes())?;
        }
        expect(4, &inputs[4], &[3])?;
        for (index, half) in inputs.iter().enumerate().skip(5).take(self.bf16_copies) {
            expect(index, half, inputs[0].sizes())?;
        }
        for (index, clip) in inputs.iter().enumerate().skip(5 + self.bf16_copies) {
            expect(index, clip, &[1])?;
        }
        Ok(vec![])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        14 * inputs[0].elements() as u64
    }

    fn updates(&self) -> Vec<usize> {
        [0, 1, 2].into_iter().chain(5..5 + self.bf16_copies).collect()
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        let decays = Decays::All;
        let op = AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01, decays, bf16_copies: 0 };
        let ty = TensorType::f32(&[5, 77]);
        let mut inputs = vec![
            (ty.clone(), Fill::Normal),
            (ty.clone(), Fill::Normal),
            (ty.clone(), Fill::Positive),
            (ty, Fill::Normal),
            (TensorType::f32(&[3]), Fill::Constant(0.2)),
        ];
        let plain = Example { op: op.into(), inputs: inputs.clone() };
        let mut still = plain.clone();
        still.inputs[4].1 = Fill::Constant(0.0);
        let mut vector = plain.clone();
        vector.op = AdamW { weight_decay: 0.5, decays: Decays::Matrices, ..op }.into();
        vector.inputs[..4].iter_mut().for_each(|(ty, _)| *ty = TensorType::f32(&[77]));
        inputs.push((TensorType::f32(&[1]), Fill::Constant(0.25)));
        vec![plain, still, vector, Example { op: op.into(), inputs }]
    }
}
