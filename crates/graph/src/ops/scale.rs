//! Multiplies a tensor by a constant: turns a sum into an average.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, arity};
use crate::tensor::TensorType;

op! {
    pub struct Scale {
        pub factor: f64,
    }
}

impl Operator for Scale {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [x] = arity(inputs)?;
        Ok(vec![x.clone()])
    }

    fn flops(&self, _: &[TensorType], outputs: &[TensorType]) -> u64 {
        outputs[0].elements() as u64
    }

    /// The gradient is scaled by the same number.
    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        let arrived = at.arrived_one();
        Ok(vec![at.if_wanted(0, *self, &[arrived])?])
    }

    fn examples() -> Vec<Example> {
        let third = Scale { factor: 1.0 / 3.0 };
        vec![Example { op: third.into(), inputs: vec![(TensorType::f32(&[5, 37]), Fill::Normal)] }]
    }
}
