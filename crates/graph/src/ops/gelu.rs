//! GELU in its tanh form, `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x³)))`, and its gradient.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, arity, expect};
use crate::tensor::TensorType;

/// GELU uses `(1 + tanh(u)) / 2 = sigmoid(2 u)`: these are twice the square root of 2 / pi, and the weight of the cube.
pub const TWICE_SLOPE: f64 = 1.595_769_121_605_730_7;
pub const CUBE: f64 = 0.044_715;

op! {
    pub struct Gelu {}
}

op! {
    /// `dx` from `x` and `dy`.
    pub struct GeluGrad {}
}

impl Operator for Gelu {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [x] = arity(inputs)?;
        Ok(vec![x.clone()])
    }

    /// The polynomial, then as for SiLU; the exponential counts as one.
    fn flops(&self, _: &[TensorType], outputs: &[TensorType]) -> u64 {
        8 * outputs[0].elements() as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        let (x, arrived) = (at.inputs[0], at.arrived_one());
        Ok(vec![at.if_wanted(0, GeluGrad {}, &[x, arrived])?])
    }

    fn examples() -> Vec<Example> {
        vec![Example { op: Gelu {}.into(), inputs: vec![(TensorType::f32(&[5, 37]), Fill::Normal)] }]
    }
}

impl Operator for GeluGrad {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [x, arrived] = arity(inputs)?;
        expect(1, arrived, x.sizes())?;
        Ok(vec![x.clone()])
    }

    fn flops(&self, _: &[TensorType], outputs: &[TensorType]) -> u64 {
        16 * outputs[0].elements() as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        let ty = TensorType::f32(&[5, 37]);
        vec![Example { op: GeluGrad {}.into(), inputs: vec![(ty.clone(), Fill::Normal), (ty, Fill::Normal)] }]
    }
}
