//! Mean cross-entropy of next-token logits, and its gradient.

use crate::graph::{GraphError, ValueId};
use crate::op;
use crate::op::{Backward, Example, Fill, Operator, ShapeError, arity, expect};
use crate::tensor::TensorType;

op! {
    /// `logits` `[T, V]`, `targets` `i32[T]` → the mean over rows of `logsumexp(row) - row[target]`, `[1]`.
    pub struct CrossEntropy {}
}

op! {
    /// `logits` `[T, V]`, `targets` `i32[T]`, `dloss` `[1]` → `dloss / T * (softmax(row) - onehot(target))`.
    pub struct CrossEntropyGrad {}
}

impl Operator for CrossEntropy {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [logits, targets] = arity(inputs)?;
        let (rows, _) = op::matrix(0, logits)?;
        rows_match(rows, targets)?;
        Ok(vec![TensorType::f32(&[1])])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        4 * inputs[0].elements() as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        let (logits, targets, arrived) = (at.inputs[0], at.inputs[1], at.arrived_one());
        Ok(vec![at.if_wanted(0, CrossEntropyGrad {}, &[logits, targets, arrived])?, None])
    }

    fn examples() -> Vec<Example> {
        cases().map(|(logits, targets)| Example { op: CrossEntropy {}.into(), inputs: vec![logits, targets] }).to_vec()
    }
}

impl Operator for CrossEntropyGrad {
    fn outputs(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, ShapeError> {
        let [logits, targets, arrived] = arity(inputs)?;
        let (rows, _) = op::matrix(0, logits)?;
        rows_match(rows, targets)?;
        expect(2, arrived, &[1])?;
        Ok(vec![logits.clone()])
    }

    fn flops(&self, inputs: &[TensorType], _: &[TensorType]) -> u64 {
        6 * inputs[0].elements() as u64
    }

    fn gradient(&self, at: &mut Backward) -> Result<Vec<Option<ValueId>>, GraphError> {
        at.none()
    }

    fn examples() -> Vec<Example> {
        cases()
            .map(|(logits, targets)| Example {
                op: CrossEntropyGrad {}.into(),
                inputs: vec![logits, targets, (TensorType::f32(&[1]), Fill::Constant(0.5))],
            })
            .to_vec()
    }
}

fn rows_match(rows: usize, targets: &TensorType) -> Result<(), ShapeError> {
    if targets.elements() == rows {
        return Ok(());
    }
    Err(ShapeError::Input { index: 1, want: format!("{rows} targets"), have: targets.shape.to_string() })
}

type Input = (TensorType, Fill);

fn cases() -> [(Input, Input); 2] {
    [(6, 11), (40, 97)].map(|(rows, vocab)| {
        ((TensorType::f32(&[rows, vocab]), Fill::Normal), (TensorType::i32(&[2, rows / 2]), Fill::Ids(vocab)))
    })
}
