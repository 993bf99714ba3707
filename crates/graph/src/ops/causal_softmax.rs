//! Softmax of each row over the positions up to its own; the rest of the row is zero.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, arity, expect};
use crate::tensor::TensorType;

op! {
    /// `[batch, heads, seq, seq]` → the same shape.
    pub struct CausalSoftmax {}
}

op! {
    /// `p` (the softmax's result) and `dp` → `p * (dp - sum(p * dp))`.
    pub struct CausalSoftmaxGrad {}
}

impl Operator for CausalSoftmax {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [scores] = arity(inputs)?;
        square(scores)?;
        Ok(vec![scores.clone()])
    }

    /// Maximum, subtract, exponential, sum and divide, for the unmasked half of the square.
    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        5 * (inputs[0].elements() / 2) as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        let (p, arrived) = (at.outputs[0], at.arrived_one());
        Ok(vec![at.if_wanted(0, CausalSoftmaxGrad {}, &[p, arrived])?])
    }

    fn examples() -> Vec<Example> {
        [[2, 3, 5, 5], [1, 1, 67, 67]]
            .map(|sizes| Example { op: CausalSoftmax {}.into(), inputs: vec![(TensorType::f32(&sizes), Fill::Normal)] })
            .to_vec()
    }
}

impl Operator for CausalSoftmaxGrad {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [p, arrived] = arity(inputs)?;
        square(p)?;
        expect(1, arrived, p.sizes())?;
        Ok(vec![p.clone()])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        4 * (inputs[0].elements() / 2) as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        [[2, 3, 5, 5], [1, 1, 67, 67]]
            .map(|sizes| Example {
                op: CausalSoftmaxGrad {}.into(),
                inputs: vec![(TensorType::f32(&sizes), Fill::CausalRows), (TensorType::f32(&sizes), Fill::Normal)],
            })
            .to_vec()
    }
}

fn square(scores: &TensorType) -> Result<(), ShapeError> {
    match scores.sizes() {
        [_, _, rows, columns] if rows == columns => Ok(()),
        _ => {
            Err(ShapeError::Input { index: 0, want: "[batch, heads, seq, seq]".into(), have: scores.shape.to_string() })
        }
    }
}
