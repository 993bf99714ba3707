//! RMSNorm, `y = w * x / sqrt(mean(x²) + eps)` over the last axis, and its gradient.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, arity, expect};
use crate::tensor::TensorType;

op! {
    /// `x` `[T, D]`, `w` `[D]` → `[T, D]`.
    pub struct RmsNorm {
        pub eps: f64,
    }
}

op! {
    /// `x` `[T, D]`, `w` `[D]`, `dy` `[T, D]` → `dx` `[T, D]`, `dw` `[D]`. The row's scale is computed again from `x`, which
    /// has to be read anyway.
    pub struct RmsNormGrad {
        pub eps: f64,
    }
}

impl Operator for RmsNorm {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [x, weight] = arity(inputs)?;
        op::matrix(0, x)?;
        expect(1, weight, &[x.shape.row()])?;
        Ok(vec![x.clone()])
    }

    /// Square and sum, scale, weight: four an element.
    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        4 * inputs[0].elements() as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        let (x, weight, arrived) = (at.inputs[0], at.inputs[1], at.arrived_one());
        let grads = at.graph.add(RmsNormGrad { eps: self.eps }, &[x, weight, arrived])?;
        Ok(grads.into_iter().map(Some).collect())
    }

    fn examples() -> Vec<Example> {
        [[5, 37], [40, 64]]
            .map(|sizes| Example {
                op: RmsNorm { eps: 1e-6 }.into(),
                inputs: vec![(TensorType::f32(&sizes), Fill::Normal), (TensorType::f32(&sizes[1..]), Fill::Normal)],
            })
            .to_vec()
    }
}

impl Operator for RmsNormGrad {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [x, weight, arrived] = arity(inputs)?;
        op::matrix(0, x)?;
        expect(1, weight, &[x.shape.row()])?;
        expect(2, arrived, x.sizes())?;
        Ok(vec![x.clone(), weight.clone()])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        11 * inputs[0].elements() as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        [[5, 37], [300, 64]]
            .map(|sizes| Example {
                op: RmsNormGrad { eps: 1e-6 }.into(),
                inputs: vec![
                    (TensorType::f32(&sizes), Fill::Normal),
                    (TensorType::f32(&sizes[1..]), Fill::Normal),
                    (TensorType::f32(&sizes), Fill::Normal),
                ],
            })
            .to_vec()
    }
}
