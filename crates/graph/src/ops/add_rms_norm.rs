//! Residual add and RMSNorm in one kernel, and their gradient: the sum is read while it is still in the cache.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, arity, expect};
use crate::tensor::TensorType;

op! {
    /// `x` `[T, D]`, `branch` `[T, D]`, `w` `[D]` → `sum` = x + branch and `normed`, both `[T, D]`.
    pub struct AddRmsNorm {
        pub eps: f64,
    }
}

op! {
    /// `sum` `[T, D]`, `w` `[D]`, `dnormed` `[T, D]`, `dsum` `[T, D]` → `dx` `[T, D]` (for both sides of the add) and
    /// `dw` `[D]`.
    pub struct AddRmsNormGrad {
        pub eps: f64,
    }
}

impl Operator for AddRmsNorm {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [x, branch, weight] = arity(inputs)?;
        op::matrix(0, x)?;
        expect(1, branch, x.sizes())?;
        expect(2, weight, &[x.shape.row()])?;
        Ok(vec![x.clone(), x.clone()])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        5 * inputs[0].elements() as u64
    }

    /// If only the norm reads the sum, this is the gradient of the norm alone.
    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        let (sum, weight) = (at.outputs[0], at.inputs[2]);
        let Some(normed) = at.arrived[1] else {
            let sum = at.arrived[0];
            return Ok(vec![sum, sum, None]);
        };
        let made = match at.arrived[0] {
            Some(also) => at.graph.add(AddRmsNormGrad { eps: self.eps }, &[sum, weight, normed, also])?,
            None => at.graph.add(super::rms_norm::RmsNormGrad { eps: self.eps }, &[sum, weight, normed])?,
        };
        Ok(vec![Some(made[0]), Some(made[0]), Some(made[1])])
    }

    fn examples() -> Vec<Example> {
        let wide = (TensorType::f32(&[5, 37]), Fill::Normal);
        let inputs = vec![wide.clone(), wide, (TensorType::f32(&[37]), Fill::Normal)];
        vec![Example { op: AddRmsNorm { eps: 1e-6 }.into(), inputs }]
    }
}

impl Operator for AddRmsNormGrad {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [sum, weight, normed, also] = arity(inputs)?;
        op::matrix(0, sum)?;
        expect(1, weight, &[sum.shape.row()])?;
        expect(2, normed, sum.sizes())?;
        expect(3, also, sum.sizes())?;
        Ok(vec![sum.clone(), weight.clone()])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        12 * inputs[0].elements() as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        let wide = (TensorType::f32(&[70, 37]), Fill::Normal);
        let inputs = vec![wide.clone(), (TensorType::f32(&[37]), Fill::Normal), wide.clone(), wide];
        vec![Example { op: AddRmsNormGrad { eps: 1e-6 }.into(), inputs }]
    }
}
