//! The factors by which RMSNorm scales each row, after an optional residual add. The op that quantizes the normed rows
//! computes them from these factors, so the rows are written to memory only in eight bits.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, arity, expect};
use crate::tensor::TensorType;

op! {
    /// `x` `[T, D]` → `scales` `[T]`, `1 / sqrt(mean(x²) + eps)` of each row; with a `branch` `[T, D]` → `sum` = x +
    /// branch, and the scales of its rows.
    pub struct RmsScales {
        pub eps: f64,
    }
}

impl Operator for RmsScales {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let scales = |x: &TensorType| Ok(TensorType::f32(&[op::matrix(0, x)?.0]));
        if let [x] = inputs {
            return Ok(vec![scales(x)?]);
        }
        let [x, branch] = arity(inputs)?;
        expect(1, branch, x.sizes())?;
        Ok(vec![x.clone(), scales(x)?])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        (1 + inputs.len() as u64) * inputs[0].elements() as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        let wide = (TensorType::f32(&[5, 37]), Fill::Normal);
        let example = |inputs: Vec<(TensorType, Fill)>| Example { op: RmsScales { eps: 1e-6 }.into(), inputs };
        vec![example(vec![wide.clone()]), example(vec![wide.clone(), wide])]
    }
}
