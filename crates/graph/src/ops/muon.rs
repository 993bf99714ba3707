//! Muon on one matrix: momentum, then the nearest orthogonal matrix by Newton-Schulz iteration, then a step along it.
//! The iteration's products are ordinary [`MatMul`](super::matmul::MatMul) nodes.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, arity, expect};
use crate::tensor::TensorType;

op! {
    /// `momentum` (updated), `gradient`, `rates` `[3]`, then `clip` `[1]` if gradients are clipped → the Nesterov
    /// direction, in the gradient's type: `momentum * buffer + (1 - momentum) * gradient`, after the same blend has
    /// updated the buffer.
    ///
    /// If the second rate is zero, the buffer keeps its bytes.
    pub struct MuonMomentum {
        pub momentum: f64,
    }
}

op! {
    /// `x`, and the sum of its squares `[1]` → `x` divided by its norm, or by `least` if that is larger.
    pub struct UnitNorm {
        pub least: f64,
    }
}

op! {
    /// `x`, `y` → `of_x * x + of_y * y`.
    pub struct Blend {
        pub of_x: f64,
        pub of_y: f64,
    }
}

op! {
    /// `weight` (updated), `direction`, `rates` `[3]`, then `half` (updated) if the weight has a half-precision copy:
    /// the weight decays and takes a step of `scale` times the learning rate.
    pub struct MuonUpdate {
        pub scale: f64,
        pub weight_decay: f64,
        /// Number of half-precision copies of the weight: 0 or 1.
        pub bf16_copies: usize,
    }
}

fn rates(rate: f64) -> (TensorType, Fill) {
    (TensorType::f32(&[3]), Fill::Constant(rate))
}

impl Operator for MuonMomentum {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        if !matches!(inputs.len(), 3 | 4) {
            return Err(ShapeError::Arity { want: 3, have: inputs.len() });
        }
        expect(1, &inputs[1], inputs[0].sizes())?;
        expect(2, &inputs[2], &[3])?;
        inputs.get(3).map_or(Ok(()), |clip| expect(3, clip, &[1]))?;
        Ok(vec![inputs[1].clone()])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        6 * inputs[0].elements() as u64
    }

    fn updates(&self) -> Vec<usize> {
        vec![0]
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        let ty = TensorType::f32(&[5, 77]);
        let mut all = vec![];
        for (rate, clipped) in [(0.2, false), (0.0, false), (0.2, true)] {
            let mut inputs = vec![(ty.clone(), Fill::Normal), (ty.clone(), Fill::Normal), rates(rate)];
            inputs.extend(clipped.then_some((TensorType::f32(&[1]), Fill::Constant(0.25))));
            all.push(Example { op: MuonMomentum { momentum: 0.95 }.into(), inputs });
        }
        all
    }
}

impl Operator for UnitNorm {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [x, squares] = arity(inputs)?;
        expect(1, squares, &[1])?;
        Ok(vec![x.clone()])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        inputs[0].elements() as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        [1e-7, 1e3]
            .map(|least| Example {
                op: UnitNorm { least }.into(),
                inputs: vec![(TensorType::f32(&[5, 77]), Fill::Normal), (TensorType::f32(&[1]), Fill::Positive)],
            })
            .to_vec()
    }
}

impl Operator for Blend {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [x, y] = arity(inputs)?;
        expect(1, y, x.sizes())?;
        Ok(vec![x.clone()])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        3 * inputs[0].elements() as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        let ty = TensorType::f32(&[5, 77]);
        let inputs = vec![(ty.clone(), Fill::Normal), (ty, Fill::Normal)];
        vec![Example { op: Blend { of_x: 3.4445, of_y: -4.775 }.into(), inputs }]
    }
}

impl Operator for MuonUpdate {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        if self.bf16_copies > 1 || inputs.len() != 3 + self.bf16_copies {
            return Err(ShapeError::Arity { want: 3 + self.bf16_copies, have: inputs.len() });
        }
        for (index, input) in inputs.iter().enumerate() {
            expect(index, input, if index == 2 { &[3] } else { inputs[0].sizes() })?;
        }
        Ok(vec![])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        3 * inputs[0].elements() as u64
    }

    fn updates(&self) -> Vec<usize> {
        std::iter::once(0).chain(3..3 + self.bf16_copies).collect()
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        let ty = TensorType::f32(&[5, 77]);
        let op = MuonUpdate { scale: 1.7, weight_decay: 0.1, bf16_copies: 0 };
        [0.2, 0.0]
            .map(|rate| Example {
                op: op.into(),
                inputs: vec![(ty.clone(), Fill::Normal), (ty.clone(), Fill::Normal), rates(rate)],
            })
            .to_vec()
    }
}
