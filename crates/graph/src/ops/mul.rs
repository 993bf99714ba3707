//! Element-wise product `a * b`: the gate of the feed-forward block.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, arity, expect};
use crate::tensor::TensorType;

op! {
    pub struct Mul {}
}

impl Operator for Mul {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [left, right] = arity(inputs)?;
        expect(1, right, left.sizes())?;
        Ok(vec![left.clone()])
    }

    fn flops(&self, _: &[TensorType], outputs: &[TensorType]) -> u64 {
        outputs[0].elements() as u64
    }

    /// `da = dc * b` and `db = dc * a`.
    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        let (arrived, left, right) = (at.arrived_one(), at.inputs[0], at.inputs[1]);
        Ok(vec![at.if_wanted(0, Mul {}, &[arrived, right])?, at.if_wanted(1, Mul {}, &[arrived, left])?])
    }

    fn examples() -> Vec<Example> {
        let ty = TensorType::f32(&[5, 37]);
        vec![Example { op: Mul {}.into(), inputs: vec![(ty.clone(), Fill::Normal), (ty, Fill::Normal)] }]
    }
}
