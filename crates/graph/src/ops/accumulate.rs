//! Gradient accumulation: add into a kept buffer, and set it back to zero.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, arity, expect};
use crate::tensor::TensorType;

op! {
    /// `kept += x`.
    pub struct Accumulate {}
}

op! {
    /// `kept = 0`.
    pub struct Zero {}
}

impl Operator for Accumulate {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [kept, x] = arity(inputs)?;
        expect(1, x, kept.sizes())?;
        Ok(vec![])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        inputs[1].elements() as u64
    }

    fn updates(&self) -> Vec<usize> {
        vec![0]
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        let ty = TensorType::f32(&[3, 77]);
        vec![Example { op: Accumulate {}.into(), inputs: vec![(ty.clone(), Fill::Normal), (ty, Fill::Normal)] }]
    }
}

impl Operator for Zero {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [_] = arity(inputs)?;
        Ok(vec![])
    }

    fn flops(&self, _: &[TensorType], _: &[TensorType]) -> u64 {
        0
    }

    /// The op only writes; it reads nothing.
    fn bytes(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        inputs[0].bytes() as u64
    }

    fn updates(&self) -> Vec<usize> {
        vec![0]
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        vec![Example { op: Zero {}.into(), inputs: vec![(TensorType::f32(&[3, 77]), Fill::Normal)] }]
    }
}
