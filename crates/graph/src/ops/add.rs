//! Element-wise sum `a + b`: residual connections, and gradients of a value with several readers.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, arity, expect};
use crate::tensor::TensorType;

op! {
    pub struct Add {}
}

impl Operator for Add {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [left, right] = arity(inputs)?;
        expect(1, right, left.sizes())?;
        Ok(vec![left.clone()])
    }

    fn flops(&self, _: &[TensorType], outputs: &[TensorType]) -> u64 {
        outputs[0].elements() as u64
    }

    /// The gradient passes through to both sides unchanged.
    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        let arrived = at.arrived_one();
        Ok(at.wanted.iter().map(|&wanted| wanted.then_some(arrived)).collect())
    }

    fn examples() -> Vec<Example> {
        let ty = TensorType::f32(&[5, 37]);
        vec![Example { op: Add {}.into(), inputs: vec![(ty.clone(), Fill::Normal), (ty, Fill::Normal)] }]
    }
}
