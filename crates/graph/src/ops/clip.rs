//! Gradient clipping by global norm: the sum of squares of each gradient, then one scale for all of them. Also the norm
//! alone, for a run that is being watched.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, arity, expect};
use crate::tensor::TensorType;

op! {
    /// Any tensor → the sum of its squares, `[1]`.
    pub struct SquaredNorm {}
}

op! {
    /// Any number of sums of squares `[1]` → `scale` `[1]` = min(1, max_norm / (norm + 1e-6)) and `norm` `[1]`.
    /// An infinite `max_norm` clips nothing: `scale` is 1 whatever the norm.
    pub struct ClipScale {
        pub max_norm: f64,
    }
}

op! {
    /// Any number of tensors → the norm of all of them together, `[1]`. Instrumentation: nothing in the step reads it.
    pub struct GradientNorm {}
}

impl Operator for SquaredNorm {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [_] = arity(inputs)?;
        Ok(vec![TensorType::f32(&[1])])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        2 * inputs[0].elements() as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        [[3, 77], [130, 257]]
            .map(|sizes| Example { op: SquaredNorm {}.into(), inputs: vec![(TensorType::f32(&sizes), Fill::Normal)] })
            .to_vec()
    }
}

impl Operator for GradientNorm {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        if inputs.is_empty() {
            return Err(ShapeError::Arity { want: 1, have: 0 });
        }
        Ok(vec![TensorType::f32(&[1])])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        inputs.iter().map(|input| 2 * input.elements() as u64).sum()
    }

    fn is_instrumentation(&self) -> bool {
        true
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        let shapes = [vec![&[3usize, 77][..], &[5], &[130, 257]], vec![&[64]]];
        shapes
            .map(|shapes| Example {
                op: GradientNorm {}.into(),
                inputs: shapes.into_iter().map(|sizes| (TensorType::f32(sizes), Fill::Normal)).collect(),
            })
            .to_vec()
    }
}

impl Operator for ClipScale {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        if inputs.is_empty() {
            return Err(ShapeError::Arity { want: 1, have: 0 });
        }
        for (index, input) in inputs.iter().enumerate() {
            expect(index, input, &[1])?;
        }
        Ok(vec![TensorType::f32(&[1]), TensorType::f32(&[1])])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        inputs.len() as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        [0.01, 1000.0]
            .map(|max_norm| Example {
                op: ClipScale { max_norm }.into(),
                inputs: vec![(TensorType::f32(&[1]), Fill::Positive); 3],
            })
            .to_vec()
    }
}
