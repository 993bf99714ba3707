//! Cuts columns into equal parts, such as queries, keys and values from one projection, and joins parts again.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, arity, expect};
use crate::tensor::TensorType;

op! {
    /// `x` `[T, parts · D]` → `parts` times `[T, D]`.
    pub struct Split {
        pub parts: usize,
    }
}

op! {
    /// Any number of `[T, D]` → `[T, parts · D]`.
    pub struct Join {}
}

impl Operator for Split {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [x] = arity(inputs)?;
        let (rows, width) = op::matrix(0, x)?;
        if self.parts == 0 || !width.is_multiple_of(self.parts) {
            return Err(ShapeError::Attribute(format!("{width} columns cannot be cut into {} parts", self.parts)));
        }
        Ok(vec![TensorType::new(x.dtype, &[rows, width / self.parts]); self.parts])
    }

    fn flops(&self, _: &[TensorType], _: &[TensorType]) -> u64 {
        0
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        let Some(arrived) = at.arrived.iter().copied().collect::<Option<Vec<_>>>() else { return at.none() };
        Ok(vec![at.if_wanted(0, Join {}, &arrived)?])
    }

    fn examples() -> Vec<Example> {
        [(3, [5, 21]), (2, [40, 64])]
            .map(|(parts, sizes)| Example {
                op: Split { parts }.into(),
                inputs: vec![(TensorType::f32(&sizes), Fill::Normal)],
            })
            .to_vec()
    }
}

impl Operator for Join {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let Some(first) = inputs.first() else { return Err(ShapeError::Arity { want: 1, have: 0 }) };
        let (rows, width) = op::matrix(0, first)?;
        for (index, input) in inputs.iter().enumerate() {
            expect(index, input, first.sizes())?;
        }
        Ok(vec![TensorType::new(first.dtype, &[rows, inputs.len() * width])])
    }

    fn flops(&self, _: &[TensorType], _: &[TensorType]) -> u64 {
        0
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        [(3, [5, 7]), (2, [40, 32])]
            .map(|(parts, sizes)| Example {
                op: Join {}.into(),
                inputs: vec![(TensorType::f32(&sizes), Fill::Normal); parts],
            })
            .to_vec()
    }
}
