//! SiLU, `x * sigmoid(x)`, and its gradient.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, arity, expect};
use crate::tensor::TensorType;

op! {
    pub struct Silu {}
}

op! {
    /// `dx = dy * sigmoid(x) * (1 + x * (1 - sigmoid(x)))` from `x` and `dy`.
    pub struct SiluGrad {}
}

impl Operator for Silu {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [x] = arity(inputs)?;
        Ok(vec![x.clone()])
    }

    /// Negate, exponential, add, divide: the exponential counted as one.
    fn flops(&self, _: &[TensorType], outputs: &[TensorType]) -> u64 {
        4 * outputs[0].elements() as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        let (x, arrived) = (at.inputs[0], at.arrived_one());
        Ok(vec![at.if_wanted(0, SiluGrad {}, &[x, arrived])?])
    }

    fn examples() -> Vec<Example> {
        vec![Example { op: Silu {}.into(), inputs: vec![(TensorType::f32(&[5, 37]), Fill::Normal)] }]
    }
}

impl Operator for SiluGrad {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [x, arrived] = arity(inputs)?;
        expect(1, arrived, x.sizes())?;
        Ok(vec![x.clone()])
    }

    fn flops(&self, _: &[TensorType], outputs: &[TensorType]) -> u64 {
        8 * outputs[0].elements() as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        let ty = TensorType::f32(&[5, 37]);
        vec![Example { op: SiluGrad {}.into(), inputs: vec![(ty.clone(), Fill::Normal), (ty, Fill::Normal)] }]
    }
}
