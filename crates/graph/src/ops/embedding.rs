//! Table look-up: row `ids[t]` of the table for every token, and the sum of gradients back into those rows.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, arity, expect};
use crate::tensor::TensorType;

op! {
    /// `ids` `i32[T]`, `table` `[V, D]` → `[T, D]`.
    pub struct Embedding {}
}

op! {
    /// `ids` `i32[T]`, `dy` `[T, D]` → `[V, D]`: rows that no token names are zero.
    pub struct EmbeddingGrad {
        pub vocab: usize,
    }
}

impl Operator for Embedding {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [ids, table] = arity(inputs)?;
        let (_, width) = op::matrix(1, table)?;
        Ok(vec![TensorType::new(table.dtype, &[ids.elements(), width])])
    }

    fn flops(&self, _: &[TensorType], _: &[TensorType]) -> u64 {
        0
    }

    /// Only the rows of the given ids are read.
    fn bytes(&self, inputs: &[TensorType], outputs: &[TensorType]) -> u64 {
        (inputs[0].bytes() + 2 * outputs[0].bytes()) as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        let (ids, arrived) = (at.inputs[0], at.arrived_one());
        let vocab = at.graph.ty(at.inputs[1]).sizes()[0];
        Ok(vec![None, at.if_wanted(1, EmbeddingGrad { vocab }, &[ids, arrived])?])
    }

    fn examples() -> Vec<Example> {
        let ids = (TensorType::i32(&[2, 9]), Fill::Ids(7));
        vec![Example { op: Embedding {}.into(), inputs: vec![ids, (TensorType::f32(&[7, 19]), Fill::Normal)] }]
    }
}

impl Operator for EmbeddingGrad {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [ids, arrived] = arity(inputs)?;
        let (_, width) = op::matrix(1, arrived)?;
        expect(1, arrived, &[ids.elements(), width])?;
        Ok(vec![TensorType::new(arrived.dtype, &[self.vocab, width])])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        inputs[1].elements() as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        let ids = (TensorType::i32(&[2, 9]), Fill::Ids(7));
        vec![Example {
            op: EmbeddingGrad { vocab: 7 }.into(),
            inputs: vec![ids, (TensorType::f32(&[18, 19]), Fill::Normal)],
        }]
    }
}
